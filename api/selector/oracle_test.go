package selector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/seedtest"
)

// expr is the slow, obvious selector: a tree that evaluates itself and writes
// itself in one of the many ways that people may write it.
type expr interface {
	eval(l labels) bool
	write(r *rand.Rand) string
	level() int // how tightly it binds: 0 or, 1 and, 2 the rest
}

type (
	call    struct{ name, label string }
	compare struct {
		label, op string
		values    []string
	}
)

type (
	negate struct{ e expr }
	join   struct {
		op    string
		parts []expr
	}
)

func (c call) eval(l labels) bool {
	_, ok := l[c.label]
	return ok || c.name != "has"
}

func (c compare) eval(l labels) bool {
	v, ok := l[c.label]
	if c.op == "!=" || c.op == "not in" {
		return !ok || !slices.Contains(c.values, v)
	}
	if !ok {
		return false
	}
	switch c.op {
	case "==", "in":
		return slices.Contains(c.values, v)
	case "contains":
		return strings.Contains(v, c.values[0])
	case "starts with":
		return strings.HasPrefix(v, c.values[0])
	}
	return strings.HasSuffix(v, c.values[0])
}

func (n negate) eval(l labels) bool { return !n.e.eval(l) }

func (j join) eval(l labels) bool {
	all, any := true, false
	for _, p := range j.parts {
		all, any = all && p.eval(l), any || p.eval(l)
	}
	return j.op == "&&" && all || j.op == "||" && any
}

func (call) level() int    { return 2 }
func (compare) level() int { return 2 }
func (negate) level() int  { return 2 }
func (j join) level() int {
	if j.op == "||" {
		return 0
	}
	return 1
}

func gap(r *rand.Rand) string { return []string{"", "", " ", "\t", "  \t"}[r.IntN(5)] }

func inQuotes(r *rand.Rand, v string) string {
	q := `"`
	if strings.Contains(v, `"`) || r.IntN(2) == 0 && !strings.Contains(v, "'") {
		q = "'"
	}
	return q + v + q
}

func (c call) write(r *rand.Rand) string { return c.name + "(" + gap(r) + c.label + gap(r) + ")" }

func (c compare) write(r *rand.Rand) string {
	op := c.op
	if r.IntN(2) == 0 && op != "==" && op != "!=" {
		op = strings.ReplaceAll(op, " ", "")
	}
	op = strings.ReplaceAll(op, " ", " "+gap(r))
	if c.op != "in" && c.op != "not in" {
		return c.label + " " + gap(r) + op + gap(r) + inQuotes(r, c.values[0])
	}
	out := c.label + " " + gap(r) + op + gap(r) + "{"
	for i, v := range c.values {
		out += gap(r) + inQuotes(r, v) + gap(r)
		if i < len(c.values)-1 || r.IntN(4) == 0 {
			out += ","
		}
	}
	return out + gap(r) + "}"
}

// writeAt writes e where at least this level is needed, and at times needlessly
// in parentheses.
func writeAt(r *rand.Rand, e expr, level int) string {
	s := e.write(r)
	for e.level() < level || r.IntN(8) == 0 {
		s, level = "("+gap(r)+s+gap(r)+")", 0
	}
	return gap(r) + s + gap(r)
}

func (n negate) write(r *rand.Rand) string { return "!" + writeAt(r, n.e, 2) }

func (j join) write(r *rand.Rand) string {
	var out []string
	for _, p := range j.parts {
		out = append(out, writeAt(r, p, j.level()+1))
	}
	return strings.Join(out, j.op)
}

var (
	someLabels = []string{"a", "b", "in", "x/y"}
	someValues = []string{"", "x", "y", "xy", `q"q`, "it's"}
	someOps    = []string{"==", "!=", "in", "not in", "contains", "starts with", "ends with"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

func randomExpr(r *rand.Rand, depth int) expr {
	kind := r.IntN(10)
	if depth == 0 {
		kind = r.IntN(5)
	}
	switch {
	case kind == 0:
		if r.IntN(3) > 0 {
			return call{"has", pick(r, someLabels)}
		}
		return call{pick(r, []string{"all", "global"}), ""}
	case kind < 5:
		c := compare{pick(r, someLabels), pick(r, someOps), []string{pick(r, someValues)}}
		if c.op == "in" || c.op == "not in" {
			c.values = nil
			for range r.IntN(4) {
				c.values = append(c.values, pick(r, someValues))
			}
		}
		return c
	case kind < 7:
		return negate{randomExpr(r, depth-1)}
	}
	j := join{op: pick(r, []string{"&&", "||"})}
	for range 2 + r.IntN(3) {
		j.parts = append(j.parts, randomExpr(r, depth-1))
	}
	return j
}

// everyLabelSet has each label absent and with each value, and a value that no
// selector names.
func everyLabelSet() []labels {
	sets := []labels{{}}
	for _, l := range someLabels {
		for _, old := range sets {
			for _, v := range append([]string{"other"}, someValues...) {
				set := labels{l: v}
				for k, v := range old {
					set[k] = v
				}
				sets = append(sets, set)
			}
		}
	}
	return sets
}

func TestRandomSelectorsAgreeWithTheObviousEvaluation(t *testing.T) {
	r := seedtest.Rand(t)
	sets := everyLabelSet()
	for range 400 {
		e := randomExpr(r, 3)
		text := writeAt(r, e, 0)
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		canonical := s.String()
		again := parse(t, canonical)
		if again.String() != canonical || again.UniqueID() != s.UniqueID() {
			t.Fatalf("%q: canonical %s reads as %s", text, canonical, again)
		}
		for range 200 {
			l := sets[r.IntN(len(sets))]
			want := e.eval(l)
			if s.Match(l) != want || again.Match(l) != want || s.MatchLabels(&inherited{own: l}) != want {
				t.Fatalf("%q on %v = %v, canonical %v, want %v", text, l, s.Match(l), again.Match(l), want)
			}
		}
	}
}

func TestRandomJoinsAndPrefixesAgreeWithTheObviousEvaluation(t *testing.T) {
	r := seedtest.Rand(t)
	sets := everyLabelSet()
	for range 200 {
		x, y := randomExpr(r, 2), randomExpr(r, 2)
		a, b := parse(t, writeAt(r, x, 0)), parse(t, writeAt(r, y, 0))
		joined, prefixed := And(And(a, b), a), a.Prefixed("p.")
		if again := parse(t, joined.String()); again.String() != joined.String() {
			t.Fatalf("%s reads as %s", joined, again)
		}
		for range 100 {
			l := sets[r.IntN(len(sets))]
			if want := x.eval(l) && y.eval(l); joined.Match(l) != want {
				t.Fatalf("%s on %v = %v, want %v", joined, l, !want, want)
			}
			under := labels{}
			for k, v := range l {
				under["p."+k] = v
			}
			if want := x.eval(l); prefixed.Match(under) != want {
				t.Fatalf("%s on %v = %v, want %v", prefixed, under, !want, want)
			}
		}
	}
}

func TestRandomRestrictionsNeverClaimTooMuch(t *testing.T) {
	r := seedtest.Rand(t)
	sets := everyLabelSet()
	claims := 0
	for range 300 {
		e := randomExpr(r, 3)
		s := parse(t, writeAt(r, e, 0))
		restrictions := s.Restrictions()
		claims += len(restrictions)
		if len(restrictions) == 0 {
			continue
		}
		for _, l := range sets {
			if !e.eval(l) {
				continue
			}
			for label, claim := range restrictions {
				if v, ok := l[label]; !holds(claim, v, ok) {
					t.Fatalf("%s matches %v, yet claims %s: %+v", s, l, label, claim)
				}
			}
		}
	}
	if claims == 0 {
		t.Error("no restriction was ever claimed")
	}
}

func holds(r Restriction, v string, ok bool) bool {
	if r.MustBePresent && !ok || r.MustBeAbsent && ok {
		return false
	}
	return r.MustHaveOneOfValues == nil || slices.Contains(r.MustHaveOneOfValues, v)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", typical, `!(a != 'x"' || b not in {}) && global()`, `((all()))`, `!!has(x/y)`,
		`in in {"a",} && a startswith "q" && b ends  with ""`, `has (a)`, `a = "b"`, "a\n", `a in {"x" "y"}`, "(((", "!!!",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || s != nil || e.Pos < 0 || e.Pos > len(text) || e.Error() == "" {
				t.Fatalf("%q: error %v at %d", text, err, e.Pos)
			}
			return
		}
		canonical := s.String()
		again, err := Parse(canonical)
		if err != nil {
			t.Fatalf("%q: canonical text: %v", text, err)
		}
		if again.String() != canonical {
			t.Fatalf("%q: canonical %q reads as %q", text, canonical, again)
		}
		for _, l := range labelsFor(s) {
			if s.Match(l) != again.Match(l) {
				t.Fatalf("%q and %q differ on %v", text, canonical, l)
			}
			if !s.Match(l) {
				continue
			}
			for label, claim := range s.Restrictions() {
				if v, ok := l[label]; !holds(claim, v, ok) {
					t.Fatalf("%q matches %v, yet claims %s: %+v", text, l, label, claim)
				}
			}
		}
	})
}

// labelsFor makes a few label sets out of the words of a selector.
func labelsFor(s *Selector) []labels {
	full, odd := labels{}, labels{}
	for i, n := range s.nodes {
		if n.label == "" {
			continue
		}
		v := n.value
		if n.op == opIn || n.op == opNotIn {
			if set := s.values[n.first:n.end]; len(set) > 0 {
				v = set[i%len(set)]
			}
		}
		full[n.label] = v
		if i%2 == 1 {
			odd[n.label] = fmt.Sprint(i)
		}
	}
	return []labels{nil, full, odd}
}
