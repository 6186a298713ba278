package speaker_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// withdrawals collects the destinations of a namespace whose routes of a protocol went, while something happens.
func withdrawals(t *testing.T, nl *rtnl.Handle, protocol int) (stop func() []netip.Prefix) {
	t.Helper()
	w, err := nl.Watch(rtnl.WatchRoutes)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards gone
	var gone []netip.Prefix
	var done sync.WaitGroup
	done.Go(func() {
		for {
			events, err := w.Receive()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			for _, e := range events {
				if e.Route != nil && e.Gone && e.Route.Protocol == protocol {
					mu.Lock()
					gone = append(gone, e.Route.Dst)
					mu.Unlock()
				}
			}
		}
	})
	return func() []netip.Prefix {
		_ = w.Close()
		done.Wait()
		mu.Lock()
		defer mu.Unlock()
		return gone
	}
}

// birdKernel is BIRD's protocol that puts what it learns into its own kernel: 12 is its number there.
const birdKernel = "protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }\n"

func TestARestartMovesNoRoute(t *testing.T) {
	h, birds := network(t, 2)
	for i, b := range birds {
		b.run(birdKernel + strings.ReplaceAll(statics, "204", fmt.Sprint(204+i)) + speaks("twill", "local as 64512; direct;", "", ""))
	}
	h.agent("10.65.1.0/26")
	p := planOf(session("192.0.2.2", 64512), session("2001:db8:1::2", 64512), session("192.0.2.3", 64512), session("2001:db8:1::3", 64512))
	h.start(p)
	routes := []string{
		"10.204.0.0/26 via 192.0.2.2 proto 186", "10.205.0.0/26 via 192.0.2.3 proto 186",
		"fd00:204::/64 via 2001:db8:1::2 proto 186", "fd00:205::/64 via 2001:db8:1::3 proto 186",
	}
	for _, r := range routes {
		h.wantRoute(r)
	}
	for _, b := range birds {
		b.wants("10.65.1.0/26")
		await(t, patience, func() error { return (&host{NS: b.NS, t: t}).routeIs("10.65.1.0/26 via 192.0.2.1", true) })
	}
	here := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	there := withdrawals(t, birds[0].Rtnl(), 12)

	h.kill()
	for _, r := range routes {
		if err := h.routeIs(r, true); err != nil {
			t.Errorf("without a speaker: %v", err)
		}
	}
	h.agent("10.65.7.0/26") // meanwhile
	birds[1].configure("route 10.205.0.0/26 blackhole;", "route 10.206.0.0/26 blackhole;")
	h.start(p)
	h.up("192.0.2.2", "192.0.2.3", "2001:db8:1::2", "2001:db8:1::3")
	h.wantRoute("10.206.0.0/26 via 192.0.2.3 proto 186")
	h.wantNoRoute("10.205.0.0/26") // all have sent End-of-RIB: stale routes are removed
	birds[0].wants("10.65.7.0/26")
	await(t, patience, func() error {
		if r := h.ask(request{}).Report; !r.Holding.IsZero() {
			return fmt.Errorf("still holding: %+v", r)
		}
		return nil
	})
	if gone := here(); !slices.Equal(gone, []netip.Prefix{prefix("10.205.0.0/26")}) {
		t.Errorf("here went %v", gone)
	}
	if gone := there(); len(gone) > 0 {
		t.Errorf("at a peer went %v", gone)
	}
}

func TestStaleRoutesGoAfterTheRestartTime(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	s := session("192.0.2.2", 64512)
	s.Restart = 5 * time.Second
	p := planOf(s)
	h.start(p)
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.kill()
	birds[0].kill()
	h.start(p)
	h.wantNoRoute("10.204.0.0/26") // when: TestHowLongRoutesStayThatNobodyTells
}

func TestAPeerThatDiesKeepsItsRoutesForItsRestartTime(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	b.run(statics + speaks("twill", "local as 64512; direct; graceful restart time 110;", "", ""))
	h.start(planOf(session("192.0.2.2", 64512), session("2001:db8:1::2", 64512)))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	b.kill()
	await(t, patience, func() error {
		if s := h.session("192.0.2.2"); !strings.Contains(s.Why, "its routes are kept") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	b.restart() // back in time
	h.up("192.0.2.2")
	if went := gone(); len(went) > 0 {
		t.Errorf("while the peer restarted went %v", went)
	}
	before := h.session("192.0.2.2").Since
	b.configure("graceful restart time 110;", "graceful restart time 5;") // which takes a new session
	await(t, patience, func() error {
		if s := h.session("192.0.2.2"); s.State != speaker.Established || s.Since.Equal(before) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	b.kill() // and not back
	h.wantNoRoute("10.204.0.0/26")
}

func TestAPeerThatFallsSilentLosesItsRoutes(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	s := session("192.0.2.2", 64512)
	s.Keepalive, s.Hold = 5*time.Second, 15*time.Second // which a machine that is busy keeps
	h.start(planOf(s))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	birds[0].Down("eth0") // its end; ours stays up on the bridge
	h.wantNoRoute("10.204.0.0/26")
	if w := h.session("192.0.2.2").Why; !strings.Contains(w, "the hold timer expired") {
		t.Errorf("why: %q", w)
	}
	if went := gone(); len(went) != 1 {
		t.Errorf("went %v", went)
	}
}

func TestFlowsAreSharedAmongEqualPaths(t *testing.T) {
	h, birds := network(t, 3)
	for _, b := range birds {
		b.run(statics + speaks("twill", "local as 65001; multihop;", "", ""))
	}
	p := planOf(session("192.0.2.2", 65001), session("192.0.2.3", 65001), session("192.0.2.4", 65001), session("2001:db8:1::2", 65001), session("2001:db8:1::3", 65001))
	h.start(p)
	h.wantRoute("10.204.0.0/26 proto 186 nexthop via 192.0.2.2 nexthop via 192.0.2.3 nexthop via 192.0.2.4")
	h.wantRoute("fd00:204::/64 proto 186 nexthop via 2001:db8:1::2 nexthop via 2001:db8:1::3")
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	birds[1].ask("disable", "twill4")
	h.wantRoute("10.204.0.0/26 proto 186 nexthop via 192.0.2.2 nexthop via 192.0.2.4")
	birds[2].ask("disable", "twill4")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	birds[1].ask("enable", "twill4")
	h.wantRoute("10.204.0.0/26 proto 186 nexthop via 192.0.2.2 nexthop via 192.0.2.3")
	// Each change took the other metric: while one route went there was always another.
	for _, dst := range gone() {
		if dst != prefix("10.204.0.0/26") {
			t.Errorf("%s went", dst)
		}
	}
	// Only what is wanted is left, in one place.
	all, err := h.Rtnl().Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolSpeaker})
	if err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestRoutesOfOthersAreNotTouched(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	b.run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	h.Route("10.204.0.0/26 via 192.0.2.9 proto static metric 2048")
	h.Route("10.204.0.0/26 via 192.0.2.9 proto 186 metric 20") // that of another BGP speaker
	h.start(planOf(session("192.0.2.2", 64512)))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186 metric 2049") // our other place is free
	h.Route("10.205.0.0/26 via 192.0.2.9 proto static metric 2048")
	h.Route("10.205.0.0/26 via 192.0.2.9 proto static metric 2049")
	b.configure("route 10.204.0.0/26 blackhole;", "route 10.205.0.0/26 blackhole;")
	await(t, patience, func() error {
		if r := h.ask(request{}).Report; !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, "10.205.0.0/26: routes that are not ours") }) {
			return fmt.Errorf("%q", r.Problems)
		}
		return nil
	})
	h.wantNoRoute("10.204.0.0/26 via 192.0.2.2")
	b.configure("route 10.205.0.0/26 blackhole;", "")
	await(t, patience, func() error {
		if r := h.ask(request{}).Report; len(r.Problems) > 0 {
			return fmt.Errorf("%q", r.Problems)
		}
		return nil
	})
	for _, r := range []string{
		"10.204.0.0/26 via 192.0.2.9 proto 4 metric 2048", "10.204.0.0/26 via 192.0.2.9 proto 186 metric 20",
		"10.205.0.0/26 via 192.0.2.9 proto 4 metric 2048", "10.205.0.0/26 via 192.0.2.9 proto 4 metric 2049",
	} {
		if err := h.routeIs(r, true); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatSomebodyRemovesComesBack(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	h.start(planOf(session("192.0.2.2", 64512)))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.Run("ip", "route", "flush", "proto", "186")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.Flap("br0") // the kernel says nothing of routes that go with their link
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
}

func TestANextHopBehindARouter(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + `filter behind { bgp_next_hop = 198.51.100.7; accept; }` +
		strings.Replace(speaks("twill", "local as 64512; direct;", "", ""), "export where source = RTS_STATIC", "export filter behind", 1))
	h.start(planOf(session("192.0.2.2", 64512)))
	h.up("192.0.2.2")
	await(t, patience, func() error {
		if r := h.ask(request{}).Report; !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, "next hop 198.51.100.7") }) {
			return fmt.Errorf("%q", r.Problems)
		}
		return nil
	})
	h.Route("198.51.100.0/24 via 192.0.2.9")
	h.wantRoute("10.204.0.0/26 via 192.0.2.9 proto 186")
	h.Route("198.51.100.7/32 via 192.0.2.8")
	h.wantRoute("10.204.0.0/26 via 192.0.2.8 proto 186")
}

func TestWithoutAPlanNothingMoves(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	p := planOf(session("192.0.2.2", 64512), session("2001:db8:1::2", 64512))
	h.start(p)
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.wantRoute("fd00:204::/64 via 2001:db8:1::2 proto 186")
	h.kill()
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	h.launch()
	h.agent("10.65.1.0/26") // an event, so that the loop comes round
	if r := h.ask(request{}).Report; r.Kernel != 2 || r.Node != "" {
		t.Errorf("%+v", r)
	}
	h.plan(p)
	h.up("192.0.2.2", "2001:db8:1::2")
	birds[0].wants("10.65.1.0/26")
	if went := gone(); len(went) > 0 {
		t.Errorf("went %v", went)
	}
	h.plan(plan.Plan{Node: "h1", Off: "its Node is gone"})
	h.wantNoRoute("10.204.0.0/26") // who does not speak has nothing from peers
	birds[0].lacks("10.65.1.0/26") // and they nothing from it
}

// TestRoutesAdvertisedALittleLateAreNeverRemoved is what a client sees of a reflector that restarts together with another client:
// it sends End-of-RIB, and advertises the other's routes a moment later.
func TestRoutesAdvertisedALittleLateAreNeverRemoved(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	b.run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	p := planOf(session("192.0.2.2", 64512))
	h.start(p)
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.kill()
	b.configure("route 10.204.0.0/26 blackhole;", "")
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	h.start(p)
	await(t, patience, func() error {
		if r := h.ask(request{}).Report; r.Node == "" || !r.Holding.IsZero() || r.Sessions[0].State != speaker.Established {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	b.configure("protocol static s4 { ipv4; ", "protocol static s4 { ipv4; route 10.204.0.0/26 blackhole;")
	await(t, patience, func() error {
		if r := h.ask(request{}).Report; r.Learned != 1 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	if went := gone(); len(went) > 0 {
		t.Errorf("went %v", went)
	}
	b.configure("route 10.204.0.0/26 blackhole;", "")
	h.wantNoRoute("10.204.0.0/26") // but not for ever
}

// TestAPeerBehindAGateway has a peer that the kernel knows no way to, until the plan says which: reachableBy.
func TestAPeerBehindAGateway(t *testing.T) {
	h, birds := network(t, 2)
	peer, gateway := birds[0], birds[1]
	peer.Addr("lo", "198.51.100.9/32")
	peer.run(statics + speaks("twill", "local 198.51.100.9 as 65001; multihop;", "", ""))
	gateway.Forward()
	gateway.Route("198.51.100.9/32 via 192.0.2.2")
	s := session("198.51.100.9", 65001)
	s.Via = netip.MustParseAddr("192.0.2.3")
	h.start(planOf(s))
	h.wantRoute("198.51.100.9 via 192.0.2.3 dev br0 proto 186")
	h.up("198.51.100.9")
	h.wantRoute("10.204.0.0/26 via 192.0.2.3 dev br0 proto 186")
	h.Run("ip", "route", "del", "198.51.100.9", "via", "192.0.2.3") // somebody
	h.wantRoute("198.51.100.9 via 192.0.2.3 dev br0 proto 186")
	h.plan(planOf(session("192.0.2.2", 65001)))
	h.wantNoRoute("198.51.100.9")
}
