package fib

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// graceOfOthers is how long routes of others through workloads' interfaces stay at least: whoever makes a workload may make its route before its
// endpoint is known. It is upstream's.
const graceOfOthers = 10 * time.Second

// configure takes settings.
func (t *Table) configure(s intent.RouteSettings) {
	if t.settings == s {
		return
	}
	for dst, in := range t.intents {
		if in.Kind == intent.RouteLink { // its metric and source may be others
			t.unresolve(dst)
		}
	}
	t.settings = s
	t.protocol.Store(int32(cmp.Or(s.Protocol, kernel.RouteProtocolAgent)))
	for dst, in := range t.intents {
		if t.news[dst] = true; in.Kind == intent.RouteLink {
			t.resolve(dst)
		}
	}
}

// family is the index of a prefix's family in settings.
func family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// metric is that of a route to a workload, as package rtnl shows it.
func (t *Table) metric(dst netip.Prefix) int {
	in, m := t.intents[dst], t.settings.Metric[family(dst)]
	switch {
	case t.moves.elevated(in.Link) && t.settings.Elevated[family(dst)] > 0:
		m = t.settings.Elevated[family(dst)]
	case in.Move == intent.Goes && m == 0: // what BGP says of it, so that the kernel here, too, prefers the elevated one of the other host
		m = kernel.RouteMetricDefault6
	}
	return shown(m, dst)
}

// shown is a metric as package rtnl shows it.
func shown(metric int, dst netip.Prefix) int {
	if metric == kernel.RouteMetricDefault6 && dst.Addr().Is6() {
		return 0
	}
	return metric
}

// awaits reports whether a route that is not wanted any more stays for now: the same is wanted under another metric, or another to a host in its
// place, and not there yet.
func (t *Table) awaits(key routeKey, r rtnl.Route) bool {
	now := t.keyOf(key.dst)
	want, wanted := t.routes.Desired(now)
	_, there := t.routes.Actual(now)
	hosts := want.Protocol == kernel.RouteProtocolHosts && r.Protocol == kernel.RouteProtocolHosts
	return now != key && wanted && !there && (sameWay(want, r) || hosts) && t.failed[key.dst] == nil
}

// othersDo returns the outcomes of routes that somebody else makes: whether they are there is not for this driver to say.
func (t *Table) othersDo() []intent.Outcome {
	out := make([]intent.Outcome, 0, len(t.news))
	for dst := range t.news {
		out = append(out, intent.Outcome{Key: intent.RouteID{Prefix: dst}})
	}
	clear(t.news)
	clear(t.failed)
	clear(t.late)
	return append(out, t.losers.outcomes()...)
}

// readExternal reads which routes of others lead through workloads' interfaces.
func (t *Table) readExternal() error {
	known := t.external
	t.external = map[rtnl.Route]time.Time{}
	if t.settings.KeepExternal || t.settings.Off || !t.inSync || !t.linksSeen || len(t.byLink) == 0 {
		return nil
	}
	workloads := t.workloads()
	all, err := t.rtnl.Routes(rtnl.RouteFilter{Match: func(r rtnl.Route) bool {
		return !t.exempt(r) && (workloads[r.Link] || slices.ContainsFunc(r.Hops.List(), func(h rtnl.Hop) bool { return workloads[h.Link] }))
	}})
	if err != nil {
		return err
	}
	now := time.Now()
	for _, r := range all {
		if t.external[r] = now; !known[r].IsZero() {
			t.external[r] = known[r]
		}
	}
	return nil
}

// exempt reports whether a route is not one that an outsider made: it is the kernel's own, BGP's, or the agent's.
func (t *Table) exempt(r rtnl.Route) bool {
	switch r.Protocol {
	case kernel.RouteProtocolAgent, kernel.RouteProtocolHosts, kernel.RouteProtocolSpeaker, kernel.RouteProtocolPriority, kernel.RouteProtocolBIRD, kernel.RouteProtocolKernel:
		return true
	}
	return r.Kind != rtnl.Unicast || r.Protocol == 0 || t.mine(r)
}

// removeExternal deletes routes of others that have been through workloads' interfaces for a while.
func (t *Table) removeExternal() error {
	var b rtnl.Batch
	var old []rtnl.Route
	for r, since := range t.external {
		if time.Since(since) >= t.grace {
			b.DeleteRoute(r)
			old = append(old, r)
		}
	}
	errs := t.rtnl.Write(&b)
	for i, r := range old {
		delete(t.external, r) // if that failed, the next reading finds it
		switch {
		case errs[i] == nil:
			t.repairs = append(t.repairs, intent.Repair{What: fmt.Sprintf("route %s of protocol %d through a workload's interface", r.Dst, r.Protocol), Cause: intent.ByReadBack})
		case errors.Is(errs[i], rtnl.ErrNotFound):
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}
