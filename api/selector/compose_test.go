package selector

import "testing"

func TestAnd(t *testing.T) {
	for _, tt := range []struct{ name, a, b, want string }{
		{"two conditions", `has(a)`, `has(b)`, `(has(a) && has(b))`},
		{"all disappears on the left", ``, `has(b)`, `has(b)`},
		{"all disappears on the right", `has(a)`, `all()`, `has(a)`},
		{"all with all", ``, `all()`, `all()`},
		{"not all stays", `!all()`, `has(a)`, `(!all() && has(a))`},
		{"or keeps its parentheses", `has(a) || has(b)`, `has(c)`, `((has(a) || has(b)) && has(c))`},
		{
			"groups and sets on both sides", `a in {"2","1"} || has(b)`, `c not in {"3"} && d in {"5","4"}`,
			`((a in {"1", "2"} || has(b)) && (c not in {"3"} && d in {"4", "5"}))`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := And(parse(t, tt.a), parse(t, tt.b)).String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestNot(t *testing.T) {
	for _, tt := range []struct{ name, of, want string }{
		{"one condition", `has(a)`, `!has(a)`},
		{"twice is not at all", `!has(a)`, `has(a)`},
		{"an empty one is all()", ``, `!all()`},
		{"a group keeps its parentheses", `has(a) || b in {"2", "1"}`, `!(has(a) || b in {"1", "2"})`},
		{"a group that is negated", `!(has(a) && has(b))`, `(has(a) && has(b))`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parse(t, tt.of)
			before := s.String()
			if got := Not(s).String(); got != tt.want || s.String() != before {
				t.Errorf("got %s, want %s; the original is %s", got, tt.want, s)
			}
		})
	}
}

func TestAndLeavesItsOperandsAlone(t *testing.T) {
	a, b := parse(t, `x in {"1"} && has(y)`), parse(t, `z == "2"`)
	before := a.String() + b.String()
	first := And(a, b)
	And(And(first, a), b)
	if a.String()+b.String() != before || first.String() != `((x in {"1"} && has(y)) && z == "2")` {
		t.Errorf("changed: %s, %s, %s", a, b, first)
	}
}

func TestWithin(t *testing.T) {
	for text, want := range map[string]string{
		"all()": "has(ns)", "": "has(ns)", "!all()": "!has(ns)", `all() || a == "all()"`: `(has(ns) || a == "all()")`,
		`!(all() && has(b)) || global()`: "(!(has(ns) && has(b)) || global())",
	} {
		s := parse(t, text)
		before := s.String()
		if got := s.Within("ns").String(); got != want || s.String() != before {
			t.Errorf("%q became %s, want %s; the original is %s", text, got, want, s)
		}
	}
}

func TestPrefixed(t *testing.T) {
	s := parse(t, `a == "a" && !(has(b) || c in {"c"} || global() || all())`)
	before := s.String()
	got := s.Prefixed("pcns.")
	if want := `(pcns.a == "a" && !(has(pcns.b) || pcns.c in {"c"} || global() || all()))`; got.String() != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s.String() != before {
		t.Errorf("the original became %s", s)
	}
}
