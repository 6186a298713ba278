package revoke

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
)

// index finds the endpoints that a change touches.
type index struct {
	endpoints map[intent.EndpointID]intent.Endpoint
	sets      map[intent.PolicyID]map[intent.SetID]use  // of a policy
	policies  map[intent.SetID]map[intent.PolicyID]bool // that use a set
	groups    intent.Groups                             // of endpoints
}

// use says what a change of a set's members can do to the packets of a policy.
type use struct{ moreDenies, fewerDeny bool }

// usesOf returns the uses of a policy's sets. More members of a set that is allowed deny nothing, nor do fewer of one that is
// denied; a set that is passed can have either effect.
func usesOf(p intent.Policy) map[intent.SetID]use {
	out := map[intent.SetID]use{}
	note := func(ids []intent.SetID, more, fewer bool) {
		for _, id := range ids {
			u := out[id]
			out[id] = use{u.moreDenies || more, u.fewerDeny || fewer}
		}
	}
	for _, list := range [][]intent.Rule{p.Ingress, p.Egress} {
		for _, r := range list {
			allows, denies := r.Action == intent.Allow || r.Action == intent.Pass, r.Action == intent.Deny || r.Action == intent.Pass
			for _, peer := range []intent.Peer{r.Src, r.Dst} {
				note(peer.Sets, denies, allows)
				note(peer.PortSets, denies, allows)
				note(peer.NotSets, allows, denies)
				note(peer.NotPortSets, allows, denies)
			}
		}
	}
	return out
}

func newIndex() index {
	return index{
		endpoints: map[intent.EndpointID]intent.Endpoint{}, sets: map[intent.PolicyID]map[intent.SetID]use{},
		policies: map[intent.SetID]map[intent.PolicyID]bool{},
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
func (x *index) policy(id intent.PolicyID, uses map[intent.SetID]use) {
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
	}
	delete(x.endpoints, id)
	if e == nil {
		return
	}
	x.endpoints[id] = *e
	x.groups.Join(*e)
}

func (x *index) merge(b intent.Batch) {
	for _, p := range b.Policies {
		x.policy(p.ID, usesOf(p))
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

// fresh returns the addresses of the endpoints that a batch adds.
func (x *index) fresh(b intent.Batch) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, e := range b.Endpoints {
		if _, known := x.endpoints[e.ID]; known {
			continue
		}
		for _, a := range e.Addrs {
			out[a] = true
		}
	}
	return out
}

// touched returns the addresses of endpoints that a batch changes, as far as the index knows. Called before and after the
// batch is merged, it finds those that had an address, a policy or a set, and those that have it now. Changes that cannot deny
// anything do not count, unless restore: they may allow what was denied before.
func (x *index) touched(b intent.Batch, restore bool) []netip.Addr {
	policies, endpoints, sets := map[intent.PolicyID]bool{}, map[intent.EndpointID]bool{}, map[intent.SetID]use{}
	for _, p := range b.Policies {
		policies[p.ID] = true
	}
	for _, e := range b.Endpoints {
		endpoints[e.ID] = true
	}
	for _, s := range b.IPSets {
		sets[s.ID] = use{true, true}
	}
	for _, m := range b.Members {
		u := sets[m.Set]
		sets[m.Set] = use{u.moreDenies || len(m.Added) > 0, u.fewerDeny || len(m.Removed) > 0}
	}
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.PolicyID:
			policies[id] = true
		case intent.EndpointID:
			endpoints[id] = true
		}
	}
	for s, change := range sets {
		for p := range x.policies[s] {
			u := x.sets[p][s]
			if restore || u.moreDenies && change.moreDenies || u.fewerDeny && change.fewerDeny {
				policies[p] = true
			}
		}
	}
	for p := range policies {
		for id := range x.groups.Users(p) {
			endpoints[id] = true
		}
	}
	var out []netip.Addr
	for id := range endpoints {
		out = append(out, x.endpoints[id].Addrs...)
	}
	return out
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
