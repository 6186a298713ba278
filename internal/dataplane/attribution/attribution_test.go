package attribution

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

func decision(i int) intent.Decision {
	return intent.Decision{Reason: intent.ReasonRule, Tier: "default", Rule: intent.RuleID{Policy: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: fmt.Sprint("p", i)}}}
}

func TestAPrefixLeadsBackToItsDecision(t *testing.T) {
	table := New()
	n := table.Name(decision(1), 0xbeef)
	table.Chain("c", []Name{{}, n})
	if len(n.Prefix()) > 63 { // what iptables can say, nft more
		t.Errorf("prefix %q is too long", n.Prefix())
	}
	back, ok := Parse(n.Prefix())
	if !ok || back != n {
		t.Fatalf("%q reads back as %v, %v", n.Prefix(), back, ok)
	}
	if d, current, ok := table.Resolve(back); !ok || !current || d != decision(1) {
		t.Errorf("got %+v, %v, %v", d, current, ok)
	}
	if rs := table.Rules("c"); len(rs) != 2 || rs[0] != (intent.Decision{}) || rs[1] != decision(1) {
		t.Errorf("rules of the chain: %+v", rs)
	}
}

func TestAnotherTableGivesTheSameNames(t *testing.T) {
	a, b := New(), New()
	for i := range 100 {
		b.Name(decision(99-i), 7)
	}
	for i := range 100 {
		if x, y := a.Name(decision(i), 7), b.Name(decision(i), 7); x != y {
			t.Errorf("decision %d is %v and %v", i, x, y)
		}
	}
}

func TestAReportOfAFormerRuleIsKnownAsSuch(t *testing.T) {
	table := New()
	old := table.Name(decision(1), 1)
	table.Chain("c", []Name{old})
	table.Chain("c", []Name{table.Name(decision(1), 2)})
	if d, current, ok := table.Resolve(old); !ok || current || d != decision(1) {
		t.Errorf("after a change: %+v, current %v, %v", d, current, ok)
	}
	table.Chain("c", nil)
	if _, current, ok := table.Resolve(old); !ok || current {
		t.Errorf("after its end: current %v, known %v", current, ok)
	}
}

func TestWhatIsOfNoChainIsForgottenInTime(t *testing.T) {
	table := New()
	kept := table.Name(decision(-1), 1)
	table.Chain("kept", []Name{kept})
	for i := range 3 * remembered {
		n := table.Name(decision(i), 1)
		table.Chain("c", []Name{n})
	}
	if n := len(table.byID); n > remembered+2 {
		t.Errorf("%d decisions are known, want at most %d", n, remembered+2)
	}
	if _, current, ok := table.Resolve(kept); !current || !ok {
		t.Error("one that a chain has was forgotten")
	}
}

func TestForeignPrefixesAreNotOurs(t *testing.T) {
	for _, text := range []string{"", "calico-packet: x", "twill ", "twill 1", "twill zz 1", "twill 1 123456789"} {
		if n, ok := Parse(text); ok {
			t.Errorf("%q is %v", text, n)
		}
	}
}
