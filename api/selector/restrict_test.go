package selector

import (
	"reflect"
	"testing"
)

func TestRestrictions(t *testing.T) {
	present := Restriction{MustBePresent: true}
	absent := Restriction{MustBeAbsent: true}
	oneOf := func(v ...string) Restriction {
		return Restriction{MustBePresent: true, MustHaveOneOfValues: append([]string{}, v...)}
	}
	type want = map[string]Restriction
	for _, tt := range []struct {
		name, sel string
		want      want
	}{
		{"all demands nothing", `all()`, want{}},
		{"global demands nothing", `global()`, want{}},
		{"equal demands the value", `a == "x"`, want{"a": oneOf("x")}},
		{"in demands one of the values", `a in {"y","x"}`, want{"a": oneOf("x", "y")}},
		{"the empty set can be satisfied by no value", `a in {}`, want{"a": oneOf()}},
		{"has demands presence", `has(a)`, want{"a": present}},
		{"contains demands presence", `a contains "x"`, want{"a": present}},
		{"starts with demands presence", `a starts with "x"`, want{"a": present}},
		{"ends with demands presence", `a ends with "x"`, want{"a": present}},
		{"unequal demands nothing", `a != "x"`, want{}},
		{"not in demands nothing", `a not in {"x"}`, want{}},
		{"not has demands absence", `!has(a)`, want{"a": absent}},
		{"not unequal is equal", `!a != "x"`, want{"a": oneOf("x")}},
		{"not not in is in", `!a not in {"x"}`, want{"a": oneOf("x")}},
		{"not equal demands nothing", `!a == "x"`, want{}},
		{"not contains demands nothing", `!a contains "x"`, want{}},
		{"and collects", `a == "x" && has(b) && !has(c)`, want{"a": oneOf("x"), "b": present, "c": absent}},
		{"and intersects values", `a in {"x","y"} && a in {"y","z"} && has(a)`, want{"a": oneOf("y")}},
		{"and finds contradictions of values", `a == "x" && a == "y"`, want{"a": oneOf()}},
		{"and finds contradictions of presence", `has(a) && !has(a)`, want{"a": {MustBePresent: true, MustBeAbsent: true}}},
		{"or keeps what both sides say", `a == "x" && has(b) || a == "y" && has(c)`, want{"a": oneOf("x", "y")}},
		{"or forgets values that one side leaves open", `a == "x" || has(a)`, want{"a": present}},
		{"or of presence and absence says nothing", `has(a) || !has(a)`, want{}},
		{"or with all says nothing", `a == "x" || all()`, want{}},
		{"or ignores a side that matches nothing", `a == "x" || !all() || b in {}`, want{"a": oneOf("x")}},
		{"or ignores a contradiction", `a == "x" && !has(a) || has(b)`, want{"b": present}},
		{"not of or is and of nots", `!(has(a) || b != "x")`, want{"a": absent, "b": oneOf("x")}},
		{"not of and is or of nots", `!(!a == "x" && a != "y" && a not in {"z"})`, want{"a": oneOf("x", "y", "z")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.sel).Restrictions(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s: got %+v, want %+v", tt.sel, got, tt.want)
			}
		})
	}
}

func TestRestrictionsAreTheCallersOwn(t *testing.T) {
	s := parse(t, `a in {"x","y"}`)
	s.Restrictions()["a"].MustHaveOneOfValues[0] = "q"
	if s.String() != `a in {"x", "y"}` {
		t.Errorf("the selector became %s", s)
	}
}

func TestDemands(t *testing.T) {
	for sel, want := range map[string]bool{
		`all()`: false, `has(a)`: true, `a == "x" && b == "y"`: true, `has(b) && has(a)`: true, `a == "x" || b == "y"`: false, `a == "x" || has(a)`: true,
		`!has(a)`: false, `a != "x"`: false, `has(ab)`: false, `b == "a"`: false, `!!has(a)`: true, `!(a != "x")`: true,
	} {
		s, err := Parse(sel)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Demands("a"); got != want {
			t.Errorf("%s demands a: %v", sel, got)
		}
	}
}
