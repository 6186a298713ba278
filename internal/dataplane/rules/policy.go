package rules

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Policy is the chain of a policy in one direction.
func Policy(p intent.Policy, dir intent.Direction) Chain {
	c := Chain{Name: PolicyChain(p.ID, dir), Comment: shorten(policyName(p.ID), " "+direction(dir))}
	if p.Closed != "" {
		by := intent.Decision{Reason: intent.ReasonPolicyClosed, Tier: p.Tier, Rule: intent.RuleID{Policy: p.ID, Direction: dir, Index: intent.NoRule}}
		c.Rules = []Rule{{Action: Deny, Comment: shorten(policyName(p.ID)+": "+p.Closed, ""), By: by}}
		return c
	}
	list := p.Ingress
	if dir == intent.Egress {
		list = p.Egress
	}
	c.Generation = generation(list)
	for i, r := range list {
		if r.Action == intent.Pass && p.ID.Kind == profileKind {
			continue // there is no tier after profiles; a chain that returned would skip the rules after this one
		}
		id := intent.RuleID{Policy: p.ID, Direction: dir, Index: i}
		comment := RuleComment(id)
		by := intent.Decision{Reason: intent.ReasonRule, Allowed: r.Action == intent.Allow, Tier: p.Tier, Rule: id}
		switch r.Action {
		case intent.Log:
			by.Reason = intent.ReasonLogged
		case intent.Pass:
			by = intent.Decision{} // it decides nothing
		}
		for _, a := range answers(r) {
			for _, terms := range lower(a.Rule) {
				c.Rules = append(c.Rules, Rule{Terms: terms, Action: a.action, Comment: comment, By: by})
			}
		}
	}
	return c
}

// answer is a rule for some protocols, and what it does.
type answer struct {
	intent.Rule
	action Action
}

// answers are the rules that stand for one. One that rejects is two, of which the first takes what is TCP.
func answers(r intent.Rule) []answer {
	if !r.Rejects() {
		return []answer{{r, policyAction(r.Action)}}
	}
	if r.Protocol == tcp {
		return []answer{{r, Reset}}
	}
	others := answer{r, Reject}
	if r.Protocol != 0 || r.NotProtocol == tcp || r.ICMP != nil {
		return []answer{others}
	}
	r.Protocol, r.NotProtocol, r.NotICMP = tcp, 0, nil // as TCP is neither
	return []answer{{r, Reset}, others}
}

// Rejects reports whether a rule of a policy rejects in a direction.
func Rejects(p intent.Policy, dir intent.Direction) bool {
	list := p.Ingress
	if dir == intent.Egress {
		list = p.Egress
	}
	return p.Closed == "" && slices.ContainsFunc(list, intent.Rule.Rejects)
}

// Silent is a policy's chain for a stage that cannot tell the sender: what would be rejected is dropped. Its name is another
// one, since the same policy may be asked at other stages.
func Silent(p intent.Policy, dir intent.Direction) Chain {
	c := Mute(Policy(p, dir))
	c.Name = SilentChain(p.ID, dir)
	return c
}

// Mute makes of what rejects what drops.
func Mute(c Chain) Chain {
	for i := range c.Rules {
		if a := c.Rules[i].Action; a == Reset || a == Reject {
			c.Rules[i].Action = Deny
		}
	}
	return c
}

// generation stands for what rules say.
func generation(list []intent.Rule) uint16 {
	h := fnv.New32a()
	for _, r := range list {
		for _, p := range []*intent.ICMP{r.ICMP, r.NotICMP} {
			if p != nil {
				fmt.Fprint(h, *p)
			}
		}
		r.ICMP, r.NotICMP = nil, nil // by value, above
		fmt.Fprintf(h, "%v\n", r)
	}
	sum := h.Sum32()
	return uint16(sum) ^ uint16(sum>>16)
}

func policyAction(a intent.Action) Action {
	switch a {
	case intent.Allow:
		return Allow
	case intent.Pass:
		return Pass
	case intent.Log:
		return Log
	}
	return Deny
}

// lower gives the conjunctions that together match what r matches. For Log they exclude each other, since a packet
// must not be logged twice; for the other actions the first match ends the chain anyway.
func lower(r intent.Rule) [][]Term {
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
	if hasPorts(r.Src) || hasPorts(r.Dst) {
		switch r.Protocol {
		case 0:
			out = product(out, withPorts)
		case 6, 17, 132, 136:
		default:
			return nil // a packet without ports is on none
		}
	} else if r.Protocol == 0 && len(r.Src.NotPortSets)+len(r.Dst.NotPortSets) > 0 {
		// What has no ports is on none of those that must not be. Were its bytes looked at, a packet that ends before them
		// would match neither the ports nor their negation.
		without := r
		for _, p := range []*intent.Peer{&without.Src, &without.Dst} {
			p.NotPorts, p.NotPortSets = nil, nil
		}
		return append(portTerms(without, product(out, withoutPorts)), portTerms(r, product(out, withPorts))...)
	}
	return portTerms(r, out)
}

// portTerms adds what a rule asks of ports and addresses.
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

// withPorts are the protocols that have ports. They stand beside ports that came without a protocol, which are named ones or
// those of services: the bytes would otherwise be read from packets that have no ports.
var withPorts = [][]Term{
	{{Kind: Protocol, Number: 6}}, {{Kind: Protocol, Number: 17}}, {{Kind: Protocol, Number: 132}}, {{Kind: Protocol, Number: 136}},
}

// withoutPorts is what is of no such protocol.
var withoutPorts = [][]Term{{
	{Kind: Protocol, Not: true, Number: 6},
	{Kind: Protocol, Not: true, Number: 17},
	{Kind: Protocol, Not: true, Number: 132},
	{Kind: Protocol, Not: true, Number: 136},
}}

func hasPorts(p intent.Peer) bool { return len(p.Ports)+len(p.PortSets) > 0 }

// icmpAlternatives are the conjunctions for the ICMP fields; none if there are none. It is false if the rule can match
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
		return nil, r.ICMP == nil // what is not ICMP is not that ICMP type either
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
		if r.Protocol == 0 && r.ICMP == nil { // nor is what is not ICMP
			out = append(out, []Term{{Kind: Protocol, Not: true, Number: icmp}, {Kind: Protocol, Not: true, Number: icmpv6}})
		}
	}
	return out, true
}

// portAlternatives are the ways in which a port may be one of those wanted: in the list, or in a set.
func portAlternatives(p intent.Peer, side Side, exclusive bool) [][]Term {
	var alts []Term
	if len(p.Ports) > 0 {
		alts = append(alts, Term{Kind: Ports, Side: side, Ports: p.Ports})
	}
	for _, id := range p.PortSets {
		alts = append(alts, Term{Kind: PortSet, Side: side, Set: id})
	}
	return Alternatives(alts, exclusive)
}

// Alternatives are conjunctions of which one matches if any of the terms does. Exclusive, only one does.
func Alternatives(terms []Term, exclusive bool) [][]Term {
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

// addressTerms are all that hold at once: addresses, and ports that must not be.
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
