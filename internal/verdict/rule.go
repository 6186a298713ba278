package verdict

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

const (
	protoICMP   = 1
	protoICMPv6 = 58
)

func (s *State) matches(r intent.Rule, p Packet) bool {
	if r.Void {
		return false
	}
	if r.Family != intent.AnyFamily && (r.Family == intent.IPv4) != p.Src.Is4() {
		return false
	}
	if r.Protocol != 0 && r.Protocol != p.Proto || r.NotProtocol != 0 && r.NotProtocol == p.Proto {
		return false
	}
	if r.ICMP != nil && !icmpIs(*r.ICMP, p) || r.NotICMP != nil && icmpIs(*r.NotICMP, p) {
		return false
	}
	for _, prefixes := range [][]netip.Prefix{r.Src.Nets, r.Src.NotNets, r.Dst.Nets, r.Dst.NotNets} {
		if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(n netip.Prefix) bool { return n.Addr().Is4() == p.Src.Is4() }) {
			return false // the rule is of the other family
		}
	}
	return s.peerMatches(r.Src, p.Proto, p.Src, p.SrcPort) && s.peerMatches(r.Dst, p.Proto, p.Dst, p.DstPort)
}

func icmpIs(i intent.ICMP, p Packet) bool {
	if p.Proto != protoICMP && p.Proto != protoICMPv6 {
		return false
	}
	return i.Type == p.ICMPType && (i.AnyCode || i.Code == p.ICMPCode)
}

func (s *State) peerMatches(want intent.Peer, proto uint8, a netip.Addr, port uint16) bool {
	contains := func(n netip.Prefix) bool { return n.Contains(a) }
	if len(want.Nets) > 0 && !slices.ContainsFunc(want.Nets, contains) || slices.ContainsFunc(want.NotNets, contains) {
		return false
	}
	for _, id := range want.Sets {
		if !s.sets[id].has(a) {
			return false
		}
	}
	for _, id := range want.NotSets {
		if s.sets[id].has(a) {
			return false
		}
	}
	anyPort := func(ranges []intent.PortRange, sets []intent.SetID) bool {
		return slices.ContainsFunc(ranges, func(r intent.PortRange) bool { return r.Min <= port && port <= r.Max }) ||
			slices.ContainsFunc(sets, func(id intent.SetID) bool { return s.sets[id].hasPort(a, proto, port) })
	}
	if len(want.Ports)+len(want.PortSets) > 0 && !anyPort(want.Ports, want.PortSets) {
		return false
	}
	return !anyPort(want.NotPorts, want.NotPortSets)
}
