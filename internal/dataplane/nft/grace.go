package nft

import (
	"context"

	"github.com/twillnet/twill/internal/dataplane/desired"
)

// rest is an element of a set, a set or a chain that nothing leads to.
type rest struct{ set, element, chain string }

// maxRests bounds how much may wait for a grace period that somebody else awaits.
const maxRests = 1 << 14

// tablesFirst returns the part of a plan that changes the tables, if the rest of it changes members of sets and nothing else: these may
// have to go in steps. Nil: it does not.
func (d *Driver) tablesFirst(p *plan) *plan {
	if d.tables == nil {
		return nil
	}
	q, others := &plan{batch: &d.batch, rests: d.rests, more: true}, &plan{purge: p.purge}
	for _, c := range p.chains {
		to := others
		if c.owner == desired.Tables {
			to = q
		}
		to.chains = append(to.chains, c)
	}
	for _, k := range p.ksets {
		to := others
		if k.owner == desired.Tables {
			to = q
		}
		to.ksets = append(to.ksets, k)
	}
	if sets, only := others.onlyMembers(); !d.table.exists || !only || len(sets) < 2 || len(q.chains)+len(q.ksets) == 0 {
		return nil
	}
	return q
}

// isRest reports whether a chain is only to go after a grace period.
func (c *chain) isRest() bool { return c.late && !c.wanted && c.exists }

func (k *kset) isRest() bool { return k.lateSet && !k.wanted && k.exists }

// anyRest reports whether a chain is there that is only to go after a grace period, which is not over. It may look into any set.
func (d *Driver) anyRest() bool {
	for name := range d.dirtyChains {
		if d.chains[name].isRest() && !d.due(rest{chain: name}) {
			return true
		}
	}
	return false
}

// due reports whether what nothing leads to any more can be deleted.
func (d *Driver) due(x rest) bool {
	if d.tables == nil {
		return true
	}
	since, known := d.tables.since[x]
	return known && since <= d.tables.settled
}

// rests reports whether an element is not to be deleted yet.
func (d *Driver) rests(k *kset, id string) bool {
	return k.late != nil && d.tables != nil && k.late(id) && !d.due(rest{set: k.spec.Name, element: id})
}

// restAll reports whether all that is pending of a set is not to be done yet.
func (d *Driver) restAll(k *kset) bool {
	if k.isRest() {
		return !d.due(rest{set: k.spec.Name})
	}
	if d.tables != nil && !k.wanted && k.exists {
		return d.anyRest()
	}
	if updates, _ := k.elems.Pending(); k.late == nil || !k.wanted || !k.exists || updates > 0 {
		return false
	}
	for id := range k.elems.PendingDeletes() {
		if !d.rests(k, id) {
			return false
		}
	}
	return true
}

// rest has all that nothing leads to any more wait until no packet is on its way that found it. It reports whether that is
// so already, of something.
func (d *Driver) rest(ctx context.Context) bool {
	t := d.tables
	if t == nil {
		return false
	}
	since := map[rest]int{}
	note := func(x rest) {
		n, known := t.since[x]
		if !known {
			n = d.commits
		}
		since[x] = n
	}
	for name := range d.dirtyChains {
		if d.chains[name].isRest() {
			note(rest{chain: name})
		}
	}
	for name := range d.dirtyKsets {
		k := d.ksets[name]
		if k.isRest() {
			note(rest{set: name})
		} else if k.late != nil {
			for id := range k.elems.PendingDeletes() {
				if k.late(id) {
					note(rest{set: name, element: id})
				}
			}
		}
	}
	t.since = since
	switch {
	case len(since) == 0:
		d.state.Rested()
	case len(since) > maxRests:
		d.conn.Settle()
		t.settled = d.commits
		return true
	case !t.settling:
		t.settling = true
		go d.settle(ctx, t, d.commits)
	}
	return false
}

// settle awaits a grace period: each packet that is in a chain of ours has left it. Then it notifies the loop. The tables may be gone by then.
func (d *Driver) settle(ctx context.Context, t *tables, commits int) {
	d.conn.Settle()
	select {
	case d.drift.notes <- func() { t.settled, t.settling = commits, false }:
	case <-ctx.Done():
	}
}
