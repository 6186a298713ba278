// Package selector reads Calico's selector language and asks it about labels.
//
// In: text such as `app == "web" && role in {"a", "b"} && !has(old)`.
// Out: a [Selector], which matches label sets, prints its canonical text and
// id, and says what it demands of single labels so that callers can index it.
//
// A Selector never changes once it is made: any number of goroutines may use it.
// Nothing in it is computed late, so [Selector.String] and [Selector.UniqueID]
// do their work at each call; whoever asks often keeps the answer.
package selector

import (
	"slices"
	"strings"
)

// Labels is all that a selector needs of a label set. An endpoint that inherits
// labels from profiles can answer without building a merged map.
type Labels interface {
	Get(name string) (value string, ok bool)
}

// Selector is a parsed expression. Its zero value is all().
type Selector struct {
	// nodes are in the order in which they were completed: operands before the
	// expression that joins them, so the last one is the root.
	nodes []node
	// values are the members of all sets, one after another, sorted and unique
	// within each set.
	values []string
}

type op uint8

const (
	opAll op = iota
	opGlobal
	opHas
	opEqual
	opNotEqual
	opIn
	opNotIn
	opContains
	opStartsWith
	opEndsWith
	opAnd
	opOr
)

type node struct {
	label string
	value string // of comparisons with one string
	first int32  // and, or: the first operand; in, not in: the first index in values
	end   int32  // in, not in: one past the last index in values
	next  int32  // the next operand of the same and/or; 0: none, since node 0 is never a second operand
	depth uint16 // how deep and/or nest below and including this node; only the parser keeps it
	op    op
	not   bool // the answer is inverted; a flag, so that repeated negations collapse
}

type labelMap map[string]string

func (m labelMap) Get(name string) (string, bool) {
	v, ok := m[name]
	return v, ok
}

// Match reports whether the labels satisfy s. It allocates nothing.
func (s *Selector) Match(labels map[string]string) bool {
	return s.MatchLabels(labelMap(labels))
}

// MatchLabels is Match for labels that are not in a map. It allocates nothing
// itself. Nil means no labels.
func (s *Selector) MatchLabels(labels Labels) bool {
	if len(s.nodes) == 0 {
		return true
	}
	if labels == nil {
		labels = labelMap(nil)
	}
	return s.eval(s.root(), labels)
}

// All reports whether s is all(), and so matches anything. False does not mean
// that there are labels which it refuses.
func (s *Selector) All() bool { return s.sole(opAll) || len(s.nodes) == 0 }

// IsGlobal reports whether s is global() and nothing else. global() matches
// everything here; the caller that gives it a meaning rewrites it.
func (s *Selector) IsGlobal() bool { return s.sole(opGlobal) }

func (s *Selector) sole(o op) bool {
	return len(s.nodes) == 1 && s.nodes[0].op == o && !s.nodes[0].not
}

func (s *Selector) root() int32 { return int32(len(s.nodes) - 1) }

func (s *Selector) eval(i int32, labels Labels) bool {
	n := &s.nodes[i]
	switch n.op {
	case opAnd, opOr:
		// The first operand that answers like this decides.
		decisive := n.op == opOr
		for k := n.first; ; k = s.nodes[k].next {
			if s.eval(k, labels) == decisive {
				return decisive != n.not
			}
			if s.nodes[k].next == 0 {
				return decisive == n.not
			}
		}
	case opAll, opGlobal:
		return !n.not
	}
	v, ok := labels.Get(n.label)
	return s.test(n, v, ok) != n.not
}

// test answers for one label. The negative operators are true of an absent
// label, the positive ones false.
func (s *Selector) test(n *node, v string, ok bool) bool {
	switch n.op {
	case opHas:
		return ok
	case opEqual:
		return ok && v == n.value
	case opNotEqual:
		return !ok || v != n.value
	case opIn:
		return ok && s.inSet(n, v)
	case opNotIn:
		return !ok || !s.inSet(n, v)
	case opContains:
		return ok && strings.Contains(v, n.value)
	case opStartsWith:
		return ok && strings.HasPrefix(v, n.value)
	case opEndsWith:
		return ok && strings.HasSuffix(v, n.value)
	}
	panic("selector: operator without a test") // the parser makes no other
}

func (s *Selector) inSet(n *node, v string) bool {
	set := s.values[n.first:n.end]
	// Below this many, comparing lengths and bytes in turn beats halving.
	if len(set) <= 8 {
		return slices.Contains(set, v)
	}
	_, found := slices.BinarySearch(set, v)
	return found
}
