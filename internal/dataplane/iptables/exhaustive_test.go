package iptables

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// declared are the constants of a type in a file, in order.
func declared(t *testing.T, path, typ string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		if first, ok := g.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); !ok || first.Name != typ {
			continue
		}
		for _, s := range g.Specs {
			names = append(names, s.(*ast.ValueSpec).Names[0].Name)
		}
	}
	return names
}

func TestEveryKindOfTermHasAForm(t *testing.T) {
	kinds := declared(t, "../../intent/match/match.go", "Kind")
	if len(kinds) < 10 {
		t.Fatalf("package match declares kinds %v", kinds)
	}
	for i, name := range kinds {
		for _, not := range []bool{false, true} {
			k := rules.Kind(i + 1)
			term := rules.Term{Kind: k, Not: not, Number: 6, Set: "s", Nets: prefixes("10.0.0.0/8"), Ports: ports("80")}
			var terms []rules.Term
			switch k {
			case rules.ICMPCode:
				terms = []rules.Term{number(rules.ICMPType, 3)}
			case rules.Ports:
				terms = []rules.Term{proto(6)}
			}
			without, _ := one(intent.IPv4, rules.Rule{Terms: terms})
			text, err := one(intent.IPv4, rules.Rule{Terms: append(terms, term)})
			switch {
			case err != nil:
				t.Errorf("%s, not %v: %v", name, not, err)
			case text == without && (k != rules.Family || !not):
				t.Errorf("%s, not %v: the rule is as without it: %q", name, not, text)
			}
			if !slices.ContainsFunc(termCases, func(c struct {
				name  string
				terms []rules.Term
			},
			) bool {
				return slices.ContainsFunc(c.terms, func(t rules.Term) bool { return t.Kind == k })
			}) {
				t.Errorf("%s: no golden text has it", name)
			}
		}
	}
	if text, err := one(intent.IPv4, rules.Rule{Terms: []rules.Term{{Kind: rules.Kind(len(kinds) + 1)}}}); err == nil {
		t.Errorf("a kind that is not: %q", text)
	}
}

func TestEveryActionHasAForm(t *testing.T) {
	actions := declared(t, "../rules/rules.go", "Action")
	if len(actions) < 11 {
		t.Fatalf("rules declares actions %v", actions)
	}
	seen := map[string]string{}
	for i, name := range actions {
		a := rules.Action(i)
		text, err := one(intent.IPv4, rules.Rule{Action: a, Target: "x", Terms: []rules.Term{proto(6)}})
		if a >= rules.Permit { // of chains of tables, which only a backend with maps is given
			if err == nil {
				t.Errorf("%s has a form: %q", name, text)
			}
			continue
		}
		if err != nil || text == "" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if other := seen[text]; other != "" && a != rules.Accept { // Allow of a stage is Allow
			t.Errorf("%s is rendered as %s: %q", name, other, text)
		}
		seen[text] = name
		golden := slices.ContainsFunc(worlds, func(w world) bool {
			return slices.ContainsFunc(w.chains, func(c rules.Chain) bool {
				return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool { return r.Action == a })
			})
		})
		if !golden {
			t.Errorf("%s: no golden text has it", name)
		}
	}
	if text, err := one(intent.IPv4, rules.Rule{Action: rules.Action(len(actions))}); err == nil {
		t.Errorf("an action that is not: %q", text)
	}
}
