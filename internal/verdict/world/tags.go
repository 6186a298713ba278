package world

import (
	"slices"

	"github.com/twillnet/twill/api"
)

// Tags name all that had a part in the answer, for counting what random worlds
// ask about: "action Log", "field source.nets", "tier pass", "profile Allow",
// "decided no profile". Hops after the one that denied have no part.
func (a Answer) Tags() []string {
	if len(a.Hops) == 0 {
		return []string{"decided " + a.Decided.Reason}
	}
	var out []string
	for _, h := range a.Hops {
		for _, t := range h.Tiers {
			out = append(out, "tier "+t.Outcome)
			for _, p := range t.Policies {
				out = append(out, p.tags...)
			}
		}
		for _, p := range h.Profiles {
			out = append(out, p.tags...)
			if p.Rule >= 0 {
				out = append(out, "profile "+p.Action)
			}
		}
		out = append(out, "decided "+h.Decided.Reason, "stage "+h.Stage)
		if !h.Allowed {
			break
		}
	}
	return out
}

// ruleTags are those of a rule that matched. The conditions of a Log rule do
// not count: it decides nothing.
func ruleTags(r api.Rule) []string {
	out := []string{"action " + string(r.Action)}
	if r.Action == api.Log {
		return out
	}
	if r.Rejects() {
		out = append(out, "reject")
	}
	for _, f := range RuleFields(r) {
		out = append(out, "field "+f)
	}
	named := func(p api.Port) bool { return p.Name != "" }
	if slices.ContainsFunc(r.Source.Ports, named) {
		out = append(out, "field source.named ports")
	}
	if slices.ContainsFunc(r.Destination.Ports, named) {
		out = append(out, "field destination.named ports")
	}
	return out
}
