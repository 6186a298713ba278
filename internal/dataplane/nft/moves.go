package nft

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// A packet is judged by the rules of one moment, but the kernel looks members of sets up as they are when it comes to each: a
// transaction may go in between two look-ups of one packet. An address that leaves one set and joins another might so be found in
// neither, or an address that joins two in the second alone. Where nothing but members changes, those addresses change in steps,
// each a transaction that begins when no packet is on its way from before the last one:
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

// change is one pending element.
type change struct {
	k     *kset
	id    string
	joins bool
	phase phase
	moves bool // its address is in changes of several phases
}

// step is what of a plan goes next, if nothing but members of sets changes and some addresses move; else the plan.
func (d *Driver) step(p *plan) *plan {
	if !d.state.InSync() || !p.onlyMembers() {
		d.steps = nil
		return p
	}
	changes, careful := d.changes(p.ksets)
	begins := d.steps == nil
	if begins && slices.ContainsFunc(changes, func(c change) bool { return c.moves }) {
		d.steps = []phase{joinClosing, joinOpening, leaveOpening, leaveClosing}
		if careful {
			d.steps = []phase{joinClosing, leaveOpening, joinOpening, leaveClosing}
		}
	}
	for ; len(d.steps) > 0; d.steps = d.steps[1:] { // a phase is over when nothing of it is pending
		now := d.steps[0]
		if !slices.ContainsFunc(changes, func(c change) bool { return c.phase == now && (c.moves || !begins) }) {
			continue
		}
		due := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return c.phase != now && (c.moves || !begins) })
		if len(due) < len(changes) {
			return d.only(due)
		}
		break
	}
	d.steps = nil
	return p
}

// onlyMembers reports whether a plan changes members of sets that are there, and nothing else.
func (p *plan) onlyMembers() bool {
	return !p.purge && len(p.chains) == 0 &&
		!slices.ContainsFunc(p.ksets, func(k *kset) bool { return !k.wanted || !k.exists || k.owner.Kind != intent.KeyIPSet })
}

// only is a plan of some changes; others are to follow.
func (d *Driver) only(changes []change) *plan {
	p := &plan{batch: nftables.NewBatch(), more: true, settle: true, only: map[*kset][]string{}, drop: map[*kset][]string{}}
	for _, c := range changes {
		if n := len(p.ksets); n == 0 || p.ksets[n-1] != c.k { // they are sorted by sets
			p.ksets = append(p.ksets, c.k)
		}
		if c.joins {
			p.only[c.k] = append(p.only[c.k], c.id)
		} else {
			p.drop[c.k] = append(p.drop[c.k], c.id)
		}
	}
	d.write(p)
	return p
}

// changes are all pending elements of sets, and whether an address that is where it was and where it will be could open something.
func (d *Driver) changes(ksets []*kset) (out []change, careful bool) {
	if !twice(ksets) {
		return nil, false
	}
	phases := map[string]uint8{} // of each address
	all := uint8(0)
	nets, paired := false, false
	for _, k := range ksets {
		r := d.state.Role(intent.SetID(k.owner.ID))
		nets, paired, careful = nets || k.spec.Interval, paired || r.Paired, careful || r.Denies
		for _, c := range k.changes(r) {
			out = append(out, c)
			phases[k.address(c.id)] |= 1 << c.phase
			all |= 1 << c.phase
		}
	}
	moving := map[string]bool{}
	for i, c := range out {
		// A prefix may have the address of any other change in it.
		mask := phases[c.k.address(c.id)]
		if nets {
			mask = all
		}
		if bits.OnesCount8(mask) > 1 {
			out[i].moves = true
			moving[c.k.address(c.id)] = true
		}
	}
	return out, careful || paired && len(moving) > 1
}

// twice reports whether an address may be in several changes. Of most that is false, and then it does not matter what rules use the sets.
func twice(ksets []*kset) bool {
	if len(ksets) < 2 {
		return false // one look-up sees either
	}
	seen := map[string]bool{}
	changes, nets := 0, false
	for _, k := range ksets {
		nets = nets || k.spec.Interval
		for _, ids := range []iter.Seq[string]{maps.Keys(maps.Collect(k.elems.PendingUpdates())), k.elems.PendingDeletes()} {
			for id := range ids {
				seen[k.address(id)] = true
				changes++
			}
		}
	}
	return len(seen) < changes || nets && changes > 1
}

// changes are the pending elements of one set.
func (k *kset) changes(r desired.Role) (out []change) {
	join, leave := joinClosing, leaveClosing
	if r.Opens {
		join, leave = joinOpening, leaveOpening
	}
	together := k.together()
	for id := range k.elems.PendingUpdates() {
		c := change{k: k, id: id, joins: true, phase: join}
		if together[id] {
			c.phase = leave
		}
		out = append(out, c)
	}
	for id := range k.elems.PendingDeletes() {
		c := change{k: k, id: id, phase: leave}
		if together[id] {
			c.phase = join
		}
		out = append(out, c)
	}
	return out
}

// together are those intervals to come or to go that overlap one to go or to come, which the kernel refuses to have at once: what goes
// because something comes that covers it goes then; anything else that comes does so when the other goes.
func (k *kset) together() map[string]bool {
	if !k.spec.Interval {
		return nil
	}
	out := map[string]bool{}
	n := k.spec.Key.Len()
	last := func(id string) string { return id[max(0, len(id)-n):] }
	leave := slices.Sorted(k.elems.PendingDeletes()) // no two overlap
	for id := range k.elems.PendingUpdates() {
		from, _ := slices.BinarySearchFunc(leave, id, func(l, id string) int { return strings.Compare(last(l), id[:n]) })
		to := from
		covers := true
		for ; to < len(leave) && leave[to][:n] <= last(id); to++ {
			covers = covers && id[:n] <= leave[to][:n] && last(leave[to]) <= last(id)
		}
		if !covers {
			out[id] = true
			continue
		}
		for _, l := range leave[from:to] {
			out[l] = true
		}
	}
	return out
}

// address is the address of an element: that alone, if it also has a protocol and a port; of an interval both ends.
func (k *kset) address(id string) string {
	if slot, ok := familyOfName(k.spec.Name); ok {
		return id[:min(len(id), []int{4, 16}[slot])]
	}
	return id
}
