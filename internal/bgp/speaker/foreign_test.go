package speaker

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// accepting is what holds routes of others that a filter with such a rule accepts.
func accepting(rule plan.Rule) *exports {
	e := &exports{agent: map[routeKey]rtnl.Route{}, links: map[int]rtnl.Link{7: {Index: 7, Name: "eth7", Up: true}}}
	rule.Accept = true
	e.foreign.setPlan(plan.Plan{Sessions: []plan.Session{{Peer: netip.MustParseAddr("192.0.2.2"), Export: []plan.Rule{rule, {Covered: true}, {Foreign: true}}}}})
	e.foreign.routes, e.foreign.doubled = map[routeKey]rtnl.Route{}, map[routeKey]bool{}
	return e
}

func TestWhichRoutesAreOfOthers(t *testing.T) {
	e := accepting(plan.Rule{})
	for _, tt := range []struct {
		name string
		r    rtnl.Route
		want bool
	}{
		{"static", rtnl.Route{Protocol: 4}, true},
		{"by ip route", rtnl.Route{Protocol: 3}, true},
		{"of FRR, learned by its BGP", rtnl.Route{Protocol: kernel.RouteProtocolSpeaker, Metric: 20}, true},
		{"of another BIRD", rtnl.Route{Protocol: kernel.RouteProtocolBIRD, Metric: 32}, true},
		{"a blackhole", rtnl.Route{Protocol: 4, Kind: rtnl.Blackhole}, true},
		{"unreachable", rtnl.Route{Protocol: 4, Kind: rtnl.Unreachable}, true},
		{"of another table", rtnl.Route{Protocol: 4, Table: 100}, false},
		{"local, broadcast, multicast", rtnl.Route{Protocol: 4, Kind: rtnl.Other}, false},
		{"throw", rtnl.Route{Protocol: 4, Kind: rtnl.Throw}, false},
		{"the kernel's", rtnl.Route{Protocol: kernel.RouteProtocolKernel}, false},
		{"of an ICMP redirect", rtnl.Route{Protocol: 1}, false},
		{"the agent's", rtnl.Route{Protocol: kernel.RouteProtocolAgent}, false},
		{"the agent's to other hosts", rtnl.Route{Protocol: kernel.RouteProtocolHosts, Metric: 700}, false},
		{"the speaker's", rtnl.Route{Protocol: kernel.RouteProtocolSpeaker, Metric: kernel.RouteMetricSpeakerNext}, false},
		{"the speaker's with a priority", rtnl.Route{Protocol: kernel.RouteProtocolPriority, Metric: 512}, false},
		{"of a BIRD in the speaker's place", rtnl.Route{Protocol: kernel.RouteProtocolBIRD, Metric: kernel.RouteMetricBIRD}, false},
		{"behind what is learned", rtnl.Route{Protocol: 4, Metric: 2048}, false},
		{"before what is learned", rtnl.Route{Protocol: 4, Metric: 2047}, true},
		{"link-local", rtnl.Route{Protocol: 4, Dst: netip.MustParsePrefix("169.254.169.254/32")}, false},
		{"multicast", rtnl.Route{Protocol: 4, Dst: netip.MustParsePrefix("224.0.0.0/4")}, false},
		{"of IPv6, for which there is no filter", rtnl.Route{Protocol: 4, Dst: netip.MustParsePrefix("2001:db8:7::/48")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.r.Dst.IsValid() {
				tt.r.Dst = netip.MustParsePrefix("203.0.113.0/24")
			}
			if got := e.foreign.accepts(tt.r, "eth7"); got != tt.want {
				t.Errorf("%+v: got %t, want %t", tt.r, got, tt.want)
			}
		})
	}
}

// TestEventsOfRoutesOfOthers: what an event leaves open is read again.
func TestEventsOfRoutesOfOthers(t *testing.T) {
	one := rtnl.Route{Dst: netip.MustParsePrefix("203.0.113.0/24"), Protocol: 4, Link: 7, Gateway: netip.MustParseAddr("192.0.2.7"), Source: netip.MustParseAddr("192.0.2.1")}
	two, narrow := one, one
	two.Gateway, narrow.Dst = netip.MustParseAddr("192.0.2.8"), netip.MustParsePrefix("203.0.113.0/25")
	for _, tt := range []struct {
		name           string
		do             func(*exports) bool
		changed, stale bool
		kept           int
	}{
		{"the same again", func(e *exports) bool { return e.onForeign(one, false) }, false, false, 1},
		{"one that no filter accepts", func(e *exports) bool { return e.onForeign(narrow, false) }, false, false, 1},
		{"it goes", func(e *exports) bool { return e.onForeign(one, true) }, true, false, 0},
		{"one that nobody keeps goes", func(e *exports) bool { return e.onForeign(narrow, true) }, false, false, 1},
		{"another in its place, or beside it", func(e *exports) bool { return e.onForeign(two, false) }, false, true, 1},
		{"another with its metric goes", func(e *exports) bool { return e.onForeign(two, true) }, false, true, 1},
		{"one of two goes", func(e *exports) bool { e.foreign.doubled[routeKey{one.Dst, 0}] = true; return e.onForeign(one, true) }, false, true, 1},
		{"its link goes", func(e *exports) bool { e.onLink(rtnl.Link{Index: 7}, true); return false }, false, true, 1},
		{"its link goes down", func(e *exports) bool { e.onLink(rtnl.Link{Index: 7, Name: "eth7"}, false); return false }, false, true, 1},
		{"another link goes down", func(e *exports) bool { e.onLink(rtnl.Link{Index: 8, Name: "cali8"}, true); return false }, false, false, 1},
		{"its source goes", func(e *exports) bool {
			e.foreign.onAddr(rtnl.Addr{Link: 8, Prefix: netip.MustParsePrefix("192.0.2.1/24")}, true)
			return false
		}, false, true, 1},
		{"an address of its link goes", func(e *exports) bool {
			e.foreign.onAddr(rtnl.Addr{Link: 7, Prefix: netip.MustParsePrefix("192.0.2.3/24")}, true)
			return false
		}, false, true, 1},
		{"the agent has it now", func(e *exports) bool { e.foreign.taken(routeKey{one.Dst, 0}); return false }, false, true, 0},
		{"the agent has another", func(e *exports) bool { e.foreign.taken(routeKey{one.Dst, 7}); return false }, false, false, 1},
		{"another address goes", func(e *exports) bool {
			e.foreign.onAddr(rtnl.Addr{Link: 8, Prefix: netip.MustParsePrefix("192.0.2.3/24")}, true)
			return false
		}, false, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := accepting(plan.Rule{Prefix: one.Dst, Min: 24, Max: 24})
			if !e.onForeign(one, false) {
				t.Fatal("a new one changes nothing")
			}
			changed := tt.do(e)
			if stale := !e.foreign.reading.due.IsZero(); changed != tt.changed || stale != tt.stale || len(e.foreign.routes) != tt.kept {
				t.Errorf("changed %t, to be read %t, %d kept, want %t, %t, %d", changed, stale, len(e.foreign.routes), tt.changed, tt.stale, tt.kept)
			}
		})
	}
}

// TestARouteLeadsByEachOfItsNextHops: with the last address of one of these interfaces the kernel removes it, and if one is ignored it is not advertised.
func TestARouteLeadsByEachOfItsNextHops(t *testing.T) {
	r := rtnl.Route{Dst: netip.MustParsePrefix("203.0.113.0/24"), Protocol: 4, Hops: rtnl.MakeHops(
		rtnl.Hop{Link: 7, Gateway: netip.MustParseAddr("192.0.2.7")}, rtnl.Hop{Link: 9, Gateway: netip.MustParseAddr("198.51.100.7")})}
	for link, want := range map[int]bool{7: true, 8: false, 9: true} {
		e := accepting(plan.Rule{})
		e.onForeign(r, false)
		e.foreign.onAddr(rtnl.Addr{Link: link, Prefix: netip.MustParsePrefix("192.0.2.1/24")}, true)
		if got := !e.foreign.reading.due.IsZero(); got != want {
			t.Errorf("link %d: to be read again %t, want %t", link, got, want)
		}
	}
	e := accepting(plan.Rule{})
	e.links[9] = rtnl.Link{Index: 9, Name: "docker0", Up: true}
	e.onForeign(r, false)
	e.foreign.inForce = true
	for _, ignored := range []string{"", "eth7", "docker*"} {
		out := Verdicts{}
		e.addForeign(out, plan.Plan{Ignored: []string{ignored}})
		if got, want := out[r.Dst].Advertised, ignored == ""; got != want {
			t.Errorf("with %q ignored it is advertised: %t", ignored, got)
		}
	}
}

// TestANetworkOfAnAddressThatIsThereIsRead, as where it was a single address before.
func TestANetworkOfAnAddressThatIsThereIsRead(t *testing.T) {
	single, net := netip.MustParsePrefix("10.99.7.1/32"), netip.MustParsePrefix("10.99.7.1/24")
	f := &fib{localAddrs: map[netip.Addr]bool{single.Addr(): true}, localNets: map[netip.Prefix]bool{single: true}}
	if f.address(single, false) || !f.address(net, false) || !f.address(single, true) {
		t.Error("want what has another network, and what goes")
	}
}

// TestWorkForAllTakesAShareOfTheTime: where routes that are kept change without an end, all are not read, and not compared with what is advertised, all the time.
func TestWorkForAllTakesAShareOfTheTime(t *testing.T) {
	now := time.Now()
	s := &spaced{ended: now, took: time.Second}
	if s.isDue(now.Add(time.Hour)) {
		t.Error("due, and nothing asked for it")
	}
	s.ask(now)
	s.ask(now.Add(time.Minute)) // what is due already is not put off
	if at := now.Add(share * time.Second); !s.due.Equal(at) || s.isDue(at.Add(-1)) || !s.isDue(at) {
		t.Errorf("due at %s, want %s", s.due, at)
	}
	if s.done(now); s.isDue(now.Add(time.Hour)) {
		t.Error("due once it is done")
	}
}

// TestOnlyRoutesThatAFilterAcceptsAreKept of a kernel with many of others; without a filter that accepts anything none.
func TestOnlyRoutesThatAFilterAcceptsAreKept(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth7", "peer")
	ns.Up("eth7")
	ns.Up("peer")
	var b rtnl.Batch
	for i := range 2000 {
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)
		b.AddRoute(rtnl.Route{Dst: dst, Link: ns.Link("eth7").Index, Protocol: 4})
	}
	for _, err := range ns.Rtnl().Write(&b) {
		if err != nil {
			t.Fatal(err)
		}
	}
	e := accepting(plan.Rule{Prefix: netip.MustParsePrefix("20.1.0.0/22"), Min: 22, Max: 32})
	if err := e.readForeign(ns.Rtnl()); err != nil {
		t.Fatal(err)
	}
	if n := len(e.foreign.routes); n != 4 {
		t.Errorf("%d routes are kept, want 4: %v", n, fmt.Sprint(e.foreign.routes))
	}
	e.foreign.setPlan(plan.Plan{})
	if err := e.readForeign(ns.Rtnl()); err != nil || len(e.foreign.routes) != 0 {
		t.Errorf("%v: %d routes are kept that no filter accepts", err, len(e.foreign.routes))
	}
}
