package nft

import (
	"fmt"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// What one policy may cost the node; docs/wrong-input.md has the same figures, and docs/decisions/017-budgets.md why.
// Each change of anything waits for the transaction in which such a policy is made, and each read-back for its rules: with the
// machine's two cores busy, some 0.1 ms a kernel rule for either.
const (
	maxPolicyRules    = 8192    // in the kernel, of both directions
	maxPolicyElements = 1 << 18 // of the lists of nets and ports in these rules
	maxPolicyMembers  = 1 << 20 // of the sets that its rules refer to, whoever else does
)

// price is what a policy costs the kernel.
type price struct{ rules, elements, members int }

var budget = price{maxPolicyRules, maxPolicyElements, maxPolicyMembers}

// beyond says which budget a price exceeds; nil: none.
func (p price) beyond(budget price) error {
	for _, b := range []struct {
		what        string
		is, allowed int
	}{
		{"kernel rules", p.rules, budget.rules},
		{"nets and ports in its kernel rules", p.elements, budget.elements},
		{"members of the sets it refers to", p.members, budget.members},
	} {
		if b.is > b.allowed {
			return fmt.Errorf("over the budget of one policy, so it denies everything: %d %s, at most %d are allowed", b.is, b.what, b.allowed)
		}
	}
	return nil
}

// priceOf counts before anything is rendered, one rule at a time, so that the counting costs little memory.
func (d *Driver) priceOf(p *policy) (sum price) {
	for _, r := range slices.Concat(p.Ingress, p.Egress) { // the direction of a rule does not count
		one := intent.Policy{ID: p.ID, Ingress: []intent.Rule{r}}
		for _, neutral := range rules.Policy(one, intent.Ingress).Rules {
			n, elements := d.copies(neutral)
			sum.rules += n
			sum.elements += elements
		}
	}
	for _, id := range p.sets {
		if s := d.sets[id]; s != nil {
			s.counted = s.count(0) + s.count(1)
			sum.members += s.counted
		}
	}
	return sum
}

// copies is how many kernel rules stand for a neutral one, and how many elements their lists have.
func (d *Driver) copies(r rules.Rule) (n, elements int) {
	fs := []intent.Family{intent.AnyFamily}
	if r.ByFamily() {
		fs = families[:]
	}
	for i, f := range fs {
		fr := r
		if f != intent.AnyFamily {
			of, applies := r.ForFamily(f)
			if !applies {
				continue
			}
			fr = of
		}
		ways, listed := 1, 0
		for _, t := range fr.Terms {
			listed += len(t.Nets) + len(t.Ports)
			if s := d.sets[t.Set]; (t.Kind == rules.Addrs || t.Kind == rules.PortSet) && !t.Not && s != nil {
				ways *= len(d.kinds(s, i))
			}
		}
		n, elements = n+ways, elements+ways*listed
	}
	return n, elements
}

// outgrown reports whether a set has so many members more or less than when they were last counted that the policies which
// refer to it should be priced again. Within an eighth they are not, so that a set that grows costs each of them little.
func (s *ipset) outgrown() bool {
	n, slack := s.count(0)+s.count(1), s.counted/8+1024
	return n > s.counted+slack || n < s.counted-slack
}

// needed reports whether some policy looks into a set. One that is over its budget does not.
func (d *Driver) needed(id intent.SetID) bool {
	for p := range d.setUsers[id] {
		if _, over := d.over[p]; !over {
			return true
		}
	}
	return false
}

// charge says whether a policy is over its budget, and lets go of its sets or takes them up again.
func (d *Driver) charge(id intent.PolicyID, p *policy) {
	_, was := d.over[id]
	var err error
	if p != nil {
		err = d.priceOf(p).beyond(d.budget)
	}
	key := policyKey(id)
	if _, broken := d.faults[key]; err != nil && !broken {
		d.faults[key] = fault{err: err, denies: true}
		d.touched[key] = struct{}{}
	}
	delete(d.over, id)
	if err != nil {
		d.over[id] = err.Error()
	}
	if p != nil && was != (err != nil) {
		d.touched[key] = struct{}{}
		for _, set := range slices.Clone(p.sets) {
			d.settle(set)
		}
	}
}

// within is a policy that denies everything if it is over its budget.
func (d *Driver) within(p intent.Policy) intent.Policy {
	if why, over := d.over[p.ID]; over && p.Closed == "" {
		p.Closed = why
	}
	return p
}
