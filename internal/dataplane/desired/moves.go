package desired

import (
	"math/bits"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// A packet is judged by the rules of one moment, but the kernel looks members of sets up as they are when it comes to each: a
// change may go in between two look-ups of one packet. An address that leaves one set and joins another might so be found in
// neither, or an address that joins two in the second alone. Where nothing but members changes, those addresses change in steps,
// each of which begins when no packet is on its way from before the last one:
//
//	joinClosing   what denies more
//	joinOpening   what allows more
//	leaveOpening  what allows less
//	leaveClosing  what denies less
//
// After the second step an address is where it was and where it will be. The first rule that matches is then the first of before or
// the first of after, so a packet that both deny is denied, and one that both allow is allowed. On the way there and on the way
// out what denies is always at least what it was before or will be. Where that does not hold, since a rule denies what is not in a
// set, or allows by two addresses of which each moves, what allows less goes before what allows more.
type phase uint8

const (
	joinClosing phase = iota
	joinOpening
	leaveOpening
	leaveClosing
)

// Move is a pending change of one element of a set that is in force.
type Move struct {
	Set   intent.SetID
	Addr  string // stands for its address: the same in whatever set
	Net   bool   // its set holds prefixes, which may have any other address in them
	Joins bool
	// Swaps: the backend cannot have it before, or after, one that overlaps it and goes the other way. It changes when that does.
	Swaps bool
}

// Mover says in which order members of sets change, as long as nothing else does. Its zero value has nothing under way.
type Mover struct {
	steps []phase // what is still to do
}

// Reset forgets what is under way: something else changes, too, or all is said anew.
func (m *Mover) Reset() { m.steps = nil }

// Next says which of all pending changes go next, by their places. With more, others follow, and a packet that is on its way must
// have gone before they do; else all go now.
func (m *Mover) Next(s *State, moves []Move) (due []int, more bool) {
	if !twice(moves) {
		m.steps = nil
		return nil, false
	}
	phases, moving, careful := s.phases(moves)
	begins := m.steps == nil
	if begins && slices.Contains(moving, true) {
		m.steps = []phase{joinClosing, joinOpening, leaveOpening, leaveClosing}
		if careful {
			m.steps = []phase{joinClosing, leaveOpening, joinOpening, leaveClosing}
		}
	}
	for ; len(m.steps) > 0; m.steps = m.steps[1:] { // a phase is over when nothing of it is pending
		some := false
		due = due[:0]
		for i, p := range phases {
			bound := moving[i] || !begins
			some = some || bound && p == m.steps[0]
			if !bound || p == m.steps[0] {
				due = append(due, i)
			}
		}
		if some && len(due) < len(moves) {
			return due, true
		}
		if some {
			break
		}
	}
	m.steps = nil
	return nil, false
}

// twice reports whether an address may be in several changes. Of most that is false, and then it does not matter what rules use the sets.
func twice(moves []Move) bool {
	seen := make(map[string]struct{}, len(moves))
	nets := false
	for _, m := range moves {
		nets = nets || m.Net
		seen[m.Addr] = struct{}{}
	}
	return len(seen) < len(moves) || nets && len(moves) > 1
}

// phases are those of changes, and which are of an address that is in changes of several; careful, an address that is where it was and where
// it will be could open something.
func (s *State) phases(moves []Move) (out []phase, moving []bool, careful bool) {
	out, moving = make([]phase, len(moves)), make([]bool, len(moves))
	roles := map[intent.SetID]role{}
	of := map[string]uint8{} // phases of each address
	all, nets, paired := uint8(0), false, false
	for i, m := range moves {
		r, known := roles[m.Set]
		if !known {
			r = s.role(m.Set)
			roles[m.Set] = r
		}
		nets, paired, careful = nets || m.Net, paired || r.paired, careful || r.denies
		out[i] = r.phase(m)
		of[m.Addr] |= 1 << out[i]
		all |= 1 << out[i]
	}
	addrs := map[string]struct{}{}
	for i, m := range moves {
		// A prefix may have the address of any other change in it.
		mask := of[m.Addr]
		if nets {
			mask = all
		}
		if bits.OnesCount8(mask) > 1 {
			moving[i] = true
			addrs[m.Addr] = struct{}{}
		}
	}
	return out, moving, careful || paired && len(addrs) > 1
}

// role is what it means to the rules in force that an address is in a set.
type role struct {
	opens, closes bool
	denies        bool // what is not in the set
	// paired: a rule that allows asks for both ends. Two addresses that move at once are then two conditions of one rule.
	paired bool
}

// phase is when a change of a set with this role goes in.
func (r role) phase(m Move) phase {
	join, leave := joinClosing, leaveClosing
	if r.opens {
		join, leave = joinOpening, leaveOpening
	}
	if m.Joins != m.Swaps {
		return join
	}
	return leave
}

// role asks all rules that use a set. A Pass may lead to what denies or to what allows.
func (s *State) role(id intent.SetID) (r role) {
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

func (r *role) asked(id intent.SetID, by intent.Rule) {
	if by.Action == intent.Log {
		return
	}
	for _, side := range []intent.Peer{by.Src, by.Dst} {
		is := slices.Contains(side.Sets, id) || slices.Contains(side.PortSets, id)
		not := slices.Contains(side.NotSets, id) || slices.Contains(side.NotPortSets, id)
		denies, passes := by.Action == intent.Deny, by.Action == intent.Pass
		r.opens = r.opens || is && !denies || not && (denies || passes)
		r.closes = r.closes || is && (denies || passes) || not && !denies
		r.denies = r.denies || not && (denies || passes)
		r.paired = r.paired || (is || not) && !denies && asksSets(by.Src) && asksSets(by.Dst)
	}
}

func asksSets(p intent.Peer) bool {
	return len(p.Sets)+len(p.NotSets)+len(p.PortSets)+len(p.NotPortSets) > 0
}
