package match

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Protocols on which terms depend.
const (
	icmp   = 1
	icmpv6 = 58
)

// Packet is the fields of a packet that terms match. Both addresses are of one family.
type Packet struct {
	Src, Dst           netip.Addr
	Proto              uint8
	SrcPort, DstPort   uint16 // zero if the protocol has none
	ICMPType, ICMPCode uint8
}

// Sets are looked up by terms. An unknown set has no members.
type Sets interface {
	Has(set intent.SetID, a netip.Addr) bool
	HasPort(set intent.SetID, a netip.Addr, proto uint8, port uint16) bool
}

// HasPorts reports whether packets of a protocol have ports: those of TCP, UDP, SCTP and UDP-Lite do.
func HasPorts(proto uint8) bool { return proto == 6 || proto == 17 || proto == 132 || proto == 136 }

// Any reports whether a packet matches one of the conjunctions.
func Any(of [][]Term, p Packet, in Sets) bool {
	return slices.ContainsFunc(of, func(terms []Term) bool { return All(terms, p, in) })
}

// All reports whether each of the terms holds for a packet.
func All(terms []Term, p Packet, in Sets) bool {
	for i := range terms {
		if !terms[i].Holds(p, in) {
			return false
		}
	}
	return true
}

// Holds reports whether a packet matches a term. Those for what a policy decided, [Allowed] and [Passed], match no packet.
func (t *Term) Holds(p Packet, in Sets) bool {
	v4 := p.Src.Is4()
	a, port := p.Src, p.SrcPort
	if t.Side == Dst {
		a, port = p.Dst, p.DstPort
	}
	var is bool
	switch t.Kind {
	case Family:
		is = v4 == (t.Number == uint8(intent.IPv4))
	case Protocol:
		if is = p.Proto == t.Number; is && !t.Not && (t.Number == icmp && !v4 || t.Number == icmpv6 && v4) {
			return false // the protocol is the other family's, and has no meaning in this one
		}
	case ICMPType:
		is = p.ICMPType == t.Number
	case ICMPCode:
		is = p.ICMPCode == t.Number
	case Nets:
		of := len(t.Nets) == 0
		for _, n := range t.Nets {
			of = of || n.IsValid() && n.Addr().Is4() == v4
			is = is || n.Contains(a)
		}
		if !of {
			return false // the term is of the other family, also if it is negated (decision 016)
		}
	case Addrs:
		is = in.Has(t.Set, a)
	case Ports:
		is = HasPorts(p.Proto) && slices.ContainsFunc(t.Ports, func(r intent.PortRange) bool { return r.Min <= port && port <= r.Max })
	case PortSet:
		is = in.HasPort(t.Set, a, p.Proto, port)
	}
	return is != t.Not
}
