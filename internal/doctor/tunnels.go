package doctor

import (
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// familyAddr is whether a Node has an address of a family.
func familyAddr(n *api.Node, family string) bool {
	return n.AddressOf(family == "IPv6").IsValid()
}

// tunnels looks at the ways to other hosts: what is to be encrypted and is not, and what leads nowhere.
func tunnels(f *Facts) (out []Finding) {
	if f.Agent.Err != "" {
		return nil // the agent's own check says so
	}
	for _, e := range f.Agent.Encryption {
		if e.Problem != "" {
			out = append(out, one(Warn, "twill status; docs/wireguard.md says what the kernel needs", "%s, WireGuard of %s: %s", e.Interface, e.Family, e.Problem)...)
		}
	}
	encrypted, named := 0, map[string]bool{}
	for _, o := range f.Agent.Others {
		named[o.Node+" "+o.Family] = true
		if o.Encrypted {
			encrypted++
		}
		if o.State == "" {
			continue
		}
		verdict, fix := Fail, "twill status there: does its agent run, and do settings want the tunnel there, too?"
		switch o.State {
		case NoHandshake:
			fix = "let UDP of that port through between the two hosts, and see that the agent runs there"
		case InClear:
			verdict, fix = Warn, "set wireguardEnabled there, or wireguardAllowUnencrypted to false"
		}
		out = append(out, one(verdict, fix, "%s, %s by %s: %s", o.Node, o.Family, o.By, o.Problem)...)
	}
	out = append(out, f.keyless(named)...)
	if len(out) > 10 {
		out = append(out[:10], one(Warn, "twill status -o wide", "and %d more", len(out)-10)...)
	}
	if len(out) == 0 {
		return one(OK, "", "%d ways by routes of the agent, %d encrypted", len(f.Agent.Others), encrypted)
	}
	return out
}

// keyless are the other Nodes without a key of WireGuard of a family that settings here want encrypted, and of which nothing was named.
func (f *Facts) keyless(named map[string]bool) (out []Finding) {
	for _, e := range f.Agent.Encryption {
		for _, n := range f.Nodes.Nodes() {
			key := n.Status.WireguardPublicKey
			if e.Family == "IPv6" {
				key = n.Status.WireguardPublicKeyV6
			}
			if name := n.Metadata.Name; name != f.Node && key == "" && familyAddr(n, e.Family) && !named[name+" "+e.Family] {
				goes := "goes nowhere"
				if e.AllowClear {
					goes = "goes in clear"
				}
				out = append(out, one(Warn, "set wireguardEnabled there, and see that its agent runs", "%s has no key of WireGuard of %s: what is for its workloads %s", name, e.Family, goes)...)
			}
		}
	}
	return out
}

// settingOf are the settings of the size of a tunnel's packets.
var settingOf = [intent.TunnelKinds]string{"vxlanMTU", "vxlanMTUV6", "ipipMTU", "wireguardMTU", "wireguardMTUV6"}

// through names the tunnels to a path's host whose packets are larger than the path takes.
func (f *Facts) through(p Path) (out []Finding) {
	for _, o := range f.Agent.Others {
		for k := range intent.TunnelKinds {
			if o.Node != p.Node || o.By != k.Encapsulation() || (o.Family == "IPv6") != p.Addr.Is6() || p.Addr.Is6() != (k.Family() == intent.IPv6) {
				continue
			}
			name := k.Link()
			for _, e := range f.Agent.Encryption {
				if o.Encrypted && e.Family == o.Family {
					name = e.Interface
				}
			}
			for _, l := range f.Links {
				if l.Name == name && l.MTU+k.Overhead() > p.Largest {
					out = append(out, one(Fail, fmt.Sprintf("set %s to %d at most in the FelixConfiguration, or mend the way", settingOf[k], p.Largest-k.Overhead()),
						"%s: %s takes packets of %d bytes, which are %d with its own %d: workloads' large ones are lost", withNode(p.Addr.String(), p.Node), l.Name, l.MTU, l.MTU+k.Overhead(), k.Overhead())...)
				}
			}
		}
	}
	return out
}

// where says behind whom large packets are lost.
func (p Path) where() string {
	switch {
	case !p.Behind.IsValid():
		return ""
	case p.Says:
		return fmt.Sprintf("; %s answers that its next link takes less", p.Behind)
	}
	return fmt.Sprintf("; they come as far as %s, and are lost behind it", p.Behind)
}

// Paths judges the ways to other hosts that were measured.
func Paths(f *Facts) (out []Finding) {
	for _, p := range f.Paths {
		out = append(out, f.path(p)...)
	}
	return out
}

func (f *Facts) path(p Path) (out []Finding) {
	if p.Largest == 0 || p.Largest >= p.MTU {
		return nil
	}
	out = one(Fail, fmt.Sprintf("give every link on the way the same MTU, or: ip link set %s mtu %d here, and the same there", p.Link, p.Largest),
		"to %s packets of %d bytes arrive, and larger ones do not, though %s takes %d: large transfers hang%s", withNode(p.Addr.String(), p.Node), p.Largest, p.Link, p.MTU, p.where())
	return append(out, f.through(p)...)
}
