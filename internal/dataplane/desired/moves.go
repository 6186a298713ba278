package desired

import (
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Role is what it means to the rules in force that an address is in a set.
type Role struct {
	Opens, Closes bool
	Denies        bool // what is not in the set
	// Paired: a rule that allows asks for both ends. Two addresses that move at once are then two conditions of one rule.
	Paired bool
}

// Role asks all rules that use a set. A Pass may lead to what denies or to what allows.
func (s *State) Role(id intent.SetID) (r Role) {
	for user := range s.setUsers[id] {
		p := s.policies[user]
		for _, list := range [][]intent.Rule{p.Ingress, p.Egress} {
			for _, rule := range list {
				r.asked(id, rule)
			}
		}
	}
	return r
}

func (r *Role) asked(id intent.SetID, by intent.Rule) {
	if by.Action == intent.Log {
		return
	}
	for _, side := range []intent.Peer{by.Src, by.Dst} {
		is := slices.Contains(side.Sets, id) || slices.Contains(side.PortSets, id)
		not := slices.Contains(side.NotSets, id) || slices.Contains(side.NotPortSets, id)
		denies, passes := by.Action == intent.Deny, by.Action == intent.Pass
		r.Opens = r.Opens || is && !denies || not && (denies || passes)
		r.Closes = r.Closes || is && (denies || passes) || not && !denies
		r.Denies = r.Denies || not && (denies || passes)
		r.Paired = r.Paired || (is || not) && !denies && asksSets(by.Src) && asksSets(by.Dst)
	}
}

func asksSets(p intent.Peer) bool {
	return len(p.Sets)+len(p.NotSets)+len(p.PortSets)+len(p.NotPortSets) > 0
}
