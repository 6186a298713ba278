package fib

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// sweep deletes routes and neighbours that are ours and not wanted, once the desired state is complete.
func (t *Table) sweep(ctx context.Context) error {
	if !t.inSync || !t.linksSeen {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var b rtnl.Batch
	var routes []routeKey
	for key := range t.routes.PendingDeletes() {
		r, _ := t.routes.Actual(key)
		if t.awaits(key, r) {
			continue
		}
		b.DeleteRoute(r)
		routes = append(routes, key)
	}
	neighbours := slices.Collect(t.neighbours.PendingDeletes())
	for _, key := range neighbours {
		b.DeleteNeighbour(rtnl.Neighbour{Link: key.link, Addr: key.addr})
	}
	errs := t.rtnl.Write(&b)
	for i, err := range errs {
		if err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			continue
		}
		errs[i] = nil
		if i >= len(routes) {
			t.neighbours.MarkDeleted(neighbours[i-len(routes)])
			continue
		}
		t.routes.MarkDeleted(routes[i])
		if err == nil {
			t.confirm(routes[i])
		}
		delete(t.drifted, routes[i])
	}
	return errors.Join(errs...)
}

// addRoutes adds what is missing and returns the destinations with EEXIST.
func (t *Table) addRoutes(ctx context.Context) (existing []netip.Prefix) {
	if ctx.Err() != nil {
		return nil
	}
	var b rtnl.Batch
	type addition struct {
		key routeKey
		at  int  // its place among the changes
		old bool // the change before deletes what is there
	}
	var all []addition
	for key, r := range t.routes.PendingUpdates() {
		if t.failed[key.dst] != nil {
			continue
		}
		t.news[key.dst] = true
		if r.Kind == rtnl.Unicast && t.held(t.intents[key.dst].Link) {
			continue
		}
		delete(t.late, key.dst)
		// Delete first: there is one route for a destination, and a replace could hit a foreign one.
		old, is := t.routes.Actual(key)
		if is && sameWay(old, r) { // of another protocol, source or scope: in one step, as packets follow it meanwhile
			all = append(all, addition{key: key, at: b.Len()})
			b.ReplaceRoute(r)
			continue
		}
		if is {
			b.DeleteRoute(old)
		}
		all = append(all, addition{key, b.Len(), is})
		b.AddRoute(r)
	}
	errs := t.rtnl.Write(&b)
	for _, a := range all {
		key, err := a.key, errs[a.at]
		if want, is := t.routes.Desired(key); is && covered(want, err) {
			err = t.rtnl.AddRouteOver(want)
		}
		if a.old {
			if e := errs[a.at-1]; e == nil || errors.Is(e, rtnl.ErrNotFound) {
				t.routes.ObservedGone(key)
			} else if err != nil {
				t.fail(key.dst, e)
				continue
			}
		}
		switch {
		case errors.Is(err, rtnl.ErrExists):
			existing = append(existing, key.dst)
		case err != nil:
			t.fail(key.dst, err)
		default:
			t.routes.MarkApplied(key)
			t.confirm(key)
		}
	}
	return existing
}

// covered reports whether the kernel refused a route of IPv6 through a tunnel, as it does where somebody else's route, such as BGP's, leads to its next hop.
func covered(r rtnl.Route, err error) bool {
	return errors.Is(err, syscall.EINVAL) && r.OnLink && r.Gateway.Is6()
}

// setNeighbours sets those of routes that are there.
func (t *Table) setNeighbours() {
	var b rtnl.Batch
	var keys []neighbourKey
	for key, mac := range t.neighbours.PendingUpdates() {
		dst := netip.PrefixFrom(key.addr, key.addr.BitLen())
		if t.failed[dst] != nil || t.late[dst] != "" || t.held(t.intents[dst].Link) {
			continue
		}
		b.SetNeighbour(rtnl.Neighbour{Link: key.link, Addr: key.addr, MAC: mac, Permanent: true})
		keys = append(keys, key)
	}
	for i, err := range t.rtnl.Write(&b) {
		if key := keys[i]; err != nil {
			t.fail(netip.PrefixFrom(key.addr, key.addr.BitLen()), err)
		} else {
			t.neighbours.MarkApplied(key)
		}
	}
}
