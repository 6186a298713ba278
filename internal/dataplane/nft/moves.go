package nft

import (
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
)

// change is one pending element of a kernel set.
type change struct {
	k     *kset
	id    string
	joins bool
}

// step returns the part of a plan that goes next, if it changes nothing but members of sets and some addresses move (see desired.Mover); else nil.
func (d *Driver) step(p *plan) *plan {
	if q := d.tablesFirst(p); q != nil {
		return q
	}
	sets, only := p.onlyMembers()
	if !d.state.InSync() || !only || len(sets) < 2 { // in one kernel set, a look-up finds the old members or the new ones
		d.moves.Reset()
		return nil
	}
	size := 0
	for _, k := range sets {
		updates, deletes := k.elems.Pending()
		size += updates + deletes
	}
	changes, moves := make([]change, 0, size), make([]desired.Move, 0, size)
	for _, k := range sets {
		n := len(changes)
		for id := range k.elems.PendingUpdates() {
			changes = append(changes, change{k, id, true})
		}
		for id := range k.elems.PendingDeletes() {
			changes = append(changes, change{k, id, false})
		}
		together := k.together()
		set, _ := k.owner.(intent.SetID)
		size := k.addressLen()
		for _, c := range changes[n:] {
			addr := c.id
			if size > 0 {
				addr = addr[:min(len(addr), size)]
			}
			moves = append(moves, desired.Move{Set: set, Addr: addr, Net: k.spec.Interval, Joins: c.joins, Swaps: together[c.id]})
		}
	}
	due, more := d.moves.Next(d.state, moves)
	if !more {
		return nil
	}
	now := make([]change, len(due))
	for i, at := range due {
		now[i] = changes[at]
	}
	return d.only(now)
}

// onlyMembers returns the sets whose members a plan changes, and reports whether it changes nothing else. The recheck of established
// flows does not count: it goes with the last step, so that they see none of the steps before.
func (p *plan) onlyMembers() ([]*kset, bool) {
	sets := slices.DeleteFunc(slices.Clone(p.ksets), func(k *kset) bool { return k.spec.Name == setRecheck })
	return sets, !p.purge && !slices.ContainsFunc(p.chains, func(c *chain) bool { return !c.recheck }) &&
		!slices.ContainsFunc(sets, func(k *kset) bool { return !k.wanted || !k.exists || intent.KindOf(k.owner) != intent.KeyIPSet })
}

// only returns a plan of some changes of members; more plans follow.
func (d *Driver) only(changes []change) *plan {
	p := &plan{batch: &d.batch, more: true, settle: true, only: map[*kset][]string{}, drop: map[*kset][]string{}}
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
	return p
}

// together returns those pending intervals that overlap one that changes the other way, which the kernel refuses to have at once: an interval
// that a new one covers is deleted with the addition; any other is added with the deletion.
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

// addressLen returns how many bytes of the ID of an element are its address, where a protocol and a port may follow. Zero: all of them,
// which of an interval are both ends.
func (k *kset) addressLen() int {
	if slot, ok := familyOfName(k.spec.Name); ok {
		return []int{4, 16}[slot]
	}
	return 0
}
