package classify

import "github.com/twillnet/twill/internal/intent"

// pairsOf returns the protocols and ports of a set's members.
func (s *State) pairsOf(set intent.SetID) map[pair]int {
	if s.pairs[set] == nil {
		count := map[pair]int{}
		s.selections.members.Each(set, func(m intent.Member) { count[pair{m.Proto, m.Port}]++ })
		s.pairs[set] = count
	}
	return s.pairs[set]
}

// Change applies a change of a set's members.
func (s *State) Change(d intent.MemberDelta) {
	s.changes += len(d.Removed) + len(d.Added)
	for _, m := range d.Removed {
		s.selections.change(&s.space, d.Set, m, false)
		s.recount(d.Set, m, -1)
	}
	for _, m := range d.Added {
		s.selections.change(&s.space, d.Set, m, true)
		s.recount(d.Set, m, 1)
	}
}

// recount counts the members with a port of a set of ports; policies that use the set have other cuts when one is added or removed.
func (s *State) recount(set intent.SetID, m intent.Member, by int) {
	count := s.pairs[set]
	if count == nil {
		return
	}
	at := pair{m.Proto, m.Port}
	was := count[at]
	if count[at] = was + by; count[at] == 0 {
		delete(count, at)
	}
	if was == 0 || count[at] == 0 {
		for key := range s.cutBy[set] {
			s.check[key] = true
		}
	}
}
