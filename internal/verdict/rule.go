package verdict

import (
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// policy is a policy, and the terms of its rules, by direction and rule: nil until a packet needs them.
type policy struct {
	intent.Policy
	lowered [2][][][]match.Term
}

// terms returns the terms of the rules of a direction.
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

// terms returns the fields of the packet that rules match.
func (p Packet) terms() match.Packet {
	return match.Packet{Src: p.Src, Dst: p.Dst, Proto: p.Proto, SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType, ICMPCode: p.ICMPCode}
}
