package nft

import (
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
)

// TestAGuardWithoutAFormDenies: a condition that is negated where there is no form for that, or that is unknown, is not left out: the
// stage denies, and reports what is not in force.
func TestAGuardWithoutAFormDenies(t *testing.T) {
	for name, g := range map[string]desired.Guard{
		"a negation":           {If: []desired.Cond{{Kind: desired.Established, Not: true}}, Do: desired.Skip},
		"an unknown condition": {If: []desired.Cond{{Kind: desired.OtherSource + 1}}, Do: desired.Pass},
		"an unknown step":      {Do: desired.Classify + 1},
		"an unknown group":     {Do: desired.Classify, Group: 7},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(nil, Config{})
			d.state.Merge(intent.Batch{InSync: true})
			d.setChain(desired.Chain{Name: "stage", Guards: []desired.Guard{g}})
			rs := d.chains["stage"].rules
			if len(rs) != 1 || len(rs[0].Exprs) == 0 {
				t.Fatalf("the stage has %d rules, want one that denies", len(rs))
			}
			want, _, err := d.render(desired.Chain{Name: "stage", Guards: []desired.Guard{{}}})
			if last := rs[0].Exprs[len(rs[0].Exprs)-1]; err != nil || last != want[0].Exprs[len(want[0].Exprs)-1] {
				t.Errorf("it ends in %v, %v", last, err)
			}
			reported := false
			for _, o := range d.state.Outcomes() {
				if o.Err != nil {
					reported = o.Key == intent.Key(intent.HostID(""))
				}
			}
			if !reported {
				t.Error("no outcome says that the host's settings are not in force")
			}
		})
	}
}
