package desired

import (
	"fmt"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Price is what a policy costs the kernel, in numbers of objects.
type Price struct {
	Rules    int // in the kernel, of both directions
	Elements int // of the lists of nets and ports in these rules
	Members  int // of the sets that its rules refer to, also if other policies do
}

// DefaultBudget is what one policy may cost the node; docs/wrong-input.md has the same figures, and docs/decisions/017-budgets.md the reasons.
// Every other change waits for the transaction that makes such a policy, and each read-back reads its rules: either takes, with
// both cores of the machine busy, some 0.1 ms a kernel rule.
var DefaultBudget = Price{Rules: 8192, Elements: 1 << 18, Members: 1 << 20}

// Coster says what rules and sets cost in a backend.
type Coster interface {
	// Rule returns how many kernel rules render one neutral rule, and how many elements their lists have.
	Rule(rules.Rule) (copies, elements int)
	// Set returns how many members of a set the kernel holds, or would hold if it were wanted.
	Set(intent.SetID) int
}

// beyond returns an error that names the budget which a price exceeds; nil: none.
func (p Price) beyond(budget Price) error {
	for _, b := range []struct {
		what        string
		is, allowed int
	}{
		{"kernel rules", p.Rules, budget.Rules},
		{"nets and ports in its kernel rules", p.Elements, budget.Elements},
		{"members of the sets it refers to", p.Members, budget.Members},
	} {
		if b.is > b.allowed {
			return fmt.Errorf("over the budget of one policy, so it denies everything: %d %s, at most %d are allowed", b.is, b.what, b.allowed)
		}
	}
	return nil
}

// priceOf computes the price of a policy before anything is rendered, one rule at a time to bound memory.
func (s *State) priceOf(p *policy) (sum Price) {
	if s.cfg.Cost == nil {
		return sum
	}
	for _, list := range [][]intent.Rule{p.Ingress, p.Egress} {
		for _, r := range list {
			for _, neutral := range rules.Unnamed(p.ID, r) {
				n, elements := s.cfg.Cost.Rule(neutral)
				sum.Rules += n
				sum.Elements += elements
			}
		}
	}
	for _, id := range p.sets {
		if x := s.sets[id]; x != nil {
			x.counted = s.cfg.Cost.Set(id)
			sum.Members += x.counted
		}
	}
	return sum
}

// outgrown reports whether the number of members of a set changed so much since they were last counted that the policies which
// refer to it must be priced again. A change within an eighth is ignored, so that a set that grows costs each of them little.
func (s *State) outgrown(id intent.SetID) bool {
	if s.cfg.Cost == nil {
		return false
	}
	x := s.sets[id]
	n, slack := s.cfg.Cost.Set(id), x.counted/8+1024
	return n > x.counted+slack || n < x.counted-slack
}

// needed reports whether some policy looks into a set. A policy over its budget does not.
func (s *State) needed(id intent.SetID) bool {
	for p := range s.setUsers[id] {
		if _, over := s.over[p]; !over && s.wantsChain(p) {
			return true
		}
	}
	return s.tables != nil && s.tables.looks[id] > 0 || s.looksInto(id)
}

// charge decides whether a policy is over its budget, and removes it from the users of its sets or adds it again.
func (s *State) charge(id intent.PolicyID, p *policy) {
	_, was := s.over[id]
	var err error
	if p != nil {
		err = s.priceOf(p).beyond(s.cfg.Budget)
	}
	key := intent.Key(id)
	if _, broken := s.faults[key]; err != nil && !broken {
		s.faults[key] = fault{err: err, denies: true}
		s.touched[key] = struct{}{}
	}
	delete(s.over, id)
	if err != nil {
		s.over[id] = err.Error()
	}
	if p != nil && was != (err != nil) {
		s.touched[key] = struct{}{}
		for _, x := range p.sets {
			s.newSets[x] = struct{}{}
		}
	}
}

// within returns a policy; one over its budget is replaced by one that denies everything.
func (s *State) within(p intent.Policy) intent.Policy {
	if why, over := s.over[p.ID]; over && p.Closed == "" {
		p.Closed = why
	}
	return p
}
