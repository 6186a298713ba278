package takeover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/doctor"
)

func kernelHas(f *Facts) (out []Finding) {
	if f.HostErr != "" || f.elsewhere() {
		return nil
	}
	if f.Kernel.Err != "" {
		return []Finding{blocks("modprobe nf_tables nf_conntrack veth; if there are no such modules, take a kernel that has them", "Linux %s: %s", f.Kernel.Release, f.Kernel.Err)}
	}
	out = append(out, same("Linux %s makes tables and veth pairs", f.Kernel.Release))
	s := f.effective().Settings
	wants := map[string][]string{doctor.VXLAN: f.Tunnels[doctor.VXLAN], doctor.IPIP: f.Tunnels[doctor.IPIP]}
	if s.WireGuard.Enabled[0] || s.WireGuard.Enabled[1] {
		wants[doctor.WireGuard] = []string{"wireguardEnabled"}
	}
	for _, device := range []string{doctor.VXLAN, doctor.IPIP, doctor.WireGuard} {
		wanted := wants[device]
		if len(wanted) == 0 {
			continue
		}
		slices.Sort(wanted)
		if at := slices.IndexFunc(f.Kernel.Lacks, func(l doctor.Lack) bool { return l.Device == device }); at >= 0 {
			l := f.Kernel.Lacks[at]
			out = append(out, blocks(fmt.Sprintf("modprobe %s; if there is no such module, take a kernel that has it, or give them another mode", l.Module),
				"Linux %s makes no %s device, as %s want: %s", f.Kernel.Release, device, list(wanted, most), l.Err))
			continue
		}
		out = append(out, same("%s (%s): device, numbers and fields of the datastore are the same, so that hosts with either agent reach each other", device, list(wanted, most)))
	}
	return out
}

// encryption: upstream sends in clear to a host without a key, Twill sends nothing.
func encryption(f *Facts) (out []Finding) {
	s := f.effective().Settings
	for _, family := range []struct {
		name    string
		enabled bool
		key     func(*api.Node) string
	}{
		{"IPv4", s.WireGuard.Enabled[0], func(n *api.Node) string { return n.Status.WireguardPublicKey }},
		{"IPv6", s.WireGuard.Enabled[1], func(n *api.Node) string { return n.Status.WireguardPublicKeyV6 }},
	} {
		if !family.enabled {
			continue
		}
		var keyless []string
		for _, n := range f.Nodes.Nodes() {
			if n.Metadata.Name != f.Node && family.key(n) == "" {
				keyless = append(keyless, n.Metadata.Name)
			}
		}
		switch {
		case len(keyless) == 0:
			out = append(out, same("WireGuard of %s: each other node has a key", family.name))
		case s.WireGuard.Clear:
			out = append(out, same("WireGuard of %s: to %s, which have no key, it goes in clear, as with Calico", family.name, list(keyless, most)))
		default:
			out = append(out, blocks("set wireguardAllowUnencrypted: true in the FelixConfiguration for the time of the take-over, or have them get keys first",
				"WireGuard of %s: %s has no key: Calico sends in clear there, Twill sends nothing", family.name, list(keyless, most)))
		}
	}
	return out
}

func speaks(f *Facts) (out []Finding) {
	if f.elsewhere() {
		return nil
	}
	backend, birds := f.variable("CALICO_NETWORKING_BACKEND"), f.running("bird", "bird6")
	if f.HostErr == "" && (backend == "vxlan" || backend == "none") && f.BGP.Mode != "off" {
		out = append(out, blocks("pass --bgp=off to twill node, or set CALICO_NETWORKING_BACKEND="+backend+" in /etc/twill/node.env, and here to check again",
			"Calico's node speaks no BGP (CALICO_NETWORKING_BACKEND=%s), and Twill's would", backend))
	}
	if f.Store.Err != "" || f.BGP.Mode == "off" {
		if f.BGP.Mode == "off" && birds != "" {
			out = append(out, changes(AtStart, "leave BIRD running under a unit of its own, and pass --bgp=bird; or let Twill speak", "%s runs, and with --bgp=off nobody speaks BGP once Calico's node is stopped", birds))
		}
		return out
	}
	byBIRD := f.BGP.Mode == "bird" || f.BGP.Mode == "bird-reflector"
	if birds != "" && !byBIRD && !f.ours() {
		out = append(out, changes(AtStart, "see that peers have graceful restart, which Calico's and Twill's speakers both ask for; stop it together with Calico's agent, since port 179 can be only one's",
			"%s speaks BGP here, and its sessions end; Twill's speaker has the same ones. Routes that BIRD made stay until they are replaced", birds))
	}
	if birds != "" && !byBIRD && f.ours() {
		out = append(out, blocks("stop it, and keep it from starting again", "%s runs beside Twill: both want port 179 and the same sessions", birds))
	}
	out = append(out, f.passwords()...)
	for _, p := range f.Plan.Problems {
		if f.isNoted(p) {
			continue
		}
		out = append(out, changes(AtStart, "twill bgp peers; docs/bgp.md", "%s", p))
	}
	for _, p := range f.Plan.Unread {
		if f.isNoted(p) {
			continue
		}
		out = append(out, blocks("put it right: routes may be missing for it", "%s", p))
	}
	if f.Nodes.Node(f.Node) == nil {
		return out // the check of the node says so
	}
	if f.Plan.Off != "" {
		return append(out, changes(AtStart, "give it an address (docs/node-address.md), or pass --bgp=off", "no BGP: %s", f.Plan.Off))
	}
	if n := len(f.Plan.Sessions); n > 0 {
		var with []string
		for _, s := range f.Plan.Sessions {
			name := s.Peer.String()
			if s.PeerNode != "" {
				name = s.PeerNode
			}
			with = append(with, name)
		}
		out = append(out, same("%s of BGP, AS %d: %s", count(n, "session", "sessions"), f.Plan.AS, list(slices.Compact(slices.Sorted(slices.Values(with))), most)))
	}
	return out
}

// isNoted reports whether the check of resources has what is wrong in one.
func (f *Facts) isNoted(problem string) bool {
	return slices.ContainsFunc(f.noted, func(n *note) bool {
		return slices.ContainsFunc(n.names, func(name string) bool { return strings.HasPrefix(problem, name+": ") })
	})
}

// passwords are those of sessions, which Twill reads itself.
func (f *Facts) passwords() (out []Finding) {
	seen := map[string]bool{}
	for _, s := range f.Plan.Sessions {
		switch {
		case s.Closed != "":
			out = append(out, blocks("put it right: the session is not opened without", "the session with %s (%s): %s", s.Peer, s.Why, s.Closed))
		case s.Password == nil || seen[s.Password.Name+"/"+s.Password.Key]:
		case f.Secrets[*s.Password] != "":
			seen[s.Password.Name+"/"+s.Password.Key] = true
			out = append(out, blocks("put it where Twill reads it (docs/bgp.md): a session whose password cannot be had is not opened",
				"the password of the session with %s (%s), %s of %s, cannot be read: %s", s.Peer, s.Why, s.Password.Key, s.Password.Name, f.Secrets[*s.Password]))
		default:
			seen[s.Password.Name+"/"+s.Password.Key] = true
			out = append(out, same("the password of %s (%s) is found", s.Why, s.Peer))
		}
	}
	return out
}

// running are those of some processes that run here, for people.
func (f *Facts) running(names ...string) string {
	var out []string
	for _, p := range f.Processes {
		if slices.Contains(names, p.Name) {
			out = append(out, fmt.Sprintf("%s (pid %d)", p.Name, p.PID))
		}
	}
	return strings.Join(out, " and ")
}
