package revoke

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// absence knows whose addresses are gone, and so whose flows are in the table of connections without a workload.
//
// Nothing passes an interface without an endpoint, so such flows need not be cut while it is gone. To delete them would open
// them: the kernel begins a flow anew from whatever packet it sees first (nf_conntrack_tcp_loose), and if that is the server's,
// policy is asked about a flow in the other direction, which it may allow. So they stay, and with them the direction in which
// they began, until the address is a workload's again, or for as long as [kept].
type absence struct {
	mu      sync.Mutex
	off     bool                               // no flow is cut now
	homes   map[intent.EndpointID][]netip.Addr // addresses of the workloads in force, by endpoint
	holders map[netip.Addr]int                 // how many of these have an address
	parted  map[netip.Addr]parting
	held    map[netip.Addr]bool // Prepare cut their flows, which no pass may let live before it knows of the workload
	arrived map[netip.Addr]bool // were parted, and are a workload's again, which Run has not heard of
}

// parting is how an address became nobody's.
type parting struct {
	whose intent.Key // the endpoint; nil: it was nobody's when we began, and has flows
	since time.Time
}

// kept is how long flows without their workload stay in the table. A sender gives a connection up after some 15 minutes without
// an answer (net.ipv4.tcp_retries2), so nobody is left who could begin it anew.
const kept = 20 * time.Minute

func newAbsence() *absence {
	return &absence{homes: map[intent.EndpointID][]netip.Addr{}, holders: map[netip.Addr]int{}, parted: map[netip.Addr]parting{}, held: map[netip.Addr]bool{}, arrived: map[netip.Addr]bool{}}
}

// inForce takes over which endpoints are there.
func (x *absence) inForce(b intent.Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b.Host != nil {
		x.off = b.Host.KeepDenied
	}
	left := map[netip.Addr]intent.Key{}
	for _, k := range b.Removed {
		if id, ok := k.(intent.EndpointID); ok {
			x.leave(id, left)
		}
	}
	for _, e := range b.Endpoints {
		if e.ID.Kind == intent.Workload {
			x.leave(e.ID, left)
		}
	}
	for _, e := range b.Endpoints {
		if e.ID.Kind == intent.Workload && e.Closed == "" { // nothing passes a closed one, as if it were gone
			x.enter(e)
		}
	}
	maps.DeleteFunc(x.held, func(a netip.Addr, _ bool) bool { return !x.arrived[a] }) // it does not come after all
	now := time.Now()
	for a, id := range left {
		if x.holders[a] == 0 {
			x.parted[a] = parting{whose: id, since: now}
		}
	}
	if x.off {
		clear(x.parted)
	}
}

func (x *absence) leave(id intent.EndpointID, left map[netip.Addr]intent.Key) {
	var whose intent.Key = id
	for _, a := range x.homes[id] {
		left[a] = whose
		if x.holders[a]--; x.holders[a] == 0 {
			delete(x.holders, a)
		}
	}
	delete(x.homes, id)
}

func (x *absence) enter(e intent.Endpoint) {
	x.homes[e.ID] = e.Addrs
	for _, a := range e.Addrs {
		x.holders[a]++
		if _, was := x.parted[a]; was {
			x.arrived[a] = true
			delete(x.parted, a)
		}
	}
}

// returning tells of the addresses that become a workload's which of them are to have their flows cut until they are judged, and
// which of them are another's than before.
func (x *absence) returning(endpoints []intent.Endpoint, removed []intent.Key) (cut, strange map[netip.Addr]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	cut, strange = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	if x.off {
		return cut, strange
	}
	leaving := map[netip.Addr]intent.Key{}
	for _, k := range removed {
		if id, ok := k.(intent.EndpointID); ok {
			for _, a := range x.homes[id] {
				if x.holders[a] == 1 {
					leaving[a] = k
				}
			}
		}
	}
	for _, e := range endpoints {
		if e.ID.Kind != intent.Workload || e.Closed != "" {
			continue
		}
		for _, a := range e.Addrs {
			was, parted := x.parted[a]
			if from, is := leaving[a]; is {
				was, parted = parting{whose: from}, true
			}
			if parted && (was.whose == nil || was.whose == e.ID) {
				cut[a], x.held[a] = true, true
			} else if parted {
				strange[a] = true
			}
		}
	}
	return cut, strange
}

// take returns the addresses that are workloads' again, and have flows that were cut for it. Their look at the table cannot wait.
func (x *absence) take() map[netip.Addr]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.arrived
	x.arrived = map[netip.Addr]bool{}
	for a := range out {
		delete(x.held, a)
	}
	return out
}

// old returns the addresses whose flows have stayed long enough, and forgets them.
func (x *absence) old() (out []netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, p := range x.parted {
		if time.Since(p.since) >= kept {
			delete(x.parted, a)
			if p.whose != nil {
				out = append(out, a)
			}
		}
	}
	return out
}

// waiting reports whether any address has flows without a workload.
func (x *absence) waiting() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.parted) > 0
}

// look is what one look at the table finds out about addresses without a workload.
type look struct {
	d         *Driver
	before    map[netip.Addr]parting // as it began
	held      map[netip.Addr]bool    // as it began
	flows     map[netip.Addr]bool    // those of before that have flows
	strangers map[netip.Addr]bool    // with flows, and neither a workload's nor the host's; of the first look alone
}

func (d *Driver) watch() *look {
	d.absence.mu.Lock()
	defer d.absence.mu.Unlock()
	return &look{d: d, before: maps.Clone(d.absence.parted), held: maps.Clone(d.absence.held), flows: map[netip.Addr]bool{}, strangers: map[netip.Addr]bool{}}
}

func (l *look) flow(f conntrack.Flow) {
	if len(l.before) == 0 && l.d.looked {
		return
	}
	for _, a := range ends(f) {
		if _, ok := l.before[a]; ok {
			l.flows[a] = true
		} else if _, workload := l.d.addrs[a]; !l.d.looked && !workload && !l.d.hostAddrs[a] {
			l.strangers[a] = true
		}
	}
}

// seen takes over what a look found: of an address without a flow nothing needs to be known.
func (x *absence) seen(l *look) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, p := range l.before {
		if !l.flows[a] && x.parted[a] == p {
			delete(x.parted, a)
		}
	}
	if x.off {
		return
	}
	for a := range l.strangers {
		if _, known := x.parted[a]; !known && x.holders[a] == 0 {
			x.parted[a] = parting{since: time.Now()}
		}
	}
}

// Prepare cuts the flows of addresses that become a workload's again, before anything of it is in force: the next pass lets
// live what policy allows. Flows of another workload that had the address are deleted. If that fails, it returns the endpoints whose
// flows would pass.
func (d *Driver) Prepare(endpoints []intent.Endpoint, removed []intent.Key) map[intent.EndpointID]error {
	cut, strange := d.absence.returning(endpoints, removed)
	if len(cut)+len(strange) == 0 {
		return nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	changes, forget := map[conntrack.Tuple]conntrack.Change{}, map[conntrack.Tuple]conntrack.Flow{}
	err := d.cfg.Table.Each(func(f conntrack.Flow) {
		switch {
		case anyEnd(f, strange):
			forget[f.Original] = f
		case anyEnd(f, cut):
			changes[f.Original] = conntrack.Change{Flow: f, Mark: kernel.ConntrackRevoked, Mask: kernel.ConntrackRevoked}
		}
	})
	if err == nil {
		_, err = d.cfg.Table.Mark(slices.Collect(maps.Values(changes)))
	}
	if err == nil {
		_, err = d.cfg.Table.Forget(slices.Collect(maps.Values(forget)))
	}
	if err == nil {
		return nil
	}
	failed := map[intent.EndpointID]error{}
	for _, e := range endpoints {
		if slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return cut[a] || strange[a] }) && e.ID.Kind == intent.Workload {
			failed[e.ID] = fmt.Errorf("flows of its addresses from before cannot be cut: %w", err)
		}
	}
	return failed
}

// ends are the addresses of a flow: those it began with, and where DNAT led it.
func ends(f conntrack.Flow) [3]netip.Addr {
	return [3]netip.Addr{f.Original.Src, f.Original.Dst, f.Reply.Src}
}

func anyEnd(f conntrack.Flow, of map[netip.Addr]bool) bool {
	for _, a := range ends(f) {
		if of[a] {
			return true
		}
	}
	return false
}
