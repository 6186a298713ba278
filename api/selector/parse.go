package selector

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxLabel is the longest label name that the language knows, in bytes.
	MaxLabel = 512
	// MaxDepth bounds nested parentheses, as written and in canonical text, so
	// that hostile input cannot exhaust the stack. A resource's selector has at
	// most 1,024 characters and so cannot nest deeper.
	MaxDepth = 512
	// maxInput keeps every count of nodes and values within an int32.
	maxInput = 1 << 24
)

// Parse reads a selector; an empty one is all(). The error is an [*Error]. The
// result shares the text's memory.
func Parse(text string) (*Selector, error) {
	// Most selectors fit these, and then only exact copies reach the heap.
	var nodes [8]node
	var values [8]string
	p := parser{in: text, nodes: nodes[:0], values: values[:0]}
	if len(text) > maxInput {
		p.fail(0, fmt.Sprintf("selector of %d bytes; write at most %d", len(text), maxInput))
		return nil, p.err
	}
	p.space()
	if p.pos == len(p.in) {
		return &Selector{}, nil
	}
	if _, ok := p.or(); !ok {
		return nil, p.err
	}
	if p.pos < len(p.in) {
		p.unexpectedAfter()
		return nil, p.err
	}
	s := &Selector{nodes: make([]node, len(p.nodes))}
	copy(s.nodes, p.nodes)
	if len(p.values) > 0 {
		s.values = make([]string, len(p.values))
		copy(s.values, p.values)
	}
	return s, nil
}

// parser reads in one pass, by recursive descent. Each method leaves pos after
// any space that follows what it read, and returns the node it completed.
type parser struct {
	in     string
	pos    int
	parens int
	nodes  []node
	values []string
	err    error
}

func (p *parser) or() (int32, bool) {
	at, ok := p.and()
	if !ok || !p.has("||") {
		return at, ok
	}
	last, n := at, node{op: opOr, first: at, depth: p.nodes[at].depth}
	for p.take("||") {
		next, ok := p.and()
		if !ok {
			return 0, false
		}
		n.depth = max(n.depth, p.nodes[next].depth)
		p.nodes[last].next = next
		last = next
	}
	return p.group(n)
}

func (p *parser) and() (int32, bool) {
	at, ok := p.operand()
	if !ok || !p.has("&&") {
		return at, ok
	}
	last, n := at, node{op: opAnd, first: at, depth: p.nodes[at].depth}
	for p.take("&&") {
		next, ok := p.operand()
		if !ok {
			return 0, false
		}
		n.depth = max(n.depth, p.nodes[next].depth)
		p.nodes[last].next = next
		last = next
	}
	return p.group(n)
}

// group completes an and or an or. Canonical text parenthesises each of them,
// so the bound on parentheses applies here too: what we print must be readable.
func (p *parser) group(n node) (int32, bool) {
	if n.depth >= MaxDepth {
		return p.tooDeep(p.pos)
	}
	n.depth++
	return p.add(n), true
}

func (p *parser) add(n node) int32 {
	p.nodes = append(p.nodes, n)
	return int32(len(p.nodes) - 1)
}

func (p *parser) operand() (int32, bool) {
	not := false
	for p.take("!") {
		not = !not
	}
	var at int32
	var ok bool
	switch c := p.peek(); {
	case c == '(':
		at, ok = p.parenthesis()
	case isLabel[c]:
		at, ok = p.term()
	default:
		p.fail(p.pos, fmt.Sprintf("want a condition, found %s; write one such as app == \"web\", has(app), all() or ( … )", p.found()))
		return 0, false
	}
	if ok && not {
		p.nodes[at].not = !p.nodes[at].not
	}
	return at, ok
}

func (p *parser) parenthesis() (int32, bool) {
	open := p.pos
	if p.parens >= MaxDepth {
		return p.tooDeep(open)
	}
	p.parens++
	p.take("(")
	at, ok := p.or()
	if !ok {
		return 0, false
	}
	if !p.take(")") {
		if p.pos < len(p.in) {
			p.unexpectedAfter()
		} else {
			p.fail(p.pos, fmt.Sprintf("want ) for the ( at character %d, found the end; close it", p.character(open)))
		}
		return 0, false
	}
	p.parens--
	return at, true
}

// term reads a call or a comparison. A name is a call only if a parenthesis
// touches it; otherwise any name, even "has" or "in", is a label.
func (p *parser) term() (int32, bool) {
	start := p.pos
	name := p.word()
	if p.peek() == '(' {
		return p.call(start, name)
	}
	if !p.labelFits(start, name) {
		return 0, false
	}
	p.space()
	return p.comparison(name)
}

func (p *parser) call(start int, name string) (int32, bool) {
	n := node{}
	switch name {
	case "all":
		n.op = opAll
	case "global":
		n.op = opGlobal
	case "has":
		n.op = opHas
	default:
		p.fail(start, fmt.Sprintf("no function %s(); the functions are has(label), all() and global()", clip(name)))
		return 0, false
	}
	p.take("(")
	if n.op == opHas {
		at := p.pos
		n.label = p.word()
		if n.label == "" {
			p.fail(at, fmt.Sprintf("want a label name, found %s; write has(name), without quotes, with letters, digits and _ . / - only", p.found()))
			return 0, false
		}
		if !p.labelFits(at, n.label) {
			return 0, false
		}
		p.space()
	}
	if !p.take(")") {
		p.fail(p.pos, fmt.Sprintf("want ) to end %s(, found %s; write has(label), all() or global()", name, p.found()))
		return 0, false
	}
	return p.add(n), true
}

func (p *parser) comparison(label string) (int32, bool) {
	start := p.pos
	o, ok := p.operator()
	if !ok {
		p.pos = start
		p.fail(start, fmt.Sprintf("want ==, !=, in, not in, contains, starts with or ends with after label %s, found %s; to ask whether the label is there write has(%[1]s)", clip(label), p.found()))
		return 0, false
	}
	n := node{op: o, label: label}
	if o == opIn || o == opNotIn {
		n.first, n.end, ok = p.set()
	} else {
		n.value, ok = p.text()
	}
	if !ok {
		return 0, false
	}
	return p.add(n), true
}

func (p *parser) operator() (op, bool) {
	if p.take("==") {
		return opEqual, true
	}
	if p.take("!=") {
		return opNotEqual, true
	}
	word := p.word()
	p.space()
	switch word {
	case "in":
		return opIn, true
	case "notin":
		return opNotIn, true
	case "contains":
		return opContains, true
	case "startswith":
		return opStartsWith, true
	case "endswith":
		return opEndsWith, true
	}
	second := p.word()
	p.space()
	switch {
	case word == "not" && second == "in":
		return opNotIn, true
	case word == "starts" && second == "with":
		return opStartsWith, true
	case word == "ends" && second == "with":
		return opEndsWith, true
	}
	return 0, false
}

// text reads a quoted string. There are no escapes: it ends at the same quote.
func (p *parser) text() (string, bool) {
	quote := p.peek()
	if quote != '"' && quote != '\'' {
		p.fail(p.pos, fmt.Sprintf("want a quoted string, found %s; write it as \"value\" or 'value'", p.found()))
		return "", false
	}
	rest := p.in[p.pos+1:]
	end := strings.IndexByte(rest, quote)
	if end < 0 {
		p.fail(p.pos, fmt.Sprintf("string without an end; close it with %c", quote))
		return "", false
	}
	p.pos += end + 2
	p.space()
	return rest[:end], true
}

// set reads { "a", "b" } and returns where its members are in values.
func (p *parser) set() (first, end int32, ok bool) {
	if !p.take("{") {
		p.fail(p.pos, fmt.Sprintf("want a set, found %s; write it as {\"a\", \"b\"}", p.found()))
		return 0, 0, false
	}
	from := len(p.values)
	for p.peek() == '"' || p.peek() == '\'' {
		v, ok := p.text()
		if !ok {
			return 0, 0, false
		}
		p.values = append(p.values, v)
		if !p.take(",") {
			break
		}
	}
	if !p.take("}") {
		p.fail(p.pos, fmt.Sprintf("want a quoted string, a comma or }, found %s; write the set as {\"a\", \"b\"}", p.found()))
		return 0, 0, false
	}
	slices.Sort(p.values[from:])
	p.values = p.values[:from+len(slices.Compact(p.values[from:]))]
	return int32(from), int32(len(p.values)), true
}

// isLabel tells the characters of label names; keywords are made of them too.
var isLabel = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-" {
		is[c] = true
	}
	return is
}()

// word reads label characters. It leaves space that follows alone.
func (p *parser) word() string {
	start := p.pos
	for p.pos < len(p.in) && isLabel[p.in[p.pos]] {
		p.pos++
	}
	return p.in[start:p.pos]
}

func (p *parser) space() {
	for p.pos < len(p.in) && (p.in[p.pos] == ' ' || p.in[p.pos] == '\t') {
		p.pos++
	}
}

// peek returns 0 at the end; a real NUL is no token either.
func (p *parser) peek() byte {
	if p.pos < len(p.in) {
		return p.in[p.pos]
	}
	return 0
}

func (p *parser) has(token string) bool { return strings.HasPrefix(p.in[p.pos:], token) }

func (p *parser) take(token string) bool {
	if !p.has(token) {
		return false
	}
	p.pos += len(token)
	p.space()
	return true
}

func (p *parser) labelFits(at int, label string) bool {
	if len(label) <= MaxLabel {
		return true
	}
	p.fail(at, fmt.Sprintf("label name of %d characters; use at most %d", len(label), MaxLabel))
	return false
}

func (p *parser) fail(pos int, msg string) {
	p.err = &Error{Input: p.in, Pos: pos, Msg: msg}
}

func (p *parser) tooDeep(pos int) (int32, bool) {
	p.fail(pos, fmt.Sprintf("nested deeper than %d; write it with fewer parentheses", MaxDepth))
	return 0, false
}

// unexpectedAfter reports what follows a complete condition and does not belong.
func (p *parser) unexpectedAfter() {
	if p.parens > 0 {
		p.fail(p.pos, fmt.Sprintf("want &&, || or ), found %s; join conditions with && or ||, and close each (", p.found()))
		return
	}
	p.fail(p.pos, fmt.Sprintf("want &&, || or the end, found %s; join conditions with && or ||", p.found()))
}

// found names what is at pos, for people.
func (p *parser) found() string {
	if p.pos == len(p.in) {
		return "the end"
	}
	if p.in[p.pos] == '\n' || p.in[p.pos] == '\r' {
		return "a line break (only spaces and tabs may separate words)"
	}
	at := p.pos
	word := p.word()
	p.pos = at
	if word == "" {
		r, size := utf8.DecodeRuneInString(p.in[at:])
		if r == utf8.RuneError && size <= 1 {
			return fmt.Sprintf("byte %#x", p.in[at])
		}
		word = p.in[at : at+size]
	}
	return fmt.Sprintf("%q", clip(word))
}

func (p *parser) character(pos int) int { return utf8.RuneCountInString(p.in[:pos]) + 1 }

// clip shortens a name to what an error should repeat.
func clip(name string) string {
	if len(name) > 40 {
		return name[:40] + "…"
	}
	return name
}
