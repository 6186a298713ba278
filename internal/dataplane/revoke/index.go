package revoke

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// index finds the endpoints that a change touches.
type index struct {
	endpoints map[intent.EndpointID]intent.Endpoint
	sets      map[intent.PolicyID]map[intent.SetID]intent.Use // of a policy
	policies  map[intent.SetID]map[intent.PolicyID]bool       // that use a set
	groups    intent.Groups                                   // of endpoints
	holders   map[netip.Addr]int                              // how many endpoints have an address
	nats      map[intent.NAT]int                              // how many endpoints have a floating address, and for which of their own
	floating  map[netip.Addr]int                              // how many endpoints have one
}

func newIndex() index {
	return index{
		endpoints: map[intent.EndpointID]intent.Endpoint{}, sets: map[intent.PolicyID]map[intent.SetID]intent.Use{},
		policies: map[intent.SetID]map[intent.PolicyID]bool{}, holders: map[netip.Addr]int{},
		nats: map[intent.NAT]int{}, floating: map[netip.Addr]int{},
	}
}

// link adds or removes a relation between two things.
func link[K, V comparable](m map[K]map[V]bool, k K, to V, on bool) {
	switch {
	case on && m[k] == nil:
		m[k] = map[V]bool{to: true}
	case on:
		m[k][to] = true
	default:
		if delete(m[k], to); len(m[k]) == 0 {
			delete(m, k)
		}
	}
}

// policy sets a policy's uses of sets; nil: it is removed.
func (x *index) policy(id intent.PolicyID, uses map[intent.SetID]intent.Use) {
	for s := range x.sets[id] {
		link(x.policies, s, id, false)
	}
	delete(x.sets, id)
	if uses != nil {
		x.sets[id] = uses
	}
	for s := range uses {
		link(x.policies, s, id, true)
	}
}

// endpoint sets an endpoint; nil: it is removed.
func (x *index) endpoint(id intent.EndpointID, e *intent.Endpoint) {
	if old, known := x.endpoints[id]; known {
		x.groups.Leave(old)
		for _, a := range old.Addrs {
			if x.holders[a]--; x.holders[a] == 0 {
				delete(x.holders, a)
			}
		}
		x.float(old.NATs, -1)
	}
	delete(x.endpoints, id)
	if e == nil {
		return
	}
	x.endpoints[id] = *e
	x.groups.Join(*e)
	for _, a := range e.Addrs {
		x.holders[a]++
	}
	x.float(e.NATs, 1)
}

// float counts floating addresses up or down.
func (x *index) float(nats []intent.NAT, by int) {
	for _, n := range nats {
		if x.nats[n] += by; x.nats[n] == 0 {
			delete(x.nats, n)
		}
		if x.floating[n.External] += by; x.floating[n.External] == 0 {
			delete(x.floating, n.External)
		}
	}
}

// floatedAway reports whether a flow leads to a workload that has not the floating address to which it was begun, or past the one that has it.
func (x *index) floatedAway(f conntrack.Flow) bool {
	if x.nats[intent.NAT{External: f.Original.Dst, Internal: f.Reply.Src}] > 0 {
		return false
	}
	return f.Mark&kernel.ConntrackFloating != 0 || x.floating[f.Original.Dst] > 0
}

func (x *index) merge(b intent.Batch) {
	for _, p := range b.Policies {
		x.policy(p.ID, intent.Uses(p))
	}
	for _, e := range b.Endpoints {
		x.endpoint(e.ID, &e)
	}
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.PolicyID:
			x.policy(id, nil)
		case intent.EndpointID:
			x.endpoint(id, nil)
		}
	}
}

// fresh returns the addresses of the endpoints that a batch adds, but for those that another endpoint has: they have flows.
func (x *index) fresh(b intent.Batch) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, e := range b.Endpoints {
		if _, known := x.endpoints[e.ID]; known {
			continue
		}
		for _, a := range e.Addrs {
			if x.holders[a] == 0 {
				out[a] = true
			}
		}
	}
	return out
}

// addrs returns the addresses, own and floating, of the endpoints that a batch changes, as far as the index knows. Called before and after the batch is merged, it
// finds those that an endpoint had, and those that it has now.
func (x *index) addrs(b intent.Batch) (out []netip.Addr) {
	add := func(e intent.Endpoint) {
		out = append(out, e.Addrs...)
		for _, n := range e.NATs {
			out = append(out, n.External)
		}
	}
	for _, e := range b.Endpoints {
		add(x.endpoints[e.ID])
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.EndpointID); ok {
			add(x.endpoints[id])
		}
	}
	return out
}

// touched returns the policies that a batch changes, itself or by a set, and that an endpoint has that is not fresh. It is called after the batch was
// merged: an endpoint that had such a policy before, and has not now, is in the batch. Changes of sets that cannot deny
// anything do not count, unless restore: they may allow what was denied before.
func (x *index) touched(b intent.Batch, restore bool, fresh map[netip.Addr]bool) map[intent.PolicyID]bool {
	policies := map[intent.PolicyID]bool{}
	touch := func(p intent.PolicyID) {
		for id := range x.groups.Users(p) {
			if slices.ContainsFunc(x.endpoints[id].Addrs, func(a netip.Addr) bool { return !fresh[a] }) {
				policies[p] = true
				return
			}
		}
	}
	for _, p := range b.Policies {
		touch(p.ID)
	}
	for _, k := range b.Removed {
		if p, ok := k.(intent.PolicyID); ok {
			touch(p)
		}
	}
	for s, change := range b.SetChanges() {
		for p := range x.policies[s] {
			if restore || x.sets[p][s].Denies(change) {
				touch(p)
			}
		}
	}
	return policies
}

// users adds to addrs the addresses of the endpoints that have one of some policies.
func (x *index) users(policies map[intent.PolicyID]bool, addrs map[netip.Addr]bool) {
	for p := range policies {
		for id := range x.groups.Users(p) {
			for _, a := range x.endpoints[id].Addrs {
				addrs[a] = true
			}
		}
	}
}

// links returns the interfaces of workloads by address. Of several with one address, an open one, then the
// smallest name: the one to which package calc makes a route.
func (x *index) links() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	best := map[netip.Addr]intent.Endpoint{}
	for _, e := range x.endpoints {
		if e.ID.Kind != intent.Workload || e.Link == "" {
			continue
		}
		for _, a := range e.Addrs {
			if b, ok := best[a]; !ok || better(e, b) {
				best[a], out[a] = e, e.Link
			}
		}
	}
	return out
}

func better(a, b intent.Endpoint) bool {
	if (a.Closed == "") != (b.Closed == "") {
		return a.Closed == ""
	}
	return a.ID.String() < b.ID.String()
}
