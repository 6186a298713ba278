package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/status"
)

// TestAVersionIsInForceWhenTheRoundThatBringsItEnds: not before, in no order of events.
func TestAVersionIsInForceWhenTheRoundThatBringsItEnds(t *testing.T) {
	policy := func(name, revision string) api.Update {
		return api.Update{Key: api.KeyPrefix(api.KindGlobalNetworkPolicy, "") + name, Value: []byte(`{"spec":{"order":` + revision + `}}`)}
	}
	a1, a2, b1 := policy("a", "1"), policy("a", "2"), policy("b", "1")
	other := api.Update{Key: api.KeyPrefix(api.KindProfile, "") + "p", Value: []byte("{}")}
	gone := api.Update{Key: a1.Key}
	names := map[status.Version]string{status.VersionOf(a1): "a 1", status.VersionOf(a2): "a 2", status.VersionOf(b1): "b 1", status.VersionOf(gone): "a gone"}
	nft := []string{"nft"}
	for _, tt := range []struct {
		name  string
		steps func(*versions) []status.Version // what the last step returns
		want  string
	}{
		{"it is calculated", func(v *versions) []status.Version { v.note([]api.Update{a1}); return v.round(nil) }, ""},
		{"it concerns nothing here", func(v *versions) []status.Version { v.note([]api.Update{a1, other}); return v.irrelevant() }, "a 1"},
		{"it goes, and concerned nothing here", func(v *versions) []status.Version { v.note([]api.Update{gone}); return v.irrelevant() }, "a gone"},
		{"it is on its way", func(v *versions) []status.Version { v.note([]api.Update{a1}); v.decide(); return v.round(nil) }, ""},
		{"a driver has yet to do it", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			return v.round(nft)
		}, ""},
		{"it is done", func(v *versions) []status.Version {
			v.note([]api.Update{a1, b1})
			v.decide()
			v.merge()
			v.round(nft)
			return v.round(nil)
		}, "a 1, b 1"},
		{"once", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			v.round(nil)
			return v.round(nil)
		}, ""},
		{"a newer one is on its way", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			v.note([]api.Update{a2})
			v.decide()
			return v.round(nil)
		}, "a 1"},
		{"only the newest counts", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			v.round(nft)
			v.note([]api.Update{a2})
			v.decide()
			v.merge()
			return v.round(nil)
		}, "a 2"},
		{"what concerns nothing here waits for what was sent before", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.note([]api.Update{b1})
			return v.irrelevant()
		}, ""},
		{"and comes with it", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.note([]api.Update{b1})
			v.irrelevant()
			v.merge()
			return v.round(nil)
		}, "a 1, b 1"},
		{"or with what is merged and not done, be it of no policy", func(v *versions) []status.Version {
			v.note([]api.Update{other})
			v.decide()
			v.merge()
			v.round(nft)
			v.note([]api.Update{b1})
			if now := v.irrelevant(); len(now) > 0 {
				return now
			}
			return v.round(nil)
		}, "b 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, v := range tt.steps(&versions{}) {
				got = append(got, names[v])
			}
			if slices.Sort(got); strings.Join(got, ", ") != tt.want {
				t.Errorf("in force is %q, want %q", got, tt.want)
			}
		})
	}
}
