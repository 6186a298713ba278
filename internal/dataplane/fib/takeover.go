package fib

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// takeOver puts our routes in the place of those that another agent left at their destinations. What else stands there
// stays, and makes ours fail.
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
	for _, dst := range existing {
		key := routeKey{dst: dst}
		want, wanted := t.routes.Desired(key)
		is, there := standing[key] // if it went since, Run is about to say so
		if !wanted || !there || !leftover(is, want, workloads) {
			t.fail(dst, fmt.Errorf("route %s: %w", dst, ErrForeign))
			continue
		}
		if err := t.rtnl.ReplaceRoute(want); err != nil { // in one step: what flows goes on flowing
			t.fail(dst, err)
			continue
		}
		t.routes.MarkApplied(key)
		t.repairs = append(t.repairs, intent.Repair{What: fmt.Sprintf("route %s of protocol %d", dst, is.Protocol), Cause: intent.ByTakeOver})
	}
	return nil
}

// leftover reports whether a route that stands where ours belongs does what only an agent's does: it leads to an endpoint
// through the interface of a workload, perhaps that which had the address before, or it is the blackhole of a block.
// Nobody else has a use for those; a route with a gateway is of somebody who routes through a workload.
func leftover(is, want rtnl.Route, workloads map[int]bool) bool {
	if want.Kind == rtnl.Blackhole {
		return is.Kind == rtnl.Blackhole
	}
	return is.Kind == rtnl.Unicast && !is.Gateway.IsValid() && is.Hops == rtnl.Hops{} && workloads[is.Link]
}

// mine reports whether a route of our protocol is one that a Table makes. Upstream's agent has the same protocol for routes
// to other nodes, too: these stay until somebody says that they are needed no more (twill doctor --fix leftovers), since the
// speaker may not have learned its own yet.
func mine(r rtnl.Route) bool {
	return r.Protocol == kernel.RouteProtocolAgent && r.Table == 0 && !r.Gateway.IsValid() && r.Hops == rtnl.Hops{}
}

// workloads are the interfaces of our endpoints, by index.
func (t *Table) workloads() map[int]bool {
	out := map[int]bool{}
	for name := range t.byLink {
		if l, ok := t.links[name]; ok {
			out[l.Index] = true
		}
	}
	return out
}

// isBlocked reports whether a route of somebody else stands in the way of one of ours.
func (t *Table) isBlocked() bool {
	for _, err := range t.failed {
		if errors.Is(err, ErrForeign) {
			return true
		}
	}
	return false
}

// unblock has those routes tried again in the next turn, whose way may be free.
func (t *Table) unblock(free func(dst netip.Prefix) bool) {
	for dst, err := range t.failed {
		if errors.Is(err, ErrForeign) && free(dst) {
			delete(t.failed, dst)
			t.news[dst] = true
		}
	}
}
