package takeover

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
)

type prefix = netip.Prefix

// Stage is how far a host is.
type Stage string

// Stages, as Next sees them.
const (
	Unknown   Stage = "unknown"       // the host could not be read
	Elsewhere Stage = "no node"       // this machine is none
	Upstream  Stage = "upstream's"    // its agent, or what it left, guards workloads
	Both      Stage = "both"          // two agents run
	Left      Stage = "with leftover" // ours is in force, and rules of upstream's, too
	Taken     Stage = "taken over"
)

// StageOf is that of a host.
func StageOf(f *Facts) Stage {
	left := len(f.Leftovers().Lines()) > 0
	switch {
	case f.HostErr != "":
		return Unknown
	case f.UpstreamAgent() != "" && f.ours():
		return Both
	case f.ours() && left:
		return Left
	case f.ours():
		return Taken
	case f.elsewhere():
		return Elsewhere
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
		out = append(out, f.back())
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
	if f.BGP.Mode != "" && f.BGP.Mode != "on" {
		to += " --bgp=" + f.BGP.Mode
	}
	return "twill node install" + to + ": it comes into force in one step, in addition to Calico's rules."
}

// back is what returning to Calico needs.
func (f *Facts) back() string {
	out := "The way back: systemctl stop twill-node (policy and routes stay), start Calico's agent, then twill node uninstall, which leaves it its routes."
	for _, p := range f.Plugins {
		if p.Our && p.Name == "calico" {
			return out + " The plugin calico is Twill's binary: Calico's installer has to write its own again before that (docs/cni.md)."
		}
	}
	return out
}
