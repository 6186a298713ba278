package rules_test

import (
	"testing"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// TestTheGenerationIsThatOfWhatRulesSay, and not of where they are in memory: another agent, or the next one, has the same.
func TestTheGenerationIsThatOfWhatRulesSay(t *testing.T) {
	of := func(code uint8, path, account string) uint16 {
		return rules.Policy(intent.Policy{ID: intent.PolicyID{Name: "p"}, Ingress: []intent.Rule{{
			Action: intent.Allow, ICMP: &intent.ICMP{Type: 8, Code: code},
			Requests: &intent.Requests{HTTP: &intent.HTTP{Methods: []string{"GET"}, Paths: []intent.Path{{Prefix: path}}}, Src: intent.Identity{Accounts: &intent.Accounts{Names: []string{account}}}},
		}}}, intent.Ingress).Generation
	}
	first := of(0, "/public", "front")
	if again := of(0, "/public", "front"); again != first {
		t.Errorf("the same rule has the generations %#x and %#x", first, again)
	}
	for what, other := range map[string]uint16{"another code": of(1, "/public", "front"), "another path": of(0, "/private", "front"), "another account": of(0, "/public", "back")} {
		if other == first {
			t.Errorf("%s, and the generation is %#x still", what, other)
		}
	}
}
