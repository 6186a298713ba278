package rules

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// Policy returns the chain of a policy or profile in one direction, with the rules in their order. That of a closed policy denies everything. It
// does not check that the sets in it exist.
func Policy(p intent.Policy, dir intent.Direction) Chain {
	c := Chain{Name: PolicyChain(p.ID, dir), Comment: shorten(policyName(p.ID), " "+direction(dir)), Rules: Of(p, dir)}
	if p.Closed == "" {
		c.Generation = generation(listOf(p, dir))
	}
	return c
}

func listOf(p intent.Policy, dir intent.Direction) []intent.Rule {
	if dir == intent.Egress {
		return p.Egress
	}
	return p.Ingress
}

// Of returns the rules of the chain of a policy or profile in one direction.
func Of(p intent.Policy, dir intent.Direction) (out []Rule) {
	if p.Closed != "" {
		by := intent.Decision{Reason: intent.ReasonPolicyClosed, Tier: p.Tier, Rule: intent.RuleID{Policy: p.ID, Direction: dir, Index: intent.NoRule}}
		return []Rule{{Action: Deny, Comment: shorten(policyName(p.ID)+": "+p.Closed, ""), By: by}}
	}
	for i, r := range listOf(p, dir) {
		id := intent.RuleID{Policy: p.ID, Direction: dir, Index: i}
		comment := RuleComment(id)
		by := intent.Decision{Reason: intent.ReasonRule, Allowed: r.Action == intent.Allow, Tier: p.Tier, Rule: id}
		switch r.Action {
		case intent.Log:
			by.Reason = intent.ReasonLogged
		case intent.Pass:
			by = intent.Decision{} // a log decides nothing
		}
		for _, x := range Unnamed(p.ID, r) {
			x.Comment, x.By = comment, by
			out = append(out, x)
		}
	}
	return out
}

// Unnamed returns the rules that render one rule of a policy, without the comments and decisions that Policy gives them.
func Unnamed(id intent.PolicyID, r intent.Rule) (out []Rule) {
	if r.Action == intent.Pass && id.Kind == profileKind {
		return nil // no tier follows profiles; a chain that returned would skip the rules after this one
	}
	for _, a := range answers(r) {
		for _, terms := range match.Lower(a.Rule) {
			out = append(out, Rule{Terms: terms, Action: a.action})
		}
	}
	return out
}

// answer is a rule for some protocols, with its action.
type answer struct {
	intent.Rule
	action Action
}

// answers returns the rules that render one rule. A rule that rejects is two, of which the first matches TCP.
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
	r.Protocol, r.NotProtocol, r.NotICMP = tcp, 0, nil // conditions that TCP cannot meet
	return []answer{{r, Reset}, others}
}

// Rejects reports whether a policy has a rule that rejects in a direction.
func Rejects(p intent.Policy, dir intent.Direction) bool {
	list := p.Ingress
	if dir == intent.Egress {
		list = p.Egress
	}
	return p.Closed == "" && slices.ContainsFunc(list, intent.Rule.Rejects)
}

// Silent returns a policy's chain for a stage at which nothing can be rejected: what would be rejected is dropped. It has a name of
// its own, since the same policy may be asked at other stages.
func Silent(p intent.Policy, dir intent.Direction) Chain {
	c := Mute(Policy(p, dir))
	c.Name = SilentChain(p.ID, dir)
	return c
}

// Mute replaces actions that reject by Deny.
func Mute(c Chain) Chain {
	for i := range c.Rules {
		if a := c.Rules[i].Action; a == Reset || a == Reject {
			c.Rules[i].Action = Deny
		}
	}
	return c
}

// generation is a hash of rules, in 16 bits.
func generation(list []intent.Rule) uint16 {
	h := fnv.New32a()
	for _, r := range list {
		for _, p := range []*intent.ICMP{r.ICMP, r.NotICMP} {
			if p != nil {
				fmt.Fprint(h, *p)
			}
		}
		if r.Requests != nil {
			_ = json.NewEncoder(h).Encode(r.Requests) // of texts and numbers, to a hash: it cannot fail
		}
		r.ICMP, r.NotICMP, r.Requests = nil, nil, nil // by value, above
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
