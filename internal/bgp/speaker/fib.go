package speaker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// errForeign: both of our metrics for a destination are taken by routes of others.
var errForeign = errors.New("routes that are not ours have our metrics")

// defaultMetric6 is the metric that [rtnl.Route] has as 0 in IPv6.
const defaultMetric6 = 1024

// metrics are the two metrics that a route of ours may have. A changed route is added under the one that is free before the old one is
// removed, so that there always is a route, and no route of others is ever replaced.
func metrics(r rtnl.Route) [2]int {
	if r.Protocol == kernel.RouteProtocolSpeaker {
		return [2]int{kernel.RouteMetricSpeaker, kernel.RouteMetricSpeakerNext}
	}
	first := cmp.Or(r.Metric, defaultMetric6)
	both := [2]int{first, first + 1}
	if i := slices.Index(both[:], defaultMetric6); i >= 0 && r.Dst.Addr().Is6() {
		both[i] = 0
	}
	return both
}

// ours reports whether a route is the speaker's.
func ours(r rtnl.Route) bool { return r.Table == 0 && kernel.SpeakerRoute(r.Protocol, r.Metric) }

// way is how the best paths lead to a destination.
type way struct {
	hops     []netip.Addr // as peers advertised them
	priority uint32       // 0: none was advertised
}

// fib keeps learned routes in the kernel: desired holds what is wanted, actual what the kernel has, dirty what to compare.
type fib struct {
	rtnl       *rtnl.Handle
	desired    map[netip.Prefix]way
	actual     map[netip.Prefix][]rtnl.Route // of each at least one
	dirty      map[netip.Prefix]bool
	hops       map[netip.Addr]resolved
	failed     map[netip.Prefix]error
	refused    map[netip.Prefix]string     // learned routes that are not installed, and why
	localAddrs map[netip.Addr]bool         // addresses of this host
	localNets  map[netip.Prefix]bool       // the networks that they are in
	keepStale  bool                        // routes that no peer advertises any more stay
	peerRoutes map[netip.Prefix]netip.Addr // to peers behind a gateway (reachableBy), by gateway
	former     []rtnl.Route                // of a BIRD that ran here before
	deadPeers  map[netip.Addr]bool         // peers whose path is down: no route via them stays
	plan       plan.Plan
}

// resolved is how a next hop is reached.
type resolved struct {
	hop rtnl.Hop
	err error
}

func newFIB(h *rtnl.Handle) fib {
	return fib{
		rtnl: h, desired: map[netip.Prefix]way{}, actual: map[netip.Prefix][]rtnl.Route{}, dirty: map[netip.Prefix]bool{},
		hops: map[netip.Addr]resolved{}, failed: map[netip.Prefix]error{}, refused: map[netip.Prefix]string{},
		keepStale: true,
	}
}

// update takes over the best paths, by destination; without next hops: withdrawn. A nil map: all are withdrawn.
func (f *fib) update(routes map[netip.Prefix]way) {
	if routes == nil {
		clear(f.desired)
		f.markAllDirty()
	}
	for dst, best := range routes {
		f.dirty[dst] = true
		if len(best.hops) == 0 {
			delete(f.desired, dst)
		} else {
			f.desired[dst] = best
		}
	}
}

// markAllDirty has all destinations compared again.
func (f *fib) markAllDirty() {
	for dst := range f.desired {
		f.dirty[dst] = true
	}
	for dst := range f.actual {
		f.dirty[dst] = true
	}
}

// refreshHops resolves all next hops again, marks the routes whose next hop is reached differently now, and reports whether there are any.
func (f *fib) refreshHops() bool {
	old := f.hops
	f.hops = map[netip.Addr]resolved{}
	changed := map[netip.Addr]bool{}
	for hop, was := range old {
		if is := f.resolve(hop); is.hop != was.hop || (is.err == nil) != (was.err == nil) {
			changed[hop] = true
		}
	}
	if len(changed) == 0 {
		return false
	}
	for dst, best := range f.desired {
		if slices.ContainsFunc(best.hops, func(h netip.Addr) bool { return changed[h] }) {
			f.dirty[dst] = true
		}
	}
	return true
}

// isHop reports whether a destination is a next hop.
func (f *fib) isHop(dst netip.Prefix) bool {
	_, is := f.hops[dst.Addr()]
	return is && dst.IsSingleIP()
}

// setPeerRoutes replaces the routes to peers behind a gateway. They stay whatever peers advertise: a peer that advertises the route to
// itself would withdraw it with the session.
func (f *fib) setPeerRoutes(sessions []plan.Session) {
	for dst := range f.peerRoutes {
		f.dirty[dst] = true
	}
	f.peerRoutes = plan.PeerRoutes(sessions)
	for dst := range f.peerRoutes {
		f.dirty[dst] = true
	}
}

// read reads back what the kernel has.
func (f *fib) read() error {
	routes, err := f.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolSpeaker})
	if err != nil {
		return err
	}
	others, err := f.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolPriority})
	if err != nil {
		return err
	}
	addrs, err := f.rtnl.Addrs()
	if err != nil {
		return err
	}
	f.localAddrs, f.localNets = make(map[netip.Addr]bool, len(addrs)), make(map[netip.Prefix]bool, len(addrs))
	for _, a := range addrs {
		f.localAddrs[a.Prefix.Addr()], f.localNets[a.Prefix.Masked()] = true, true
	}
	f.markAllDirty() // also what the kernel does not have any more
	clear(f.actual)
	for _, r := range append(routes, others...) {
		if ours(r) {
			f.put(r)
			f.dirty[r.Dst] = true
		}
	}
	f.refreshHops()
	return nil
}

// address reports whether a change of this host's addresses, and of the networks that they are in, may change routes.
func (f *fib) address(p netip.Prefix, gone bool) bool {
	a := p.Addr()
	return !a.IsLinkLocalUnicast() && (gone || !f.localAddrs[a] || !f.localNets[p.Masked()])
}

// readFormer reads the routes of a BIRD that ran here before.
func (f *fib) readFormer() error {
	routes, err := f.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolBIRD})
	f.former = slices.DeleteFunc(routes, func(r rtnl.Route) bool { return r.Table != 0 || r.Metric != kernel.RouteMetricBIRD })
	return err
}

// removeFormer deletes the routes of a former BIRD; ours must be installed.
func (f *fib) removeFormer() error {
	var b rtnl.Batch
	for _, r := range f.former {
		b.DeleteRoute(r)
	}
	var left []rtnl.Route
	var failed error
	for i, err := range f.rtnl.Write(&b) {
		if err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			left, failed = append(left, f.former[i]), err
		}
	}
	f.former = left
	return failed
}

// count is how many routes of a former speaker the kernel has; to be called before there is a plan.
func (f *fib) count() int { return len(f.actual) + len(f.former) }

func (f *fib) put(r rtnl.Route) { f.actual[r.Dst] = append(f.actual[r.Dst], r) }

func (f *fib) drop(r rtnl.Route) {
	left := slices.DeleteFunc(slices.Clone(f.actual[r.Dst]), func(is rtnl.Route) bool { return is.Metric == r.Metric })
	if f.actual[r.Dst] = left; len(left) == 0 {
		delete(f.actual, r.Dst)
	}
}

// unexpected reports whether an event is not our own write: the tables are then to be read again, since
// events that are late say nothing of what is now.
func (f *fib) unexpected(r rtnl.Route, gone bool) bool {
	return slices.Contains(f.actual[r.Dst], r) == gone
}

// maxRecursion is through how many routes of ours, one after the other, a next hop may be reached at once.
const maxRecursion = 4

// apply writes what is dirty to the kernel, and then what it changes: routes whose next hop is reached through those. It goes on after an
// error; the error returned is that of the first destination in order.
func (f *fib) apply() error {
	written := maps.Clone(f.dirty)
	err := f.applyDirty()
	for range maxRecursion {
		if !f.leadsToHop(written) || !f.refreshHops() {
			break
		}
		written = maps.Clone(f.dirty)
		err = f.applyDirty()
	}
	return err
}

// leadsToHop reports whether a next hop may be reached through one of these destinations.
func (f *fib) leadsToHop(dsts map[netip.Prefix]bool) bool {
	if len(dsts) == 0 {
		return false
	}
	for hop := range f.hops {
		for bits := hop.BitLen(); bits >= 0; bits-- {
			if dst, err := hop.Prefix(bits); err == nil && dsts[dst] {
				return true
			}
		}
	}
	return false
}

// applyDirty writes what is dirty.
func (f *fib) applyDirty() error {
	clear(f.failed)
	var failed []netip.Prefix
	for dst := range f.peerRoutes { // first: other next hops are resolved through them
		if f.dirty[dst] && len(f.actual[dst]) == 0 && f.write([]netip.Prefix{dst})[dst] == nil {
			f.refreshHops()
		}
	}
	for dst, err := range f.write(slices.Collect(maps.Keys(f.dirty))) {
		if err != nil {
			f.failed[dst] = err
			failed = append(failed, dst)
			continue
		}
		delete(f.dirty, dst)
	}
	if len(failed) == 0 && !f.keepStale {
		return f.removeFormer()
	}
	if len(failed) == 0 {
		return nil
	}
	first := slices.MinFunc(failed, comparePrefixes)
	if len(failed) == 1 {
		return f.failed[first]
	}
	return fmt.Errorf("%w; and %d others", f.failed[first], len(failed)-1)
}

// withAliveHops is what may stay of a route that no peer advertises any more: the next hops that are not dead peers.
func (f *fib) withAliveHops(have []rtnl.Route) rtnl.Route {
	if len(have) == 0 {
		return rtnl.Route{}
	}
	is := have[0]
	if f.deadPeers[is.Gateway] {
		return rtnl.Route{}
	}
	hops := is.Hops.List()
	alive := slices.DeleteFunc(slices.Clone(hops), func(h rtnl.Hop) bool { return f.deadPeers[h.Gateway] })
	if len(alive) == len(hops) {
		return is
	}
	is.Hops = rtnl.Hops{}
	switch len(alive) {
	case 0:
		return rtnl.Route{}
	case 1:
		is.Link, is.Gateway, is.OnLink = alive[0].Link, alive[0].Gateway, alive[0].OnLink
	default:
		is.Hops = rtnl.MakeHops(alive...)
	}
	return is
}

// route returns the desired route; the zero value if there is none.
func (f *fib) route(dst netip.Prefix) (rtnl.Route, error) {
	best := f.desired[dst]
	delete(f.refused, dst)
	if gateway, is := f.peerRoutes[dst]; is {
		best = way{hops: []netip.Addr{gateway}}
	} else if len(best.hops) == 0 || f.plan.IsForeign(dst) {
		return rtnl.Route{}, nil
	}
	if why := martian(dst, f.localAddrs); why != "" {
		f.refused[dst] = why
		return rtnl.Route{}, nil
	}
	ways, failed := f.resolveAll(dst, best.hops)
	r := rtnl.Route{Dst: dst, Protocol: kernel.RouteProtocolSpeaker}
	if metric := f.metric(dst, best.priority); metric != 0 {
		r.Protocol, r.Metric = kernel.RouteProtocolPriority, metric
	}
	switch all := rtnl.MakeHops(ways...).List(); len(all) {
	case 0:
		return rtnl.Route{}, failed
	case 1:
		r.Link, r.Gateway, r.OnLink = all[0].Link, all[0].Gateway, all[0].OnLink
	default:
		r.Hops = rtnl.MakeHops(all...)
	}
	return r, nil
}

// metric is that of a route with a priority; 0: the speaker's own, for one of the normal priority, unless that is configured, and for a network of this host's,
// which is behind what the kernel has by itself: it leads over its own link, whatever others on that link advertise.
func (f *fib) metric(dst netip.Prefix, priority uint32) int {
	if f.localNets[dst] {
		return 0
	}
	four := dst.Addr().Is4()
	if normal := f.plan.NormalPriority(four); priority == 0 || priority == normal {
		return int(f.plan.ConfiguredPriority(four))
	}
	return int(priority)
}

// resolveAll resolves the next hops of a destination.
func (f *fib) resolveAll(dst netip.Prefix, hops []netip.Addr) (ways []rtnl.Hop, failed error) {
	for _, hop := range hops {
		if way := f.resolve(hop); way.err != nil {
			failed = fmt.Errorf("route %s: next hop %s: %w", dst, hop, way.err)
		} else {
			ways = append(ways, way.hop)
		}
	}
	return ways, failed
}

// resolve returns how a next hop is reached: itself if it is on a link of this host, else the gateway towards it.
func (f *fib) resolve(hop netip.Addr) resolved {
	if r, ok := f.hops[hop]; ok {
		return r
	}
	way, err := f.rtnl.Lookup(hop)
	if err == nil && !way.Gateway.IsValid() {
		way.Gateway = hop
	}
	r := resolved{way, err}
	f.hops[hop] = r
	return r
}
