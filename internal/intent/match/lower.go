package match

import "github.com/twillnet/twill/internal/intent"

// Lower returns conjunctions of which at least one holds if r matches; none: r matches nothing. For Log at most one holds, since a packet
// must not be logged twice; for the other actions the first match ends the chain anyway.
func Lower(r intent.Rule) [][]Term {
	if r.Void {
		return nil
	}
	var all []Term
	if r.Family != intent.AnyFamily {
		all = append(all, Term{Kind: Family, Number: uint8(r.Family)})
	}
	if r.Protocol != 0 {
		all = append(all, Term{Kind: Protocol, Number: r.Protocol})
	}
	if r.NotProtocol != 0 {
		all = append(all, Term{Kind: Protocol, Not: true, Number: r.NotProtocol})
	}
	out := [][]Term{all}
	icmp, ok := icmpAlternatives(r)
	if !ok {
		return nil
	}
	out = product(out, icmp)
	if asksPorts(r.Src) || asksPorts(r.Dst) {
		switch {
		case r.Protocol == 0:
			out = product(out, withPorts)
		case !HasPorts(r.Protocol):
			return nil // a packet without ports matches no port
		}
	} else if r.Protocol == 0 && len(r.Src.NotPortSets)+len(r.Dst.NotPortSets) > 0 {
		// A packet without ports matches every negated port. If its bytes were read as ports, a packet that is too short for them
		// would match neither the ports nor their negation.
		without := r
		for _, p := range []*intent.Peer{&without.Src, &without.Dst} {
			p.NotPorts, p.NotPortSets = nil, nil
		}
		return append(portTerms(without, product(out, withoutPorts)), portTerms(r, product(out, withPorts))...)
	}
	return portTerms(r, out)
}

// portTerms adds the conditions of a rule on ports and addresses.
func portTerms(r intent.Rule, out [][]Term) [][]Term {
	exclusive := r.Action == intent.Log
	out = product(out, portAlternatives(r.Src, Src, exclusive))
	out = product(out, portAlternatives(r.Dst, Dst, exclusive))
	out = product(out, [][]Term{append(addressTerms(r.Src, Src), addressTerms(r.Dst, Dst)...)})
	return out
}

// product joins each conjunction of a with each of b.
func product(a, b [][]Term) [][]Term {
	if len(b) == 0 {
		return a
	}
	out := make([][]Term, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, append(x[:len(x):len(x)], y...))
		}
	}
	return out
}

// withPorts are the protocols that have ports. They are added to ports without a protocol, which are named ones or
// those of services: bytes of packets without ports would otherwise be read as ports.
var withPorts = [][]Term{
	{{Kind: Protocol, Number: 6}}, {{Kind: Protocol, Number: 17}}, {{Kind: Protocol, Number: 132}}, {{Kind: Protocol, Number: 136}},
}

// withoutPorts matches packets of all other protocols.
var withoutPorts = [][]Term{{
	{Kind: Protocol, Not: true, Number: 6},
	{Kind: Protocol, Not: true, Number: 17},
	{Kind: Protocol, Not: true, Number: 132},
	{Kind: Protocol, Not: true, Number: 136},
}}

func asksPorts(p intent.Peer) bool { return len(p.Ports)+len(p.PortSets) > 0 }

// icmpAlternatives returns the conjunctions for the ICMP fields; none if there are no such fields. It is false if the rule can match
// nothing, because its protocol has no ICMP type.
func icmpAlternatives(r intent.Rule) ([][]Term, bool) {
	if r.ICMP == nil && r.NotICMP == nil {
		return nil, true
	}
	out := [][]Term{nil}
	switch r.Protocol {
	case icmp, icmpv6:
	case 0:
		out = [][]Term{{{Kind: Protocol, Number: icmp}}, {{Kind: Protocol, Number: icmpv6}}}
	default:
		return nil, r.ICMP == nil // a packet that is not ICMP has no type, and so matches every negated one
	}
	if m := r.ICMP; m != nil {
		terms := []Term{{Kind: ICMPType, Number: m.Type}}
		if !m.AnyCode {
			terms = append(terms, Term{Kind: ICMPCode, Number: m.Code})
		}
		out = product(out, [][]Term{terms})
	}
	if m := r.NotICMP; m != nil {
		alts := [][]Term{{{Kind: ICMPType, Not: true, Number: m.Type}}}
		if !m.AnyCode {
			alts = append(alts, []Term{{Kind: ICMPType, Number: m.Type}, {Kind: ICMPCode, Not: true, Number: m.Code}})
		}
		out = product(out, alts)
		if r.Protocol == 0 && r.ICMP == nil { // nor does a packet that is not ICMP
			out = append(out, []Term{{Kind: Protocol, Not: true, Number: icmp}, {Kind: Protocol, Not: true, Number: icmpv6}})
		}
	}
	return out, true
}

// portAlternatives returns the alternatives for a port: in the list, or in a set.
func portAlternatives(p intent.Peer, side Side, exclusive bool) [][]Term {
	var alts []Term
	if len(p.Ports) > 0 {
		alts = append(alts, Term{Kind: Ports, Side: side, Ports: p.Ports})
	}
	for _, id := range p.PortSets {
		alts = append(alts, Term{Kind: PortSet, Side: side, Set: id})
	}
	return alternatives(alts, exclusive)
}

// alternatives returns conjunctions of which one matches if any of the terms does; with exclusive, exactly one.
func alternatives(terms []Term, exclusive bool) [][]Term {
	var out [][]Term
	for i, t := range terms {
		var conj []Term
		if exclusive {
			for _, former := range terms[:i] {
				former.Not = true
				conj = append(conj, former)
			}
		}
		out = append(out, append(conj, t))
	}
	return out
}

// addressTerms returns the terms that must all hold: addresses, and negated ports.
func addressTerms(p intent.Peer, side Side) []Term {
	var ts []Term
	if len(p.NotPorts) > 0 {
		ts = append(ts, Term{Kind: Ports, Not: true, Side: side, Ports: p.NotPorts})
	}
	for _, id := range p.NotPortSets {
		ts = append(ts, Term{Kind: PortSet, Not: true, Side: side, Set: id})
	}
	if len(p.Nets) > 0 {
		ts = append(ts, Term{Kind: Nets, Side: side, Nets: p.Nets})
	}
	if len(p.NotNets) > 0 {
		ts = append(ts, Term{Kind: Nets, Not: true, Side: side, Nets: p.NotNets})
	}
	for _, id := range p.Sets {
		ts = append(ts, Term{Kind: Addrs, Side: side, Set: id})
	}
	for _, id := range p.NotSets {
		ts = append(ts, Term{Kind: Addrs, Not: true, Side: side, Set: id})
	}
	return ts
}
