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
	parted  map[netip.Addr]*parting
	held    map[netip.Addr]bool // Prepare revoked their flows; no pass may restore them before it knows the workload
	abroad  abroad
	arrived map[netip.Addr]noted // of held, the addresses that are a workload's again; not processed by Run yet
}

// parting is how an address lost its workload.
type parting struct {
	owner intent.Key // the endpoint that had it; nil: none of this host had it, and it may have flows
	since time.Time
	noted noted
}

// noted are the flows of an address that a reading of the table found since its workload went. What began since was decided by the policy that
// is in force, as the flows of any address that comes to be a workload's.
type noted struct {
	flows []conntrack.Flow
	many  bool // there may be others
}

// maxNoted bounds how many flows without a workload one reading notes, which are 2 MB.
const maxNoted = 10_000

// kept is how long flows without their workload stay in the table. A sender gives a connection up after some 15 minutes without
// an answer (net.ipv4.tcp_retries2), so no end is left that could begin it again.
const kept = 20 * time.Minute

func newAbsence() *absence {
	return &absence{homes: map[intent.EndpointID][]netip.Addr{}, holders: map[netip.Addr]int{}, parted: map[netip.Addr]*parting{}, held: map[netip.Addr]bool{}, arrived: map[netip.Addr]noted{}, abroad: newAbroad()}
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
	maps.DeleteFunc(x.held, func(a netip.Addr, _ bool) bool { _, is := x.arrived[a]; return !is }) // their workload was not made
	now := time.Now()
	for a, id := range left {
		if x.holders[a] == 0 {
			x.parted[a] = &parting{owner: id, since: now, noted: noted{many: true}}
		}
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
		if p := x.parted[a]; p != nil {
			if x.held[a] {
				x.arrived[a] = p.noted
			}
			delete(x.parted, a)
		}
	}
}

// coming is what addresses that workloads get had before.
type coming struct {
	cut     map[netip.Addr]bool // their flows must be revoked until they are evaluated
	strange map[netip.Addr]bool // another workload had them
	flows   []conntrack.Flow    // of both
	many    bool                // there may be others: the table must be read
}

// returning returns what the addresses had that workloads get.
func (x *absence) returning(endpoints []intent.Endpoint, removed []intent.Key) coming {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := coming{cut: map[netip.Addr]bool{}, strange: map[netip.Addr]bool{}}
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
			was := x.parted[a]
			if from, is := leaving[a]; is {
				was = &parting{owner: from, noted: noted{many: true}}
			}
			if was == nil {
				was = x.moved(a)
			}
			if was == nil {
				continue
			}
			switch own := was.owner == nil || was.owner == e.ID; {
			case own && (x.off || slices.Contains(x.abroad.coming[netip.PrefixFrom(a, a.BitLen())], e.Link)): // a setting lets them live, or they are the same machine's on the other host: the pass judges them
				continue
			case own:
				c.cut[a], x.held[a] = true, true
			default:
				c.strange[a] = true
			}
			c.flows, c.many = append(c.flows, was.noted.flows...), c.many || was.noted.many
		}
	}
	return c
}

// take returns the addresses that are workloads' again, with their flows, which were revoked for it.
func (x *absence) take() map[netip.Addr]noted {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.arrived
	x.arrived = map[netip.Addr]noted{}
	for a := range out {
		delete(x.held, a)
	}
	return out
}

// holding returns the addresses whose flows are revoked for a workload that is not in force yet.
func (x *absence) holding() map[netip.Addr]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.held)
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
	before    map[netip.Addr]*parting // as of its begin
	only      map[netip.Addr]bool     // not nil: the addresses of which all flows were read
	flows     map[netip.Addr]*noted   // of before
	n         int                     // flows noted
	whoever   bool                    // flows are noted also of addresses that nobody had when we started, which are as many as a node has peers
	strange   func(netip.Addr) bool   // is neither a workload's nor the host's; nil: is not asked
	strangers map[netip.Addr]struct{} // have flows
}

func (x *absence) look() *look {
	x.mu.Lock()
	defer x.mu.Unlock()
	return &look{before: maps.Clone(x.parted), flows: map[netip.Addr]*noted{}, strangers: map[netip.Addr]struct{}{}}
}

// watch is for a pass. The first one finds the addresses of workloads that went before we started.
func (d *Driver) watch() *look {
	l := d.absence.look()
	if !d.looked {
		l.strange = func(a netip.Addr) bool {
			_, workload := d.addrs[a]
			return !workload && !d.hostAddrs[a]
		}
	}
	return l
}

func (l *look) flow(f conntrack.Flow) {
	if len(l.before) == 0 && l.strange == nil {
		return
	}
	for _, a := range ends(f) {
		if p := l.before[a]; p != nil {
			l.note(a, p, f)
		} else if l.strange != nil && l.strange(a) {
			l.strangers[a] = struct{}{}
		}
	}
}

// note notes a flow of an address.
func (l *look) note(a netip.Addr, p *parting, f conntrack.Flow) {
	n := l.flows[a]
	if n == nil {
		n = &noted{}
		l.flows[a] = n
	}
	switch {
	case n.many || len(n.flows) > 0 && n.flows[len(n.flows)-1].Original == f.Original: // both ends are this address, before and after DNAT
	case p.owner == nil && !l.whoever || l.n == maxNoted:
		l.n -= len(n.flows)
		*n = noted{many: true}
	default:
		l.n++
		n.flows = append(n.flows, f)
	}
}

// seen takes the result of a reading: an address without a flow need not be tracked. What is held keeps the flows that were revoked for it.
func (x *absence) seen(l *look) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, p := range l.before {
		if l.only != nil && !l.only[a] || x.parted[a] != p || x.held[a] {
			continue
		}
		if found := l.flows[a]; found == nil {
			delete(x.parted, a)
		} else {
			p.noted = *found
		}
	}
	if x.off {
		return
	}
	for a := range l.strangers {
		if x.parted[a] == nil && x.holders[a] == 0 {
			x.parted[a] = &parting{since: time.Now(), noted: noted{many: true}}
		}
	}
}

// revoked takes all flows of some addresses, when they are revoked for workloads to come.
func (x *absence) revoked(of map[netip.Addr]bool, changes map[conntrack.Tuple]conntrack.Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &look{before: map[netip.Addr]*parting{}, flows: map[netip.Addr]*noted{}, whoever: true}
	for a := range of {
		if p := x.parted[a]; p != nil {
			l.before[a] = p
		}
	}
	for _, c := range changes {
		c.Flow.Mark |= c.Mark
		l.flow(c.Flow)
	}
	for a, p := range l.before {
		p.noted = noted{}
		if n := l.flows[a]; n != nil {
			p.noted = *n
		}
	}
}

// Prepare revokes the flows of addresses that a workload gets again, before anything of it is in force: those that policy allows are
// restored when it is. Flows of another workload that had the address are deleted. They were noted when the workload had gone; the table is
// read if it was not since. The errors are by endpoint whose flows would pass; nil: none.
func (d *Driver) Prepare(endpoints []intent.Endpoint, removed []intent.Key) map[intent.EndpointID]error {
	c := d.absence.returning(endpoints, removed)
	if len(c.cut)+len(c.strange) == 0 {
		return nil
	}
	err := d.prepare(c)
	if err == nil {
		return nil
	}
	failed := map[intent.EndpointID]error{}
	for _, e := range endpoints {
		if slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return c.cut[a] || c.strange[a] }) && e.ID.Kind == intent.Workload {
			failed[e.ID] = fmt.Errorf("flows of its addresses from before cannot be cut: %w", err)
		}
	}
	return failed
}

func (d *Driver) prepare(c coming) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	changes, forget := map[conntrack.Tuple]conntrack.Change{}, map[conntrack.Tuple]conntrack.Flow{}
	flow := func(f conntrack.Flow) {
		switch {
		case anyEnd(f, c.strange):
			forget[f.Original] = f
		case anyEnd(f, c.cut):
			changes[f.Original] = conntrack.Change{Flow: f, Mark: kernel.ConntrackRevoked, Mask: kernel.ConntrackRevoked}
		}
	}
	if c.many {
		l := d.absence.look()
		if err := d.each(func(f conntrack.Flow) { l.flow(f); flow(f) }); err != nil {
			return err
		}
		d.absence.seen(l)
	} else {
		for _, f := range c.flows {
			flow(f)
		}
	}
	if _, err := d.cfg.Table.Mark(slices.Collect(maps.Values(changes))); err != nil {
		return err
	}
	d.absence.revoked(c.cut, changes)
	_, err := d.cfg.Table.Forget(slices.Collect(maps.Values(forget)))
	return err
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
