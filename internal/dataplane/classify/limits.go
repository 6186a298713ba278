package classify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits bound what one group may cost, in numbers of objects and steps. The zero value has the defaults.
type Limits struct {
	Branches int // of an outcome; default 64
	Cells    int // of a program: ports that have an entry; default 1,024
	Entries  int // of all groups; beyond it, those whose policy treats the most classes differently are left out; default 250,000
	Names    int // sets, lists of prefixes, and ports of sets, that the rules of one policy name in one direction; default 65,536
	Steps    int // of making all entries of a group: comparisons of a rule with a packet or a class; default 4,194,304
}

func (l Limits) orDefault() Limits {
	return Limits{
		Branches: cmp.Or(l.Branches, 64), Cells: cmp.Or(l.Cells, 1024), Entries: cmp.Or(l.Entries, 250_000),
		Names: cmp.Or(l.Names, 1<<16), Steps: cmp.Or(l.Steps, 1<<22),
	}
}

// Errors for which a group is not evaluated by class.
var (
	errBranches = errors.New("too many rules depend on what no table knows, such as source ports")
	errCells    = errors.New("too many ports have rules of their own")
	errEntries  = errors.New("too many classes of addresses have entries of their own")
	errNames    = errors.New("a policy names too many sets and ports")
	errSteps    = errors.New("too many combinations of rules, ports and classes must be compared")
)

// How often a group that was left out is tried again: a change of members pays for so many steps of a trial, of which each is counted as so
// many at least. A change of one of its policies has it tried at once.
const (
	stepsOfChange = 64
	leastTrial    = 1 << 16
)

// charge counts steps of work for a group; false: they are more than its share.
func (s *State) charge(g *group, steps int) bool {
	g.steps += steps
	s.work += steps
	return g.steps <= s.limits.Steps
}

// Work returns the number of steps of all work since New: comparisons, and visits of members, addresses and rules.
func (s *State) Work() int { return s.work + s.space.work }

// giveUp leaves a group to the rendering without classes. The next flush releases what only it asks for.
func (s *State) giveUp(g *group, err error) {
	g.plain, g.idle = err, 0
	s.plains[g] = struct{}{}
	for c := range g.entries {
		s.enter(g, c, nil)
	}
	for f := range g.world {
		s.setWorld(g, f, nil)
	}
	delete(s.delta.Flip.World, g.id)
	for _, key := range g.walk.keys() {
		s.mayMatter(key)
	}
}

// revive has the next flush try a group again that was left out.
func (s *State) revive(g *group) {
	if g.plain == nil {
		return
	}
	delete(s.plains, g)
	g.plain, g.all, g.relaid = nil, true, true
	s.dirty[g] = struct{}{}
	for _, key := range g.walk.keys() {
		s.mayMatter(key)
	}
}

// retry revives the groups for which enough members have changed.
func (s *State) retry() {
	for g := range s.plains {
		if g.idle += s.changes; g.idle*stepsOfChange >= max(g.steps, leastTrial) {
			s.revive(g)
		}
	}
	s.changes = 0
}

// active reports whether a group that is evaluated by class asks for a form.
func (s *State) active(key formKey) bool {
	for g := range s.users[key] {
		if g.plain == nil {
			return true
		}
	}
	return false
}

// excess returns why a group cannot be evaluated by class whatever the classes are.
func (s *State) excess(g *group) error {
	for _, key := range g.walk.keys() {
		if f := s.forms[key]; f != nil && f.over != nil {
			return f.over
		}
	}
	return nil
}

// makeRoom finds those to whom it is due that there are more entries than the limit, and has the groups that found no room tried again.
// One rule that has each address in a class of its own multiplies the entries of all groups: so those are left out whose policy
// treats the most classes differently, not those that were judged last.
func (s *State) makeRoom() {
	found := s.crowded
	s.crowded = nil
	if len(found) == 0 {
		return
	}
	ranked := s.splitters()
	least, atMost := ranked[0].classes/2, len(found)
	for i, r := range ranked {
		if i == atMost || r.classes < least {
			break
		}
		if r.group.plain == nil {
			s.giveUp(r.group, errEntries)
		}
		found = slices.DeleteFunc(found, func(g *group) bool { return g == r.group })
		s.tell(r.group)
	}
	for _, g := range found {
		s.revive(g)
	}
}

// splitter is a group, and how many classes of a sample its policy treats differently.
type splitter struct {
	group   *group
	classes int
	name    string
}

// sample is of how many classes splitters are judged.
const sample = 1024

// splitters returns the groups that have lists, first those whose policy treats the most classes differently. The order follows from content.
func (s *State) splitters() (out []splitter) {
	classes := make([]*class, 0, len(s.space.classes))
	for _, c := range s.space.classes {
		classes = append(classes, c)
	}
	slices.SortFunc(classes, func(a, b *class) int { return cmp.Compare(a.id, b.id) })
	classes = classes[:min(len(classes), sample)]
	for _, g := range s.groups {
		if len(g.lists[0].steps) == 0 {
			continue
		}
		keys := map[string]struct{}{}
		for _, c := range classes {
			l := &g.lists[c.family]
			asked := l.asked(c.of)
			s.work += 1 + len(asked)
			keys[l.key(asked, c.of)] = struct{}{}
		}
		out = append(out, splitter{g, len(keys), fmt.Sprint(g.walk)})
	}
	slices.SortFunc(out, func(a, b splitter) int {
		return cmp.Or(cmp.Compare(b.classes, a.classes), strings.Compare(a.name, b.name))
	})
	return out
}

// tell has the Delta say whether a group is left out, if the last one that spoke of it said otherwise.
func (s *State) tell(g *group) {
	why := ""
	if g.plain != nil {
		why = g.plain.Error()
	}
	if s.groups[g.id] == g && why != g.stated {
		g.stated = why
		s.delta.Plain[g.id] = why
	}
}
