package classify

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// State is the policies, walks and members received, and what follows from them.
type State struct {
	limits     Limits
	space      space
	selections selections
	policies   map[intent.PolicyID]intent.Policy
	forms      map[formKey]*form
	users      map[formKey]map[*group]int // groups that use a policy, and how often each does
	check      map[formKey]bool           // forms to make or to drop; true: the policy changed
	groups     map[Group]*group
	dirty      map[*group]struct{}
	asking     map[selection]map[*group]struct{}     // groups with a rule for it
	pairs      map[intent.SetID]map[pair]int         // of sets of ports that forms ask for
	cutBy      map[intent.SetID]map[formKey]struct{} // forms that use a set of ports
	programs   map[string]*program
	codes      map[string]*code
	byCode     map[Code]*code
	programIDs numbers
	codeIDs    numbers
	newborn    []*program // with changed users since the last Flush
	coded      []*code
	entries    int
	made       map[Entry]struct{}  // by this flush, of classes that were there before
	plains     map[*group]struct{} // left out
	crowded    []*group            // found no room for their entries in this flush
	changes    int                 // of members since the last
	round      uint64              // of askingAny
	work       int
	delta      *Delta
}

// New returns an empty State.
func New(limits Limits, members Members) *State {
	return &State{
		limits: limits.orDefault(), space: newSpace(), selections: newSelections(members),
		policies: map[intent.PolicyID]intent.Policy{}, forms: map[formKey]*form{}, users: map[formKey]map[*group]int{}, check: map[formKey]bool{},
		groups: map[Group]*group{}, dirty: map[*group]struct{}{}, asking: map[selection]map[*group]struct{}{},
		pairs: map[intent.SetID]map[pair]int{}, cutBy: map[intent.SetID]map[formKey]struct{}{},
		plains: map[*group]struct{}{}, made: map[Entry]struct{}{}, programs: map[string]*program{}, codes: map[string]*code{}, byCode: map[Code]*code{},
		programIDs: newNumbers(uint32(FirstProgram), uint32(LastProgram)), codeIDs: newNumbers(uint32(FirstCode), uint32(LastCode)),
	}
}

// SetPolicy adds or changes a policy.
func (s *State) SetPolicy(p intent.Policy) {
	s.policies[p.ID] = p
	s.recheck(p.ID)
}

// RemovePolicy removes a policy. Groups that still use it deny there.
func (s *State) RemovePolicy(id intent.PolicyID) {
	delete(s.policies, id)
	s.recheck(id)
}

func (s *State) recheck(id intent.PolicyID) {
	for _, dir := range []intent.Direction{intent.Ingress, intent.Egress} {
		key := formKey{id, dir}
		for g := range s.users[key] {
			s.revive(g)
		}
		s.check[key] = true
	}
}

// SetWalk sets the walk of a group.
func (s *State) SetWalk(id Group, w Walk) {
	g := s.groups[id]
	if g == nil {
		g = &group{id: id, entries: map[*class]*program{}, touched: map[selection]struct{}{}, fresh: true}
		s.groups[id] = g
	}
	for _, key := range w.keys() {
		if s.users[key] == nil {
			s.users[key] = map[*group]int{}
		}
		s.users[key][g]++
		s.mayMatter(key)
	}
	for _, key := range g.walk.keys() {
		if s.users[key][g]--; s.users[key][g] == 0 {
			delete(s.users[key], g)
		}
		s.mayMatter(key)
	}
	s.revive(g)
	g.walk, g.all, g.relaid = w, true, true
	s.dirty[g] = struct{}{}
}

// mayMatter has the next Flush check whether a form is used.
func (s *State) mayMatter(key formKey) {
	if _, ok := s.check[key]; !ok {
		s.check[key] = false
	}
}

// RemoveWalk removes a group, which has no endpoints any more.
func (s *State) RemoveWalk(id Group) {
	if g := s.groups[id]; g != nil {
		s.SetWalk(id, Walk{})
		delete(s.groups, id)
	}
}

func (w Walk) keys() (out []formKey) {
	for _, id := range w.Asked() {
		out = append(out, formKey{id, w.Direction})
	}
	return out
}

// reform makes or drops the form of a policy in one direction.
func (s *State) reform(key formKey, changed bool) {
	p, ok := s.policies[key.id]
	wanted := ok && s.active(key)
	old := s.forms[key]
	var now *form
	switch {
	case !wanted && old == nil:
		s.forgetUsers(key)
		return
	case wanted && old != nil && !changed:
		return
	case wanted:
		now = s.newForm(p, key.direction) // before the old form releases its selections
		for _, set := range now.sets {
			if s.cutBy[set] == nil {
				s.cutBy[set] = map[formKey]struct{}{}
			}
			s.cutBy[set][key] = struct{}{}
		}
	}
	if old != nil {
		s.dropForm(key, old, now)
	}
	if delete(s.forms, key); now != nil {
		s.forms[key] = now
	}
	for g := range s.users[key] {
		if g.plain == nil {
			s.touch(g, old, now)
		}
	}
	s.forgetUsers(key)
}

func (s *State) forgetUsers(key formKey) {
	if len(s.users[key]) == 0 {
		delete(s.users, key)
	}
}

func (s *State) dropForm(key formKey, old, now *form) {
	for _, k := range old.asks {
		s.selections.leave(k)
	}
	for _, set := range old.sets {
		if now == nil || !slices.Contains(now.sets, set) {
			if delete(s.cutBy[set], key); len(s.cutBy[set]) == 0 {
				delete(s.cutBy, set)
				delete(s.pairs, set)
			}
		}
	}
}

// touch marks what of a group changes because a policy has another form: the classes of each rule that was added, removed
// or moved; all of them if such a rule may match any class.
func (s *State) touch(g *group, old, now *form) {
	s.dirty[g] = struct{}{}
	g.relaid = true
	if old == nil || now == nil || now.over != nil || old.over != nil {
		g.all = true
		return
	}
	for f := range families {
		a, b := old.items[f], now.items[f]
		for len(a) > 0 && len(b) > 0 && a[0].key == b[0].key {
			a, b = a[1:], b[1:]
		}
		for len(a) > 0 && len(b) > 0 && a[len(a)-1].key == b[len(b)-1].key {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		for _, it := range slices.Concat(a, b) {
			of, some := it.index()
			g.all = g.all || !some
			for _, sel := range of {
				g.touched[sel] = struct{}{}
			}
		}
	}
}

// Flush computes what changed.
func (s *State) Flush() *Delta {
	s.retry()
	first := s.flush()
	for last := first; len(s.check)+len(s.dirty) > 0; last = last.Next {
		last.Next = s.flush()
	}
	return first
}

func (s *State) flush() *Delta {
	d := &Delta{
		Grow:  Growth{map[Class]About{}, map[Code]Outcome{}, map[Program]Body{}, map[Entry]Program{}},
		Flip:  Turn{map[netip.Prefix]Class{}, map[Entry]Program{}, map[Group][2]Program{}},
		Plain: map[Group]string{},
	}
	s.delta = d
	for key, changed := range s.check {
		s.reform(key, changed)
	}
	s.check = empty(s.check)
	for g := range s.dirty {
		if g.relaid {
			s.layOut(g)
		}
	}
	s.selections.settle(&s.space)
	s.space.settle(d.Flip.Addrs)
	s.meetClasses()
	for g := range s.dirty {
		s.refresh(g)
		s.tell(g)
	}
	s.dirty = empty(s.dirty)
	s.makeRoom()
	s.made = map[Entry]struct{}{}
	for g := range s.plains {
		s.layOut(g)
	}
	s.sweep()
	return d
}

// Committed notes that the last Delta is in force, Shrink included: its ids may be assigned again.
func (s *State) Committed() {
	s.selections.ids.settle()
	for _, x := range []*numbers{&s.space.ids[0], &s.space.ids[1], &s.programIDs, &s.codeIDs} {
		x.settle()
	}
}

// layOut makes the lists of a group again, and records its selections.
func (s *State) layOut(g *group) {
	for _, l := range g.lists {
		for sel := range l.names {
			if delete(s.asking[sel], g); len(s.asking[sel]) == 0 {
				delete(s.asking, sel)
			}
		}
	}
	if g.lists = [2]list{}; s.groups[g.id] != g || g.plain != nil {
		return
	}
	s.flatten(g)
	for _, l := range g.lists {
		for sel := range l.names {
			if s.asking[sel] == nil {
				s.asking[sel] = map[*group]struct{}{}
			}
			s.asking[sel][g] = struct{}{}
		}
	}
}

// meetClasses makes the entries of new classes, and removes those of deleted ones.
func (s *State) meetClasses() {
	for _, c := range s.space.gone {
		for g := range c.in {
			s.enter(g, c, nil)
		}
		s.delta.Shrink.Classes = append(s.delta.Shrink.Classes, c.id)
	}
	for _, c := range s.space.came {
		if c.refs == 0 {
			continue
		}
		s.delta.Grow.Classes[c.id] = s.about(c.of)
		asking := s.askingAny(c)
		if c.in == nil {
			c.in = make(map[*group]struct{}, len(asking))
		}
		for _, g := range asking {
			if !g.all && g.plain == nil {
				s.judge(g, c)
			}
		}
	}
}

// askingAny returns the groups that ask for any selection of a class, each once.
func (s *State) askingAny(c *class) []*group {
	s.round++
	var out []*group
	for _, sel := range c.of.of {
		for g := range s.asking[sel] {
			if g.round != s.round {
				g.round = s.round
				out = append(out, g)
			}
		}
	}
	return out
}

// judge computes a group's entry for a class.
func (s *State) judge(g *group, c *class) {
	p, err := s.program(g, c.family, c.of)
	if err == nil && p == g.world[c.family] {
		p = nil
	}
	if err == nil && p != nil && g.entries[c] == nil && s.entries >= s.limits.Entries {
		s.crowded = append(s.crowded, g)
		err = errEntries
	}
	switch {
	case err == nil:
		s.enter(g, c, p)
		return
	case errors.Is(err, errSteps) && !g.all: // since all of its entries were made: perhaps these are fewer now
		g.all = true
	default:
		s.giveUp(g, err)
	}
	s.dirty[g] = struct{}{}
}

// enter sets or removes an entry.
func (s *State) enter(g *group, c *class, p *program) {
	was := g.entries[c]
	if was == p {
		return
	}
	s.entries -= s.hold(was, -1)
	s.entries += s.hold(p, 1)
	e := Entry{g.id, c.id}
	switch {
	case p == nil:
		delete(g.entries, c)
		delete(c.in, g)
		_, made := s.made[e]
		delete(s.made, e)
		switch {
		case c.fresh, made: // it was in no Delta yet
			delete(s.delta.Grow.Entries, e)
			delete(s.delta.Flip.Entries, e)
		case c.refs == 0 || g.plain != nil || s.groups[g.id] != g:
			delete(s.delta.Flip.Entries, e)
			s.delta.Shrink.Entries = append(s.delta.Shrink.Entries, e)
		default:
			s.delta.Flip.Entries[e] = 0
		}
		return
	case c.fresh:
		s.delta.Grow.Entries[e] = p.id
	default:
		if _, goes := s.delta.Flip.Entries[e]; was == nil && !goes {
			s.made[e] = struct{}{}
		}
		s.delta.Flip.Entries[e] = p.id
	}
	g.entries[c] = p
	if c.in == nil {
		c.in = map[*group]struct{}{}
	}
	c.in[g] = struct{}{}
}

// hold changes the number of users of a program; it returns 1 for a program, and 0 for nil.
func (s *State) hold(p *program, by int) int {
	if p == nil {
		return 0
	}
	if p.refs += by; p.refs == 0 {
		s.newborn = append(s.newborn, p)
	}
	return 1
}

func (s *State) setWorld(g *group, family int, p *program) {
	if was := g.world[family]; was != p {
		s.hold(was, -1)
		s.hold(p, 1)
		g.world[family] = p
		var ids [2]Program
		for f, w := range g.world {
			if w != nil {
				ids[f] = w.id
			}
		}
		s.delta.Flip.World[g.id] = ids
	}
}

// refresh computes a group's entries for classes again.
func (s *State) refresh(g *group) {
	defer func() { g.all, g.relaid, g.fresh = false, false, false; clear(g.touched) }()
	switch {
	case s.groups[g.id] != g:
		s.bury(g)
		return
	case g.plain != nil:
		return
	}
	seen := map[*class]struct{}{}
	if !g.all {
		for sel := range g.touched {
			maps.Copy(seen, s.space.with[sel])
		}
		s.judgeAll(g, seen)
		if !g.all {
			return
		}
	}
	g.steps = 0
	if err := s.excess(g); err != nil {
		s.giveUp(g, err)
		return
	}
	for f := range families {
		p, err := s.program(g, f, s.space.none)
		if err != nil {
			s.giveUp(g, err)
			return
		}
		s.setWorld(g, f, p)
	}
	for c := range g.entries {
		seen[c] = struct{}{}
	}
	for _, l := range g.lists {
		for sel := range l.names {
			maps.Copy(seen, s.space.with[sel])
		}
	}
	s.judgeAll(g, seen)
}

func (s *State) judgeAll(g *group, classes map[*class]struct{}) {
	whole := g.all
	for c := range classes {
		if g.plain != nil || g.all != whole {
			return
		}
		s.judge(g, c)
	}
}

// bury removes all entries of a group that was removed.
func (s *State) bury(g *group) {
	delete(s.plains, g)
	for c := range g.entries {
		s.enter(g, c, nil)
	}
	for f := range g.world {
		s.setWorld(g, f, nil)
	}
	delete(s.delta.Flip.World, g.id)
	if !g.fresh && s.groups[g.id] == nil {
		s.delta.Shrink.Groups = append(s.delta.Shrink.Groups, g.id)
	}
}
