package fib

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// takeOver replaces routes that another agent left at destinations of ours. Any other route
// stays, and makes ours fail with ErrForeign.
func (t *Table) takeOver(existing []netip.Prefix) error {
	if len(existing) == 0 {
		return nil
	}
	all, err := t.rtnl.Routes(rtnl.RouteFilter{})
	if err != nil {
		return err
	}
	standing := map[routeKey]rtnl.Route{}
	for _, r := range all {
		standing[routeKey{r.Dst, r.Metric}] = r
	}
	workloads := t.workloads()
	var b rtnl.Batch
	var keys []routeKey
	for _, dst := range existing {
		key := t.keyOf(dst)
		want, wanted := t.routes.Desired(key)
		is, there := standing[key] // if it was deleted since, Run is about to get the event
		if !wanted || !there || !leftover(is, want, workloads) {
			t.fail(dst, fmt.Errorf("route %s: %w", dst, ErrForeign))
			continue
		}
		b.ReplaceRoute(want) // atomically: established flows go on
		keys = append(keys, key)
	}
	for i, err := range t.rtnl.Write(&b) {
		key := keys[i]
		if err != nil {
			t.fail(key.dst, err)
			continue
		}
		t.routes.MarkApplied(key)
		t.repairs = append(t.repairs, intent.Repair{What: fmt.Sprintf("route %s of protocol %d", key.dst, standing[key].Protocol), Cause: intent.ByTakeOver})
	}
	return nil
}

// leftover reports whether an existing route does what only an agent's does: it leads to an endpoint
// through the interface of a workload, perhaps the one that had the address before, or it is the blackhole of a block.
// A route with a gateway is not: an administrator may route through a workload.
func leftover(is, want rtnl.Route, workloads map[int]bool) bool {
	if want.Protocol == kernel.RouteProtocolHosts {
		return false
	}
	if want.Kind == rtnl.Blackhole {
		return is.Kind == rtnl.Blackhole
	}
	return is.Kind == rtnl.Unicast && !is.Gateway.IsValid() && is.Hops == rtnl.Hops{} && workloads[is.Link]
}

// mine reports whether a route of our protocol is one that a Table makes. Upstream's agent uses the same protocol for routes
// to other nodes, too: these stay until an administrator removes them (twill doctor --fix leftovers), since the
// speaker may not have learned its own yet. Ours to other nodes have a protocol of their own.
//
// A protocol of settings may be others' as well, such as that of boot scripts: a route of it is ours if it leads to one address through a
// workload's interface.
func (t *Table) mine(r rtnl.Route) bool {
	switch {
	case r.Table != 0:
		return false
	case r.Protocol == kernel.RouteProtocolHosts:
		return true
	case r.Gateway.IsValid() || r.Hops != rtnl.Hops{}:
		return false
	case r.Protocol == kernel.RouteProtocolAgent:
		return true
	}
	return r.Protocol == int(t.protocol.Load()) && r.Kind == rtnl.Unicast && r.Dst.IsSingleIP() && t.ofWorkload(r.Link)
}

// ofWorkload reports whether an interface is a workload's: an endpoint has it, or its name begins as those of workloads do.
func (t *Table) ofWorkload(index int) bool {
	for name, l := range t.links {
		if l.Index == index {
			return len(t.byLink[name]) > 0 || slices.ContainsFunc(t.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		}
	}
	return false
}

// protocols are those of which routes may be ours.
func (t *Table) protocols() []int {
	out := []int{kernel.RouteProtocolAgent, kernel.RouteProtocolHosts}
	if p := int(t.protocol.Load()); p != kernel.RouteProtocolAgent {
		out = append(out, p)
	}
	return out
}

// sameWay reports whether two routes do the same with packets.
func sameWay(a, b rtnl.Route) bool {
	return a.Kind == b.Kind && a.Link == b.Link && a.Gateway == b.Gateway
}

// same reports whether a route is as it is wanted. What differs from a wanted one that leads the same way is replaced in one step.
func same(want, is rtnl.Route) bool {
	return sameWay(want, is) && want.Source == is.Source && want.Protocol == is.Protocol && want.Global == is.Global
}

// workloads returns the interfaces of our endpoints, by index.
func (t *Table) workloads() map[int]bool {
	out := map[int]bool{}
	for name := range t.byLink {
		if l, ok := t.links[name]; ok {
			out[l.Index] = true
		}
	}
	return out
}

// isBlocked reports whether a foreign route has the destination of one of ours.
func (t *Table) isBlocked() bool {
	for _, err := range t.failed {
		if errors.Is(err, ErrForeign) {
			return true
		}
	}
	return false
}

// unblock has blocked routes whose destination may be free tried again in the next turn.
func (t *Table) unblock(free func(dst netip.Prefix) bool) {
	for dst, err := range t.failed {
		if errors.Is(err, ErrForeign) && free(dst) {
			delete(t.failed, dst)
			t.news[dst] = true
		}
	}
}
