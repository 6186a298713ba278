package rules

import (
	"github.com/twillnet/twill/internal/intent"
)

// Endpoint returns the chain through which a workload receives (Ingress) or sends (Egress). Do not call it for a closed
// endpoint: the backend drops all of its packets without a chain.
func Endpoint(e intent.Endpoint, dir intent.Direction) Chain {
	name := e.Label
	if name == "" {
		name = e.ID.Namespace + "/" + e.ID.Name
	}
	way := " sends"
	if dir == intent.Ingress {
		way = " receives"
	}
	c := Chain{Name: EndpointChain(e.ID, dir), Comment: shorten(name, way)}
	c.Rules = append(c.Rules, Rule{Action: Begin})
	for _, t := range e.Policies().Normal {
		rs := tier(e.ID, t, dir)
		if len(rs) > 0 && len(c.Rules) > 1 {
			c.Rules = append(c.Rules, Rule{Action: Next}) // a packet that an earlier tier passed is asked about in this one
		}
		c.Rules = append(c.Rules, rs...)
	}
	c.Rules = append(c.Rules, profiles(e, dir)...)
	c.Rules = append(c.Rules, Rule{Action: Deny, Comment: shorten(name, ": no profile matched"), By: end(e.ID, dir, intent.ReasonNoProfileMatch)})
	return c
}

// tier asks the policies of a tier in order, until one allows, denies or passes. A tier without policies decides nothing.
func tier(of intent.EndpointID, t intent.Tier, dir intent.Direction) []Rule {
	ids := t.Ingress
	if dir == intent.Egress {
		ids = t.Egress
	}
	if len(ids) == 0 {
		return nil
	}
	var rs []Rule
	notPassed := []Term{{Kind: Passed, Not: true}}
	for i, id := range ids {
		jump := Rule{Action: Jump, Target: PolicyChain(id, dir), Comment: shorten("tier "+t.Name+", "+policyName(id), "")}
		if i > 0 {
			jump.Terms = notPassed
		}
		rs = append(rs, jump, Rule{Terms: []Term{{Kind: Allowed}}, Action: Return})
	}
	if t.Default != intent.Pass {
		by := end(of, dir, intent.ReasonEndOfTier)
		by.Tier, by.Rule.Policy = t.Name, ids[len(ids)-1]
		rs = append(rs, Rule{Terms: notPassed, Action: Deny, Comment: shorten("end of tier "+t.Name, ""), By: by})
	}
	return rs
}

// end is the decision of an endpoint to deny by no rule of a policy.
func end(of intent.EndpointID, dir intent.Direction, reason string) intent.Decision {
	return intent.Decision{Reason: reason, Endpoint: of, Rule: intent.RuleID{Direction: dir, Index: intent.NoRule}}
}

// Spoofable returns the chain of the prefixes that a workload may send from other than its own addresses. It has no rules if there
// are none.
func Spoofable(e intent.Endpoint) Chain {
	c := Chain{Name: SpoofChain(e.ID), Comment: shorten(e.Label, " may send from")}
	if len(e.Spoofable) > 0 {
		c.Rules = []Rule{
			{Terms: []Term{{Kind: Nets, Side: Src, Nets: e.Spoofable}}, Action: Accept},
			{Action: Deny, Comment: "spoofed source", By: end(e.ID, intent.Egress, intent.ReasonSpoofed)},
		}
	}
	return c
}
