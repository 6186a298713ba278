package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Dataplane is a reconciler of desired state without a kernel: it keeps chains, members of sets and interfaces in memory, applies
// changes in the order that a backend without transactions needs, and returns an error if something would refer to a missing object. [Dataplane.Judge]
// evaluates a packet. One goroutine may use it. Make it with NewDataplane.
type Dataplane struct {
	// Takes returns an error if the backend refuses what is for an intent; nil: it accepts everything.
	Takes func(intent.Key) error
	// Trusting: Apply does not call Check, so that its cost follows the change and not the number of objects.
	Trusting bool
	// Operations counts objects created, changed and deleted so far: chains, interfaces, sets and members of sets.
	Operations int

	state   *desired.State
	members map[intent.SetID]map[intent.Member]bool
	pending todo

	sets   map[intent.SetID]desired.Set // sets that were made
	chains map[string]desired.Chain
	links  map[string]desired.Link
	gone   []intent.SetID // sets that were made or removed since the last Apply
}

// todo is the part of the changes that is not applied yet.
type todo struct {
	sets   map[intent.SetID]desired.Set
	chains map[string]desired.Chain
	gone   map[string]bool
	links  map[string]desired.Link
}

func (t *todo) add(c desired.Changes) {
	for _, s := range c.Sets {
		t.sets[s.ID] = s
	}
	for _, x := range c.Chains {
		t.chains[x.Name] = x
		delete(t.gone, x.Name)
	}
	for _, name := range c.Gone {
		t.gone[name] = true
		delete(t.chains, name)
	}
	for _, l := range c.Links {
		t.links[l.Name] = l
	}
}

func newTodo() todo {
	return todo{map[intent.SetID]desired.Set{}, map[string]desired.Chain{}, map[string]bool{}, map[string]desired.Link{}}
}

// NewDataplane returns an empty Dataplane.
func NewDataplane(cfg desired.Config) *Dataplane {
	return &Dataplane{
		state: desired.New(cfg), members: map[intent.SetID]map[intent.Member]bool{}, pending: newTodo(),
		sets: map[intent.SetID]desired.Set{}, chains: map[string]desired.Chain{}, links: map[string]desired.Link{},
	}
}

// Merge merges a batch into the desired state.
func (d *Dataplane) Merge(b intent.Batch) {
	for _, s := range b.IPSets {
		d.members[s.ID] = map[intent.Member]bool{}
		for _, m := range s.Members {
			d.members[s.ID][m] = true
		}
		d.Operations += len(s.Members)
	}
	for _, m := range b.Members {
		if is := d.members[m.Set]; is != nil {
			for _, x := range m.Removed {
				delete(is, x)
			}
			for _, x := range m.Added {
				is[x] = true
			}
			d.Operations += len(m.Added) + len(m.Removed)
		}
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.SetID); ok {
			delete(d.members, id)
			d.gone = append(d.gone, id)
		}
	}
	d.state.Merge(b)
}

// Links takes the addresses of interfaces.
func (d *Dataplane) Links(changes []desired.Addrs) { d.state.Links(changes) }

// Resync has what was refused tried again.
func (d *Dataplane) Resync(context.Context) error {
	d.state.Retry()
	return nil
}

// Apply applies all that is pending, except what is refused. An error means that an object would have referred to a missing one, which is a fault of
// package desired.
func (d *Dataplane) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for refused := true; refused; {
		d.pending.add(d.state.Changes())
		refused = false
		for key := range d.owners() {
			if err := d.Takes(key); err != nil {
				refused = d.state.Refuse(key, err) || refused
			}
		}
	}
	if err := d.carryOut(); err != nil {
		return nil, err
	}
	return d.state.Outcomes(), nil
}

// owners returns the intents that something pending is for.
func (d *Dataplane) owners() map[intent.Key]bool {
	out := map[intent.Key]bool{}
	if d.Takes == nil {
		return out
	}
	for _, c := range d.pending.chains {
		out[c.Owner] = true
	}
	for id, s := range d.pending.sets {
		if s.Wanted {
			out[id] = true
		}
	}
	return out
}

// carryOut makes sets, then chains, then what leads to them, and deletes in the reverse order. Before the source is in sync, it makes only what may be
// made then.
func (d *Dataplane) carryOut() error {
	t := d.pending
	if !d.state.InSync() {
		early := newTodo()
		for name, c := range t.chains {
			if _, exists := d.chains[name]; c.Early(exists) {
				early.chains[name] = c
			}
		}
		t = early
	} else {
		d.pending = newTodo()
	}
	d.Operations += len(t.sets) + len(t.chains) + len(t.links) + len(t.gone)
	for id, s := range t.sets {
		if s.Wanted {
			d.sets[id] = s
			d.gone = append(d.gone, id)
		}
	}
	for name := range t.chains {
		if _, there := d.chains[name]; !there {
			d.chains[name] = desired.Chain{Name: name} // without rules, since they may call each other
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		errs = append(errs, d.check(t.chains[name]))
		d.chains[name] = t.chains[name]
	}
	for name, l := range t.links {
		errs = append(errs, d.checkLink(l))
		if d.links[name] = l; !l.Open && !l.Closed {
			delete(d.links, name)
		}
	}
	for name := range t.gone {
		delete(d.chains, name)
	}
	for id, s := range t.sets {
		if !s.Wanted {
			delete(d.sets, id)
		}
	}
	for _, id := range d.gone {
		if d.members[id] == nil {
			delete(d.sets, id)
		}
	}
	d.gone = d.gone[:0]
	if !d.Trusting {
		errs = append(errs, d.Check())
	}
	return errors.Join(errs...)
}

// Check returns an error if an object refers to a missing one. It looks at all objects.
func (d *Dataplane) Check() error {
	var errs []error
	for _, c := range d.chains {
		errs = append(errs, d.check(c))
	}
	for _, l := range d.links {
		errs = append(errs, d.checkLink(l))
	}
	return errors.Join(errs...)
}

func (d *Dataplane) check(c desired.Chain) error {
	leads := func(to string) error {
		if _, there := d.chains[to]; !there && to != "" {
			return fmt.Errorf("chain %s leads to %s, which is not there", c.Name, to)
		}
		return nil
	}
	var errs []error
	for _, r := range c.Rules {
		errs = append(errs, leads(r.Target), d.checkTerms(c.Name, r.Terms))
	}
	for _, g := range c.Guards {
		errs = append(errs, leads(g.Target), d.checkTerms(c.Name, g.Terms))
	}
	return errors.Join(errs...)
}

func (d *Dataplane) checkTerms(chain string, terms []rules.Term) error {
	for _, t := range terms {
		kind := intent.SetAddrs
		switch t.Kind {
		case rules.PortSet:
			kind = intent.SetPorts
		case rules.Addrs:
		default:
			continue
		}
		if s, there := d.sets[t.Set]; !there || s.Kind != kind || !s.Named {
			return fmt.Errorf("chain %s looks into set %s, which is not there: %+v", chain, t.Set, s)
		}
	}
	return nil
}

func (d *Dataplane) checkLink(l desired.Link) error {
	var errs []error
	if l.Open && l.Closed || l.Open != (l.In != "") || l.Open != (l.Out != "") {
		errs = append(errs, fmt.Errorf("interface %s is open and closed, or open without chains: %+v", l.Name, l))
	}
	for _, to := range []string{l.In, l.Out, l.LimitIn, l.LimitOut, l.Source} {
		if _, there := d.chains[to]; !there && to != "" {
			errs = append(errs, fmt.Errorf("interface %s leads to %s, which is not there", l.Name, to))
		}
	}
	return errors.Join(errs...)
}

// Chain returns a chain that was made.
func (d *Dataplane) Chain(name string) (desired.Chain, bool) {
	c, there := d.chains[name]
	return c, there
}

// HasSet reports whether a set was made.
func (d *Dataplane) HasSet(id intent.SetID) bool {
	_, there := d.sets[id]
	return there
}

// Link returns what an interface leads to; the zero value: nothing.
func (d *Dataplane) Link(name string) desired.Link { return d.links[name] }

// Same returns an error that names where two dataplanes differ; nil: nowhere.
func (d *Dataplane) Same(o *Dataplane) error {
	for name := range keys(d.chains, o.chains) {
		if a, b := fmt.Sprintf("%+v", plain(d.chains[name])), fmt.Sprintf("%+v", plain(o.chains[name])); a != b {
			return fmt.Errorf("chain %s is\n%s\nand\n%s", name, a, b)
		}
	}
	for name := range keys(d.links, o.links) {
		if d.links[name] != o.links[name] {
			return fmt.Errorf("interface %s leads to %+v and %+v", name, d.links[name], o.links[name])
		}
	}
	for id := range keys(d.sets, o.sets) {
		if d.sets[id] != o.sets[id] || !maps.Equal(d.members[id], o.members[id]) {
			return fmt.Errorf("set %s is %+v and %+v", id, d.sets[id], o.sets[id])
		}
	}
	return nil
}

// plain returns a chain for comparison, its hook by value. The reason for which an endpoint is closed is left out: if it lacks several
// things, any of them may be given.
func plain(c desired.Chain) any {
	c.Rules = slices.Clone(c.Rules)
	for i, r := range c.Rules {
		if r.By.Reason == intent.ReasonClosed {
			c.Rules[i].Comment = ""
		}
	}
	hook := desired.Hook{}
	if c.Hook != nil {
		hook = *c.Hook
	}
	called := c.Hook != nil
	c.Hook = nil
	return []any{called, hook, c}
}

func keys[K comparable, V any](a, b map[K]V) map[K]bool {
	out := map[K]bool{}
	for _, m := range []map[K]V{a, b} {
		for k := range m {
			out[k] = true
		}
	}
	return out
}
