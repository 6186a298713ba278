package verdict

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// policy is a policy, and what its rules match, by direction and rule: nil until a packet asks.
type policy struct {
	intent.Policy
	lowered [2][][][]match.Term
}

// terms are what the rules of a direction match.
func (p *policy) terms(dir intent.Direction) [][][]match.Term {
	list := p.Ingress
	if dir == intent.Egress {
		list = p.Egress
	}
	if p.lowered[dir] == nil && len(list) > 0 {
		p.lowered[dir] = make([][][]match.Term, len(list))
		for i, r := range list {
			p.lowered[dir][i] = match.Lower(r)
		}
	}
	return p.lowered[dir]
}

// terms is what rules look at.
func (p Packet) terms() match.Packet {
	return match.Packet{Src: p.Src, Dst: p.Dst, Proto: p.Proto, SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType, ICMPCode: p.ICMPCode}
}

// Has reports whether an address is in a set. One that nobody sent is empty.
func (s *State) Has(id intent.SetID, a netip.Addr) bool { return s.sets[id].has(a) }

// HasPort reports whether a port of an address is in a set.
func (s *State) HasPort(id intent.SetID, a netip.Addr, proto uint8, port uint16) bool {
	return s.sets[id].hasPort(a, proto, port)
}
