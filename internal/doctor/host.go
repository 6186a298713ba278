package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/kernel"
)

func kernelHas(f *Facts) []Finding {
	if f.Kernel.Err != "" {
		return one(Fail, "modprobe nf_tables nf_conntrack veth; if there are no such modules, take a kernel that has them (Debian 12's 6.1 has)",
			"Linux %s: %s", f.Kernel.Release, f.Kernel.Err)
	}
	var out []Finding
	can, cannot := []string{"tables", "veth pairs"}, []string{}
	for _, device := range []string{VXLAN, IPIP, WireGuard} {
		at := slices.IndexFunc(f.Kernel.Lacks, func(l Lack) bool { return l.Device == device })
		if at < 0 {
			can = append(can, device)
			continue
		}
		cannot = append(cannot, device)
		if pools, l := f.Tunnels[device], f.Kernel.Lacks[at]; len(pools) > 0 {
			out = append(out, one(Fail, fmt.Sprintf("modprobe %s; if there is no such module, take a kernel that has it, or give the pools another mode", l.Module),
				"Linux %s makes no %s device, as pools want (%s): %s", f.Kernel.Release, device, strings.Join(pools, ", "), l.Err)...)
		}
	}
	if len(out) > 0 {
		return out
	}
	found := "Linux " + f.Kernel.Release + " makes " + strings.Join(can, ", ")
	if len(cannot) > 0 {
		found += "; not " + strings.Join(cannot, ", ")
	}
	return one(OK, "", "%s", found)
}

// Kinds of devices that not each kernel has.
const (
	VXLAN     = "VXLAN"
	IPIP      = "IPIP"
	WireGuard = "WireGuard" // where the kernel has none, a process of the agent's may encrypt; check tunnels says if nothing does
)

const (
	conntrackMax   = "netfilter/nf_conntrack_max"
	conntrackCount = "netfilter/nf_conntrack_count"
)

func conntrackRoom(f *Facts) []Finding {
	most, err1 := strconv.Atoi(f.Sysctl[conntrackMax])
	count, err2 := strconv.Atoi(f.Sysctl[conntrackCount])
	switch {
	case err1 != nil || err2 != nil:
		return one(Warn, "modprobe nf_conntrack", "the kernel does not say how many connections it tracks")
	case count > most*9/10:
		return one(Warn, fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d, and in /etc/sysctl.d for the next boot", 2*most),
			"%d of at most %d connections are tracked; beyond that, new ones are dropped", count, most)
	}
	return one(OK, "", "%d of at most %d connections", count, most)
}

func neighbourRoom(f *Facts) (out []Finding) {
	var room []string
	for _, n := range f.Neighbours {
		fix := fmt.Sprintf("sysctl -w net.%[1]s.neigh.default.gc_thresh3=%[2]d net.%[1]s.neigh.default.gc_thresh2=%[3]d, and in /etc/sysctl.d for the next boot; twice the hosts on this one's links, or more", n.Family, 4*n.Max, 2*n.Max)
		switch {
		case n.Full > 0 && n.Count > n.Max/2:
			out = append(out, one(Warn, fix, "of %s: %d of at most %d, and %d times there was no room since the machine started: what is sent to one more is lost", n.Family, n.Count, n.Max, n.Full)...)
		case n.Count > n.Max/10*9:
			out = append(out, one(Warn, fix, "of %s: %d of at most %d; beyond that, what is sent to one more is lost", n.Family, n.Count, n.Max)...)
		default:
			text := fmt.Sprintf("%d of at most %d of %s", n.Count, n.Max, n.Family)
			if n.Full > 0 {
				text += fmt.Sprintf(", with no room %d times since the machine started", n.Full)
			}
			room = append(room, text)
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(room) == 0:
		return one(OK, "", "not asked: the kernel does not say it in a network namespace")
	default:
		return one(OK, "", "%s", strings.Join(room, ", "))
	}
}

func storeAnswers(f *Facts) (out []Finding) {
	s := f.Store
	if s.Err != "" {
		return one(Fail, "see that etcd runs there and that no firewall is between; or name yours with --etcd or ETCD_ENDPOINTS", "%s", s.Err)
	}
	var versions []string
	for _, m := range s.Members {
		if m.Err != "" {
			out = append(out, one(Warn, "see that etcd runs there; as long as most of the members do, nothing is lost", "%s does not answer: %s", m.Endpoint, m.Err)...)
			continue
		}
		if m.Full {
			out = append(out, one(Fail, "`twill etcd defrag --compact`, then `twill etcd alarm disarm`; give it a larger quota (twill etcd --quota)",
				"%s is full (etcd's alarm NOSPACE): nothing can be written, and all goes on as it is stored", m.Endpoint)...)
		}
		versions = append(versions, m.Endpoint+" (etcd "+m.Version+")")
	}
	switch {
	case s.Frozen:
		out = append(out, one(Warn, `twill patch clusterinformation default -p '{"spec":{"datastoreReady":true}}', when what is under way is done`,
			"it says that it is not ready (datastoreReady is false): nothing changes and nothing is written")...)
	case s.Unsaid != "":
		out = append(out, one(Warn, "twill datastore unlock, once its content is there",
			"%s, so it does not say whether it is ready: it may be lost or empty, agents that knew it otherwise leave everything as it is, and Calico's wait", s.Unsaid)...)
	case s.Latency > slowStore:
		out = append(out, one(Warn, "look at the disk and the load of etcd's hosts, and at the way there", "a small read takes %s", s.Latency.Round(millisecond))...)
	default:
		out = append(out, one(OK, "", "%s; a small read takes %s", list(versions, 3), s.Latency.Round(millisecond/10))...)
	}
	return out
}

func agentReady(f *Facts) (out []Finding) {
	a := f.Agent
	if a.Err != "" {
		return one(Fail, "systemctl start twill-node; journalctl -u twill-node says why it does not stay up", "%s", a.Err)
	}
	for _, why := range a.NotReady {
		out = append(out, one(Fail, "twill status", "not ready: %s", why)...)
	}
	for i, w := range a.Wrong {
		if i == 5 {
			out = append(out, one(Warn, "twill status", "and %d more", len(a.Wrong)-i)...)
			break
		}
		out = append(out, one(Warn, "correct that resource or setting", "wrong: %s", w)...)
	}
	if len(out) == 0 {
		return one(OK, "", "it is ready")
	}
	return out
}

// fieldsWithoutEffect lists what resources ask for and nothing does.
func fieldsWithoutEffect(f *Facts) (out []Finding) {
	if f.Agent.Err != "" {
		return nil // the agent's own check says so
	}
	for i, w := range f.Agent.NoEffect {
		if i == 5 {
			return append(out, one(Warn, "twill status", "and %d more", len(f.Agent.NoEffect)-i)...)
		}
		out = append(out, one(Warn, "leave it if you can do without, or remove it; docs/fields.md says what each field does", "%s", w)...)
	}
	if len(out) == 0 {
		return one(OK, "", "none asks for what is not done")
	}
	return out
}

// endpoints looks first for an interface of the host itself that our table has as a workload's: the host is then cut off
// by policy that is for workloads, and the datastore may be out of reach. An agent refuses such an endpoint unless the
// configuration says otherwise; agents of older versions did not.
func endpoints(f *Facts) (out []Finding) {
	for _, l := range f.Links {
		if why := f.hosts(l); l.Held && why != "" {
			out = append(out, one(Fail, fmt.Sprintf("delete the WorkloadEndpoint of this node whose interfaceName is %[1]s (twill get workloadendpoints -A -o yaml), and see that no interfacePrefix begins its name; "+
				"if the datastore cannot be reached any more: systemctl stop twill-node; nft delete table inet %[2]s; then start etcd alone, and delete it", l.Name, kernel.TableName),
				"%s %s, and table inet %s has it as a workload's: a WorkloadEndpoint took it, and what policy does not allow is dropped there", l.Name, why, kernel.TableName)...)
		}
	}
	for i, e := range f.Agent.Errors {
		if i == 5 {
			out = append(out, one(Warn, "twill status", "and %d more", len(f.Agent.Errors)-i)...)
			break
		}
		out = append(out, one(Warn, "correct or delete that WorkloadEndpoint or HostEndpoint", "%s", e)...)
	}
	if len(out) == 0 {
		return one(OK, "", "none in error")
	}
	return out
}

// hosts is why an interface is the host's own; empty: it is not known to be.
func (f *Facts) hosts(l Link) string {
	if l.Name == "lo" {
		return "is the host's own traffic"
	}
	for _, a := range l.Addrs {
		if a.Addr().IsGlobalUnicast() {
			return "has this host's address " + a.Addr().String()
		}
	}
	for _, r := range f.Routes {
		if r.Link == l.Name && r.Dst.Bits() == 0 {
			return "has this host's default route"
		}
	}
	return ""
}

func forwards(f *Facts) (out []Finding) {
	var on []string
	for _, p := range []struct{ family, path string }{{"IPv4", "ipv4/ip_forward"}, {"IPv6", "ipv6/conf/all/forwarding"}} {
		switch value, there := f.Sysctl[p.path]; {
		case !there || slices.Contains(f.Agent.Unforwarded, p.family):
		case value == "1":
			on = append(on, p.family)
		case f.Agent.Err != "" || len(f.Agent.NotReady) > 0:
			out = append(out, one(Warn, "see the check of the agent: it turns forwarding on once policy is in force", "%s is not forwarded yet", p.family)...)
		default:
			out = append(out, one(Fail, fmt.Sprintf("find what turns net.%s off (files in /etc/sysctl.d, another network manager); the agent's next look turns it on again",
				strings.ReplaceAll(p.path, "/", ".")), "%s is not forwarded, though the agent is ready", p.family)...)
		}
	}
	if len(on) > 0 {
		out = append(out, one(OK, "", "%s", strings.Join(on, " and "))...)
	}
	if len(out) == 0 && len(f.Agent.Unforwarded) > 0 {
		out = one(OK, "", "settings want none")
	}
	return out
}

// reversePath is about uplinks: on workloads' interfaces strict is right, and the agent's.
func reversePath(f *Facts) (out []Finding) {
	var strict, uplinks []string
	for _, l := range f.Links {
		if l.Workload || !l.Up || !slices.ContainsFunc(l.Addrs, global4) || f.Sysctl["ipv4/conf/"+l.Name+"/rp_filter"] == "" {
			continue
		}
		uplinks = append(uplinks, l.Name)
		// The kernel takes the greater of the two: 1 is strict, 2 is loose.
		if max(f.Sysctl["ipv4/conf/all/rp_filter"], f.Sysctl["ipv4/conf/"+l.Name+"/rp_filter"]) == "1" {
			strict = append(strict, l.Name)
		}
	}
	if len(uplinks) > 1 && len(strict) > 0 {
		return one(Warn, fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2 (loose), and in /etc/sysctl.d for the next boot", strict[0]),
			"strict on %s, and the host has several uplinks (%s): packets that take another way back are dropped", list(strict, 5), list(uplinks, 5))
	}
	return one(OK, "", "%d uplinks, %d strict", len(uplinks), len(strict))
}

// foreignNames are interfaces that other networks make.
var foreignNames = []struct{ name, owner string }{
	{"flannel.1", "flannel"},
	{"flannel-v6.1", "flannel"},
	{"cni0", "flannel or another bridge plugin"},
	{"cilium_host", "Cilium"},
	{"cilium_net", "Cilium"},
	{"cilium_vxlan", "Cilium"},
	{"weave", "Weave"},
}

func devices(f *Facts) (out []Finding) {
	for _, l := range f.Links {
		for _, n := range foreignNames {
			if l.Name == n.name {
				out = append(out, one(Warn, "stop that network if it runs, then: ip link delete "+l.Name, "%s is %s's", l.Name, n.owner)...)
			}
		}
	}
	if len(out) == 0 {
		return one(OK, "", "none of other networks")
	}
	return out
}

// foreignWriters are daemons that write what we write.
var foreignWriters = map[string]struct {
	verdict Verdict
	what    string
}{
	"calico-felix": {Fail, "Calico's agent: both write routes of protocol 80, and each removes the other's"},
	"calico-node":  {Fail, "Calico's agent: both write routes of protocol 80, and each removes the other's"},
	"flanneld":     {Warn, "flannel's agent: it routes to other nodes too"},
	"cilium-agent": {Warn, "Cilium's agent: it programs endpoints and routes too"},
	"weaver":       {Warn, "Weave's router"},
}

func writers(f *Facts) (out []Finding) {
	for _, p := range f.Processes {
		if w, known := foreignWriters[p.Name]; known {
			out = append(out, one(w.verdict, "stop it and keep it from starting again", "%s runs here (pid %d): %s", p.Name, p.PID, w.what)...)
		}
	}
	out = append(out, networkd(f)...)
	if len(out) == 0 {
		return one(OK, "", "only ours")
	}
	return out
}

// networkd is about systemd-networkd, which takes all routes and rules for its own unless settings say otherwise (networkd.conf(5)). Ours are back
// at once, but not before packets are lost, or go without encryption.
func networkd(f *Facts) (out []Finding) {
	const fix = "have [Network] and %s=no in /etc/systemd/networkd.conf.d/twill.conf, then: systemctl restart systemd-networkd"
	if f.Networkd == nil {
		return nil
	}
	if f.Networkd.RemovesRoutes {
		out = append(out, one(Warn, fmt.Sprintf(fix, "ManageForeignRoutes"), "systemd-networkd removes routes to other hosts' workloads when it starts or sets an interface up anew: packets are lost until they are back")...)
	}
	if f.Networkd.RemovesRules && len(f.Agent.Encryption) > 0 {
		out = append(out, one(Warn, fmt.Sprintf(fix, "ManageForeignRoutingPolicyRules"), "systemd-networkd removes WireGuard's rules when it starts: packets go without encryption until they are back")...)
	}
	return out
}

func (f *Facts) runs(name string) bool {
	return slices.ContainsFunc(f.Processes, func(p Process) bool { return p.Name == name })
}

// foreignPrefixes begin the names of others' chains.
var foreignPrefixes = []struct {
	prefix, owner string
	daemons       []string // while one of these runs, they are no leftover
	fix           string
}{
	{"KUBE-", "kube-proxy", []string{"kube-proxy", "kubelet", "k3s", "k3s-server", "k3s-agent"}, "kube-proxy --cleanup, or reboot"},
	{"FLANNEL-", "flannel", []string{"flanneld", "k3s", "k3s-server"}, "iptables-save | grep -v FLANNEL- | iptables-restore; or reboot"},
	{"CILIUM_", "Cilium", []string{"cilium-agent"}, "iptables-save | grep -v CILIUM_ | iptables-restore, and the same with ip6tables; or reboot"},
}

func foreignChains(f *Facts) (out []Finding) {
	for _, p := range foreignPrefixes {
		tables := map[string]int{}
		for _, c := range f.Chains {
			if strings.HasPrefix(c.Name, p.prefix) {
				tables[c.in()]++
			}
		}
		if len(tables) > 0 && !slices.ContainsFunc(p.daemons, f.runs) {
			out = append(out, one(Warn, p.fix, "chains %s… of %s are left in %s: they go on dropping and translating", p.prefix, p.owner, list(slices.Sorted(maps.Keys(tables)), 4))...)
		}
	}
	for _, c := range f.Chains {
		table := c.Family + " " + c.Table
		if c.Hook == "forward" && c.Drop && table != "inet "+kernel.TableName {
			fix := fmt.Sprintf("nft chain %s %s '{ policy accept; }'", table, c.Name)
			if c.Name == "FORWARD" && f.hasChain("DOCKER-USER") {
				fix = "iptables -I DOCKER-USER -i cali+ -j ACCEPT and -o cali+ -j ACCEPT (Docker sets this policy), or " + fix
			}
			out = append(out, one(Warn, fix, "chain %s of table %s drops what no rule of it accepts: also what policy allows workloads", c.Name, table)...)
		}
	}
	if len(out) == 0 {
		return one(OK, "", "none that stand in the way")
	}
	return out
}

// linkIPVS is the interface on which kube-proxy in mode IPVS has the addresses of all services.
const linkIPVS = "kube-ipvs0"

// services is about IPVS: the kernel takes packets to services for the host's own, as they come (input) and as they go on (output), and a host always
// reaches its own workloads.
func services(f *Facts) []Finding {
	if slices.ContainsFunc(f.Links, func(l Link) bool { return l.Name == linkIPVS }) {
		return one(Fail, "run kube-proxy in mode nftables or iptables (mode of its configuration), then kube-proxy --cleanup, or reboot",
			"kube-proxy is in mode IPVS (interface %s): what it forwards passes as the host's own, so that policy of workloads is not asked about it", linkIPVS)
	}
	return one(OK, "", "not in mode IPVS")
}

func (f *Facts) hasChain(name string) bool {
	return slices.ContainsFunc(f.Chains, func(c Chain) bool { return c.Name == name })
}
