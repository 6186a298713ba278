package classify

import (
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Because returns, for each of some classes, the policies whose rules have it be a class of its own: those that ask for a selection which
// its addresses are in. It walks all policies and classes: it is for when something went wrong.
func (s *State) Because(of map[Class]struct{}) map[Class][]intent.PolicyID {
	asking := map[selection][]intent.PolicyID{}
	for key, f := range s.forms {
		for _, k := range f.asks {
			if x := s.selections.byKey[k]; x != nil && !slices.Contains(asking[x.id], key.id) {
				asking[x.id] = append(asking[x.id], key.id)
			}
		}
	}
	out := map[Class][]intent.PolicyID{}
	for _, c := range s.space.classes {
		if _, asked := of[c.id]; !asked {
			continue
		}
		for _, sel := range c.of.of {
			for _, id := range asking[sel] {
				if !slices.Contains(out[c.id], id) {
					out[c.id] = append(out[c.id], id)
				}
			}
		}
	}
	return out
}
