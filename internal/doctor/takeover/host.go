package takeover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
)

func hostIsRead(f *Facts) []Finding {
	if f.HostErr == "" || f.elsewhere() {
		return nil
	}
	return []Finding{blocks("run this as root on the host that is to be taken over, where its processes can be seen", "this host cannot be read, and nothing is known of what runs and is left here: %s", f.HostErr)}
}

// elsewhere: this is no node of Calico's, such as an administrator's machine, who need not be root there.
func (f *Facts) elsewhere() bool {
	return f.Store.Err == "" && f.Nodes.Node(f.Node) == nil && f.UpstreamAgent() == "" && len(f.Leftovers().Lines()) == 0 && !f.ours()
}

func nodeIs(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return nil
	}
	layers, _ := f.upstreams()
	if name := f.resolve(layers...).Settings.Node; name != "" && name != f.Node {
		out = append(out, blocks("pass --node "+name+", here and to twill node install", "Calico's agent is node %s, and Twill would be %s: its endpoints and addresses would be another's", name, f.Node))
	}
	n := f.Nodes.Node(f.Node)
	switch {
	case f.elsewhere():
		var names []string
		for _, n := range f.Nodes.Nodes() {
			names = append(names, n.Metadata.Name)
		}
		here := "nothing of Calico's is here"
		if f.HostErr != "" {
			here = "what is here cannot be read (" + f.HostErr + ")"
		}
		return append(out, same("this machine (%s) is no node of the datastore, and %s: only the datastore was judged. Its nodes: %s", f.Node, here, shown(list(names, most))))
	case n == nil:
		return append(out, blocks("pass --node with the name that Calico has for this host (calicoctl get nodes, or /var/lib/calico/nodename)", "the datastore has no Node %s: endpoints and addresses of this host are under another name", f.Node))
	}
	for _, a := range f.Own() {
		if f.HostErr == "" && !slices.ContainsFunc(f.Links, func(l doctor.Link) bool {
			return slices.ContainsFunc(l.Addrs, func(p prefix) bool { return p.Addr() == a })
		}) {
			out = append(out, changes(AtStart, "see which address twill node would write: twill node address", "%s, the address of Node %s, is on no interface here", a, f.Node))
		}
	}
	return append(out, same("Node %s", f.Node))
}

func agents(f *Facts) (out []Finding) {
	for _, l := range f.Health {
		if !l.Ours && l.PID == 0 {
			out = append(out, blocks("run this where processes of the host can be seen (hostPID), or find out what it is: ss -ltnp", "somebody whose process cannot be seen from here listens on %s, as an agent does: which agent runs is not known", l.At))
		}
	}
	running := f.upstreamIs()
	switch {
	case f.AgentErr != "":
		out = append(out, blocks("twill status; see the agent's log", "whether Twill's agent runs is not known: %s", f.AgentErr))
	case running != "" && f.ours():
		out = append(out, blocks("stop Calico's agent, and keep it from starting again", "%s and Twill's agent both run: each removes the other's routes", running))
	case running != "":
		out = append(out, changes(AtStart, "stop it right before Twill is started, and keep it from starting again; until then leave it", "%s guards workloads here; its rules and routes stay when it stops", running))
	case f.ours() && !f.ready():
		out = append(out, blocks("twill status", "Twill's agent runs, and is not ready: %s", strings.Join(f.Agent.NotReady, "; ")))
	case f.ours():
		out = append(out, same("Twill's agent runs, and is ready; Calico's does not run"))
	case f.HostErr == "" && !f.elsewhere() && len(f.Leftovers().Lines()) > 0:
		out = append(out, same("no agent runs: what Calico's left in the kernel guards workloads as it was last, and follows no change"))
	case f.HostErr == "" && !f.elsewhere():
		out = append(out, changes(AtStart, "nothing, if no workloads are here yet", "no agent runs, and no rules of Calico's are here"))
	}
	return out
}

// bpfWanted is who says that policy is upstream's eBPF dataplane's; empty: nobody.
func bpfWanted(f *Facts) string {
	if on(f.variable("FELIX_BPFENABLED")) {
		return "FELIX_BPFENABLED of Calico's agent"
	}
	for line := range strings.Lines(f.File.Text) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.EqualFold(strings.TrimSpace(name), "bpfEnabled") && on(strings.TrimSpace(value)) {
			return "bpfEnabled of " + f.File.Path
		}
	}
	for _, c := range f.felix {
		if name := c.Metadata.Name; (name == "default" || name == "node."+f.Node) && string(c.Spec.BPFEnabled) == "true" {
			return "bpfEnabled of FelixConfiguration " + name
		}
	}
	return ""
}

func on(text string) bool {
	return slices.Contains([]string{"true", "1", "yes", "y", "t"}, strings.ToLower(strings.Trim(text, `"'`)))
}

// switchOff is how to leave it, while upstream's agent runs.
const switchOff = "while Calico's agent runs: have kube-proxy run again on all nodes, set bpfEnabled: false, wait until `iptables-save` or `nft list tables` has Calico's rules and this finding is gone, then begin"

// bpfMayRun: its programs are here, or would be on a node that upstream's agent has.
func (f *Facts) bpfMayRun() bool {
	return f.HostErr != "" || f.UpstreamAgent() != "" || f.elsewhere()
}

func ebpf(f *Facts) (out []Finding) {
	if who := bpfWanted(f); who != "" && f.bpfMayRun() {
		out = append(out, blocks(switchOff, "Calico's eBPF dataplane is on (%s): its programs decide before any table, translate services in place of kube-proxy, and Twill has none", who))
	}
	var left []string
	for _, l := range f.Links {
		if l.Name == "bpfin.cali" || l.Name == "bpfout.cali" {
			left = append(left, l.Name)
		}
	}
	var early []string
	wanted := len(out) > 0
	for _, p := range f.Pins {
		if strings.Contains(p, "/calico/xdp/") || strings.Contains(p, "/calico/sockmap/") {
			early = append(early, p)
		} else {
			left = append(left, p)
		}
	}
	if len(early) > 0 {
		out = append(out, changes(AtStart, "set xdpEnabled: false while Calico's agent runs, or once it is stopped: ip link set dev IF xdp off, for each interface of a host endpoint",
			"programs by which Calico drops early for untracked policy (XDP) are in the kernel, and go on as they were last: %s", list(early, most)))
	}
	if len(left) > 0 {
		do := switchOff
		if wanted {
			do = "as above"
		}
		if f.UpstreamAgent() == "" {
			do = "start Calico's agent once more with bpfEnabled: false, which removes its programs, or reboot this host with no agent"
		}
		out = append(out, blocks(do, "devices, programs or maps of Calico's eBPF dataplane are in the kernel: %s", list(left, most)))
	}
	if f.BPFErr != "" {
		out = append(out, blocks("run this as root", "whether programs of Calico's eBPF dataplane are pinned cannot be seen: %s", f.BPFErr))
	}
	return out
}

func workloads(f *Facts) (out []Finding) {
	if f.HostErr != "" || f.Store.Err != "" {
		return nil
	}
	prefixes := f.effective().Settings.InterfacePrefixes
	up, names := 0, map[string]bool{}
	var absent, foreign []string
	for _, w := range f.own {
		name, link := w.Metadata.Namespace+"/"+w.Metadata.Name, w.Spec.InterfaceName
		names[link] = true
		switch {
		case !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(link, p) }):
			foreign = append(foreign, name+" ("+shown(link)+")")
		case !slices.ContainsFunc(f.Links, func(l doctor.Link) bool { return l.Name == link }):
			absent = append(absent, name+" ("+link+")")
		default:
			up++
		}
	}
	if len(foreign) > 0 {
		out = append(out, blocks("set interfacePrefix for Twill, as Calico's agent has it", "interfaces of %s do not begin with %s: Twill lets no endpoint have such an interface, and it carries nothing", list(foreign, most), strings.Join(prefixes, " or ")))
	}
	if len(absent) > 0 {
		out = append(out, changes(AtStart, "nothing, if these workloads are gone: whoever made the endpoints deletes them", "%s of this node: no such interface here: %s", count(len(absent), "endpoint", "endpoints"), list(absent, most)))
	}
	var nobodys []string
	for _, l := range f.Links {
		if l.Workload && !names[l.Name] {
			nobodys = append(nobodys, l.Name)
		}
	}
	if len(nobodys) > 0 {
		out = append(out, changes(AtStart, "see that the orchestrator knows them; an interface without an endpoint carries nothing, with either agent", "%s of workloads by name, and of no endpoint: %s", count(len(nobodys), "interface", "interfaces"), list(nobodys, most)))
	}
	if up > 0 {
		out = append(out, same("%s here with their interfaces: they keep addresses, routes and connections", count(up, "workload", "workloads")))
	}
	if f.hosts > 0 {
		out = append(out, same("%s of this node: policy of the host is in force with the first transaction", count(f.hosts, "host endpoint", "host endpoints")))
	}
	return out
}

func plugins(f *Facts) (out []Finding) {
	if f.NetworksErr != "" {
		out = append(out, blocks("run this as root", "networks of container runtimes cannot be read: %s", f.NetworksErr))
	}
	if len(f.Networks) == 0 {
		return out
	}
	first := f.Networks[0]
	if first.Err != "" {
		return append(out, blocks("put it right, or remove it", "%s, which container runtimes take first, cannot be used: %s", first.File, first.Err))
	}
	calls, our := first.Types[0], slices.ContainsFunc(f.Plugins, func(p Plugin) bool { return p.Name == first.Types[0] && p.Our })
	by := "Calico's binary"
	if our {
		by = "Twill's binary"
	}
	switch calls {
	case "calico":
		if our {
			out = append(out, same("%s: runtimes call %s, which is %s", first.File, calls, by))
			break
		}
		out = append(out, changes(AtInstall, "twill cni install --conf "+base(first.File)+", or keep the file: the binary answers to the name calico (docs/cni.md)",
			"%s: runtimes call %s, which is %s now and Twill's from then on; a file 10-twill.conflist would come after it and be passed over", first.File, calls, by))
	case "twill":
		out = append(out, same("%s: runtimes call twill", first.File))
	default:
		out = append(out, blocks("make Twill's network the first by name, or remove this one, if Twill is to attach containers", "%s, which container runtimes take first, is a network of the plugin %s", first.File, calls))
	}
	if len(first.Idle) > 0 {
		out = append(out, changes(AtInstall, "docs/cni.md has each key", "%s: no effect: %s", first.File, list(first.Idle, 2*most)))
	}
	if first.IPAM != "" && first.IPAM != "calico-ipam" && first.IPAM != "twill-ipam" {
		out = append(out, same("%s: addresses are those of %s, which Twill's plugin asks, too", first.File, first.IPAM))
	}
	return out
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func rules(f *Facts) (out []Finding) {
	left := f.Leftovers()
	for _, why := range f.RulesErr {
		out = append(out, blocks("install iptables for both backends (iptables-legacy-save, iptables-nft-save), without which the rules cannot be removed", "%s", why))
	}
	for _, chain := range f.Drops {
		d := blocks("accept workloads' packets there by rules of your own, or set the policy to ACCEPT; with rules of your own, say --force, here and with --fix leftovers", "the policy of chain %s is DROP, and rules of Calico's accept in it: when these go, it drops what they accepted", chain)
		if f.Force {
			d.Grade, d.When = Changes, AtEnd
		}
		out = append(out, d)
	}
	if left.Guard() {
		out = append(out, changes(Between, "cordon the node meanwhile, and let the time be short", "Calico's rules stay in force beside ours, as they were last: workloads that begin meanwhile are dropped by them, and what policy newly allows is, too"))
	}
	if lines := left.Lines(); len(lines) > 0 {
		out = append(out, changes(AtEnd, doctor.FixLeftovers, "what Calico made in the kernel is removed: %s", strings.Join(lines, "; ")))
	}
	return out
}

// numbered are steps with their numbers.
func numbered(steps []string) (out []string) {
	for i, s := range steps {
		out = append(out, fmt.Sprintf("%d. %s", i+1, s))
	}
	return out
}
