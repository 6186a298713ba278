package calctest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// LastGood are the values that count, by key, of those that a store had: a value that is not JSON, or nothing of its kind, does not replace the one
// before, nor does a global policy that cannot be read (docs/wrong-input.md), so that calc and world judge one state.
type LastGood map[string]api.Update

// Keep takes in what the store has now, and returns it.
func (g LastGood) Keep(in []api.Update) []api.Update {
	for _, u := range in {
		switch _, known := g[u.Key]; {
		case u.Value == nil:
			delete(g, u.Key)
		case json.Valid(u.Value) && (!known || meansSomething(u)):
			g[u.Key] = u
		}
	}
	return in
}

// meansSomething reads no more of a value than it must, with nothing of what calc and world read it with but the selectors.
func meansSomething(u api.Update) bool {
	ref, _ := api.ParseKey(u.Key)
	switch ref.Kind {
	case api.KindNetworkPolicy, api.KindGlobalNetworkPolicy, api.KindStagedNetworkPolicy, api.KindStagedGlobalNetworkPolicy, api.KindStagedKubernetesNetworkPolicy,
		api.KindTier, api.KindProfile, api.KindNetworkSet, api.KindGlobalNetworkSet:
	default:
		return true
	}
	var doc struct {
		Kind string
		Spec map[string]any
	}
	if u.Value[0] != '{' || json.Unmarshal(u.Value, &doc) != nil || doc.Kind != "" && doc.Kind != ref.Kind {
		return false
	}
	if ref.Kind != api.KindGlobalNetworkPolicy {
		return true
	}
	text, _ := doc.Spec["selector"].(string)
	_, err := selector.Parse(text)
	types, _ := doc.Spec["types"].([]any)
	return err == nil && !slices.Contains(types, any("Sideways")) // what calctest spoils
}

// State is what counts now.
func (g LastGood) State() []api.Update { return slices.Collect(maps.Values(g)) }
