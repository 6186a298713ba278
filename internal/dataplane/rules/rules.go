// Package rules turns policies and endpoints into chains in a neutral form that any rule-based backend can render.
//
// In: [intent.Policy] and [intent.Endpoint], one at a time.
// Out: [Chain]: one for each policy and direction, and for each workload one that it receives through and one that it
// sends through. A rule is a conjunction of primitive terms, each with at most one set, and one action.
//
// How a packet walks: the chain of an endpoint calls those of its policies, tier by tier. A policy's chain answers by
// leaving a mark and returning ([Allow], [Pass]) or by ending the packet's way ([Deny]). The endpoint's chain asks for
// the marks with the terms [Allowed] and [Passed], and leaves with [Return] when the packet may go on. It never ends
// without an answer: its last rule denies.
//
// Splitting a rule into families, into kinds of kernel sets or into short port lists is the backend's: only it knows
// what it lacks. [Rule.ForFamily] gives it the rule as one family sees it.
package rules

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// Chain is a list of rules; the first that ends the packet's way, or returns, decides.
type Chain struct {
	Name    string // a function of what the chain is for, never of history
	Comment string
	Rules   []Rule
	// Generation stands for what the rules of a policy say: a change of them changes it.
	Generation uint16
}

// Rule acts on packets that all its terms match; without terms, on all.
type Rule struct {
	Terms   []Term
	Action  Action
	Target  string // of Jump: the name of a chain
	Comment string // leads people to the policy; at most MaxComment bytes
	// By is what decides where this rule allows or denies, for those who report or count it; without Reason: nobody does.
	By intent.Decision
}

// Action is what a rule does.
type Action uint8

// Actions. The zero value denies.
const (
	Deny           Action = iota // drop the packet
	Allow                        // leave the mark that Allowed asks for, and return
	Pass                         // leave the mark that Passed asks for, and return
	Log                          // report the packet; go on
	Jump                         // call the chain Target, and go on after it
	Begin                        // clear both marks; go on
	Next                         // clear the mark that Passed asks for; go on
	Return                       // leave the endpoint's chain: what called it lets the packet go on
	Accept                       // the packet has passed this stage of the host
	AllowUntracked               // Allow of the untracked stage: no connection is made of the packet, and later stages know
	AllowEarly                   // Allow before DNAT: later inbound stages of host endpoints are not asked
	Reset                        // drop the packet, and reset the TCP connection; only rules for TCP have it
	Reject                       // drop the packet, and tell the sender by ICMP that it is prohibited
)

// What a rule matches is package match's: a term of a packet, and what a policy left on it.
type (
	Term = match.Term
	Kind = match.Kind
	Side = match.Side
)

// Kinds of terms.
const (
	Family   = match.Family
	Protocol = match.Protocol
	ICMPType = match.ICMPType
	ICMPCode = match.ICMPCode
	Nets     = match.Nets
	Addrs    = match.Addrs
	Ports    = match.Ports
	PortSet  = match.PortSet
	Allowed  = match.Allowed
	Passed   = match.Passed
)

// Sides.
const (
	Src = match.Src
	Dst = match.Dst
)

// Protocols that terms depend on.
const (
	icmp   = 1
	tcp    = 6
	icmpv6 = 58
)

// ByFamily reports whether the rule means different things for IPv4 and IPv6.
func (r Rule) ByFamily() bool {
	for _, t := range r.Terms {
		switch t.Kind {
		case Family, ICMPType, ICMPCode, Nets, Addrs, PortSet:
			return true
		case Protocol:
			if !t.Not && (t.Number == icmp || t.Number == icmpv6) {
				return true
			}
		}
	}
	return false
}

// ForFamily is the rule as packets of one family meet it: the term that asks for the family is left out, as are prefixes of
// the other family. It is false if no packet of the family can match, which is so if a term for prefixes, negated or not, has
// none of the family.
func (r Rule) ForFamily(f intent.Family) (Rule, bool) {
	terms := make([]Term, 0, len(r.Terms))
	for _, t := range r.Terms {
		switch t.Kind {
		case Family:
			if (t.Number == uint8(f)) == t.Not {
				return Rule{}, false
			}
			continue
		case Protocol:
			if !t.Not && (f == intent.IPv6 && t.Number == icmp || f == intent.IPv4 && t.Number == icmpv6) {
				return Rule{}, false
			}
		case Nets:
			// Negated, too: who says which IPv4 addresses are not meant has not said that all of IPv6 is (decision 016).
			if t.Nets = ofFamily(t.Nets, f); len(t.Nets) == 0 {
				return Rule{}, false
			}
		}
		terms = append(terms, t)
	}
	r.Terms = terms
	return r, true
}

func ofFamily(nets []netip.Prefix, f intent.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range nets {
		if n.IsValid() && n.Addr().Is4() == (f == intent.IPv4) {
			out = append(out, n.Masked())
		}
	}
	return out
}

// Sets are the sets that a policy's rules refer to, each once.
func Sets(p intent.Policy) []intent.SetID {
	var ids []intent.SetID
	seen := map[intent.SetID]bool{}
	for _, rs := range [][]intent.Rule{p.Ingress, p.Egress} {
		for _, r := range rs {
			for _, peer := range []intent.Peer{r.Src, r.Dst} {
				for _, list := range [][]intent.SetID{peer.Sets, peer.NotSets, peer.PortSets, peer.NotPortSets} {
					for _, id := range list {
						if !seen[id] {
							seen[id] = true
							ids = append(ids, id)
						}
					}
				}
			}
		}
	}
	return ids
}
