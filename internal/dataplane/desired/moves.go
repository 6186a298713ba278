package desired

import (
	"math/bits"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// A packet is evaluated by the rules of one moment, but the kernel looks up members of sets as they are when it comes to each look-up: a
// change may be committed between two look-ups of one packet. An address that leaves one set and joins another might then be found in
// neither, or an address that joins two in the second alone. Where nothing but members changes, those addresses change in steps,
// each of which begins when no packet is under way from before the last one:
//
//	joinClosing   what denies more
//	joinOpening   what allows more
//	leaveOpening  what allows less
//	leaveClosing  what denies less
//
// After the second step an address is in its old and its new sets. The first rule that matches is then the first of before or
// the first of after, so a packet that both deny is denied, and one that both allow is allowed. In the steps before and
// after, what denies is always at least what it was before or will be. Where that does not hold, since a rule denies what is not in a
// set, or allows by two addresses of which each moves, leaveOpening goes before joinOpening.
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
	Addr  string // a key of its address: the same in any set
	Net   bool   // its set holds prefixes, which may contain any other address
	Joins bool
	// Swaps: the backend cannot add it before, or delete it after, an overlapping one that goes the other way. It changes together with that.
	Swaps bool
}

// Mover decides in which order members of sets change, as long as nothing else does. The zero value is ready to use.
type Mover struct {
	steps []phase // the remaining steps
}

// Reset drops the remaining steps: something else changes, too, or all is stated again.
func (m *Mover) Reset() { m.steps = nil }

// Next returns the indices of those of all pending changes that go next. With more, others follow, once no packet is under way from
// before these; without, all go now, and due is nil.
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
	for ; len(m.steps) > 0; m.steps = m.steps[1:] { // a phase is over when none of its changes is pending
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

// twice reports whether an address may be in several changes. If not, which is the usual case, their order does not matter.
func twice(moves []Move) bool {
	seen := make(map[string]struct{}, len(moves))
	nets := false
	for _, m := range moves {
		nets = nets || m.Net
		seen[m.Addr] = struct{}{}
	}
	return len(seen) < len(moves) || nets && len(moves) > 1
}

// phases returns the phase of each change, and which are of an address that is in several changes; careful: an address in its old and
// its new sets at once could open something.
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
		// A prefix may contain the address of any other change.
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

// role is what membership in a set means to the rules in force.
type role struct {
	opens, closes bool
	denies        bool // what is not in the set
	// paired: a rule that allows asks for both ends. Two addresses that move at once are then two conditions of one rule.
	paired bool
}

// phase returns when a change of a set with this role is applied.
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

// role collects the role of a set in all rules that use it. A Pass may lead to rules that deny or that allow.
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
