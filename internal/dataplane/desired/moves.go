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
	p := s.phases(moves)
	if bits.OnesCount8(p.all) < 2 { // the usual case, in which the order does not matter
		m.steps = nil
		return nil, false
	}
	begins := m.steps == nil
	of, twice := p.addrs(moves, begins && !p.nets)
	if !twice && !p.nets {
		m.steps = nil
		return nil, false
	}
	// moving reports whether an address is in changes of several phases. A prefix may contain the address of any other change.
	moving := func(addr string) bool { return p.nets || bits.OnesCount8(of[addr]&^again) > 1 }
	if begins {
		m.steps = p.order(of, moving)
	}
	due = make([]int, 0, len(moves))
	for ; len(m.steps) > 0; m.steps = m.steps[1:] { // a phase is over when none of its changes is pending
		some := false
		due = due[:0]
		for i, is := range p.of {
			bound := !begins || moving(moves[i].Addr)
			some = some || bound && is == m.steps[0]
			if !bound || is == m.steps[0] {
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

// phases are the phases of changes.
type phases struct {
	of     []phase // by index of the change
	all    uint8   // a bit for each phase that occurs
	nets   bool    // a set holds prefixes
	denies bool    // a set has a role that denies
	paired bool    // a set has a role that is paired
}

// phases returns the phase of each change, by the role of its set.
func (s *State) phases(moves []Move) phases {
	p := phases{of: make([]phase, len(moves))}
	roles := map[intent.SetID]role{}
	var r role
	for i, m := range moves {
		if i == 0 || m.Set != moves[i-1].Set { // they are mostly sorted by set
			known := false
			if r, known = roles[m.Set]; !known {
				r = s.role(m.Set)
				roles[m.Set] = r
			}
		}
		p.of[i] = r.phase(m)
		p.all |= 1 << p.of[i]
		p.nets, p.paired, p.denies = p.nets || m.Net, p.paired || r.paired, p.denies || r.denies
	}
	return p
}

// again is a bit of addresses that are in several changes, in addition to those of their phases.
const again uint8 = 1 << 7

// addrs returns the phases of each address; twice: an address is in several changes. With several, only addresses in changes of several
// phases count, and of those in changes of one, some are left out.
func (p phases) addrs(moves []Move, several bool) (of map[string]uint8, twice bool) {
	var count [leaveClosing + 1]int
	for _, is := range p.of {
		count[is]++
	}
	most := phase(slices.Index(count[:], slices.Max(count[:]))) // an address in changes of several phases is in one of another
	of = make(map[string]uint8, len(moves)-count[most])
	add := func(addr string, bit uint8, known bool) {
		is := of[addr]
		switch {
		case is != 0:
			of[addr] = is | bit | again
			twice = true
		case !known:
			of[addr] = bit
		}
	}
	for i, is := range p.of {
		if is != most {
			add(moves[i].Addr, 1<<is, false)
		}
	}
	for i, is := range p.of {
		if is == most {
			add(moves[i].Addr, 1<<is, several)
		}
	}
	return of, twice
}

// order returns the steps in which addresses move; nil: none moves.
func (p phases) order(of map[string]uint8, moving func(string) bool) []phase {
	n := 0
	for addr := range of {
		if moving(addr) {
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case p.denies || p.paired && n > 1: // an address in its old and its new sets at once could open something
		return []phase{joinClosing, leaveOpening, joinOpening, leaveClosing}
	}
	return []phase{joinClosing, joinOpening, leaveOpening, leaveClosing}
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
