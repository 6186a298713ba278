package fib

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// A route to a workload has global scope, if it is of IPv4 and this host has an address that the kernel then takes as the source of what the host
// itself sends: by a route of link scope it takes the gateway's, which is an address of the workload's interface and the same on each host. Without
// such an address the route has link scope, since a packet from nowhere (0.0.0.0) is answered by nobody (decision 121).

// global reports whether the route to a workload has global scope.
func (t *Table) global(dst netip.Prefix) bool { return dst.Addr().Is4() && t.sources > 0 }

// countSources counts the interfaces with an address that may be a source, as changes have them; t.links has them as they were. It reports whether
// there are any now and were not, or the other way round.
func (t *Table) countSources(changes []ifmon.Change) bool {
	before := t.sources > 0
	for _, c := range changes {
		if t.links[c.Name].Source {
			t.sources--
		}
		if c.Source && !c.Gone {
			t.sources++
		}
	}
	return before != (t.sources > 0)
}

// lookForSources has routes to workloads read back and tried again, if an address from which settings have them sent to came to an interface or went:
// with it the kernel deletes the routes of IPv4 that name it, and takes it from those of IPv6, without an event (fib_sync_down_addr,
// rt6_remove_prefsrc). t.links has the interfaces as they were.
func (t *Table) lookForSources(changes []ifmon.Change) {
	moved := slices.ContainsFunc(changes, func(c ifmon.Change) bool {
		was := t.links[c.Name]
		return slices.ContainsFunc(t.settings.Source[:], func(a netip.Addr) bool { return a.IsValid() && hasAddr(was, a) != (!c.Gone && hasAddr(c.Link, a)) })
	})
	if !moved {
		return
	}
	t.lost = true
	for dst := range t.failed {
		if t.intents[dst].Kind == intent.RouteLink {
			delete(t.failed, dst)
			t.news[dst] = true
		}
	}
}

func hasAddr(l ifmon.Link, a netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// rescope has all routes to workloads have the other scope.
func (t *Table) rescope() {
	for dst, in := range t.intents {
		if in.Kind == intent.RouteLink && dst.Addr().Is4() {
			t.resolve(dst)
		}
	}
}
