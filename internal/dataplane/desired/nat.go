package desired

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseNAT is the stage in which sources are rewritten. It exists only while a pool asks for it.
const baseNAT = "postrouting-nat"

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

// netsOf returns the prefixes of a family.
func netsOf(ps []netip.Prefix, f intent.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ps), func(p netip.Prefix) bool { return p.Addr().Is6() != (f == intent.IPv6) })
}
