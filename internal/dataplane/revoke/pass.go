package revoke

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

const protocolTCP = 6

// finder is a Table that finds the flows that some addresses began or answer; *conntrack.Conn is one, if the kernel can.
type finder interface {
	Count() (int, error)
	EachOf(addrs map[netip.Addr]bool, f func(conntrack.Flow)) error
}

// What a walk of the kernel's table costs, as the number of flows that are read in the same time (BenchmarkAChangeThatDenies): that of its
// buckets, 262,144 of them here, and that of a flow which the kernel passes over.
const (
	bucketsCost = 6000
	passedOver  = 0.28
)

// walks is how often the kernel walks its table to find the flows of some addresses, see [conntrack.Conn.EachOf].
func walks(addrs map[netip.Addr]bool) (n int) {
	six := 0
	for a := range addrs {
		if a.Is4() {
			n += 2
		} else {
			six = 1
		}
	}
	return n + six
}

// finder returns what finds the flows of the touched addresses; nil: all must be read, or that costs less.
func (d *Driver) finder() finder {
	f, ok := d.cfg.Table.(finder)
	if !ok || d.nofilter || d.all || d.windows || len(d.gone) > 0 || !d.looked {
		return nil
	}
	n, err := f.Count()
	if all := float64(n); err != nil || float64(walks(d.touched.addrs))*(bucketsCost+passedOver*all) > bucketsCost+all {
		return nil
	}
	return f
}

// counter is a Table that says how many flows there are; *conntrack.Conn is one.
type counter interface {
	Count() (int, error)
}

// each reads all flows. If there are none, the kernel does not walk its table: what begins after they were counted is decided by the policy
// that is in force, and what the kernel has begun, but not in its table yet, it counts.
func (d *Driver) each(f func(conntrack.Flow)) error {
	if c, ok := d.cfg.Table.(counter); ok {
		if n, err := c.Count(); err == nil && n == 0 {
			return nil
		}
	}
	return d.cfg.Table.Each(f)
}

// pass reads the flows that changes concern, or the whole table, and changes the marks that are wrong.
func (d *Driver) pass() (p Pass) {
	began := time.Now()
	defer func() { p.Took = time.Since(began) }()
	if p.Err = d.locate(); p.Err != nil {
		return p
	}
	d.index.users(d.touched.policies, d.touched.addrs)
	clear(d.touched.policies)
	var r *reading
	if f := d.finder(); f != nil {
		r = d.read(&reading{watch: d.watch()}, func(each func(conntrack.Flow)) error { return f.EachOf(d.touched.addrs, each) })
		r.revoked = r.revoked || d.revoked // by flows that were not read
		r.watch.only = d.touched.addrs
		d.nofilter = errors.Is(r.err, errors.ErrUnsupported)
	}
	if r == nil || d.nofilter {
		r = d.read(&reading{all: d.all, watch: d.watch()}, d.each)
	}
	if d.write(&p, r); p.Err == nil {
		d.absence.seen(r.watch)
		d.learn(r)
		d.looked = true
		d.forget()
		d.all, d.windows, d.revoked = false, false, r.revoked
	}
	return p
}

// learn takes the flows that have the mark, as a pass found them.
func (d *Driver) learn(r *reading) {
	if r.watch.only != nil {
		d.cuts.replace(d.cuts.at(r.watch.only), r.cuts)
	} else {
		d.cuts = r.cuts
		d.cuts.trim()
	}
}

// reading is what one reading of the table comes to.
type reading struct {
	d             *Driver
	all           bool // every flow is judged, not only those of whom changes concern
	watch         *look
	flows, judged int
	revoked       bool  // some flow has the mark
	cuts          *cuts // those that have it
	err           error
	// By tuple, since a table that changes meanwhile has duplicates, and a flow may be of several addresses. Marking waits until all is
	// read: the kernel's socket can do only one of the two at a time.
	changes map[conntrack.Tuple]conntrack.Change
	forget  map[conntrack.Tuple]conntrack.Flow
}

// read begins and makes a reading.
func (d *Driver) read(r *reading, each func(func(conntrack.Flow)) error) *reading {
	r.d, r.cuts = d, newCuts(maxCuts)
	r.changes, r.forget = map[conntrack.Tuple]conntrack.Change{}, map[conntrack.Tuple]conntrack.Flow{}
	d.judge(func() { r.err = each(r.flow) })
	return r
}

// judge has f judge flows of workloads.
func (d *Driver) judge(f func()) {
	d.judging.Lock()
	defer d.judging.Unlock()
	d.state.IgnoreHosts = true
	f()
	d.state.IgnoreHosts = false
}

// cut takes note of a flow that has the mark.
func (r *reading) cut(f conntrack.Flow) {
	r.revoked = true
	r.cuts.add(f, r.d.addrs)
}

func (r *reading) flow(f conntrack.Flow) {
	d := r.d
	r.flows++
	r.watch.flow(f)
	if d.windows && f.Original.Proto == protocolTCP {
		r.changes[f.Original] = conntrack.Change{Flow: f, AnyWindow: true}
	}
	is := f.Mark&kernel.ConntrackRevoked != 0
	if !r.all && !anyEnd(f, d.touched.addrs) {
		if is {
			r.cut(f)
		}
		return
	}
	r.judged++
	if d.on && (d.orphaned(f) || d.index.floatedAway(f)) {
		r.forget[f.Original] = f
		return
	}
	want := d.on && d.denied(f)
	if want {
		r.cut(f)
	}
	if is == want {
		return
	}
	mark := uint32(0)
	if want {
		mark = kernel.ConntrackRevoked
	}
	// While it was revoked, the kernel saw packets that we dropped: see [conntrack.Change].
	r.changes[f.Original] = conntrack.Change{Flow: f, Mark: mark, Mask: kernel.ConntrackRevoked, AnyWindow: d.windows || !want}
}

// write applies the changes that a reading of the table found.
func (d *Driver) write(p *Pass, r *reading) {
	if p.Flows, p.Judged, p.Err = r.flows, r.judged, r.err; p.Err != nil {
		return
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	held := d.absence.holding()
	for t, c := range r.changes {
		switch {
		case c.Mask == 0:
		case c.Mark != 0:
			p.Revoked++
		case anyEnd(c.Flow, held):
			r.cut(c.Flow)
			delete(r.changes, t)
		default:
			p.Restored++
		}
	}
	if _, p.Err = d.cfg.Table.Mark(slices.Collect(maps.Values(r.changes))); p.Err == nil {
		p.Forgotten, p.Err = d.cfg.Table.Forget(slices.Collect(maps.Values(r.forget)))
	}
}
