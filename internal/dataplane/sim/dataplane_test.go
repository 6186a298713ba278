package sim

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// TestADataplaneRefusesWhatDangles: what package desired must never say.
func TestADataplaneRefusesWhatDangles(t *testing.T) {
	chain := func(name string, rs ...rules.Rule) desired.Chain { return desired.Chain{Name: name, Rules: rs} }
	looks := rules.Rule{Terms: []rules.Term{{Kind: rules.Addrs, Set: "s"}}}
	there := desired.Set{ID: "s", Named: true, Wanted: true}
	a := desired.Changes{Sets: []desired.Set{there}, Chains: []desired.Chain{chain("a", rules.Rule{Action: rules.Jump, Target: "b"}), chain("b", looks)}, Links: []desired.Link{{Name: "cali1", Open: true, In: "a", Out: "b"}}}
	gone := there
	gone.Wanted = false
	for _, tt := range []struct {
		name string
		then desired.Changes
		want string // of the refusal; empty: none
	}{
		{"nothing more", desired.Changes{}, ""},
		{"a chain leads to none", desired.Changes{Chains: []desired.Chain{chain("c", rules.Rule{Action: rules.Jump, Target: "x"})}}, "chain c leads to x"},
		{"a guard leads to none", desired.Changes{Chains: []desired.Chain{{Name: "c", Guards: []desired.Guard{{Do: desired.Goto, Target: "x"}}}}}, "chain c leads to x"},
		{"a chain goes that another calls", desired.Changes{Gone: []string{"b"}}, "chain a leads to b"},
		{"a chain goes that an interface leads to", desired.Changes{Gone: []string{"a"}}, "interface cali1 leads to a"},
		{"an interface leads to none", desired.Changes{Links: []desired.Link{{Name: "cali2", Open: true, In: "x", Out: "b"}}}, "interface cali2 leads to x"},
		{"an interface is open and leads nowhere", desired.Changes{Links: []desired.Link{{Name: "cali2", Open: true}}}, "open without chains"},
		{"an interface is open and closed", desired.Changes{Links: []desired.Link{{Name: "cali1", Open: true, Closed: true, In: "a", Out: "b"}}}, "open and closed"},
		{"a set goes that a chain looks into", desired.Changes{Sets: []desired.Set{gone}}, "chain b looks into set s"},
		{"a set is of another kind", desired.Changes{Sets: []desired.Set{{ID: "s", Kind: intent.SetPorts, Named: true, Wanted: true}}}, "chain b looks into set s"},
		{"a set has no name", desired.Changes{Sets: []desired.Set{{ID: "s", Wanted: true}}}, "chain b looks into set s"},
		{"all goes, together with what needs it", desired.Changes{Sets: []desired.Set{gone}, Gone: []string{"a", "b"}, Links: []desired.Link{{Name: "cali1"}}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDataplane(desired.Config{})
			d.Merge(intent.Batch{IPSets: []intent.IPSet{{ID: "s"}}, InSync: true})
			d.pending.add(d.state.Changes())
			d.pending.add(a)
			if err := d.carryOut(); err != nil {
				t.Fatal(err)
			}
			d.pending.add(tt.then)
			switch err := d.carryOut(); {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("refused %v, want %q", err, tt.want)
			}
		})
	}
}
