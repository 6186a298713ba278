// Package fib keeps the kernel's routes to local endpoints, the blackholes of the node's own blocks, and the routes to other hosts' blocks
// that the agent makes.
//
// In: routes of [intent.Batch], interfaces of ifmon, and from the loop which policy is in force (Gate).
// Out: routes of protocol kernel.RouteProtocolAgent in the main table, or of the one that settings have for those to workloads, those to other hosts of kernel.RouteProtocolHosts, a permanent
// neighbour where the endpoint's MAC is known, and an [intent.Outcome] for each route.
//
// A route of these protocols is ours (of a protocol of settings: if it leads to one address through a workload's interface) and is deleted if no intent wants it; any other route is foreign and is never
// replaced or deleted, even if it has the destination of ours, except what another agent left of the same: a route to the
// destination of one of ours through an interface of a workload, and a blackhole where ours belongs (takeover.go). A route is added once its interface exists and is up and its
// endpoint's policy is in force. Stale routes are kept until the source is in sync and the interfaces are known, so that
// a restart drops no packet.
package fib

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/twillnet/twill/internal/dataplane/delta"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// ErrForeign means that a route with the destination exists, and is not ours.
var ErrForeign = errors.New("a route that is not ours is there")

// Table is the driver.
type Table struct {
	rtnl    *rtnl.Handle
	intents map[netip.Prefix]intent.Route    // of several claims, as the one has it that is chosen: see choose
	byLink  map[string]map[netip.Prefix]bool // of RouteLink, of all endpoints that claim the destination
	links   map[string]ifmon.Link
	remote  remote
	own     [2]netip.Addr // this host's addresses, as its Node has them
	sources int           // how many interfaces have an address that the kernel may take as a source: see source.go
	moves   moves
	losers  losers

	routes     *delta.Map[routeKey, rtnl.Route]
	neighbours *delta.Map[neighbourKey, string] // value: the MAC

	held      func(link string) bool
	inSync    bool
	linksSeen bool
	lost      bool // events were lost, so that the routes must be read back
	read      bool // the routes were read back at least once
	notes     chan func()
	drifted   map[routeKey]intent.Cause // routes that another process changed
	repairs   []intent.Repair
	refresh   time.Duration
	settled   bool // refresh is known
	settings  intent.RouteSettings
	protocol  atomic.Int32             // of routes to workloads; Run reads it
	prefixes  []string                 // of names of workloads' interfaces
	external  map[rtnl.Route]time.Time // routes of others through workloads' interfaces, since when they are known
	grace     time.Duration            // how long they stay
	failed    map[netip.Prefix]error
	late      map[netip.Prefix]string // destinations whose interface is down or absent by an error of the kernel; its event is still to come
	news      map[netip.Prefix]bool   // destinations whose outcome may have changed
	blocked   atomic.Bool             // some of failed are ErrForeign; Run reads it
}

// routeKey identifies a route in one table of the kernel.
type routeKey struct {
	dst    netip.Prefix
	metric int
}

type neighbourKey struct {
	link int
	addr netip.Addr
}

// New returns a driver for the handle's namespace.
func New(h *rtnl.Handle) *Table {
	t := &Table{
		rtnl:       h,
		intents:    map[netip.Prefix]intent.Route{},
		byLink:     map[string]map[netip.Prefix]bool{},
		links:      map[string]ifmon.Link{},
		moves:      newMoves(),
		losers:     newLosers(),
		remote:     remote{map[netip.Prefix]string{}, map[string]map[netip.Prefix]bool{}, map[netip.Prefix]bool{}},
		routes:     delta.New[routeKey](same),
		neighbours: delta.New[neighbourKey](func(want, is string) bool { return want == is }),
		held:       func(string) bool { return false },
		notes:      make(chan func()),
		drifted:    map[routeKey]intent.Cause{},
		failed:     map[netip.Prefix]error{},
		late:       map[netip.Prefix]string{},
		news:       map[netip.Prefix]bool{},
		external:   map[rtnl.Route]time.Time{},
		grace:      graceOfOthers,
	}
	t.protocol.Store(kernel.RouteProtocolAgent)
	return t
}

// Merge merges a batch.
func (t *Table) Merge(b intent.Batch) {
	t.inSync = t.inSync || b.InSync
	if b.Host != nil {
		t.refresh, t.settled = b.Host.Refresh.Routes, true
		t.prefixes = b.Host.Prefixes
		t.configure(b.Host.Routes)
		if t.own != b.Host.MTU.Own {
			t.own = b.Host.MTU.Own
			t.rewire(false)
		}
	}
	for _, r := range b.Routes {
		r.Dst = r.Dst.Masked()
		t.forget(r.Dst)
		if r.Kind == intent.RouteEncrypted { // in a table of package tunnel's
			delete(t.news, r.Dst)
			continue
		}
		t.intents[r.Dst] = r
		if r.Kind == intent.RouteLink {
			t.index(r)
		}
		t.resolve(r.Dst)
	}
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.RouteID:
			t.forget(id.Prefix)
			delete(t.news, id.Prefix)
		case intent.EndpointID:
			t.losers.remove(id)
		}
	}
}

// index notes the interfaces on which a route depends.
func (t *Table) index(r intent.Route) {
	for _, link := range r.Links() {
		t.moves.look(link, r.At(link).Move != intent.Stays)
		if t.byLink[link] == nil {
			t.byLink[link] = map[netip.Prefix]bool{}
		}
		t.byLink[link][r.Dst] = true
	}
}

// forget removes an intent; its route and neighbour in the kernel become stale.
func (t *Table) forget(dst netip.Prefix) {
	old, ok := t.intents[dst]
	if !ok {
		return
	}
	t.unresolve(dst)
	t.remote.put(dst, "")
	delete(t.intents, dst)
	delete(t.failed, dst)
	delete(t.late, dst)
	t.losers.put(dst, nil)
	for _, link := range old.Links() {
		t.moves.look(link, false)
		if set := t.byLink[link]; set != nil {
			delete(set, dst)
			if len(set) == 0 {
				delete(t.byLink, link)
			}
		}
	}
}

// Links takes the changes of interfaces.
func (t *Table) Links(changes []ifmon.Change) {
	first := !t.linksSeen
	t.linksSeen = true
	moved := first // networks that this host is on
	rescoped := t.countSources(changes) && !first
	t.lookForSources(changes)
	for _, c := range changes {
		was, known := t.links[c.Name]
		moved = moved || t.leadsElsewhere(was, known, c)
		if c.Gone {
			delete(t.links, c.Name)
		} else {
			t.links[c.Name] = c.Link
		}
		same := known && !c.Gone && was.Index == c.Index && was.Up == c.Up
		if same && was.Downs == c.Downs {
			continue // an address, or another change that no route depends on
		}
		t.moves.look(c.Name, false)
		if known { // the kernel dropped its routes and neighbours, without events for IPv4
			t.unknown(was)
			t.unblock(func(netip.Prefix) bool { return true }) // foreign routes, too
		}
		for dst := range t.byLink[c.Name] {
			t.resolve(dst)
		}
		for dst := range maps.Clone(t.remote.by[c.Name]) {
			t.resolve(dst)
		}
	}
	if moved {
		t.rewire(first)
	}
	if rescoped {
		t.rescope()
	}
}

// unknown notes that the routes and neighbours which the link still has are not known. Those that exist are found when an
// add fails with EEXIST.
func (t *Table) unknown(l ifmon.Link) {
	for dst := range t.byLink[l.Name] {
		t.forgetActual(dst, l.Index)
		t.neighbours.ObservedGone(neighbourKey{l.Index, dst.Addr()})
	}
	for dst := range t.remote.by[l.Name] {
		t.forgetActual(dst, l.Index)
	}
}

func (t *Table) forgetActual(dst netip.Prefix, link int) {
	key := t.keyOf(dst)
	if r, ok := t.routes.Actual(key); ok && r.Link == link {
		t.routes.ObservedGone(key)
	}
}

// resolve computes what the kernel should have for an intent, after it or its interface changed.
func (t *Table) resolve(dst netip.Prefix) {
	t.unresolve(dst)
	t.news[dst] = true
	delete(t.failed, dst)
	in := t.choose(t.intents[dst])
	t.intents[dst] = in
	key := t.keyOf(dst)
	r := rtnl.Route{Dst: dst, Protocol: kernel.RouteProtocolAgent, Metric: key.metric}
	switch in.Kind {
	case intent.RouteBlackhole:
		r.Kind = rtnl.Blackhole
		t.routes.Desire(key, r)
		return
	case intent.RouteTunnel, intent.RouteDirect:
		t.resolveRemote(in)
		return
	}
	l, ok := t.links[in.Link]
	if !ok || !l.Up || t.awaited(in) {
		return
	}
	r.Link, r.Source, r.Protocol, r.Global = l.Index, t.settings.Source[family(dst)], int(t.protocol.Load()), t.global(dst)
	t.routes.Desire(key, r)
	if in.MAC != "" && dst.IsSingleIP() {
		t.neighbours.Desire(neighbourKey{l.Index, dst.Addr()}, in.MAC)
	}
}

func (t *Table) unresolve(dst netip.Prefix) {
	key := t.keyOf(dst)
	if r, ok := t.routes.Desired(key); ok {
		t.neighbours.Undesire(neighbourKey{r.Link, dst.Addr()})
		t.routes.Undesire(key)
		delete(t.drifted, key)
	}
}

// Gate takes the interfaces whose policy is not in force yet: before the first complete policy transaction, all of them. Existing routes
// through them stay.
func (t *Table) Gate(ready bool, held func(link string) bool) {
	t.held = func(link string) bool { return !ready || held(link) }
}

// Retry has the routes that failed tried again.
func (t *Table) Retry() {
	for dst := range t.failed {
		t.news[dst] = true
	}
	clear(t.failed)
	t.listenAgain()
}

// Resync reads back our routes, and the permanent neighbours on our endpoints' interfaces.
func (t *Table) Resync(context.Context) error {
	if err := t.readRoutes(); err != nil {
		return err
	}
	if err := t.readExternal(); err != nil {
		return err
	}
	all, err := t.rtnl.Neighbours()
	if err != nil {
		return err
	}
	ours := map[int]bool{}
	for name := range t.byLink {
		if l, ok := t.links[name]; ok {
			ours[l.Index] = true
		}
	}
	t.neighbours.ObservedAll(func(yield func(neighbourKey, string) bool) {
		for _, n := range all {
			if n.Permanent && ours[n.Link] && !yield(neighbourKey{n.Link, n.Addr}, n.MAC) {
				return
			}
		}
	})
	return nil
}

func (t *Table) readRoutes() error {
	var all []rtnl.Route
	for _, protocol := range t.protocols() {
		part, err := t.rtnl.Routes(rtnl.RouteFilter{Protocol: protocol})
		if err != nil {
			return err
		}
		all = append(all, part...)
	}
	t.lost = false
	before := t.pending()
	t.routes.ObservedAll(func(yield func(routeKey, rtnl.Route) bool) {
		for _, r := range all {
			if t.mine(r) && !yield(routeKey{r.Dst, r.Metric}, r) {
				return
			}
		}
	})
	after := t.pending()
	for key := range t.drifted {
		if !after[key] {
			delete(t.drifted, key) // a late event
		}
	}
	for key := range after {
		if _, known := t.drifted[key]; t.read && !before[key] && !known {
			t.drifted[key] = intent.ByReadBack
		}
	}
	t.read = true
	return nil
}

// Withdraw deletes unwanted routes and neighbours.
func (t *Table) Withdraw(ctx context.Context) []intent.Outcome {
	t.advance()
	if !t.settings.Off {
		_ = t.sweep(ctx) // what fails stays pending, and Apply returns the error
	}
	return nil
}

// Apply deletes and adds what is pending.
func (t *Table) Apply(ctx context.Context) ([]intent.Outcome, error) {
	t.advance()
	if t.settings.Off {
		return t.othersDo(), nil
	}
	if t.lost {
		if err := t.readRoutes(); err != nil {
			return nil, err
		}
	}
	err := t.sweep(ctx)
	if existing := t.addRoutes(ctx); len(existing) > 0 {
		t.blocked.Store(true) // before the next attempt, so that no event after it is missed
		if e := t.readRoutes(); e != nil {
			return nil, errors.Join(err, e)
		}
		// All of ours are known: as desired, or different and replaced. One that still exists is foreign.
		if e := t.takeOver(t.addRoutes(ctx)); e != nil {
			return nil, errors.Join(err, e)
		}
	}
	t.blocked.Store(t.isBlocked())
	t.setNeighbours()
	if _, deletes := t.routes.Pending(); deletes > 0 && err == nil {
		err = t.sweep(ctx) // what stayed until another was there
	}
	return t.outcomes(), errors.Join(err, t.removeExternal())
}

// fail notes why a route is not in force. If its interface went down or away since, whose event is still to come, that is no failure, and the
// route stays pending.
func (t *Table) fail(dst netip.Prefix, err error) {
	t.news[dst] = true
	link := t.intents[dst].Link
	switch l, there := t.links[link]; {
	case errors.Is(err, rtnl.ErrDown):
		t.late[dst] = "down"
	case there && errors.Is(err, rtnl.ErrNotFound) && t.rtnl.Gone(link, l.Index):
		t.late[dst] = "absent"
	default:
		t.failed[dst] = err
	}
}

// outcomes returns the outcomes that may have changed. One that waits for policy is returned again.
func (t *Table) outcomes() []intent.Outcome {
	var out []intent.Outcome
	waiting := map[netip.Prefix]bool{}
	for dst := range t.news {
		in := t.intents[dst]
		o := intent.Outcome{Key: intent.RouteID{Prefix: dst}, Err: t.failed[dst]}
		name := t.linkOf(in)
		l, there := t.links[name]
		switch {
		case in.Kind == intent.RouteBlackhole:
		case toHost(in) && !in.Via.IsValid():
			if o.Err == nil {
				o.Err, o.Final = fmt.Errorf("unreachable: %s or this host has no end of a tunnel (twill get node -o yaml)", in.Node), true
			}
		case name == "":
			o = t.waits(o, dst, fmt.Sprintf("no interface of this host is on the network of %s, or has this host's own address", in.Via))
		case !there:
			o = t.waits(o, dst, fmt.Sprintf("interface %s is absent", name))
		case t.late[dst] != "":
			o = t.waits(o, dst, fmt.Sprintf("interface %s is %s", name, t.late[dst]))
		case !l.Up:
			o = t.waits(o, dst, fmt.Sprintf("interface %s is down", name))
		case o.Err != nil:
		case t.awaited(in):
			o.Note = t.expects(in.Link)
		case t.held(in.Link):
			o.Reason = "policy is not in force yet"
			waiting[dst] = true
		case in.Kind == intent.RouteLink:
			o.Note = t.moves.note(in.Link)
		}
		out = append(out, o)
	}
	t.news = waiting
	return append(out, t.losers.outcomes()...)
}

// waits returns the outcome of a route that waits for an interface, which replaces an earlier failure.
func (t *Table) waits(o intent.Outcome, dst netip.Prefix, reason string) intent.Outcome {
	delete(t.failed, dst)
	o.Err, o.Reason = nil, reason
	return o
}
