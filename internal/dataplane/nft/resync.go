package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Resync reads the table back. What differs is pending afterwards, whatever the cause, and so is the deletion of unwanted
// objects in our table. If it fails, the actual state that was known before stays.
func (d *Driver) Resync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rs, err := d.conn.List(d.cfg.Table)
	if err != nil {
		return fmt.Errorf("read table %s: %w", d.cfg.Table, err)
	}
	d.table.flags, d.table.owned = rs.Table.Flags, rs.Table.Mine
	d.observe(readingOf(rs))
	return nil
}

// ReadBack is Resync in a goroutine of its own, so that changes need not wait: a table of 2,000 policies and 100,000
// members takes half a second to read. Done is called by the function that it sends on Drift, with the duration of the read. A
// commit in the meantime invalidates the reading, which is then discarded; after maxDiscarded of those in a row, as after an
// error, the next Apply reads first. It returns false if there is no Reader.
func (d *Driver) ReadBack(ctx context.Context, done func(took time.Duration, err error)) bool {
	if d.cfg.Reader == nil {
		return false
	}
	if d.reading {
		return true
	}
	d.reading = true
	commits, began := d.commits, time.Now()
	go func() {
		var r reading
		rs, err := d.cfg.Reader.List(d.cfg.Table)
		if err == nil {
			r = readingOf(rs)
		}
		note := func() {
			d.reading = false
			d.readBack(r, err, commits)
			done(time.Since(began), err)
		}
		select {
		case d.drift.notes <- note:
		case <-ctx.Done():
		}
	}()
	return true
}

// maxDiscarded is how many consecutive readings may be discarded.
const maxDiscarded = 8

// readBack takes a reading that was made concurrently with the driver's work, and began after so many commits.
func (d *Driver) readBack(r reading, err error, commits int) {
	switch {
	case d.drift.notified || !d.table.read: // the next Apply reads anyway, and later
	case err != nil && !errors.Is(err, nftables.ErrInterrupted):
		d.table.read = false
	case err != nil || d.commits != commits:
		if d.discarded++; d.discarded >= maxDiscarded {
			d.discarded, d.table.read = 0, false
		}
	default:
		d.discarded = 0
		d.observe(r)
	}
}

// reading is the table as read, in the form in which it is compared with the actual state.
type reading struct {
	exists bool
	chains []nftables.Chain
	sums   map[string]sum // by chain
	sets   []nftables.Set
	elems  []map[string]string // of these sets
}

func readingOf(rs *nftables.Ruleset) reading {
	r := reading{exists: rs.Exists, chains: rs.Chains, sums: map[string]sum{}}
	byChain := map[string][]nftables.Rule{}
	for _, rule := range rs.Rules {
		byChain[rule.Chain] = append(byChain[rule.Chain], rule)
	}
	for _, c := range rs.Chains {
		r.sums[c.Name] = sumOf(byChain[c.Name])
	}
	for _, st := range rs.Sets {
		elems := make(map[string]string, len(st.Elements))
		for _, el := range st.Elements {
			elems[elementID(el)] = elementValue(el)
		}
		r.sets, r.elems = append(r.sets, st.Set), append(r.elems, elems)
	}
	return r
}

// observe sets the actual state to what was read, and nothing else.
func (d *Driver) observe(r reading) {
	before := d.known()
	d.resume(r)
	for _, st := range r.sets { // those of an earlier agent, or our own
		if i, ok := familyOfName(st.Name); ok && (!d.table.read || d.ksets[st.Name] != nil) {
			d.use(i)
		}
	}
	d.table.read, d.table.exists, d.table.rebuild = true, r.exists, false
	d.observeChains(r)
	d.observeSets(r)
	d.compare(before)
}

// forget sets the actual state to an empty one.
func (d *Driver) forget() {
	d.table.exists, d.table.rebuild = false, false
	d.observeChains(reading{})
	d.observeSets(reading{})
}

func (d *Driver) observeChains(r reading) {
	there := map[string]bool{}
	for _, kc := range r.chains {
		there[kc.Name] = true
		c := d.chains[kc.Name]
		if c == nil {
			c = &chain{name: kc.Name, late: desired.IsLate(kc.Name)}
			d.chains[kc.Name] = c
		}
		c.exists, c.is, c.have = true, kc, r.sums[kc.Name]
		d.checkChain(c)
	}
	for name, c := range d.chains {
		if !there[name] {
			c.exists, c.have = false, sum{}
			d.checkChain(c)
		}
	}
}

func (d *Driver) observeSets(r reading) {
	there := map[string]bool{}
	for i, st := range r.sets {
		there[st.Name] = true
		k := d.ksets[st.Name]
		if k == nil {
			k = newKset(st)
			k.lateSet = desired.IsLate(st.Name)
			d.ksets[st.Name] = k
		}
		k.exists, k.is = true, st
		if !k.elems.ActualIs(r.elems[i]) {
			k.elems.ObservedAll(maps.All(r.elems[i]))
		}
		d.checkKset(k)
	}
	for name, k := range d.ksets {
		if !there[name] {
			k.exists = false
			k.elems.ResetActual()
			d.checkKset(k)
		}
	}
}
