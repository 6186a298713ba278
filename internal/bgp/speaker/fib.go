package speaker

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// errForeign: both of our places for a destination are taken by routes of somebody else.
var errForeign = errors.New("routes that are not ours have our metrics")

// metrics are the two places for a learned route. A changed one takes the place that is free before the old one goes,
// so that packets always find one, and nothing is ever replaced.
var metrics = [2]int{kernel.RouteMetricSpeaker, kernel.RouteMetricSpeakerNext}

// ours reports whether a route is the speaker's.
func ours(r rtnl.Route) bool {
	return r.Protocol == kernel.RouteProtocolSpeaker && r.Table == 0 && slices.Contains(metrics[:], r.Metric)
}

// fib keeps learned routes in the kernel.
type fib struct {
	rtnl    *rtnl.Handle
	want    map[netip.Prefix][]netip.Addr // next hops as peers told them
	actual  map[netip.Prefix][2]rtnl.Route
	dirty   map[netip.Prefix]bool
	hops    map[netip.Addr]resolved
	failed  map[netip.Prefix]error
	refused map[netip.Prefix]string     // what peers tell and no kernel should have
	own     map[netip.Addr]bool         // addresses of this host
	held    bool                        // what nobody told stays
	ways    map[netip.Prefix]netip.Addr // to peers, through gateways: reachableBy
	former  []rtnl.Route                // those of a BIRD that spoke here before us
	dead    map[netip.Addr]bool         // peers by whom nothing may be sent, not even on what stays
	foreign func(netip.Prefix) bool

	encapsulated func(netip.Prefix) bool // packets to it go to next hops on our links alone: see plan.Plan
}

// resolved is the way to a next hop.
type resolved struct {
	hop    rtnl.Hop
	direct bool // it is on a link of ours
	err    error
}

func newFIB(h *rtnl.Handle) fib {
	return fib{
		rtnl: h, want: map[netip.Prefix][]netip.Addr{}, actual: map[netip.Prefix][2]rtnl.Route{}, dirty: map[netip.Prefix]bool{},
		hops: map[netip.Addr]resolved{}, failed: map[netip.Prefix]error{}, refused: map[netip.Prefix]string{}, foreign: func(netip.Prefix) bool { return false },
		encapsulated: func(netip.Prefix) bool { return false }, held: true,
	}
}

// learned takes in what is best now, by destination; no next hops: nobody tells it any more. Nil: nothing is told.
func (f *fib) learned(routes map[netip.Prefix][]netip.Addr) {
	if routes == nil {
		clear(f.want)
		f.everything()
	}
	for dst, hops := range routes {
		f.dirty[dst] = true
		if len(hops) == 0 {
			delete(f.want, dst)
		} else {
			f.want[dst] = hops
		}
	}
}

// everything is to be looked at again.
func (f *fib) everything() {
	for dst := range f.want {
		f.dirty[dst] = true
	}
	for dst := range f.actual {
		f.dirty[dst] = true
	}
}

// lost forgets the ways to next hops; routes by a way that is another now are changed.
func (f *fib) lost() {
	old := f.hops
	f.hops = map[netip.Addr]resolved{}
	changed := map[netip.Addr]bool{}
	for hop, was := range old {
		if is := f.resolve(hop); is.hop != was.hop || is.direct != was.direct || (is.err == nil) != (was.err == nil) {
			changed[hop] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for dst, hops := range f.want {
		if slices.ContainsFunc(hops, func(h netip.Addr) bool { return changed[h] }) {
			f.dirty[dst] = true
		}
	}
}

// reach is told the ways to peers that go through a gateway. They are there whatever peers tell: who tells the way to
// itself would take it away with the session.
func (f *fib) reach(sessions []plan.Session) {
	for dst := range f.ways {
		f.dirty[dst] = true
	}
	f.ways = plan.Ways(sessions)
	for dst := range f.ways {
		f.dirty[dst] = true
	}
}

// read reads back what the kernel has.
func (f *fib) read() error {
	routes, err := f.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolSpeaker})
	if err != nil {
		return err
	}
	addrs, err := f.rtnl.Addrs()
	if err != nil {
		return err
	}
	f.own = make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		f.own[a.Prefix.Addr()] = true
	}
	f.everything() // what is gone, too
	clear(f.actual)
	for _, r := range routes {
		if ours(r) {
			f.put(r)
			f.dirty[r.Dst] = true
		}
	}
	f.lost()
	return nil
}

// address takes in a change of this host's own addresses, and reports whether it may matter to routes.
func (f *fib) address(a netip.Addr, gone bool) bool {
	return !a.IsLinkLocalUnicast() && (gone || !f.own[a])
}

// readFormer finds the routes of a BIRD that spoke here before us. One that runs beside us is none of our business.
func (f *fib) readFormer() error {
	routes, err := f.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolBIRD})
	f.former = slices.DeleteFunc(routes, func(r rtnl.Route) bool { return r.Table != 0 || r.Metric != kernel.RouteMetricBIRD })
	return err
}

// forget removes them, when ours are there.
func (f *fib) forget() error {
	for len(f.former) > 0 {
		if err := f.rtnl.DeleteRoute(f.former[0]); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			return err
		}
		f.former = f.former[1:]
	}
	return nil
}

// left is how many routes of a former speaker the kernel has, before there is a plan.
func (f *fib) left() int { return len(f.actual) + len(f.former) }

func place(metric int) int { return slices.Index(metrics[:], metric) }

func (f *fib) put(r rtnl.Route) {
	both := f.actual[r.Dst]
	both[place(r.Metric)] = r
	f.actual[r.Dst] = both
}

func (f *fib) drop(r rtnl.Route) {
	both := f.actual[r.Dst]
	both[place(r.Metric)] = rtnl.Route{}
	if f.actual[r.Dst] = both; both == [2]rtnl.Route{} {
		delete(f.actual, r.Dst)
	}
}

// surprised reports whether an event is not the echo of what we did: the tables are then to be read again, since
// events that are late say nothing of what is now.
func (f *fib) surprised(r rtnl.Route, gone bool) bool {
	is := f.actual[r.Dst][place(r.Metric)]
	if gone {
		return is == r
	}
	return is != r
}

// apply writes what is pending. It goes on where something fails, and returns what failed first.
func (f *fib) apply() error {
	clear(f.failed)
	var failed []netip.Prefix
	for dst := range f.ways { // first: they are ways to next hops
		if f.dirty[dst] && f.actual[dst] == [2]rtnl.Route{} && f.one(dst) == nil {
			f.lost()
		}
	}
	for dst := range f.dirty {
		if err := f.one(dst); err != nil {
			f.failed[dst] = err
			failed = append(failed, dst)
			continue
		}
		delete(f.dirty, dst)
	}
	if len(failed) == 0 && !f.held {
		return f.forget()
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

// one makes the kernel right about one destination.
func (f *fib) one(dst netip.Prefix) error {
	want, err := f.route(dst)
	if err != nil {
		return err
	}
	have := f.actual[dst]
	if !want.Dst.IsValid() && f.held && len(f.want[dst]) == 0 {
		if want = f.living(have); want.Dst.IsValid() && (want == have[0] || want == have[1]) {
			return nil
		}
	}
	if !want.Dst.IsValid() {
		return f.remove(have[0], have[1])
	}
	for i, h := range have {
		if want.Metric = metrics[i]; h == want {
			return f.remove(have[1-i])
		}
	}
	for i, h := range have {
		if h.Dst.IsValid() {
			continue // its place is taken; what is in it goes after
		}
		want.Metric = metrics[i]
		err = f.rtnl.AddRoute(want)
		if errors.Is(err, rtnl.ErrExists) {
			err = fmt.Errorf("route %s: %w", dst, errForeign)
			continue
		}
		if err != nil {
			return err
		}
		f.put(want)
		return f.remove(have[1-i])
	}
	if have[0].Dst.IsValid() || have[1].Dst.IsValid() {
		return errors.Join(err, f.remove(have[0], have[1])) // both places are ours, or the other is foreign: next time
	}
	return err
}

// living is what may stay of a route that nobody tells any more: the ways that do not lead by somebody dead.
func (f *fib) living(have [2]rtnl.Route) rtnl.Route {
	is := have[0]
	if !is.Dst.IsValid() {
		is = have[1]
	}
	if f.dead[is.Gateway] {
		return rtnl.Route{}
	}
	hops := is.Hops.List()
	alive := slices.DeleteFunc(slices.Clone(hops), func(h rtnl.Hop) bool { return f.dead[h.Gateway] })
	if len(alive) == len(hops) {
		return is
	}
	is.Hops = rtnl.Hops{}
	switch len(alive) {
	case 0:
		return rtnl.Route{}
	case 1:
		is.Link, is.Gateway = alive[0].Link, alive[0].Gateway
	default:
		is.Hops = rtnl.MakeHops(alive...)
	}
	return is
}

func (f *fib) remove(routes ...rtnl.Route) error {
	for _, r := range routes {
		if !r.Dst.IsValid() {
			continue
		}
		if err := f.rtnl.DeleteRoute(r); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			return err
		}
		f.drop(r)
	}
	return nil
}

// route is the route that is wanted; the zero value if there is to be none.
func (f *fib) route(dst netip.Prefix) (rtnl.Route, error) {
	hops := f.want[dst]
	delete(f.refused, dst)
	if gateway, is := f.ways[dst]; is {
		hops = []netip.Addr{gateway}
	} else if len(hops) == 0 || f.foreign(dst) {
		return rtnl.Route{}, nil
	}
	if why := never(dst, f.own); why != "" {
		f.refused[dst] = why
		return rtnl.Route{}, nil
	}
	ways, behind, failed := f.waysTo(dst, hops)
	r := rtnl.Route{Dst: dst, Protocol: kernel.RouteProtocolSpeaker}
	switch all := rtnl.MakeHops(ways...).List(); len(all) {
	case 0:
		if !behind.IsValid() {
			return rtnl.Route{}, failed
		}
		// No route at all would send its packets where the default route leads.
		f.refused[dst] = fmt.Sprintf("its pool is to be encapsulated, which is not done yet, and next hop %s is behind a router; it is unreachable here", behind)
		r.Kind = rtnl.Unreachable
	case 1:
		r.Link, r.Gateway = all[0].Link, all[0].Gateway
	default:
		r.Hops = rtnl.MakeHops(all...)
	}
	return r, nil
}

// waysTo are the ways to the next hops of a destination. Behind is one of those behind a router, by which packets that are to
// be encapsulated must not go as they are.
func (f *fib) waysTo(dst netip.Prefix, hops []netip.Addr) (ways []rtnl.Hop, behind netip.Addr, failed error) {
	onLink := f.encapsulated(dst)
	for _, hop := range hops {
		switch way := f.resolve(hop); {
		case way.err != nil:
			failed = fmt.Errorf("route %s: next hop %s: %w", dst, hop, way.err)
		case onLink && !way.direct:
			behind = hop
		default:
			ways = append(ways, way.hop)
		}
	}
	return ways, behind, failed
}

// resolve finds the way to a next hop: the next hop itself if it is on a link of ours, else the gateway towards it.
func (f *fib) resolve(hop netip.Addr) resolved {
	if r, ok := f.hops[hop]; ok {
		return r
	}
	way, err := f.rtnl.Lookup(hop)
	direct := err == nil && !way.Gateway.IsValid()
	if direct {
		way.Gateway = hop
	}
	r := resolved{way, direct, err}
	f.hops[hop] = r
	return r
}
