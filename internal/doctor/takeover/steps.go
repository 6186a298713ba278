package takeover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/doctor"
)

type prefix = netip.Prefix

// Stage is how far a host is.
type Stage string

// Stages, as Next sees them.
const (
	Unknown   Stage = "unknown"    // the host could not be read
	Elsewhere Stage = "no node"    // this machine is none
	Upstream  Stage = "upstream"   // its agent, or what it left, guards workloads
	Both      Stage = "both"       // two agents run
	Left      Stage = "leftovers"  // ours is in force, and rules of upstream's, too
	Taken     Stage = "taken over" // nothing of upstream's is left
)

// StageOf is that of a host.
func StageOf(f *Facts) Stage {
	left := len(f.Leftovers().Lines()) > 0
	switch {
	case f.elsewhere():
		return Elsewhere
	case f.HostErr != "" || f.AgentErr != "":
		return Unknown
	case f.UpstreamAgent() != "" && f.ours():
		return Both
	case f.ours() && left:
		return Left
	case f.ours():
		return Taken
	}
	return Upstream
}

// Next are the steps that are left, in order, as docs/takeover.md has them.
func Next(f *Facts, found []Finding) (out []string) {
	n := 0
	for _, x := range found {
		if x.Grade == Blocks {
			n++
		}
	}
	if n > 0 {
		out = append(out, fmt.Sprintf("Put right what blocks (%s above), and run this again.", count(n, "finding", "findings")))
	}
	if f.Store.Err != "" {
		return numbered(out)
	}
	switch StageOf(f) {
	case Unknown, Elsewhere:
		out = append(out, "Run this as root on each host that is to be taken over.")
	case Both:
		out = append(out, f.stop(), "twill status: ready; twill bgp peers: its sessions are Established.", doctor.FixLeftovers)
	case Upstream:
		if f.Kubernetes {
			out = append(out, "kubectl cordon "+f.Node+": pods that begin meanwhile would be dropped by Calico's rules, which do not know them.")
		}
		out = append(out, f.stop(), f.start(), "twill status: it is ready, and says what is left; twill bgp peers: its sessions are Established; workloads do what they should.", doctor.FixLeftovers)
		if f.Kubernetes {
			out = append(out, "kubectl uncordon "+f.Node)
		}
		out = append(out, "twill doctor --take-over: nothing is left; then the next host.")
	case Left:
		out = append(out, "twill bgp peers: its sessions are Established, and workloads do what they should.", doctor.FixLeftovers, "twill doctor --take-over: nothing is left; then the next host.")
	case Taken:
		if n == 0 {
			out = append(out, "Nothing: this host is Twill's, and nothing of Calico's is left. The next host.")
		}
	}
	return numbered(out)
}

// stop is how upstream's agent ends and does not come back.
func (f *Facts) stop() string {
	switch {
	case f.variable("KUBERNETES_SERVICE_HOST") != "" || f.Kubernetes:
		return "Take this node out of the DaemonSet calico-node (a nodeSelector or node affinity of the DaemonSet that this node's labels do not meet), so that Calico's agent ends here and stays away."
	case f.UpstreamAgent() == "":
		return "Keep Calico's agent from starting again: systemctl disable calico-felix, and its BIRD."
	case f.running("bird", "bird6") != "":
		return "systemctl disable --now calico-felix, and its BIRD (bird, bird6). Its rules and routes stay in the kernel."
	}
	return "systemctl disable --now calico-felix (or stop the container calico-node, and keep it from starting again). Its rules and routes stay in the kernel."
}

// start is how Twill begins.
func (f *Facts) start() string {
	if f.Kubernetes {
		return "Let Twill's DaemonSet run on this node (docs/kubernetes.md): it comes into force in one step, in addition to Calico's rules."
	}
	to := ""
	if len(f.Endpoints) > 0 {
		to = " --etcd " + strings.Join(f.Endpoints, ",")
	}
	if slices.ContainsFunc(f.Endpoints, func(e string) bool { return strings.HasPrefix(e, "https:") }) {
		to += " (and --etcd-ca, --etcd-cert, --etcd-key)"
	}
	if f.BGP.Mode != "" && f.BGP.Mode != "on" {
		to += ", with TWILL_BGP=" + f.BGP.Mode + " in /etc/twill/node.env"
	}
	return "twill node install" + to + ": it comes into force in one step, in addition to Calico's rules."
}

// Back are the steps by which a host returns to upstream's agent; none where ours does not run.
func Back(f *Facts) (out []string) {
	if !f.ours() || StageOf(f) == Unknown {
		return nil
	}
	out = append(out, "systemctl stop twill-node (with Kubernetes: take this node out of Twill's DaemonSet). Policy and routes stay in the kernel.")
	for _, p := range f.Plugins {
		if p.Our {
			out = append(out, "Have Calico's installer write its plugins again (calico, calico-ipam are Twill's binary now), and its network in the place of Twill's.")
			break
		}
	}
	out = append(out, "Start Calico's agent: it adds its own rules to ours, and replaces our routes by its own.")
	if f.listed[api.KindFelixConfiguration] > 0 || len(f.Local) > 0 {
		out = append(out, "Settings that Twill alone has, or reads from /etc/twill, mean nothing to Calico's agent: it reads "+f.File.Path+" and its environment (twill config --all).")
	}
	return numbered(append(out, "twill node uninstall (or twill node cleanup, where it was not installed so), while Calico's agent runs, which leaves it its routes and forwarding."))
}
