package fib_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// rig is a driver in a namespace, with a monitor of its interfaces.
type rig struct {
	t   *testing.T
	ns  *netnstest.NS
	tbl *fib.Table
	mon *ifmon.Monitor
	now map[string]ifmon.Link
}

func newRig(t *testing.T, ns *netnstest.NS) *rig {
	r := &rig{t: t, ns: ns, tbl: fib.New(ns.Rtnl()), mon: ifmon.New(ns.Rtnl()), now: map[string]ifmon.Link{}}
	r.tbl.Grace(time.Hour) // what was seen a moment ago was, however busy the machine
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.mon.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("monitor: %v", err)
		}
	})
	r.resync()
	return r
}

func (r *rig) resync() {
	r.t.Helper()
	if err := r.tbl.Resync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// until passes interface changes on until the link is as wanted.
func (r *rig) until(link string, ok func(l ifmon.Link, there bool) bool) {
	r.t.Helper()
	for deadline := time.After(netnstest.Patience); ; {
		if l, there := r.now[link]; ok(l, there) {
			return
		}
		select {
		case cs := <-r.mon.Changes():
			r.tbl.Links(cs)
			for _, c := range cs {
				if r.now[c.Name] = c.Link; c.Gone {
					delete(r.now, c.Name)
				}
			}
		case <-deadline:
			r.t.Fatalf("interface %s is %+v", link, r.now[link])
		}
	}
}

func (r *rig) untilUp(link string) {
	r.t.Helper()
	r.until(link, func(l ifmon.Link, there bool) bool { return there && l.Up })
}

func (r *rig) apply() map[string]intent.Outcome {
	r.t.Helper()
	out, err := r.tbl.Apply(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	m := map[string]intent.Outcome{}
	for _, o := range out {
		m[o.Key.String()] = o
	}
	return m
}

func (r *rig) want(dst string, err error, reason string, out map[string]intent.Outcome) {
	r.t.Helper()
	o, ok := out[dst]
	if !ok || !errors.Is(o.Err, err) || o.Reason != reason {
		r.t.Errorf("outcome of %s = %+v (reported: %v); want error %v, reason %q", dst, o, ok, err, reason)
	}
}

func route(dst, link string) intent.Route {
	return intent.Route{Dst: netip.MustParsePrefix(dst), Link: link}
}

func gone(dst string) intent.Batch {
	return intent.Batch{Removed: []intent.Key{route(dst, "").ID()}}
}

func both(link string) intent.Batch {
	return intent.Batch{Routes: []intent.Route{route("10.65.0.5/32", link), route("2001:db8::5/128", link)}, InSync: true}
}

func TestRoutesFollowTheIntents(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.tbl.Merge(both("wl1"))
	r.tbl.Merge(intent.Batch{Routes: []intent.Route{
		{Dst: netip.MustParsePrefix("10.65.0.0/26"), Kind: intent.RouteBlackhole},
		{Dst: netip.MustParsePrefix("2001:db8::/122"), Kind: intent.RouteBlackhole},
	}})
	r.until("lo", func(_ ifmon.Link, there bool) bool { return there })
	r.want("10.65.0.5/32", nil, "interface wl1 is absent", r.apply())
	r.ns.WantRoute(t, "blackhole 10.65.0.0/26 proto 80")
	r.ns.WantRoute(t, "blackhole 2001:db8::/122 dev lo proto 80")

	r.ns.Veth("wl1", "wl1p")
	r.untilUp("wl1")
	out := r.apply()
	r.want("10.65.0.5/32", nil, "", out)
	r.want("2001:db8::5/128", nil, "", out)
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	r.ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80")
	if out := r.apply(); len(out) != 0 {
		t.Errorf("nothing is pending, but outcomes are %v", out)
	}

	for _, dst := range []string{"10.65.0.5/32", "2001:db8::5/128", "10.65.0.0/26", "2001:db8::/122"} {
		r.tbl.Merge(gone(dst))
	}
	r.apply()
	for _, words := range []string{"10.65.0.5", "2001:db8::5", "blackhole 10.65.0.0/26", "blackhole 2001:db8::/122"} {
		r.ns.WantNoRoute(t, words)
	}
}

func TestRoutesReturnAfterLinkFlap(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	b := both("wl1")
	b.Routes[0].MAC = "02:00:00:00:00:05"
	r.tbl.Merge(b)
	r.untilUp("wl1")
	r.apply()
	r.ns.Flap("wl1") // the kernel drops the routes with their link
	r.ns.WantNoRoute(t, "10.65.0.5")
	r.until("wl1", func(ifmon.Link, bool) bool {
		o, reported := r.apply()["10.65.0.5/32"]
		return reported && o.Err == nil && o.Reason == "" && strings.Contains(r.ns.Run("ip", "route"), "10.65.0.5 ")
	})
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	r.ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80")
	if got := r.ns.Run("ip", "neigh", "show", "dev", "wl1", "nud", "permanent"); got != "10.65.0.5 lladdr 02:00:00:00:00:05 PERMANENT \n" {
		t.Errorf("neighbours are %q", got)
	}
	r.ns.Delete("wl1")
	r.until("wl1", func(_ ifmon.Link, there bool) bool { return !there })
	r.want("10.65.0.5/32", nil, "interface wl1 is absent", r.apply())
}

func TestAnotherInterfaceOfTheSameNameGetsTheRoutes(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.apply()
	old := r.ns.Link("wl1").Index
	r.ns.Delete("wl1")
	r.ns.Veth("wl1", "wl1p")
	r.until("wl1", func(l ifmon.Link, there bool) bool { return there && l.Up && l.Index != old })
	r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
}

func TestAddressMovesToAnotherEndpoint(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl2")
	b := both("wl1")
	b.Routes[0].MAC = "02:00:00:00:00:05"
	r.tbl.Merge(b)
	r.untilUp("wl1")
	r.untilUp("wl2")
	r.apply()
	b = both("wl2")
	b.Routes[0].MAC = "02:00:00:00:00:06"
	r.tbl.Merge(b)
	r.want("10.65.0.5/32", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.0.5 dev wl2 proto 80 scope link")
	r.ns.WantRoute(t, "2001:db8::5 dev wl2 proto 80")
	r.ns.WantNoRoute(t, "2001:db8::5 dev wl1")
	if got := r.ns.Run("ip", "neigh", "show", "dev", "wl1", "nud", "permanent"); got != "" {
		t.Errorf("neighbours of the old interface are %q", got)
	}
}

func TestForeignRouteIsReportedAndNeverReplaced(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.ns.Route("10.65.0.5/32 dev wl1p proto 4")
	r.ns.Route("2001:db8::5/128 dev wl1p proto 4")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	out := r.apply()
	r.want("10.65.0.5/32", fib.ErrForeign, "", out)
	r.want("2001:db8::5/128", fib.ErrForeign, "", out)
	r.ns.WantRoute(t, "10.65.0.5 dev wl1p proto 4")
	r.ns.WantRoute(t, "2001:db8::5 dev wl1p proto 4")

	r.tbl.Merge(gone("2001:db8::5/128"))
	r.apply()
	r.ns.WantRoute(t, "2001:db8::5 dev wl1p proto 4")

	r.tbl.Merge(intent.Batch{Routes: []intent.Route{route("10.65.0.6/32", "wl1")}})
	out = r.apply()
	if o, again := out["10.65.0.5/32"]; again {
		t.Errorf("another route's change tried this one again: %v", o)
	}
	r.want("10.65.0.6/32", nil, "", out)
	r.ns.Run("ip", "route", "del", "10.65.0.5")
	if err := r.tbl.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.tbl.Retry()
	r.want("10.65.0.5/32", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
}

func TestRestartLeavesRoutesAndSweepsOnlyOnceInSync(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	ns.Route("10.65.0.5 dev wl1 proto 80 scope link")
	ns.Route("2001:db8::5 dev wl1 proto 80")
	ns.Route("10.65.0.9 dev wl1 proto 80 scope link")          // nobody wants it any more
	ns.Route("10.65.0.9 dev wl1 proto 80 scope link metric 7") // nor this
	ns.Route("10.65.0.8 dev wl1 proto 4 scope link")           // somebody else's
	w, err := ns.Rtnl().Watch(4)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := newRig(t, ns)
	b := both("wl1")
	b.InSync = false
	r.tbl.Merge(b)
	r.apply() // before the interfaces are known
	r.untilUp("wl1")
	r.apply()
	ns.WantRoute(t, "10.65.0.9 dev wl1 proto 80 scope link")
	r.tbl.Merge(intent.Batch{InSync: true})
	r.apply()
	ns.WantNoRoute(t, "10.65.0.9 dev wl1")
	ns.WantRoute(t, "10.65.0.8 dev wl1 proto 4 scope link")
	ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80")

	// The kernel saw two deletions and nothing else.
	ns.Route("192.0.2.0/24 dev wl1") // marks the end
	for last := false; !last; {
		events, err := w.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch last = e.Route.Dst.String() == "192.0.2.0/24"; {
			case e.Route.Protocol == unix.RTPROT_KERNEL: // IPv6's own, when it is done with its address
			case !last && (!e.Gone || e.Route.Dst.String() != "10.65.0.9/32"):
				t.Errorf("the restart touched %+v (gone: %v)", *e.Route, e.Gone)
			}
		}
	}
}

func TestRouteWaitsForPolicyAndStaysWhilePolicyIsRenewed(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.tbl.Gate(false, func(link string) bool { return link == "wl1" })
	r.want("10.65.0.5/32", nil, "policy is not in force yet", r.apply())
	r.ns.WantNoRoute(t, "10.65.0.5")
	r.tbl.Gate(true, func(string) bool { return false })
	r.want("10.65.0.5/32", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	r.tbl.Gate(true, func(link string) bool { return link == "wl1" })
	r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
}

// TestAStartAddsNoRouteBeforePolicyIsInForce: what an earlier agent left leads on, and what is new waits until policy has come into force,
// whether its endpoint is known already or not. A blackhole leads nowhere.
func TestAStartAddsNoRouteBeforePolicyIsInForce(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl2")
	ns.Route("10.65.0.5 dev wl1 proto 80 scope link")
	r := newRig(t, ns)
	r.untilUp("wl1")
	r.untilUp("wl2")
	r.tbl.Merge(intent.Batch{Routes: []intent.Route{
		route("10.65.0.5/32", "wl1"), route("10.65.0.6/32", "wl2"), {Dst: netip.MustParsePrefix("10.65.0.0/26"), Kind: intent.RouteBlackhole},
	}})
	r.tbl.Gate(false, func(string) bool { return false })
	r.want("10.65.0.6/32", nil, "policy is not in force yet", r.apply())
	ns.WantNoRoute(t, "10.65.0.6")
	ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	ns.WantRoute(t, "blackhole 10.65.0.0/26 proto 80")
	r.tbl.Gate(true, func(string) bool { return false })
	r.want("10.65.0.6/32", nil, "", r.apply())
	ns.WantRoute(t, "10.65.0.6 dev wl2 proto 80 scope link")
}

func TestResyncUndoesWhatOthersDid(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	b := both("wl1")
	b.Routes[0].MAC = "02:00:00:00:00:05"
	r.tbl.Merge(b)
	r.untilUp("wl1")
	r.apply()
	r.ns.Run("ip", "route", "del", "10.65.0.5")
	r.ns.Run("ip", "neigh", "del", "10.65.0.5", "dev", "wl1")
	r.ns.Run("ip", "neigh", "add", "10.65.0.77", "dev", "wl1", "lladdr", "02:00:00:00:00:77", "nud", "permanent")
	r.ns.Route("10.65.0.7 dev wl1 proto 80 scope link")
	r.resync()
	r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	r.ns.WantNoRoute(t, "10.65.0.7")
	if got := r.ns.Run("ip", "neigh", "show", "dev", "wl1", "nud", "permanent"); got != "10.65.0.5 lladdr 02:00:00:00:00:05 PERMANENT \n" {
		t.Errorf("neighbours are %q", got)
	}
}

func TestWhatOthersDoToOurRoutesIsUndoneAtOnce(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.apply()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.tbl.Run(ctx) }()
	breakIt := func() {
		r.ns.Run("ip", "route", "flush", "10.65.0.7/32") // to replace a route by itself is no event
		r.ns.Run("ip", "route", "replace", "10.65.0.7", "dev", "wl1", "proto", "80", "scope", "link")
		r.ns.Run("ip", "route", "replace", "10.65.0.5", "dev", "wl1p", "proto", "80", "scope", "link")
	}
	right := func() bool {
		routes := r.ns.Run("ip", "route")
		return strings.Contains(routes, "10.65.0.5 dev wl1 ") && !strings.Contains(routes, "10.65.0.7")
	}
	for deadline, begun := time.After(netnstest.Patience), false; !begun || !right(); {
		if !begun { // until the watch has begun no event comes
			breakIt()
		}
		select {
		case note := <-r.tbl.Drift():
			note()
			r.apply()
			if !begun { // it may have got the event of the second change and not the first
				begun = true
				breakIt()
			}
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("still wrong:\n%s", r.ns.Run("ip", "route"))
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

func TestARouteThroughALinkThatIsReplacedIsNoFailure(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.untilUp("wl1")
	old := r.now["wl1"].Index
	r.ns.Run("ip", "link", "del", "wl1")
	r.ns.Veth("wl1", "wl1p") // the table has got neither event yet
	batch := both("wl1")
	batch.Routes[1].MAC = "02:00:00:00:00:05"
	r.tbl.Merge(batch)
	out := r.apply()
	r.want("10.65.0.5/32", nil, "interface wl1 is absent", out)
	r.want("2001:db8::5/128", nil, "interface wl1 is absent", out)
	r.until("wl1", func(l ifmon.Link, there bool) bool { return there && l.Up && l.Index != old })
	out = r.apply()
	r.want("10.65.0.5/32", nil, "", out)
	r.want("2001:db8::5/128", nil, "", out)
}

func TestARouteThroughALinkThatIsGoingDownIsNoFailure(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.apply()
	r.ns.Run("ip", "link", "set", "wl1", "down") // the table has not got the event yet
	r.resync()
	for _, notified := range []bool{false, true} {
		if notified {
			r.until("wl1", func(l ifmon.Link, _ bool) bool { return !l.Up })
		}
		out := r.apply()
		r.want("10.65.0.5/32", nil, "interface wl1 is down", out)
		r.want("2001:db8::5/128", nil, "interface wl1 is down", out)
	}
	r.ns.Run("ip", "link", "set", "wl1", "up")
	r.untilUp("wl1")
	out := r.apply()
	r.want("10.65.0.5/32", nil, "", out)
	r.want("2001:db8::5/128", nil, "", out)
}
