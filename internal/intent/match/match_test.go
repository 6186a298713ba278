package match

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// oracle is what a rule says, field by field: it makes no terms and knows no alternatives.
func oracle(r intent.Rule, p Packet, in Sets) bool {
	v4 := p.Src.Is4()
	switch {
	case r.Void, r.Family != intent.AnyFamily && (r.Family == intent.IPv4) != v4:
		return false
	case r.Protocol != 0 && r.Protocol != p.Proto, r.NotProtocol != 0 && r.NotProtocol == p.Proto:
		return false
	case r.ICMP != nil && !icmpIs(*r.ICMP, p), r.NotICMP != nil && icmpIs(*r.NotICMP, p):
		return false
	}
	for _, nets := range [][]netip.Prefix{r.Src.Nets, r.Src.NotNets, r.Dst.Nets, r.Dst.NotNets} {
		if len(nets) > 0 && !slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Addr().Is4() == v4 }) {
			return false
		}
	}
	return side(r.Src, p.Proto, p.Src, p.SrcPort, in) && side(r.Dst, p.Proto, p.Dst, p.DstPort, in)
}

func icmpIs(i intent.ICMP, p Packet) bool {
	return (p.Proto == 1 || p.Proto == 58) && i.Type == p.ICMPType && (i.AnyCode || i.Code == p.ICMPCode)
}

func side(want intent.Peer, proto uint8, a netip.Addr, port uint16, in Sets) bool {
	contains := func(n netip.Prefix) bool { return n.Contains(a) }
	has := func(id intent.SetID) bool { return in.Has(id, a) }
	lacks := func(id intent.SetID) bool { return !in.Has(id, a) }
	portIn := func(ranges []intent.PortRange, sets []intent.SetID) bool {
		return slices.Contains([]uint8{6, 17, 132, 136}, proto) &&
			(slices.ContainsFunc(ranges, func(r intent.PortRange) bool { return r.Min <= port && port <= r.Max }) ||
				slices.ContainsFunc(sets, func(id intent.SetID) bool { return in.HasPort(id, a, proto, port) }))
	}
	switch {
	case len(want.Nets) > 0 && !slices.ContainsFunc(want.Nets, contains), slices.ContainsFunc(want.NotNets, contains):
		return false
	case slices.ContainsFunc(want.Sets, lacks), slices.ContainsFunc(want.NotSets, has):
		return false
	case len(want.Ports)+len(want.PortSets) > 0 && !portIn(want.Ports, want.PortSets):
		return false
	}
	return !portIn(want.NotPorts, want.NotPortSets)
}

// world is what random rules and packets are made of: little, so that they meet.
type world struct {
	*rand.Rand
	addrs map[intent.SetID][]netip.Addr
	ports map[intent.SetID]map[netip.AddrPort]uint8
}

func (w world) Has(id intent.SetID, a netip.Addr) bool { return slices.Contains(w.addrs[id], a) }

func (w world) HasPort(id intent.SetID, a netip.Addr, proto uint8, port uint16) bool {
	is, ok := w.ports[id][netip.AddrPortFrom(a, port)]
	return ok && is == proto
}

var (
	places = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd01::1")}
	nets   = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.1.0.1/32"), netip.MustParsePrefix("fd00::/16"), netip.MustParsePrefix("::/0")}
	protos = []uint8{6, 17, 132, 136, 47}
)

func newWorld(r *rand.Rand) world {
	w := world{r, map[intent.SetID][]netip.Addr{}, map[intent.SetID]map[netip.AddrPort]uint8{}}
	for _, id := range []intent.SetID{"a", "b"} {
		w.addrs[id] = some(r, 2, places)
		w.ports["p"+id] = map[netip.AddrPort]uint8{}
		for _, a := range places {
			w.ports["p"+id][netip.AddrPortFrom(a, uint16(1+r.IntN(3)))] = protos[r.IntN(4)]
		}
	}
	return w
}

// some is each of a list once in n times.
func some[T any](r *rand.Rand, n int, of []T) (out []T) {
	for _, x := range of {
		if r.IntN(n) == 0 {
			out = append(out, x)
		}
	}
	return out
}

func (w world) packet() Packet {
	family := w.IntN(2) * 2
	p := Packet{Src: places[family+w.IntN(2)], Dst: places[family+w.IntN(2)]}
	switch w.IntN(3) {
	case 0:
		p.Proto = []uint8{1, 0, 58}[family]
		p.ICMPType, p.ICMPCode = uint8(w.IntN(3)), uint8(w.IntN(2))
	default:
		p.Proto = protos[w.IntN(len(protos))]
		if HasPorts(p.Proto) {
			p.SrcPort, p.DstPort = uint16(1+w.IntN(4)), uint16(1+w.IntN(4))
		}
	}
	return p
}

// rule is one as calc makes them: ports in a list come with a protocol that has some.
func (w world) rule() intent.Rule {
	r := intent.Rule{Action: intent.Action(w.IntN(4)), Void: w.IntN(30) == 0}
	if w.IntN(5) == 0 {
		r.Family = []intent.Family{intent.IPv4, intent.IPv6}[w.IntN(2)]
	}
	listed := false
	switch w.IntN(5) {
	case 0:
		r.Protocol, listed = protos[w.IntN(4)], true
	case 1:
		r.Protocol = []uint8{1, 58}[w.IntN(2)]
	case 2:
		r.NotProtocol = protos[w.IntN(5)]
	}
	if icmp := w.IntN(3); !listed && icmp > 0 && w.IntN(2) == 0 {
		i := &intent.ICMP{Type: uint8(w.IntN(3)), Code: uint8(w.IntN(2)), AnyCode: w.IntN(2) == 0}
		if r.ICMP = i; icmp == 2 {
			r.ICMP, r.NotICMP = nil, i
		}
	}
	r.Src, r.Dst = w.peer(listed), w.peer(listed)
	return r
}

func (w world) peer(listed bool) (p intent.Peer) {
	sets, ports := []intent.SetID{"a", "b", "nobody's"}, []intent.SetID{"pa", "pb"}
	p.Nets, p.NotNets = some(w.Rand, 8, nets), some(w.Rand, 12, nets)
	p.Sets, p.NotSets = some(w.Rand, 12, sets), some(w.Rand, 8, sets)
	p.PortSets, p.NotPortSets = some(w.Rand, 8, ports), some(w.Rand, 8, ports)
	if listed {
		ranges := []intent.PortRange{{Min: 1, Max: 1}, {Min: 2, Max: 3}, {Min: 3, Max: 9}}
		p.Ports, p.NotPorts = some(w.Rand, 4, ranges), some(w.Rand, 6, ranges)
	}
	return p
}

func TestTheTermsOfARuleHoldIfTheRuleMatches(t *testing.T) {
	r := seedtest.Rand(t)
	matched := 0
	for range 3000 {
		w := newWorld(r)
		rule := w.rule()
		lowered := Lower(rule)
		for range 40 {
			p := w.packet()
			want := oracle(rule, p, w)
			if got := Any(lowered, p, w); got != want {
				t.Fatalf("%+v on %+v: terms %v say %v, want %v", rule, p, lowered, got, want)
			}
			if want {
				matched++
			}
			if n := holding(lowered, p, w); rule.Action == intent.Log && n > 1 {
				t.Fatalf("%+v on %+v: %d of %v hold, and each would be logged", rule, p, n, lowered)
			}
		}
	}
	if matched < 1000 {
		t.Errorf("%d packets matched: too few for a test", matched)
	}
}

func holding(of [][]Term, p Packet, in Sets) (n int) {
	for _, terms := range of {
		if All(terms, p, in) {
			n++
		}
	}
	return n
}

func TestICMPOfTheOtherFamilyIsNothing(t *testing.T) {
	v4, v6 := Packet{Src: places[0], Dst: places[1]}, Packet{Src: places[2], Dst: places[3]}
	for _, tt := range []struct {
		proto uint8
		on    Packet
		not   bool
		want  bool
	}{
		{1, v4, false, true},
		{1, v6, false, false},
		{58, v6, false, true},
		{58, v4, false, false},
		{1, v6, true, false},
		{47, v6, false, true},
	} {
		tt.on.Proto = tt.proto
		if got := (&Term{Kind: Protocol, Not: tt.not, Number: tt.proto}).Holds(tt.on, nil); got != tt.want {
			t.Errorf("protocol %d, not %v, of %s: %v, want %v", tt.proto, tt.not, tt.on.Src, got, tt.want)
		}
	}
}
