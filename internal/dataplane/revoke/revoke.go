// Package revoke drops established flows that policy no longer allows, and restores them when it does again.
//
// In: the policy in force, through [Driver.InForce], and conntrack's table.
// Out: the bit [kernel.ConntrackRevoked] in the marks of exactly the flows that the intents deny; the table of package
// nft drops such flows before it accepts established ones.
//
// A flow is evaluated by package verdict as if its first packet came now. [Driver.Run] reads conntrack's table once for
// the changes that came into force, in a goroutine of its own, so that a large table delays nobody. It takes its time, since the kernel decides
// again about established flows from the change on (docs/decisions/032): see [Driver.due]. Changes in the meantime wait for
// one more pass, however many batches they are. A pass evaluates the flows of the endpoints that the changes touch; without
// any, there is no pass. After a time in which policy was not in force it evaluates all flows, at once.
//
// Passes remember the flows that they leave with the mark, see [cuts], so that those that a change allows again live at once, and wait for no pass.
//
// When a workload is removed, its flows stay in the table for a while, see [absence], and a pass notes them. If it returns, all of them are
// revoked before anything of it is in force, and what policy allows is restored when it is; if another workload gets its address,
// they are deleted before, so that it inherits none. Neither reads the table, unless the address comes back before the pass. A workload with an
// address that is nobody else's, and had none before, which can have no flows, waits for its pass for [settling]: many that come together are one pass.
//
// It has the policy in force, so [Driver.Staged] answers what staged policies would decide about a packet.
//
// A flow that was begun to a floating address and leads to a workload that has it no more is deleted: its next packet goes to the one that has.
//
// Not evaluated: flows with no local workload at either end, what a workload sends from addresses that are not its own,
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
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/verdict"
)

// Table is conntrack's table; *conntrack.Conn implements it.
type Table interface {
	Each(func(conntrack.Flow)) error
	Mark([]conntrack.Change) (int, error)
	Forget([]conntrack.Flow) (int, error)
	Find([]conntrack.Flow) ([]conntrack.Flow, error)
}

// Config is what the driver needs.
type Config struct {
	Table Table
	// Local are the host's own addresses.
	Local func() ([]netip.Addr, error)
	Retry time.Duration // wait after a pass that failed; zero means 1s
	Share int           // passes take one Share-th of a processor at most, as long as none takes more than 25ms; zero means 200
	Log   *slog.Logger  // nil: nowhere
	// Done is called for each pass, from Run's goroutine; nil: not called.
	Done func(Pass)
}

// Pass is the result of one reading of the table.
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
	writing sync.Mutex // held while reading the table in order to change it

	mu        sync.Mutex
	applied   []intent.Batch                // in force in the kernel, not processed yet
	lapsed    bool                          // every flow must be evaluated
	links     []ifmon.Change                // not processed yet
	contested map[netip.Addr][]intent.Claim // likewise, see claimsOf
	asked     []func()                      // to be called when all that applied and links concern was evaluated

	judging sync.Mutex // for state
	state   verdict.State

	// Run's own.
	index     index
	on        bool
	revoked   bool      // some flow has the mark
	ready     bool      // the source is in sync: before, what is not known yet would be denied
	touched   concerned // by what changed since the last pass
	news      concerned // by what changed since the flows that are known to be cut were looked at
	cuts      *cuts
	gone      map[netip.Addr]bool // those of touched that had a workload longer ago than kept
	all       bool                // every flow must be evaluated
	urgent    bool                // not only new workloads are touched
	windows   bool                // the kernel may have lost the TCP windows of all connections
	looked    bool                // a pass has read all flows since revocation is on
	waiting   []func()            // to be called after the next pass
	returned  []conntrack.Flow    // of workloads that are in force again, all revoked
	times     times
	addrs     map[netip.Addr]string
	stale     bool // addrs must be computed again
	claims    claims
	hostAddrs map[netip.Addr]bool
	nofilter  bool // the kernel cannot find the flows of an address
}

// New returns a driver that works while Run runs.
func New(cfg Config) *Driver {
	if cfg.Retry == 0 {
		cfg.Retry = time.Second
	}
	if cfg.Share == 0 {
		cfg.Share = defaultShare
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{
		on: true, cfg: cfg, wake: make(chan struct{}, 1), absence: newAbsence(),
		claims: newClaims(), contested: map[netip.Addr][]intent.Claim{}, index: newIndex(), touched: newConcerned(), news: newConcerned(), cuts: newCuts(maxCuts), gone: map[netip.Addr]bool{},
	}
}

// InForce takes a batch that came into force in the kernel. Lapsed: policy was not in force for a while, so that connections may have been
// admitted that it denies.
func (d *Driver) InForce(b intent.Batch, lapsed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applied, d.lapsed = append(d.applied, b), d.lapsed || lapsed
	d.absence.inForce(b)
	d.nudge()
}

// WhenJudged has done called, from Run's goroutine, when all flows that what is in force until now concerns have been looked at.
func (d *Driver) WhenJudged(done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, done)
	d.nudge()
}

// judged calls who waits for the flows to have been looked at.
func (d *Driver) judged() {
	for _, done := range d.waiting {
		done()
	}
	d.waiting = nil
}

// Links takes the addresses of interfaces, by which host endpoints that name no interface are found.
func (d *Driver) Links(changes []ifmon.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links = append(d.links, changes...) // not into state: a pass holds that as long as it takes
	d.nudge()
}

// nudge wakes Run, which processes all that is new.
func (d *Driver) nudge() {
	select {
	case d.wake <- struct{}{}:
	default: // it is awake already
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

// Staged returns the verdict on a packet if staged policies were enforced.
func (d *Driver) Staged(p verdict.Packet) verdict.Verdict {
	d.judging.Lock()
	defer d.judging.Unlock()
	return d.state.JudgeStaged(p)
}

// Run makes passes until the context ends.
func (d *Driver) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake:
		case <-timer.C:
		}
		d.take()
		d.expire()
		d.restore()
		if !d.on && !d.all { // disabled, and no flow has the mark any more
			d.forget()
		}
		if at, some := d.due(); some && !time.Now().Before(at) {
			d.look()
		}
		if d.ready && !d.all && !d.urgent {
			d.judged()
		}
		if at, some := d.next(); some {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
	}
}

// look makes a pass, and says what came of it.
func (d *Driver) look() {
	p := d.pass()
	d.rest(p)
	if p.Err != nil {
		d.cfg.Log.Error("flows that policy denies may live on", "err", p.Err, "retry_in", d.cfg.Retry)
	} else {
		d.log(p)
	}
	if d.cfg.Done != nil {
		d.cfg.Done(p)
	}
}

func (d *Driver) log(p Pass) {
	if p.Revoked+p.Restored+p.Forgotten > 0 {
		d.cfg.Log.Info("live flows follow policy", "revoked", p.Revoked, "restored", p.Restored, "forgotten", p.Forgotten, "judged", p.Judged, "took", p.Took)
	}
}

// expire deletes the flows whose workload has not returned.
func (d *Driver) expire() {
	if e := d.times.expiry; !e.IsZero() && !time.Now().Before(e) {
		d.times.expiry = time.Time{}
		for _, a := range d.absence.old() {
			d.touched.addrs[a], d.gone[a] = true, true
			d.hurry()
		}
	}
	if d.times.expiry.IsZero() && d.absence.waiting() {
		d.times.expiry = time.Now().Add(kept / 4)
	}
}

// take takes the batches that came into force, and marks the addresses whose flows they may concern.
func (d *Driver) take() {
	d.mu.Lock()
	batches, links, arrived := d.applied, d.links, d.absence.take()
	d.all, d.windows = d.all || d.lapsed, d.windows || d.lapsed
	d.waiting = append(d.waiting, d.asked...)
	contested := d.contested
	d.applied, d.links, d.lapsed, d.asked, d.contested = nil, nil, false, nil, map[netip.Addr][]intent.Claim{}
	d.mu.Unlock()
	missed := map[netip.Addr]bool{} // revoked, but not noted
	for a, f := range arrived {
		if d.returned = append(d.returned, f.flows...); f.many {
			missed[a] = true
		}
	}
	d.judging.Lock()
	defer d.judging.Unlock()
	d.setLinks(links)
	defer d.contest(contested, links)
	for _, b := range batches {
		d.state.Merge(b)
		b.Endpoints = workloadsOf(b.Endpoints)
		fresh := d.index.fresh(b)
		maps.DeleteFunc(fresh, func(a netip.Addr, _ bool) bool { return missed[a] })
		d.touch(d.index.addrs(b), nil)
		d.index.merge(b)
		d.touch(d.index.addrs(b), fresh)
		if policies := d.index.touched(b, d.revoked, fresh); len(policies) > 0 {
			maps.Copy(d.touched.policies, policies)
			maps.Copy(d.news.policies, policies)
			d.hurry()
		}
		for _, e := range b.Endpoints {
			for _, a := range e.Addrs {
				delete(d.gone, a)
			}
		}
		d.stale = d.stale || len(b.Endpoints)+len(b.Removed) > 0
		if h := b.Host; h != nil {
			d.state.WorkloadPrefixes = h.Prefixes
			d.looked = d.looked && (d.on || h.KeepDenied) // as at a start: there may be flows of workloads that went meanwhile
			d.on, d.all = !h.KeepDenied, true
		}
		if b.InSync && !d.ready {
			d.ready, d.all = true, true
		}
	}
}

// contest takes which addresses several endpoints have, and which interfaces are up.
func (d *Driver) contest(news map[netip.Addr][]intent.Claim, links []ifmon.Change) {
	if addrs := d.claims.take(news, links); len(addrs) > 0 {
		d.stale = true
		d.touch(addrs, nil)
	}
}

// forget has nothing be touched.
func (d *Driver) forget() {
	d.touched.clear()
	d.news.clear()
	clear(d.gone)
	d.urgent = false
}

// touch marks the addresses whose flows must be evaluated: at once, except those of fresh workloads.
func (d *Driver) touch(addrs []netip.Addr, fresh map[netip.Addr]bool) {
	for _, a := range addrs {
		d.touched.addrs[a], d.news.addrs[a] = true, true
		if !fresh[a] {
			d.hurry()
		} else if d.times.fresh.IsZero() {
			d.times.fresh = time.Now()
		}
	}
}

// workloadsOf leaves out host endpoints: the interface by which a flow came is not known here, and so not its endpoint.
func workloadsOf(all []intent.Endpoint) []intent.Endpoint {
	return slices.DeleteFunc(slices.Clone(all), func(e intent.Endpoint) bool { return e.ID.Kind == intent.Host })
}

// orphaned reports whether a flow was that of a workload that is gone, and its address is not another's of this host.
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

// locate computes the owners of addresses.
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
		d.addrs, d.stale = d.claims.settle(d.index.links(), d.index.endpoints), false
	}
	return nil
}

// elsewhere is the link of an address that is neither the host's nor a workload's here. Which link of the host it is makes no
// difference to workloads.
const elsewhere = "?"

// denied reports whether the first packet of a flow would be dropped now.
func (d *Driver) denied(f conntrack.Flow) bool {
	to := f.Reply
	o := f.Original
	if f.Master.Src.IsValid() { // it is allowed as long as the flow that announced it
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

// link returns the interface behind which an address is; empty: the host's own address.
func (d *Driver) link(a netip.Addr) (name string, workload bool) {
	if l, ok := d.addrs[a]; ok {
		return l, true
	}
	if d.hostAddrs[a] {
		return "", false
	}
	return elsewhere, false
}

// dhcp is what every host serves; see the stage of services in package nft.
func dhcp(t conntrack.Tuple) bool {
	return t.Proto == 17 && (t.SrcPort == 68 && t.DstPort == 67 || t.SrcPort == 546 && t.DstPort == 547)
}
