// Package revoke cuts live flows that policy no longer allows, and lets them live again when it does.
//
// In: what policy is in force, through [Driver.InForce], and the kernel's table of connections.
// Out: the bit [kernel.ConntrackRevoked] in the marks of exactly the flows that the intents deny; the table of package
// nft drops such flows before it accepts established ones.
//
// A flow is judged by package verdict as if its first packet came now. [Driver.Run] reads the table of connections once for
// what has come into force, in a goroutine of its own, so that a large one holds up nobody. What comes meanwhile waits, and
// is one more pass, however many batches it is. A pass judges the flows of the endpoints that the changes touch; without
// any, there is no pass. After a time in which policy was not in force it judges all flows.
//
// When a workload goes, its flows stay in the table a while, see [absence]. If it returns, all of them are cut before anything
// of it is in force, and what policy allows lives again with the pass that follows at once; if somebody else gets its address,
// they are deleted before, so that nobody inherits any. A workload with an address of which nothing is known, to which nothing
// can have been connected, waits for its pass a while: many that come together are one pass.
//
// It holds what the kernel enforces now, so [Driver.Staged] answers what staged policies would make of a packet.
//
// Not judged: flows with no local workload at either end, what a workload sends from addresses that are not its own,
// and DHCP, which a host serves whatever policy says.
package revoke

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/verdict"
)

// Table is the kernel's table of connections; *conntrack.Conn has it.
type Table interface {
	Each(func(conntrack.Flow)) error
	Mark([]conntrack.Change) (int, error)
	Forget([]conntrack.Flow) (int, error)
}

// Config is what the driver needs.
type Config struct {
	Table Table
	// Local are the host's own addresses.
	Local func() ([]netip.Addr, error)
	Retry time.Duration // wait after a pass that failed; zero means 1s
	Log   *slog.Logger  // nil: nowhere
	// Done is told of each pass, from Run's goroutine; nil: nobody is.
	Done func(Pass)
}

// Pass is what one look at the table came to.
type Pass struct {
	Flows, Judged, Revoked, Restored, Forgotten int

	Took time.Duration
	Err  error
}

// Driver is a follower of package dataplane's loop. Prepare, InForce and Links are called by one goroutine, Run by another.
type Driver struct {
	cfg     Config
	wake    chan struct{}
	absence *absence
	writing sync.Mutex // who reads the table in order to change it

	mu      sync.Mutex
	applied []intent.Batch // in the kernel, not looked at yet
	anew    bool           // every flow is to be judged
	links   []ifmon.Change // not looked at yet

	judging sync.Mutex // for state
	state   verdict.State

	// Run's own.
	index     index
	on        bool
	revoked   bool // some flow has the mark
	ready     bool // the source is in sync: before, what is not known yet would be denied
	touched   map[netip.Addr]bool
	gone      map[netip.Addr]bool // those of touched that were a workload's, long ago
	all       bool                // every flow is to be judged
	urgent    bool                // not only new workloads are touched
	windows   bool                // the kernel may have forgotten the windows of all connections
	looked    bool                // a pass has seen all flows
	addrs     map[netip.Addr]string
	stale     bool // addrs is to be made anew
	hostAddrs map[netip.Addr]bool
}

// New returns a driver; Run makes it work.
func New(cfg Config) *Driver {
	if cfg.Retry == 0 {
		cfg.Retry = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{
		on: true, cfg: cfg, wake: make(chan struct{}, 1), absence: newAbsence(),
		index: newIndex(), touched: map[netip.Addr]bool{}, gone: map[netip.Addr]bool{},
	}
}

// InForce takes over what has come into the kernel. Anew: it was not there for a while, so that connections may have been
// admitted that policy denies.
func (d *Driver) InForce(b intent.Batch, anew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applied, d.anew = append(d.applied, b), d.anew || anew
	d.absence.inForce(b)
	d.nudge()
}

// Links takes note of the addresses by which those host endpoints are found that name no interface.
func (d *Driver) Links(changes []ifmon.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links = append(d.links, changes...) // not into state: who judges has that for as long as a pass takes
	d.nudge()
}

// nudge wakes Run, which finds all that is new.
func (d *Driver) nudge() {
	select {
	case d.wake <- struct{}{}:
	default: // it is awake
	}
}

func (d *Driver) setLinks(changes []ifmon.Change) {
	for _, c := range changes {
		var addrs []netip.Addr
		for _, p := range c.Addrs {
			addrs = append(addrs, p.Addr())
		}
		if c.Gone {
			addrs = nil
		}
		d.state.SetLink(c.Name, addrs)
	}
}

// Staged says what would become of a packet if staged policies were enforced.
func (d *Driver) Staged(p verdict.Packet) verdict.Verdict {
	d.judging.Lock()
	defer d.judging.Unlock()
	return d.state.JudgeStaged(p)
}

// Run makes passes until the context ends.
func (d *Driver) Run(ctx context.Context) error {
	var later, retry, expiry <-chan time.Time
	for {
		due := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake:
		case <-later:
			due, later = true, nil
		case <-retry:
			due, retry = true, nil
		case <-expiry:
			expiry = nil
			d.expire()
		}
		d.take()
		if expiry == nil && d.absence.waiting() {
			expiry = time.After(kept / 4)
		}
		if !d.on && !d.all { // turned off, and no flow has the mark any more
			clear(d.touched)
			clear(d.gone)
		}
		if !d.ready || !d.all && len(d.touched) == 0 {
			continue
		}
		if !due && !d.all && !d.urgent {
			if later == nil {
				later = time.After(settling)
			}
			continue
		}
		later, retry = nil, nil
		p := d.pass()
		rest := min(9*p.Took, maxRest)
		if p.Err != nil {
			d.cfg.Log.Error("flows that policy denies may live on", "err", p.Err, "retry_in", d.cfg.Retry)
			retry = time.After(d.cfg.Retry)
		} else if p.Revoked+p.Restored+p.Forgotten > 0 {
			d.cfg.Log.Info("live flows follow policy", "revoked", p.Revoked, "restored", p.Restored, "forgotten", p.Forgotten, "judged", p.Judged, "took", p.Took)
		}
		if d.cfg.Done != nil {
			d.cfg.Done(p)
		}
		select { // what comes meanwhile is one pass
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}

// expire has the flows forgotten whose workload has not come back.
func (d *Driver) expire() {
	for _, a := range d.absence.old() {
		d.touched[a], d.gone[a], d.urgent = true, true, true
	}
}

// maxRest bounds the rest after a pass. The kernel walks all the buckets of its table for each, 262,144 of them here,
// however few flows there are, which takes 10 ms: so many changes take a tenth of a processor, and no more.
const maxRest = 100 * time.Millisecond

// settling is how long new workloads wait for their pass.
const settling = 5 * time.Second

// take takes over what is in the kernel, and notes whose flows it may concern.
func (d *Driver) take() {
	d.mu.Lock()
	batches, links, arrived := d.applied, d.links, d.absence.take()
	d.all, d.windows = d.all || d.anew, d.windows || d.anew
	d.applied, d.links, d.anew = nil, nil, false
	d.mu.Unlock()
	d.judging.Lock()
	defer d.judging.Unlock()
	d.setLinks(links)
	for _, b := range batches {
		d.state.Merge(b)
		b.Endpoints = workloadsOf(b.Endpoints)
		fresh := d.index.fresh(b)
		maps.DeleteFunc(fresh, func(a netip.Addr, _ bool) bool { return arrived[a] })
		d.touch(d.index.touched(b, d.revoked), nil)
		d.index.merge(b)
		d.touch(d.index.touched(b, d.revoked), fresh)
		for _, e := range b.Endpoints {
			for _, a := range e.Addrs {
				delete(d.gone, a)
			}
		}
		d.stale = d.stale || len(b.Endpoints)+len(b.Removed) > 0
		if h := b.Host; h != nil {
			d.state.WorkloadPrefixes = h.Prefixes
			d.on, d.all = !h.KeepDenied, true
		}
		if b.InSync && !d.ready {
			d.ready, d.all = true, true
		}
	}
}

// touch notes whose flows are to be judged: at once, but for those of fresh workloads.
func (d *Driver) touch(addrs []netip.Addr, fresh map[netip.Addr]bool) {
	for _, a := range addrs {
		d.touched[a] = true
		d.urgent = d.urgent || !fresh[a]
	}
}

// workloadsOf leaves host endpoints out: which interface a flow came by is not known here, and so not whose policy.
func workloadsOf(all []intent.Endpoint) []intent.Endpoint {
	return slices.DeleteFunc(slices.Clone(all), func(e intent.Endpoint) bool { return e.ID.Kind == intent.Host })
}

const protocolTCP = 6

// pass looks at the whole table once, and marks what must be.
func (d *Driver) pass() (p Pass) {
	began := time.Now()
	defer func() { p.Took = time.Since(began) }()
	d.writing.Lock()
	defer d.writing.Unlock()
	if p.Err = d.locate(); p.Err != nil {
		return p
	}
	// Marking waits until all is read, since the kernel's socket can do only one of the two at a time. The map drops
	// what a table that changes meanwhile shows twice.
	changes := map[conntrack.Tuple]conntrack.Change{}
	forget := map[conntrack.Tuple]conntrack.Flow{}
	revoked := false
	watch := d.watch()
	d.judging.Lock()
	d.state.IgnoreHosts = true
	p.Err = d.cfg.Table.Each(func(f conntrack.Flow) {
		p.Flows++
		watch.flow(f)
		if d.windows && f.Original.Proto == protocolTCP {
			changes[f.Original] = conntrack.Change{Flow: f, AnyWindow: true}
		}
		is := f.Mark&kernel.ConntrackRevoked != 0
		if !d.all && !d.concerns(f) {
			revoked = revoked || is
			return
		}
		p.Judged++
		if d.on && d.orphaned(f) {
			forget[f.Original] = f
			return
		}
		want := d.on && (d.denied(f) || is && anyEnd(f, watch.held))
		revoked = revoked || want
		if is == want {
			return
		}
		mark := uint32(0)
		if want {
			mark = kernel.ConntrackRevoked
		}
		// What it sent while it was cut, the kernel saw and we dropped: see [conntrack.Change].
		changes[f.Original] = conntrack.Change{Flow: f, Mark: mark, Mask: kernel.ConntrackRevoked, AnyWindow: d.windows || !want}
	})
	d.state.IgnoreHosts = false
	d.judging.Unlock()
	if p.Err != nil {
		return p
	}
	if p.write(d.cfg.Table, changes, forget); p.Err == nil {
		d.absence.seen(watch)
		d.looked = true
		clear(d.touched)
		clear(d.gone)
		d.all, d.urgent, d.windows, d.revoked = false, false, false, revoked
	}
	return p
}

// write makes the changes that a look at the table found to be made.
func (p *Pass) write(table Table, changes map[conntrack.Tuple]conntrack.Change, forget map[conntrack.Tuple]conntrack.Flow) {
	for c := range maps.Values(changes) {
		switch {
		case c.Mask == 0:
		case c.Mark != 0:
			p.Revoked++
		default:
			p.Restored++
		}
	}
	if _, p.Err = table.Mark(slices.Collect(maps.Values(changes))); p.Err == nil {
		p.Forgotten, p.Err = table.Forget(slices.Collect(maps.Values(forget)))
	}
}

// orphaned reports whether a flow was that of a workload that has gone, and is no other's of this host.
func (d *Driver) orphaned(f conntrack.Flow) bool {
	gone := false
	for _, a := range ends(f) {
		if _, workload := d.addrs[a]; workload {
			return false
		}
		gone = gone || d.gone[a]
	}
	return gone
}

// locate finds out which addresses are whose.
func (d *Driver) locate() error {
	local, err := d.cfg.Local()
	if err != nil {
		return err
	}
	d.hostAddrs = make(map[netip.Addr]bool, len(local))
	for _, a := range local {
		d.hostAddrs[a] = true
	}
	if d.stale || d.addrs == nil {
		d.addrs, d.stale = d.index.links(), false
	}
	return nil
}

func (d *Driver) concerns(f conntrack.Flow) bool {
	return anyEnd(f, d.touched)
}

// elsewhere is the link of who is neither here nor a workload of this host. Which of its links it is makes no
// difference to workloads.
const elsewhere = "?"

// denied reports whether the first packet of a flow would be dropped now.
func (d *Driver) denied(f conntrack.Flow) bool {
	to := f.Reply
	o := f.Original
	if f.Master.Src.IsValid() { // it lives by the leave of the flow that announced it
		o, to = f.Master, conntrack.Tuple{Src: f.Master.Dst, SrcPort: f.Master.DstPort}
	}
	in, fromWorkload := d.link(o.Src)
	out, toWorkload := d.link(to.Src)
	if !fromWorkload && !toWorkload || dhcp(o) {
		return false
	}
	p := verdict.Packet{
		InLink: in, OutLink: out, Src: o.Src, Dst: to.Src, OrigDst: o.Dst, Proto: o.Proto,
		SrcPort: o.SrcPort, DstPort: to.SrcPort, OrigDstPort: o.DstPort, ICMPType: o.ICMPType, ICMPCode: o.ICMPCode,
		State: verdict.New,
	}
	return !d.state.Judge(p).Allowed
}

// link is the interface behind which an address is; empty: it is the host's own.
func (d *Driver) link(a netip.Addr) (name string, workload bool) {
	if l, ok := d.addrs[a]; ok {
		return l, true
	}
	if d.hostAddrs[a] {
		return "", false
	}
	return elsewhere, false
}

// dhcp is what every host answers; see the stage of services in package nft.
func dhcp(t conntrack.Tuple) bool {
	return t.Proto == 17 && (t.SrcPort == 68 && t.DstPort == 67 || t.SrcPort == 546 && t.DstPort == 547)
}
