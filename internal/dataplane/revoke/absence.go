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

// absence tracks the addresses of workloads that are gone, and so the flows in conntrack's table without a workload.
//
// No packet passes an interface without an endpoint, so such flows need not be revoked while it is gone. Deleting them would open
// them: the kernel makes a new entry from whatever packet it sees first (nf_conntrack_tcp_loose), and if that is the server's,
// policy is asked about a flow in the other direction, which it may allow. So they stay, and with them the direction in which
// they began, until the address is a workload's again, or for as long as [kept].
type absence struct {
	mu      sync.Mutex
	off     bool                               // revocation is disabled
	homes   map[intent.EndpointID][]netip.Addr // addresses of the workloads in force, by endpoint
	holders map[netip.Addr]int                 // number of workloads with an address
	parted  map[netip.Addr]parting
	held    map[netip.Addr]bool // Prepare revoked their flows; no pass may restore them before it knows the workload
	arrived map[netip.Addr]bool // were parted, and are a workload's again; not processed by Run yet
}

// parting is how an address lost its workload.
type parting struct {
	owner intent.Key // the endpoint that had it; nil: nobody had it when we started, and it has flows
	since time.Time
}

// kept is how long flows without their workload stay in the table. A sender gives a connection up after some 15 minutes without
// an answer (net.ipv4.tcp_retries2), so no end is left that could begin it again.
const kept = 20 * time.Minute

func newAbsence() *absence {
	return &absence{homes: map[intent.EndpointID][]netip.Addr{}, holders: map[netip.Addr]int{}, parted: map[netip.Addr]parting{}, held: map[netip.Addr]bool{}, arrived: map[netip.Addr]bool{}}
}

// inForce takes the changes of endpoints in a batch.
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
		if e.ID.Kind == intent.Workload && e.Closed == "" { // no packet passes a closed one, as if it were gone
			x.enter(e)
		}
	}
	maps.DeleteFunc(x.held, func(a netip.Addr, _ bool) bool { return !x.arrived[a] }) // their workload was not made
	now := time.Now()
	for a, id := range left {
		if x.holders[a] == 0 {
			x.parted[a] = parting{owner: id, since: now}
		}
	}
	if x.off {
		clear(x.parted)
	}
}

func (x *absence) leave(id intent.EndpointID, left map[netip.Addr]intent.Key) {
	var owner intent.Key = id
	for _, a := range x.homes[id] {
		left[a] = owner
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

// returning returns, of the addresses that a workload gets, those whose flows must be revoked until they are evaluated (cut), and
// those that another workload had before (strange).
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
				was, parted = parting{owner: from}, true
			}
			if parted && (was.owner == nil || was.owner == e.ID) {
				cut[a], x.held[a] = true, true
			} else if parted {
				strange[a] = true
			}
		}
	}
	return cut, strange
}

// take returns the addresses that are workloads' again and whose flows were revoked for it. Their pass must not wait.
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

// old returns the addresses whose flows have stayed for as long as kept, and removes them.
func (x *absence) old() (out []netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, p := range x.parted {
		if time.Since(p.since) >= kept {
			delete(x.parted, a)
			if p.owner != nil {
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

// look is what one reading of the table finds about addresses without a workload.
type look struct {
	d         *Driver
	before    map[netip.Addr]parting // as of its begin
	only      map[netip.Addr]bool    // not nil: the addresses of which all flows were read
	held      map[netip.Addr]bool    // as of its begin
	flows     map[netip.Addr]bool    // those of before that have flows
	strangers map[netip.Addr]bool    // with flows, but neither a workload's nor the host's; in the first reading only
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

// seen takes the result of a reading: an address without a flow need not be tracked.
func (x *absence) seen(l *look) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, p := range l.before {
		if (l.only == nil || l.only[a]) && !l.flows[a] && x.parted[a] == p {
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

// Prepare revokes the flows of addresses that a workload gets again, before anything of it is in force: the next pass
// restores those that policy allows. Flows of another workload that had the address are deleted. The errors are by endpoint whose
// flows would pass; nil: none.
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

// ends returns the addresses of a flow: those of its first packet, and the destination after DNAT.
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
