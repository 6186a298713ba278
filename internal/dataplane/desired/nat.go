package desired

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseNAT is the stage in which sources are rewritten. It exists only while a pool asks for it.
const baseNAT = "postrouting-nat"

// baseTunnelNAT is the stage in which what processes of this host send through a tunnel gets the address of its device. It exists while there is such a
// tunnel.
const baseTunnelNAT = "postrouting-tunnel"

const prioritySourceNAT = 100 // NF_IP_PRI_NAT_SRC

// natOutgoing wants source NAT for packets from pools that ask for it to destinations outside of all pools.
// Until the source is in sync it is left as it is: a pool that is not known yet would count as outside.
func (s *State) natOutgoing() {
	if !s.inSync {
		return
	}
	n := s.host.NAT
	var gs []Guard
	for _, f := range []intent.Family{intent.IPv4, intent.IPv6} {
		from, all := netsOf(n.From, f), netsOf(n.Pool, f)
		if len(from) == 0 {
			continue
		}
		terms := ofFamily(f, []rules.Term{
			{Kind: rules.Nets, Side: rules.Src, Nets: from}, {Kind: rules.Nets, Side: rules.Dst, Nets: all, Not: true},
		})
		gs = append(gs, translations(n, f, terms)...)
	}
	if len(gs) == 0 {
		s.drop(baseNAT, nil)
		return
	}
	s.own(baseNAT, &Hook{At: Postrouting, Priority: prioritySourceNAT, NAT: true}, gs)
}

// translations returns the guards for source NAT of packets of a family that terms match. A range of ports applies to protocols with ports, and an
// address to IPv4.
func translations(n intent.NATOutgoing, f intent.Family, terms []rules.Term) (gs []Guard) {
	g := Guard{Terms: terms, Do: Translate, Source: Source{Random: true}, Comment: "NAT outgoing"}
	if f == intent.IPv4 {
		g.Source.Addr = n.Addr
	}
	if n.Link != "" {
		g.If = []Cond{{Kind: OnLink, Side: rules.Dst, Link: n.Link}}
	}
	if n.Ports != (intent.PortRange{}) {
		for _, proto := range []uint8{protoTCP, protoUDP} {
			x := g
			x.Terms = append(slices.Clip(terms), rules.Term{Kind: rules.Protocol, Number: proto})
			x.Source.Ports = n.Ports
			gs = append(gs, x)
		}
	}
	return append(gs, g)
}

// tunnelNAT wants source NAT for packets of this host that enter a tunnel with another address of its than the device's. The kernel takes the device's where
// the route to a workload is known when the source is chosen; it is not if DNAT, such as a service's, sends the packet there only afterwards. From its
// tunnel the other host takes no other: its route back to the address leads around the tunnel, and rp_filter drops the packet, or the answer comes
// from where nobody asked. In WireGuard's, the host's own address is one that its peer may have.
//
// Until the source is in sync the stage stays as an earlier agent left it.
func (s *State) tunnelNAT() {
	if !s.inSync {
		return
	}
	var gs []Guard
	for _, k := range []intent.TunnelKind{intent.VXLAN, intent.VXLAN6, intent.IPIP} {
		if s.host.Tunnels[k] == (intent.Tunnel{}) {
			continue
		}
		gs = append(gs, Guard{
			Terms: ofFamily(k.Family(), nil), If: []Cond{{Kind: OnLink, Side: rules.Dst, Link: k.Link()}, {Kind: OtherSource}},
			Do: Translate, Comment: "this host, through " + k.String(),
		})
	}
	if len(gs) == 0 {
		s.drop(baseTunnelNAT, nil)
		return
	}
	s.own(baseTunnelNAT, &Hook{At: Postrouting, Priority: prioritySourceNAT, NAT: true}, gs)
}

// netsOf returns the prefixes of a family.
func netsOf(ps []netip.Prefix, f intent.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ps), func(p netip.Prefix) bool { return p.Addr().Is6() != (f == intent.IPv6) })
}
