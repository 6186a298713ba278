package selector

import "slices"

// And returns a selector that matches what both match. Its canonical text is
// that of "(a) && (b)", except that all() disappears. Joins may nest deeper
// than [MaxDepth]; text that deep is not read back.
func And(a, b *Selector) *Selector {
	if a.All() {
		return b
	}
	if b.All() {
		return a
	}
	nodes := make([]node, 0, len(a.nodes)+len(b.nodes)+1)
	values := make([]string, 0, len(a.values)+len(b.values))
	s := &Selector{nodes: nodes, values: values}
	first := s.graft(a)
	second := s.graft(b)
	s.nodes[first].next = second
	s.nodes = append(s.nodes, node{op: opAnd, first: first})
	return s
}

// Not returns a selector that matches what s does not. Its canonical text is that of "!(s)".
func Not(s *Selector) *Selector {
	out := &Selector{nodes: slices.Clone(s.nodes), values: s.values}
	if len(out.nodes) == 0 {
		out.nodes = []node{{op: opAll}}
	}
	root := &out.nodes[out.root()]
	root.not = !root.not
	return out
}

// graft copies all of t behind what s holds, and returns t's root in s.
func (s *Selector) graft(t *Selector) int32 {
	nodeShift, valueShift := int32(len(s.nodes)), int32(len(s.values))
	for _, n := range t.nodes {
		switch n.op {
		case opAnd, opOr:
			n.first += nodeShift
		case opIn, opNotIn:
			n.first += valueShift
			n.end += valueShift
		}
		if n.next != 0 {
			n.next += nodeShift
		}
		s.nodes = append(s.nodes, n)
	}
	s.values = append(s.values, t.values...)
	return s.root()
}

// Within returns s with has(label) in the place of each all(): for a selector of what has the label, such as one of namespaces, all() is all that has it.
func (s *Selector) Within(label string) *Selector {
	out := &Selector{nodes: slices.Clone(s.nodes), values: s.values}
	if len(out.nodes) == 0 {
		out.nodes = []node{{op: opAll}}
	}
	for i := range out.nodes {
		if n := &out.nodes[i]; n.op == opAll {
			n.op, n.label = opHas, label
		}
	}
	return out
}

// Prefixed returns s with prefix before each label name, so that it can ask for
// labels that an endpoint inherits under that prefix (pcns. for its namespace's,
// pcsa. for its service account's). all() and global() stay as they are. The
// prefix must consist of label characters.
func (s *Selector) Prefixed(prefix string) *Selector {
	if prefix == "" || len(s.nodes) == 0 {
		return s
	}
	out := &Selector{nodes: make([]node, len(s.nodes)), values: s.values}
	copy(out.nodes, s.nodes)
	for i := range out.nodes {
		if out.nodes[i].label != "" {
			out.nodes[i].label = prefix + out.nodes[i].label
		}
	}
	return out
}
