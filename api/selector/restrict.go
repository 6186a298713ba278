package selector

import (
	"maps"
	"slices"
)

// Restriction is what must be true of one label wherever a selector matches.
// It may say less than is true, never more: an index that looks only where the
// restriction holds misses nothing.
type Restriction struct {
	MustBePresent bool
	MustBeAbsent  bool
	// MustHaveOneOfValues is sorted; nil means any value. Empty and not nil means
	// that no value will do, so the selector matches nothing.
	MustHaveOneOfValues []string
}

// Possible reports whether any label set can satisfy r.
func (r Restriction) Possible() bool {
	if r.MustBeAbsent && r.MustBePresent {
		return false
	}
	return r.MustHaveOneOfValues == nil || len(r.MustHaveOneOfValues) > 0
}

// Restrictions returns what s demands of single labels, by label name. Labels of
// which nothing is known are not in it.
func (s *Selector) Restrictions() map[string]Restriction {
	if len(s.nodes) == 0 {
		return map[string]Restriction{}
	}
	f := s.facts(s.root(), false)
	if f.by == nil {
		return map[string]Restriction{}
	}
	return f.by
}

// Demands reports whether s matches nothing without the label, by what is known from [Selector.Restrictions].
func (s *Selector) Demands(label string) bool {
	names := func(n node) bool { return n.label == label }
	return slices.ContainsFunc(s.nodes, names) && s.Restrictions()[label].MustBePresent // most selectors do not speak of it
}

// facts are the restrictions of one part of an expression. never means that the
// part matches nothing; then anything said of it is true.
type facts struct {
	by    map[string]Restriction
	never bool
}

// facts analyses node i, or its opposite if inverted.
func (s *Selector) facts(i int32, inverted bool) facts {
	n := &s.nodes[i]
	inverted = inverted != n.not
	switch n.op {
	case opAll, opGlobal:
		return facts{never: inverted}
	case opAnd, opOr:
		return s.groupFacts(n, inverted)
	}
	r := s.leafRestriction(n, inverted)
	if !r.MustBePresent && !r.MustBeAbsent {
		return facts{}
	}
	return facts{by: map[string]Restriction{n.label: r}, never: !r.Possible()}
}

// groupFacts joins operands. The opposite of an "and" is the "or" of the
// opposites, and the other way round.
func (s *Selector) groupFacts(n *node, inverted bool) facts {
	join := either
	if (n.op == opAnd) != inverted {
		join = both
	}
	out := s.facts(n.first, inverted)
	for k := s.nodes[n.first].next; k != 0; k = s.nodes[k].next {
		out = join(out, s.facts(k, inverted))
	}
	return out
}

func (s *Selector) leafRestriction(n *node, inverted bool) Restriction {
	if inverted {
		switch n.op {
		case opHas:
			return Restriction{MustBeAbsent: true}
		case opNotEqual:
			return Restriction{MustBePresent: true, MustHaveOneOfValues: []string{n.value}}
		case opNotIn:
			return Restriction{MustBePresent: true, MustHaveOneOfValues: s.copySet(n)}
		}
		return Restriction{}
	}
	switch n.op {
	case opHas, opContains, opStartsWith, opEndsWith:
		return Restriction{MustBePresent: true}
	case opEqual:
		return Restriction{MustBePresent: true, MustHaveOneOfValues: []string{n.value}}
	case opIn:
		return Restriction{MustBePresent: true, MustHaveOneOfValues: s.copySet(n)}
	}
	return Restriction{}
}

// copySet never returns nil: nil would mean any value.
func (s *Selector) copySet(n *node) []string {
	return append(make([]string, 0, n.end-n.first), s.values[n.first:n.end]...)
}

// both holds where a and b hold: all that either says. It reuses a's map.
func both(a, b facts) facts {
	out := facts{by: a.by, never: a.never || b.never}
	if out.by == nil {
		out.by = b.by
		return out
	}
	for label, r := range b.by {
		had, ok := out.by[label]
		if ok {
			r = Restriction{
				MustBePresent:       r.MustBePresent || had.MustBePresent,
				MustBeAbsent:        r.MustBeAbsent || had.MustBeAbsent,
				MustHaveOneOfValues: intersect(had.MustHaveOneOfValues, r.MustHaveOneOfValues),
			}
		}
		out.by[label] = r
		out.never = out.never || !r.Possible()
	}
	return out
}

// either holds where a or b holds: only what both say. A side that matches
// nothing adds nothing.
func either(a, b facts) facts {
	if a.never {
		return b
	}
	if b.never {
		return a
	}
	for label, r := range a.by {
		other, ok := b.by[label]
		if !ok {
			delete(a.by, label)
			continue
		}
		r.MustBePresent = r.MustBePresent && other.MustBePresent
		r.MustBeAbsent = r.MustBeAbsent && other.MustBeAbsent
		r.MustHaveOneOfValues = union(r.MustHaveOneOfValues, other.MustHaveOneOfValues)
		if !r.MustBePresent && !r.MustBeAbsent {
			delete(a.by, label)
			continue
		}
		a.by[label] = r
	}
	return a
}

func intersect(a, b []string) []string {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := []string{}
	for _, v := range a {
		if _, ok := slices.BinarySearch(b, v); ok {
			out = append(out, v)
		}
	}
	return out
}

// union of nil, any value, and anything is nil.
func union(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	all := make(map[string]struct{}, len(a)+len(b))
	for _, v := range a {
		all[v] = struct{}{}
	}
	for _, v := range b {
		all[v] = struct{}{}
	}
	return slices.Sorted(maps.Keys(all))
}
