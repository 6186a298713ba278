package speaker_test

import (
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// TestPrioritiesOfRoutes: the metric of the agent's route is told to internal peers as LOCAL_PREF, that of a learned route is its metric in
// the kernel, and rules match and set both. What came with another network's LOCAL_PREF has the normal priority.
func TestPrioritiesOfRoutes(t *testing.T) {
	h, birds := network(t, 2)
	inside, outside := birds[0], birds[1]
	inside.run(`protocol static s4 { ipv4;
  route 10.65.20.0/26 blackhole { bgp_local_pref = 2147483135; };
  route 10.65.21.0/26 blackhole { bgp_local_pref = 2147482623; };
  route 10.65.22.0/26 blackhole;
  route 10.65.23.0/26 blackhole { bgp_local_pref = 2147483647; };
  route 10.65.24.0/26 blackhole { bgp_local_pref = 4294967295; };
  route 10.65.25.0/26 blackhole; }
protocol static s6 { ipv6; route fd00:65:20::/64 blackhole { bgp_local_pref = 2147482623; }; route fd00:65:21::/64 blackhole { bgp_local_pref = 2147483135; }; }` +
		speaks("twill", "local as 64512; direct;", "", ""))
	outside.run(`protocol static s4 { ipv4; route 10.204.0.0/26 blackhole { bgp_local_pref = 2147483135; }; }` +
		speaks("twill", "local as 65001; multihop; allow bgp_local_pref on;", "", ""))
	h.agent("10.65.1.0/26", "10.65.2.0/26")
	for dst, metric := range map[string]int{"10.65.1.5/32": 512, "10.65.1.6/32": 1024, "10.65.9.9/32": 2000, "10.65.2.7/32": 0} {
		r := agentRoute(dst)
		r.Metric = metric
		if err := h.Rtnl().AddRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	in, in6, out := session("192.0.2.2", 64512), session("2001:db8:1::2", 64512), session("192.0.2.3", 65001)
	in.Import = []plan.Rule{{Name: "set", Prefix: prefix("10.65.25.0/26"), Min: 26, Max: 26, Accept: true, Add: []string{"1:1"}, SetPriority: 700}}
	in.Export = append([]plan.Rule{{Name: "far", Priority: 2000, Accept: true, SetPriority: 3000}}, pools[0])
	out.Export = append([]plan.Rule{{Name: "elevated", Priority: 512, Accept: true, Add: []string{"65000:100"}}, {Name: "set on import", Priority: 700}}, pools[0])
	p := planOf(in, in6, out)
	h.start(p)

	// What internal peers are sent.
	inside.wants("10.65.1.0/26", "BGP.local_pref: 2147482623")
	inside.wants("10.65.1.5/32", "BGP.local_pref: 2147483135") // although the block covers it
	inside.wants("10.65.9.9/32", "BGP.local_pref: 2147480647")
	inside.lacks("10.65.1.6/32")
	inside.lacks("10.65.2.7/32")

	// What is installed. The speaker's own metrics stand for the normal priority, unless one is configured.
	h.wantRoute("10.65.20.0/26 via 192.0.2.2 proto 82 metric 512")
	for _, dst := range []string{"10.65.21.0/26", "10.65.22.0/26", "10.65.23.0/26", "10.65.24.0/26"} {
		h.wantRoute(dst + " via 192.0.2.2 proto 186 metric 2048")
	}
	h.wantRoute("10.65.25.0/26 via 192.0.2.2 proto 82 metric 700")
	h.wantRoute("10.204.0.0/26 via 192.0.2.3 proto 186 metric 2048") // LOCAL_PREF of an external peer says nothing
	h.wantRoute("fd00:65:21::/64 via 2001:db8:1::2 proto 82 metric 512")

	// What external peers are sent: rules match priorities, but these are not sent.
	outside.wants("10.65.1.5/32", "BGP.community: (65000,100)")
	outside.wants("10.65.20.0/26", "BGP.community: (65000,100)")
	outside.wants("10.65.22.0/26", "BGP.local_pref: 100")
	outside.lacks("10.65.25.0/26")

	// A normal priority that is configured is that of all that have none, here and at peers; live, and no packet is without a route.
	gone := missing(t, h.Rtnl(), "10.65.22.0/26")
	since := h.session("192.0.2.2").Since
	p.Normal = [2]uint32{1500, 1024}
	h.plan(p)
	inside.wants("10.65.1.0/26", "BGP.local_pref: 2147482147")
	inside.wants("10.65.1.6/32", "BGP.local_pref: 2147482623") // now it is elevated
	h.wantRoute("10.65.22.0/26 via 192.0.2.2 proto 82 metric 1500")
	h.wantNoRoute("10.65.22.0/26 proto 186")
	h.wantRoute("10.65.21.0/26 via 192.0.2.2 proto 82 metric 1024")
	h.wantRoute("fd00:65:20::/64 via 2001:db8:1::2 proto 82 metric 1024")
	if now := h.session("192.0.2.2").Since; !now.Equal(since) {
		t.Errorf("the session began at %s, then at %s", since, now)
	}
	if n := gone(); n > 0 {
		t.Errorf("%d times there was no route", n)
	}

	// A speaker that starts again knows them for its own, and removes what no peer advertises any more.
	h.kill()
	h.start(p)
	h.up("192.0.2.2", "2001:db8:1::2", "192.0.2.3")
	p.Normal = [2]uint32{}
	h.plan(p)
	h.wantRoute("10.65.22.0/26 via 192.0.2.2 proto 186")
	h.wantNoRoute("fd00:65:20::/64 proto 82")
	h.wantRoute("10.65.20.0/26 via 192.0.2.2 proto 82 metric 512")
	h.plan(planOf(out))
	h.wantNoRoute("10.65.20.0/26 proto 82")
}

// missing counts how often a deleted route left a destination without one of the speaker's.
func missing(t *testing.T, nl *rtnl.Handle, dst string) func() int {
	t.Helper()
	watch, err := nl.Watch(rtnl.WatchRoutes)
	if err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		defer watch.Close()
		var there []rtnl.Route
		for {
			events, err := watch.Receive()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				r := e.Route
				if r == nil || r.Dst != prefix(dst) || !kernel.SpeakerRoute(r.Protocol, r.Metric) {
					continue
				}
				if there = append(there, *r); e.Gone {
					there = slices.DeleteFunc(there, func(is rtnl.Route) bool { return is.Metric == r.Metric })
					if len(there) == 0 {
						n++
					}
					return n
				}
			}
		}
	}
}

// TestANetworkOfTheHostIsBehindItsOwnLink whatever priority a peer sends it with: peers on the link advertise it to each other.
func TestANetworkOfTheHostIsBehindItsOwnLink(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run("protocol static s4 { ipv4; route 10.99.7.0/24 blackhole { bgp_local_pref = 2147483135; }; route 10.65.20.0/26 blackhole { bgp_local_pref = 2147483135; }; }" +
		speaks("twill", "local as 64512; direct;", "", ""))
	h.Veth("eth7", "peer7")
	h.Up("eth7")
	h.Addr("eth7", "10.99.7.1/24")
	h.start(planOf(session("192.0.2.2", 64512)))
	h.wantRoute("10.65.20.0/26 via 192.0.2.2 proto 82 metric 512")
	h.wantRoute("10.99.7.0/24 via 192.0.2.2 proto 186 metric 2048")
}
