package selector

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// String returns the canonical text: sets sorted, and/or in parentheses, spaces
// and quotes always the same. It parses to the same selector.
func (s *Selector) String() string {
	if len(s.nodes) == 0 {
		return "all()"
	}
	var b strings.Builder
	b.Grow(s.roughLen())
	s.print(&b, s.root())
	return b.String()
}

// UniqueID identifies the canonical text. It is the id that Calico gives the IP
// set of this selector, so that names agree.
func (s *Selector) UniqueID() string {
	sum := sha256.Sum224([]byte("s:" + s.String()))
	return "s:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// roughLen is at least the length of the canonical text.
func (s *Selector) roughLen() int {
	const longestOperator = len(`! starts with ""() && `)
	n := 0
	for i := range s.nodes {
		n += len(s.nodes[i].label) + len(s.nodes[i].value) + longestOperator
	}
	for _, v := range s.values {
		n += len(v) + len(`"", `)
	}
	return n
}

var operatorText = [...]string{
	opEqual: " == ", opNotEqual: " != ", opIn: " in ", opNotIn: " not in ",
	opContains: " contains ", opStartsWith: " starts with ", opEndsWith: " ends with ",
}

func (s *Selector) print(b *strings.Builder, i int32) {
	n := &s.nodes[i]
	if n.not {
		b.WriteByte('!')
	}
	switch n.op {
	case opAll:
		b.WriteString("all()")
	case opGlobal:
		b.WriteString("global()")
	case opHas:
		b.WriteString("has(")
		b.WriteString(n.label)
		b.WriteByte(')')
	case opAnd:
		s.printGroup(b, n, " && ")
	case opOr:
		s.printGroup(b, n, " || ")
	case opIn, opNotIn:
		b.WriteString(n.label)
		b.WriteString(operatorText[n.op])
		b.WriteByte('{')
		for k, v := range s.values[n.first:n.end] {
			if k > 0 {
				b.WriteString(", ")
			}
			quote(b, v)
		}
		b.WriteByte('}')
	default:
		b.WriteString(n.label)
		b.WriteString(operatorText[n.op])
		quote(b, n.value)
	}
}

func (s *Selector) printGroup(b *strings.Builder, n *node, joint string) {
	b.WriteByte('(')
	for k := n.first; ; k = s.nodes[k].next {
		s.print(b, k)
		if s.nodes[k].next == 0 {
			break
		}
		b.WriteString(joint)
	}
	b.WriteByte(')')
}

// quote needs no escapes: a string was read between quotes of one kind, so it
// cannot hold both kinds.
func quote(b *strings.Builder, v string) {
	q := byte('"')
	if strings.IndexByte(v, '"') >= 0 {
		q = '\''
	}
	b.WriteByte(q)
	b.WriteString(v)
	b.WriteByte(q)
}
