package classify

import (
	"encoding/binary"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// group is endpoints with one walk.
type group struct {
	id      Group
	walk    Walk
	lists   [2]list
	entries map[*class]*program // where other than that of the world
	world   [2]*program
	plain   error  // why it is not evaluated by class; nil: it is
	stated  string // what the last Delta said of that
	relaid  bool   // the lists must be made again
	all     bool   // the entries of all classes must be made again
	touched map[selection]struct{}
	fresh   bool
	steps   int    // of work since all its entries were made; see charge
	idle    int    // changes of members since it was given up
	round   uint64 // the last one of State.askingAny that found it
}

// list is a walk as one sequence of steps for one family.
type list struct {
	steps  []step
	by     map[selection][]int32  // steps to evaluate for a class with this selection
	always []int32                // for every class
	names  map[selection]struct{} // all that steps name, negated or not: a class with none of them has the program of the world
	made   map[string]*program    // by the steps that are evaluated
}

type step struct {
	*item
	next int32 // the step after a Pass
}

// flatten makes the lists of a group from its walk.
func (s *State) flatten(g *group) {
	w := g.walk
	for f := range families {
		s.work += len(g.lists[f].steps)
		l := list{by: map[selection][]int32{}, names: map[selection]struct{}{}, made: map[string]*program{}}
		for _, t := range w.Tiers {
			begin := len(l.steps)
			for _, id := range t.Policies {
				l.add(s.itemsOf(id, w.Direction, t.Name, f))
			}
			if !t.Pass && len(t.Policies) > 0 {
				l.add([]*item{end(intent.Decision{Reason: intent.ReasonEndOfTier, Endpoint: w.Endpoint, Tier: t.Name, Rule: intent.RuleID{
					Policy: t.Policies[len(t.Policies)-1], Direction: w.Direction, Index: intent.NoRule,
				}})})
			}
			for i := begin; i < len(l.steps); i++ {
				l.steps[i].next = int32(len(l.steps))
			}
		}
		for _, id := range w.Profiles {
			begin := len(l.steps)
			l.add(s.itemsOf(id, w.Direction, "", f))
			for i := begin; i < len(l.steps); i++ {
				l.steps[i].next = int32(len(l.steps)) // to pass is to ask the next profile
			}
		}
		last := end(intent.Decision{Reason: intent.ReasonNoProfileMatch, Endpoint: w.Endpoint, Rule: intent.RuleID{Direction: w.Direction, Index: intent.NoRule}})
		if w.Open {
			last = &item{action: rules.Accept}
		}
		l.add([]*item{last})
		l.index()
		g.lists[f] = l
	}
}

func end(by intent.Decision) *item { return &item{action: rules.Deny, by: by} }

func (l *list) add(items []*item) {
	for _, it := range items {
		l.steps = append(l.steps, step{item: it})
	}
}

func (l *list) index() {
	for i, st := range l.steps {
		of, some := st.index()
		if !some {
			l.always = append(l.always, int32(i))
		}
		for _, s := range of {
			l.by[s] = append(l.by[s], int32(i))
		}
		for _, lit := range st.peers {
			l.names[lit.of] = struct{}{}
		}
		for _, set := range st.ports {
			for s := range set.of {
				l.names[s] = struct{}{}
			}
		}
	}
}

// itemsOf returns the items of a policy; of a policy that was not sent, a denial.
func (s *State) itemsOf(id intent.PolicyID, direction intent.Direction, tier string, family int) []*item {
	if f := s.forms[formKey{id, direction}]; f != nil {
		return f.items[family]
	}
	return []*item{end(intent.Decision{Reason: intent.ReasonPolicyMissing, Tier: tier, Rule: intent.RuleID{Policy: id, Direction: direction, Index: intent.NoRule}})}
}

// asked returns the steps that may decide about a class, in order.
func (l *list) asked(of *vector) []int32 {
	out := slices.Clone(l.always)
	for _, s := range of.of {
		out = append(out, l.by[s]...)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(i int32) bool { return !l.steps[i].holds(of) })
}

// key identifies what is evaluated for classes: equal keys have equal programs.
func (l *list) key(asked []int32, of *vector) string {
	b := make([]byte, 0, 4*len(asked))
	for _, i := range asked {
		b = binary.BigEndian.AppendUint32(b, uint32(i))
		for _, set := range l.steps[i].ports {
			for _, s := range of.of {
				if _, ok := set.of[s]; ok {
					b = binary.BigEndian.AppendUint32(b, uint32(s)|1<<31)
				}
			}
		}
	}
	return string(b)
}

// forgotten is how many programs a list may remember that no class has.
const forgotten = 1024

// program returns the program of a group for a class.
func (s *State) program(g *group, family int, of *vector) (*program, error) {
	l := &g.lists[family]
	asked := l.asked(of)
	if !s.charge(g, 1+len(of.of)+len(asked)) {
		return nil, errSteps
	}
	key := l.key(asked, of)
	if p := l.made[key]; p != nil && s.programs[p.key] == p {
		return p, nil
	}
	body, err := s.body(g, l, asked, of)
	if err != nil {
		return nil, err
	}
	p := s.internProgram(body)
	if len(l.made) > 2*len(g.entries)+forgotten {
		clear(l.made) // most are of classes that are gone
	}
	l.made[key] = p
	return p, nil
}
