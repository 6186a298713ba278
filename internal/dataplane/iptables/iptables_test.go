package iptables

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt; read them before you commit them")

func TestGoldenTexts(t *testing.T) {
	for _, w := range worlds {
		for _, f := range families {
			t.Run(fmt.Sprintf("%s.v%d", w.name, f), func(t *testing.T) {
				golden(t, fmt.Sprintf("%s.v%d.txt", w.name, f), w.render(t, f).Restore)
			})
		}
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func (w world) render(t *testing.T, f intent.Family) Text {
	t.Helper()
	text, err := Renderer{Table: w.table, Family: f, Log: w.log}.Render(w.chains)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// one renders a chain of one rule in the table that has a form for its action, and returns the text of the rule.
func one(f intent.Family, r rules.Rule) (string, error) {
	table := Filter
	if r.Action == rules.AllowUntracked {
		table = Raw
	}
	text, err := Renderer{Table: table, Family: f}.Render([]rules.Chain{{Name: "c", Rules: []rules.Rule{r}}})
	var out []string
	for line := range strings.Lines(text.Restore) {
		if rest, ok := strings.CutPrefix(line, "-A "+ChainName("c")+" "); ok {
			out = append(out, rest)
		}
	}
	return strings.Join(out, ""), err
}

func TestWhatIptablesCannotSayIsAnError(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Renderer
		rule rules.Rule
	}{
		{"no family", Renderer{}, rules.Rule{}},
		{"notrack after conntrack", Renderer{Family: 4}, rules.Rule{Action: rules.AllowUntracked}},
		{"a reset of any protocol", Renderer{Family: 4}, rules.Rule{Action: rules.Reset}},
		{"a reset of UDP", Renderer{Family: 4}, rules.Rule{Action: rules.Reset, Terms: []rules.Term{proto(17)}}},
		{"protocol 0 is every protocol", Renderer{Family: 4}, rules.Rule{Terms: []rules.Term{proto(0)}}},
		{"ICMP type 255 is every type", Renderer{Family: 4}, rules.Rule{Terms: []rules.Term{number(rules.ICMPType, 255)}}},
		{"a code without a type", Renderer{Family: 4}, rules.Rule{Terms: []rules.Term{number(rules.ICMPCode, 1)}}},
		{"a limit in a unit of its own", Renderer{Family: 4, Log: intent.LogSettings{Rate: 1, Per: time.Millisecond}}, rules.Rule{Action: rules.Log}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if text, err := tt.r.Render([]rules.Chain{{Name: "c", Rules: []rules.Rule{tt.rule}}}); err == nil {
				t.Errorf("it is\n%s", text.Restore)
			}
		})
	}
	if _, err := (Renderer{Family: 4}).Render([]rules.Chain{{Name: "c"}, {Name: "c"}}); err == nil {
		t.Error("two chains have one name")
	}
}

func TestLimitsAreWhatTheToolTakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  intent.LogSettings
		want string
	}{
		{"none", intent.LogSettings{}, "-j NFLOG"},
		{"as set", intent.LogSettings{Rate: 3, Per: time.Hour, Burst: 7}, "-m limit --limit 3/hour --limit-burst 7 "},
		{"a burst of none is one", intent.LogSettings{Rate: 3, Per: time.Hour}, "-m limit --limit 3/hour --limit-burst 1 "},
		{"too fast", intent.LogSettings{Rate: 1e6, Per: time.Second, Burst: 1e6}, "-m limit --limit 10000/second --limit-burst 10000 "},
		{"a bucket that would fill in more than a day", intent.LogSettings{Rate: 1, Per: 24 * time.Hour, Burst: 5}, "-m limit --limit 1/day --limit-burst 1 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := writer{Renderer: Renderer{Log: tt.log}}
			got, err := w.log(rules.Rule{})
			if err != nil || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestNamesFitAndStayApart(t *testing.T) {
	long := "pol-in-" + strings.Repeat("n", 28) + "-0123456789"
	seen := map[string]string{}
	for _, n := range []string{long, long[:len(long)-1] + "8", "a", "pol-in-x-0123456789", "é \"x\"", ""} {
		got := ChainName(n)
		if len(got) > maxChain || strings.ContainsAny(got, " \"") || got != ChainName(n) || seen[got] != "" {
			t.Errorf("%q is chain %q, as is %q", n, got, seen[got])
		}
		seen[got] = n
	}
	for _, o := range outcomes {
		if len(o) == len(ChainName("")) {
			t.Errorf("chain %s could be that of a neutral chain", o)
		}
	}
	for _, k := range []intent.SetKind{intent.SetAddrs, intent.SetPorts} {
		for _, f := range families {
			if s := setOf(intent.SetID(long), k, f); len(s.Name) > maxSet || seen[s.Name] != "" {
				t.Errorf("set %q", s.Name)
			} else {
				seen[s.Name] = "a set"
			}
		}
	}
}

func TestATextNamesTheSetsItNeeds(t *testing.T) {
	set := func(not bool, id string) rules.Rule {
		return rules.Rule{Terms: []rules.Term{{Kind: rules.Addrs, Not: not, Set: intent.SetID(id)}}}
	}
	v4only := set(false, "four")
	v4only.Terms = append(v4only.Terms, inNets(rules.Src, "10.0.0.0/8"))
	text, err := Renderer{Family: intent.IPv6}.Render([]rules.Chain{
		{Name: "a", Rules: []rules.Rule{set(false, "x"), set(true, "y"), v4only}},
		{Name: "b", Rules: []rules.Rule{set(false, "y"), {Terms: []rules.Term{in(rules.PortSet, rules.Dst, "z")}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[intent.SetID]intent.SetKind{"x": intent.SetAddrs, "y": intent.SetAddrs, "z": intent.SetPorts}
	if len(text.Sets) != len(want) {
		t.Errorf("sets %+v", text.Sets)
	}
	for _, s := range text.Sets {
		if k, ok := want[s.ID]; !ok || s.Kind != k || s.Family != intent.IPv6 || !strings.Contains(text.Restore, s.Name) {
			t.Errorf("set %+v", s)
		}
	}
}

// selections are sets with members of each kind.
var selections = []intent.IPSet{
	{ID: "s:mixed", Members: []intent.Member{
		{Prefix: prefixes("10.0.0.1/32")[0]},
		{Prefix: prefixes("10.1.0.0/16")[0]},
		{Prefix: prefixes("10.1.2.3/16")[0]},
		{Prefix: prefixes("fd00::1/128")[0]},
		{Prefix: prefixes("fd01::/16")[0]},
		{},
	}},
	{ID: "s:all", Members: []intent.Member{{Prefix: prefixes("0.0.0.0/0")[0]}, {Prefix: prefixes("::/0")[0]}, {Prefix: prefixes("128.0.0.0/1")[0]}}},
	{ID: "p:6:http:x", Kind: intent.SetPorts, Members: []intent.Member{
		{Prefix: prefixes("10.0.0.1/32")[0], Proto: 6, Port: 80},
		{Prefix: prefixes("fd00::1/128")[0], Proto: 132, Port: 8080},
		{Prefix: prefixes("10.0.0.0/24")[0], Proto: 6, Port: 80},
		{Prefix: prefixes("::/128")[0], Proto: 6, Port: 80},
		{Prefix: prefixes("10.0.0.1/32")[0], Proto: 47},
	}},
	{ID: "s:empty"},
}

func TestGoldenSets(t *testing.T) {
	for _, f := range families {
		golden(t, fmt.Sprintf("sets.v%d.txt", f), RestoreSets(f, selections))
	}
}
