// Package rules turns policies and endpoints into chains in a neutral form that any rule-based backend can render.
//
// In: [intent.Policy] and [intent.Endpoint], one at a time.
// Out: [Chain]: one for each policy and direction, and for each workload one that it receives through and one that it
// sends through. A rule is a conjunction of primitive terms, each with at most one set, and one action.
//
// The walk of a packet: the chain of an endpoint calls those of its policies, tier by tier. A policy's chain answers by
// setting a mark and returning ([Allow], [Pass]) or by dropping the packet ([Deny]). The endpoint's chain tests
// the marks with the terms [Allowed] and [Passed], and leaves with [Return] when the packet may go on. It always
// decides: its last rule denies.
//
// The backend splits a rule by families, kinds of kernel sets or short port lists: only it knows
// what it lacks. [Rule.ForFamily] gives it the rule for one family.
package rules

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// Chain is a list of rules; the first that drops the packet, or returns, decides.
type Chain struct {
	Name    string // a function of what the chain is for alone
	Comment string
	Rules   []Rule
	// Generation is a hash of the rules of a policy: a change of them changes it.
	Generation uint16
}

// Rule acts on packets that all its terms match; without terms, on all.
type Rule struct {
	Terms   []Term
	Action  Action
	Target  string // of Jump: the name of a chain
	Comment string // names the policy for people; at most MaxComment bytes
	// By is the decision of this rule where it allows or denies, for reports and counts; without Reason: it decides nothing.
	By intent.Decision
}

// Action is the action of a rule.
type Action uint8

// Actions. The zero value denies.
const (
	Deny            Action = iota // drop the packet
	Allow                         // set the mark of Allowed, and return
	Pass                          // set the mark of Passed, and return
	Log                           // report the packet; go on
	Jump                          // call the chain Target, and go on after it
	Begin                         // clear both marks; go on
	Next                          // clear the mark of Passed; go on
	Return                        // leave the endpoint's chain: the packet goes on
	Accept                        // the packet passes this stage of the host
	AllowUntracked                // Allow of the untracked stage: conntrack makes no entry for the packet, and later stages see that
	AllowEarly                    // Allow before DNAT: later inbound stages of host endpoints are not asked
	Reset                         // drop the packet, and reset the TCP connection; only rules for TCP have it
	Reject                        // drop the packet, and answer with ICMP: administratively prohibited
	Permit                        // leave the chain: the packet goes on in the caller, which accepts it
	PermitUntracked               // Permit, and what AllowUntracked does
	PermitEarly                   // Permit, and what AllowEarly does
)

// Terms are those of package match, and those for the marks that a policy's chain sets.
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

// ByFamily reports whether the rule must be rendered for IPv4 and IPv6 separately.
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

// ForFamily returns the rule for packets of one family: without terms for the family, and without prefixes of
// the other one. It returns false if no packet of the family can match, which is so if a term for prefixes, negated or not, has
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
			// Negated, too: a rule that excludes IPv4 prefixes is a rule for IPv4, and matches no IPv6 (decision 016).
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

// Sets returns the sets that a policy's rules refer to in both directions, each once, in the order of the rules.
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
