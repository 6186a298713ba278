package selector

import (
	"errors"
	"strings"
	"testing"
)

func parse(t testing.TB, text string) *Selector {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type labels = map[string]string

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		name, sel string
		labels    labels
		want      bool
	}{
		{"equal value", `a == "b"`, labels{"a": "b"}, true},
		{"other value is not equal", `a == "b"`, labels{"a": "c"}, false},
		{"absent label equals nothing", `a == "b"`, nil, false},
		{"absent label does not equal the empty string", `a == ""`, nil, false},
		{"empty value equals the empty string", `a == ""`, labels{"a": ""}, true},
		{"same value is not unequal", `a != "b"`, labels{"a": "b"}, false},
		{"other value is unequal", `a != "b"`, labels{"a": "c"}, true},
		{"absent label is unequal", `a != "b"`, nil, true},
		{"member is in", `a in {"x", "b"}`, labels{"a": "b"}, true},
		{"stranger is not in", `a in {"x", "b"}`, labels{"a": "c"}, false},
		{"absent label is in nothing", `a in {"x", ""}`, nil, false},
		{"nothing is in the empty set", `a in {}`, labels{"a": ""}, false},
		{"member of a large set is found by halving", `a in {"9","8","7","6","5","4","3","2","1","0"}`, labels{"a": "7"}, true},
		{"stranger to a large set", `a in {"9","8","7","6","5","4","3","2","1","0"}`, labels{"a": "77"}, false},
		{"member fails not in", `a not in {"x", "b"}`, labels{"a": "b"}, false},
		{"stranger passes not in", `a not in {"x", "b"}`, labels{"a": "c"}, true},
		{"absent label passes not in", `a not in {"x", "b"}`, nil, true},
		{"notin is not in", `a notin {"b"}`, labels{"a": "b"}, false},
		{"all pass not in the empty set", `a not in {}`, labels{"a": "b"}, true},
		{"has sees the empty value", `has(a)`, labels{"a": ""}, true},
		{"has misses an absent label", `has(a)`, labels{"b": ""}, false},
		{"contains", `a contains "ell"`, labels{"a": "hello"}, true},
		{"does not contain", `a contains "elk"`, labels{"a": "hello"}, false},
		{"absent label contains nothing", `a contains ""`, nil, false},
		{"starts with", `a starts with "he"`, labels{"a": "hello"}, true},
		{"startswith in one word", `a startswith "he"`, labels{"a": "hello"}, true},
		{"does not start with", `a starts with "lo"`, labels{"a": "hello"}, false},
		{"absent label starts with nothing", `a starts with ""`, nil, false},
		{"ends with", `a ends with "lo"`, labels{"a": "hello"}, true},
		{"endswith in one word", `a endswith "lo"`, labels{"a": "hello"}, true},
		{"does not end with", `a ends with "he"`, labels{"a": "hello"}, false},
		{"absent label ends with nothing", `a ends with ""`, nil, false},
		{"all matches no labels", `all()`, nil, true},
		{"not all matches nothing", `!all()`, labels{"a": "b"}, false},
		{"global is true by itself", `global()`, nil, true},
		{"empty text is all", ``, nil, true},
		{"blank text is all", " \t ", nil, true},
		{"not", `!has(a)`, nil, true},
		{"two negations cancel", `!!has(a)`, labels{"a": ""}, true},
		{"three negations are one", `! !	!has(a)`, labels{"a": ""}, false},
		{"negations cancel through parentheses", `!(!(has(a)))`, labels{"a": ""}, true},
		{"not binds to the comparison", `!a == "b"`, labels{"a": "c"}, true},
		{"not binds tighter than and", `!has(a) && has(b)`, labels{"a": ""}, false},
		{"and binds tighter than or, on the left", `has(a) && has(b) || has(c)`, labels{"c": ""}, true},
		{"and binds tighter than or, on the right", `has(a) || has(b) && has(c)`, labels{"a": ""}, true},
		{"parentheses come first", `(has(a) || has(b)) && has(c)`, labels{"a": ""}, false},
		{"not of a group", `!(has(a) && has(b))`, labels{"a": ""}, true},
		{"a later and operand can refuse", `has(a) && has(b) && has(c)`, labels{"a": "", "b": ""}, false},
		{"the last or operand can accept", `has(a) || has(b) || has(c)`, labels{"c": ""}, true},
		{"the other quotes", `a == 'b'`, labels{"a": "b"}, true},
		{"a double quote within single ones", `a == 'b"c'`, labels{"a": `b"c`}, true},
		{"backslash is no escape", `a == "b\"`, labels{"a": `b\`}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.sel).Match(tt.labels); got != tt.want {
				t.Errorf("%s on %v = %v, want %v", tt.sel, tt.labels, got, tt.want)
			}
		})
	}
}

func TestCanonicalText(t *testing.T) {
	for _, tt := range []struct{ name, sel, want string }{
		{"empty is all", ``, `all()`},
		{"blank is all", "\t ", `all()`},
		{"all", ` all( ) `, `all()`},
		{"global", `global()`, `global()`},
		{"comparison", `a=='b'`, `a == "b"`},
		{"and in parentheses", `a == "b" && has(c)`, `(a == "b" && has(c))`},
		{"chains stay flat", `has(a)&&has(b)&&has(c)`, `(has(a) && has(b) && has(c))`},
		{"nesting as written stays", `(has(a)&&has(b))&&has(c)`, `((has(a) && has(b)) && has(c))`},
		{"precedence made visible", `has(a) || !has(b) && has(c)`, `(has(a) || (!has(b) && has(c)))`},
		{"needless parentheses go", `((has( a )))`, `has(a)`},
		{"negations collapse", `!!!has(a)`, `!has(a)`},
		{"negations collapse through parentheses", `!(!has(a))`, `has(a)`},
		{"not of a group", `!(has(a) || has(b))`, `!(has(a) || has(b))`},
		{"set sorted, without duplicates", `a in {'y', "x", 'y'}`, `a in {"x", "y"}`},
		{"trailing comma", `a in {"x",}`, `a in {"x"}`},
		{"empty set", `a not in { }`, `a not in {}`},
		{"notin in two words", `a notin{"x"}`, `a not in {"x"}`},
		{"wide operator words", "a not \t in {'x'} || b starts  with 'y' || b ends\twith 'z'", `(a not in {"x"} || b starts with "y" || b ends with "z")`},
		{"narrow operator words", `b startswith 'y' || b endswith 'z' || b contains'q'`, `(b starts with "y" || b ends with "z" || b contains "q")`},
		{"single quotes where the value has double ones", `a == 'b"c'`, `a == 'b"c'`},
		{"double quotes where the value has single ones", `a == "b'c"`, `a == "b'c"`},
		{"no space at all", `!a=="b"&&(c!="d"||has(e))`, `(!a == "b" && (c != "d" || has(e)))`},
		{"every label character", `has(azAZ09_./-)`, `has(azAZ09_./-)`},
		{
			"keywords as labels", `in in {"a"} && not not in {"a"} && has == "b" && all == "c" && global != "d" && notin notin {} && contains contains "e" && starts starts with "f" && has(has) && has(in)`,
			`(in in {"a"} && not not in {"a"} && has == "b" && all == "c" && global != "d" && notin not in {} && contains contains "e" && starts starts with "f" && has(has) && has(in))`,
		},
		{"a label may begin with a keyword", `has-it == "x" && inner in {"y"} && all.b == "z"`, `(has-it == "x" && inner in {"y"} && all.b == "z")`},
		{"a line break within a string", "a == 'x\ny'", "a == \"x\ny\""},
		{"the longest label", "has(" + strings.Repeat("l", 512) + ")", "has(" + strings.Repeat("l", 512) + ")"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, tt.sel).String()
			if got != tt.want {
				t.Errorf("%q prints %s, want %s", tt.sel, got, tt.want)
			}
			if again := parse(t, got).String(); again != got {
				t.Errorf("%s prints %s when read again", got, again)
			}
		})
	}
}

func TestErrorsSayWhereAndWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		name, sel string
		pos       int
		says      []string
	}{
		{"assignment", `a = "b"`, 2, []string{"after label a", `found "="`, "=="}},
		{"label alone", `app`, 3, []string{"found the end", "has(app)"}},
		{"bare operator", `a ==`, 4, []string{"quoted string", "found the end"}},
		{"unquoted value", `a == web`, 5, []string{"quoted string", `"web"`}},
		{"string without an end", `a == "web`, 5, []string{"close it"}},
		{"set without an end", `a in {"x"`, 9, []string{"}", "found the end"}},
		{"set without commas", `a in {"x" "y"}`, 10, []string{"comma"}},
		{"set of a comma", `a in {,}`, 6, []string{"quoted string"}},
		{"set in parentheses", `a in ("x")`, 5, []string{"{"}},
		{"in as part of a word", `a inside {"x"}`, 2, []string{"in, not in"}},
		{"not without in", `a not {"x"}`, 2, []string{"not in"}},
		{"has with a quoted name", `has("a")`, 4, []string{"without quotes"}},
		{"has of nothing", `has()`, 4, []string{"label name"}},
		{"has with space before the parenthesis", `has (a)`, 4, []string{"after label has"}},
		{"all with space before the parenthesis", `all ()`, 4, []string{"after label all"}},
		{"global with space before the parenthesis", `global ()`, 7, []string{"after label global"}},
		{"all with an argument", `all(a)`, 4, []string{"all()"}},
		{"unknown function", `any()`, 0, []string{"any()", "all()"}},
		{"unclosed parenthesis", `(has(a)`, 7, []string{"character 1", "close it"}},
		{"needless closing parenthesis", `has(a))`, 6, []string{"found \")\""}},
		{"empty parentheses", `()`, 1, []string{"want a condition"}},
		{"one ampersand", `has(a) & has(b)`, 7, []string{"&&"}},
		{"missing operator", `has(a) has(b)`, 7, []string{"&&"}},
		{"missing operator in parentheses", `(has(a) has(b))`, 8, []string{"&&", "close"}},
		{"missing right side", `has(a) && `, 10, []string{"want a condition", "the end"}},
		{"missing left side", `|| has(a)`, 0, []string{"want a condition"}},
		{"not alone", `!`, 1, []string{"want a condition"}},
		{"a line break between words", "has(a) &&\nhas(b)", 9, []string{"line break", "spaces and tabs"}},
		{"a letter outside the alphabet", `é == "x"`, 0, []string{`"é"`}},
		{"bytes that are not text", "\xff", 0, []string{"byte 0xff"}},
		{"a NUL", "has(a)\x00", 6, []string{`\x00`}},
		{"too long a label", strings.Repeat("l", 513) + ` == "x"`, 0, []string{"512"}},
		{"too long a label in has", "has(" + strings.Repeat("l", 513) + ")", 4, []string{"512"}},
		{"characters are counted, not bytes", `a == "é" b`, 10, []string{"character 10"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.sel)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%q: error %v, want an *Error", tt.sel, err)
			}
			if e.Pos != tt.pos || e.Input != tt.sel {
				t.Errorf("%q: error at %d, want %d: %v", tt.sel, e.Pos, tt.pos, err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q: error %q does not say %q", tt.sel, err, s)
				}
			}
		})
	}
}

func TestErrorStaysShort(t *testing.T) {
	_, err := Parse(strings.Repeat("has(a) && ", 10000) + "!")
	if err == nil || len(err.Error()) > 500 {
		t.Errorf("error of a long selector: %v", err)
	}
}

func TestNestingIsBounded(t *testing.T) {
	nest := func(n int, inner string) string {
		return strings.Repeat("(", n) + inner + strings.Repeat(")", n)
	}
	mixed := func(n int) string { // canonical text nests twice as deep as this
		return strings.Repeat("(has(a)||has(b)&&", n) + "has(c)" + strings.Repeat(")", n)
	}
	for _, tt := range []struct {
		name, sel string
		ok        bool
	}{
		{"as deep as allowed", nest(MaxDepth, `has(a)`), true},
		{"one deeper", nest(MaxDepth+1, `has(a)`), false},
		{"hostile", strings.Repeat("(", 1<<20), false},
		{"hostile negations are only counted", strings.Repeat("!", 1<<20) + "has(a)", true},
		{"canonical text as deep as allowed", mixed(MaxDepth / 2), true},
		{"canonical text deeper than itself could be read", mixed(MaxDepth/2 + 1), false},
		{"a long chain is not deep", strings.Repeat("has(a) && ", 10000) + "has(b)", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse(tt.sel)
			if (err == nil) != tt.ok {
				t.Fatalf("error %v, want ok %v", err, tt.ok)
			}
			if err == nil {
				if _, err := Parse(s.String()); err != nil {
					t.Errorf("canonical text cannot be read: %v", err)
				}
			}
		})
	}
}

func TestTextOverTheSizeBoundIsRefused(t *testing.T) {
	if _, err := Parse(strings.Repeat(" ", maxInput+1)); err == nil {
		t.Error("accepted")
	}
}

func TestUniqueID(t *testing.T) {
	a, b := parse(t, `a in {"y","x"}`), parse(t, ` a  in { 'x', 'y', } `)
	if a.UniqueID() != b.UniqueID() {
		t.Errorf("same meaning, ids %s and %s", a.UniqueID(), b.UniqueID())
	}
	// printf 's:all()' | sha224sum, in unpadded URL base64.
	if got, want := parse(t, "").UniqueID(), "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"; got != want {
		t.Errorf("id of all() = %s, want %s", got, want)
	}
}

func TestAllAndIsGlobal(t *testing.T) {
	for _, tt := range []struct {
		sel         string
		all, global bool
	}{
		{``, true, false},
		{`all()`, true, false},
		{`(all())`, true, false},
		{`!all()`, false, false},
		{`!!all()`, true, false},
		{`all() && all()`, false, false},
		{`has(a)`, false, false},
		{`global()`, false, true},
		{`(global())`, false, true},
		{`!global()`, false, false},
		{`global() && has(a)`, false, false},
	} {
		s := parse(t, tt.sel)
		if s.All() != tt.all || s.IsGlobal() != tt.global {
			t.Errorf("%q: All %v, IsGlobal %v, want %v, %v", tt.sel, s.All(), s.IsGlobal(), tt.all, tt.global)
		}
	}
}

func TestZeroSelectorIsAll(t *testing.T) {
	var s Selector
	if !s.All() || !s.Match(nil) || s.String() != "all()" || s.IsGlobal() || len(s.Restrictions()) != 0 {
		t.Errorf("zero selector: %v", &s)
	}
	if got := s.Prefixed("x."); !got.All() {
		t.Errorf("prefixed zero selector: %v", got)
	}
}

func TestNilLabelsAreNoLabels(t *testing.T) {
	if s := parse(t, `has(a)`); s.MatchLabels(nil) {
		t.Error("matched")
	}
}

const typical = `app == "web" && role in {"a","b"} && has(x)`

func TestParseAllocatesLittle(t *testing.T) {
	got := testing.AllocsPerRun(100, func() {
		if _, err := Parse(typical); err != nil {
			t.Fatal(err)
		}
	})
	if got > 6 {
		t.Errorf("%v allocations, want at most 6", got)
	}
}

type inherited struct{ own, profile labels }

func (l *inherited) Get(name string) (string, bool) {
	if v, ok := l.own[name]; ok {
		return v, true
	}
	v, ok := l.profile[name]
	return v, ok
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := parse(t, `(`+typical+` || y not in {"1","2","3","4","5","6","7","8","9"}) && !(app contains "x" || app starts with "y")`)
	own, profile := labels{"app": "web", "x": "", "y": "3"}, labels{"role": "b"}
	merged := labels{"app": "web", "x": "", "y": "3", "role": "b"}
	both := &inherited{own, profile}
	if !s.Match(merged) || !s.MatchLabels(both) {
		t.Fatal("no match")
	}
	got := testing.AllocsPerRun(100, func() {
		s.Match(merged)
		s.MatchLabels(both)
	})
	if got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(typical); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	s := parse(b, typical)
	l := labels{"app": "web", "role": "b", "x": "", "other": "y"}
	b.ReportAllocs()
	for b.Loop() {
		if !s.Match(l) {
			b.Fatal("no match")
		}
	}
}

func BenchmarkString(b *testing.B) {
	s := parse(b, typical)
	b.ReportAllocs()
	for b.Loop() {
		_ = s.String()
	}
}
