package fib_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func toward(dst string, kind intent.RouteKind, via string) intent.Route {
	r := intent.Route{Dst: netip.MustParsePrefix(dst), Kind: kind, Node: "h2"}
	if kind == intent.RouteTunnel {
		r.Link = intent.LinkVXLAN
	}
	if via != "" {
		r.Via = netip.MustParseAddr(via)
	}
	return r
}

// device makes one of a tunnel, which package tunnel would make.
func device(r *rig) {
	r.ns.Run("ip", "link", "add", intent.LinkVXLAN, "type", "vxlan", "id", "4096", "dstport", "4789", "local", "192.0.2.1", "nolearning")
	r.ns.Up(intent.LinkVXLAN)
	r.untilUp(intent.LinkVXLAN)
}

// hasIPv4 reports whether a link is up and has an address that somebody gave it: one of IPv6 is the link's own, and may come first.
func hasIPv4(l ifmon.Link, _ bool) bool {
	return l.Up && slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr().Is4() })
}

// metric is that of routes by a next hop, as ip shows it.
func metric(via string) string {
	return fmt.Sprintf("metric %d", kernel.HostsMetric(netip.MustParseAddr(via)))
}

// TestARouteToAnotherHostIsThereWhileItsWayChanges: the new one has another metric, and is there before the old one goes.
func TestARouteToAnotherHostIsThereWhileItsWayChanges(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("eth0", "peer")
	r.ns.Addr("eth0", "192.0.2.1/24")
	r.until("eth0", hasIPv4)
	if metric("192.0.2.3") == metric("192.0.2.4") {
		t.Fatal("both ways have one metric")
	}
	r.tbl.Merge(intent.Batch{InSync: true, Routes: []intent.Route{toward("10.65.3.0/26", intent.RouteDirect, "192.0.2.3")}})
	r.apply()
	for i, via := range []string{"192.0.2.4", "192.0.2.3"} {
		was := []string{"192.0.2.3", "192.0.2.4"}[i]
		r.tbl.Merge(intent.Batch{Routes: []intent.Route{toward("10.65.3.0/26", intent.RouteDirect, via)}})
		r.tbl.Withdraw(t.Context())
		r.ns.WantRoute(t, "10.65.3.0/26 via "+was) // the loop withdraws before it applies
		r.want("10.65.3.0/26", nil, "", r.apply())
		r.ns.WantRoute(t, "10.65.3.0/26 via "+via+" dev eth0 proto 81 "+metric(via))
		r.ns.WantNoRoute(t, "10.65.3.0/26 via "+was)
	}
	// There is no way any more: packets go neither where they went nor by the default route.
	r.tbl.Merge(intent.Batch{Routes: []intent.Route{toward("10.65.3.0/26", intent.RouteDirect, "198.51.100.4")}})
	r.tbl.Withdraw(t.Context())
	r.apply()
	r.ns.WantRoute(t, "unreachable 10.65.3.0/26 proto 81 metric 2147483647")
	r.ns.WantNoRoute(t, "10.65.3.0/26 via")
}

// TestMetricsOfWaysAreSpread: of 5,000 next hops that are a step apart, few have the same, and all come before what BGP learns.
func TestMetricsOfWaysAreSpread(t *testing.T) {
	for _, step := range []int{1, 16, 64, 256} {
		n := map[int]int{}
		for i := range 5000 {
			at := 10<<24 + 66<<16 + i*step
			m := kernel.HostsMetric(netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)}))
			if n[m]++; m < kernel.RouteMetricHosts || m >= kernel.RouteMetricDefault6 {
				t.Fatalf("metric %d", m)
			}
		}
		if most := slices.Max(slices.Collect(maps.Values(n))); most > 40 { // ten would be even
			t.Errorf("%d addresses apart: %d have one metric", step, most)
		}
	}
}

func TestRoutesLeadToOtherHosts(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("eth0", "peer")
	r.ns.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	r.until("eth0", func(l ifmon.Link, _ bool) bool {
		return l.Up && slices.Contains(l.Addrs, netip.MustParsePrefix("192.0.2.1/24")) && slices.Contains(l.Addrs, netip.MustParsePrefix("2001:db8::1/64"))
	})
	r.tbl.Merge(intent.Batch{InSync: true, Routes: []intent.Route{
		toward("10.65.2.0/26", intent.RouteTunnel, "10.65.2.1"),
		toward("10.65.3.0/26", intent.RouteDirect, "192.0.2.3"),
		toward("10.65.4.0/26", intent.RouteDirect, "198.51.100.4"),
		toward("10.65.5.0/26", intent.RouteTunnel, ""),
		toward("fd65::/122", intent.RouteDirect, "2001:db8::3"),
	}})
	out := r.apply()
	r.want("10.65.2.0/26", nil, "interface vxlan.calico is absent", out)
	r.want("10.65.3.0/26", nil, "", out)
	r.want("10.65.4.0/26", nil, "no interface of this host is on the network of 198.51.100.4, or has this host's own address", out)
	r.ns.WantRoute(t, "unreachable 10.65.4.0/26 proto 81 metric 2147483647")
	r.ns.WantRoute(t, "unreachable 10.65.2.0/26 proto 81 metric 2147483647")
	if o := out["10.65.5.0/26"]; o.Err == nil || !o.Final || !strings.Contains(o.Err.Error(), "h2 or this host has no end of a tunnel") {
		t.Errorf("without the other end: %+v", o)
	}
	r.ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0 proto 81 "+metric("192.0.2.3"))
	r.ns.WantRoute(t, "unreachable 10.65.5.0/26 proto 81 metric 512")
	r.ns.WantRoute(t, "fd65::/122 via 2001:db8::3 dev eth0 proto 81 metric 512")

	device(r)
	r.want("10.65.2.0/26", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.2.0/26 via 10.65.2.1 dev vxlan.calico proto 81 "+metric("10.65.2.1")+" onlink")
	r.ns.Delete(intent.LinkVXLAN)
	r.until(intent.LinkVXLAN, func(_ ifmon.Link, there bool) bool { return !there })
	r.want("10.65.2.0/26", nil, "interface vxlan.calico is absent", r.apply())
	r.ns.WantRoute(t, "unreachable 10.65.2.0/26 proto 81 metric 2147483647")
	device(r)
	r.want("10.65.2.0/26", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.2.0/26 via 10.65.2.1 dev vxlan.calico")
	r.ns.WantNoRoute(t, "unreachable 10.65.2.0/26")

	// From one way to another, and back.
	r.tbl.Merge(intent.Batch{Routes: []intent.Route{toward("10.65.2.0/26", intent.RouteDirect, "192.0.2.2"), toward("10.65.5.0/26", intent.RouteTunnel, "10.65.5.1")}})
	out = r.apply()
	r.want("10.65.2.0/26", nil, "", out)
	r.want("10.65.5.0/26", nil, "", out)
	r.ns.WantRoute(t, "10.65.2.0/26 via 192.0.2.2 dev eth0")
	r.ns.WantRoute(t, "10.65.5.0/26 via 10.65.5.1 dev vxlan.calico")

	// The host gets an address on another network, and is not on the first any more.
	r.ns.Addr("eth0", "198.51.100.1/24")
	r.ns.Run("ip", "addr", "del", "192.0.2.1/24", "dev", "eth0")
	r.until("eth0", func(l ifmon.Link, _ bool) bool {
		return slices.Contains(l.Addrs, netip.MustParsePrefix("198.51.100.1/24")) && !slices.Contains(l.Addrs, netip.MustParsePrefix("192.0.2.1/24"))
	})
	out = r.apply()
	r.want("10.65.4.0/26", nil, "", out)
	r.want("10.65.3.0/26", nil, "no interface of this host is on the network of 192.0.2.3, or has this host's own address", out)
	r.ns.WantRoute(t, "unreachable 10.65.3.0/26 proto 81 metric 2147483647")
	r.ns.WantRoute(t, "10.65.4.0/26 via 198.51.100.4 dev eth0")
	r.ns.WantNoRoute(t, "unreachable 10.65.4.0/26")

	// An endpoint here has an address that was another host's, and all of ours go.
	r.tbl.Merge(intent.Batch{Removed: []intent.Key{
		toward("10.65.2.0/26", 0, "").ID(), toward("10.65.3.0/26", 0, "").ID(), toward("10.65.4.0/26", 0, "").ID(), toward("10.65.5.0/26", 0, "").ID(), toward("fd65::/122", 0, "").ID(),
	}})
	r.apply()
	if got := r.ns.Run("ip", "route", "show", "proto", "81") + r.ns.Run("ip", "-6", "route", "show", "proto", "81"); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestAnInterfaceWithoutANetworkLeadsToHostsNearby, as in clouds and with DHCPv6: the Node says the network, and the interface has the address alone.
func TestAnInterfaceWithoutANetworkLeadsToHostsNearby(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("eth0", "peer")
	r.ns.Addr("lo", "192.0.2.1/32") // some have it there, too
	r.ns.Addr("eth0", "192.0.2.1/32", "2001:db8::1/128")
	has := func(l ifmon.Link, _ bool) bool {
		return l.Up && slices.Contains(l.Addrs, netip.MustParsePrefix("192.0.2.1/32")) && slices.Contains(l.Addrs, netip.MustParsePrefix("2001:db8::1/128"))
	}
	r.until("eth0", has)
	r.tbl.Merge(intent.Batch{InSync: true, Routes: []intent.Route{
		toward("10.65.3.0/26", intent.RouteDirect, "192.0.2.3"),
		toward("fd65::/122", intent.RouteDirect, "2001:db8::3"),
	}})
	r.apply()
	r.ns.WantRoute(t, "unreachable 10.65.3.0/26")
	r.tbl.Merge(intent.Batch{Host: &intent.HostSettings{MTU: intent.MTUSettings{Own: [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}}})
	reached := func() {
		t.Helper()
		out := r.apply()
		r.want("10.65.3.0/26", nil, "", out)
		r.want("fd65::/122", nil, "", out)
		r.ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0 proto 81 "+metric("192.0.2.3")+" onlink")
		r.ns.WantRoute(t, "fd65::/122 via 2001:db8::3 dev eth0 proto 81 metric 512 onlink")
		r.ns.WantNoRoute(t, "unreachable 10.65.3.0/26")
		r.ns.WantNoRoute(t, "unreachable fd65::/122")
	}
	reached()

	r.ns.Run("ip", "addr", "flush", "dev", "eth0")
	r.until("eth0", func(l ifmon.Link, _ bool) bool { return !has(l, true) })
	r.apply()
	r.ns.WantRoute(t, "unreachable 10.65.3.0/26")
	r.ns.Addr("eth0", "192.0.2.1/32", "2001:db8::1/128")
	r.until("eth0", has)
	reached()

	r.ns.Addr("eth0", "192.0.2.9/24")
	r.until("eth0", func(l ifmon.Link, _ bool) bool {
		return slices.Contains(l.Addrs, netip.MustParsePrefix("192.0.2.9/24"))
	})
	r.apply()
	r.ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0")
	if found, err := r.tbl.Differences(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("differences %q, %v", found, err)
	}
}

// TestARestartLosesNoRouteToAnotherHost: the routes of before stay until the interfaces are known.
func TestARestartLosesNoRouteToAnotherHost(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer")
	ns.Addr("eth0", "192.0.2.1/24")
	ns.Route("10.65.3.0/26 via 192.0.2.3 proto 81 " + metric("192.0.2.3"))
	r := newRig(t, ns)
	r.tbl.Merge(intent.Batch{InSync: true, Routes: []intent.Route{toward("10.65.3.0/26", intent.RouteDirect, "192.0.2.3"), toward("10.65.2.0/26", intent.RouteTunnel, "10.65.2.1")}})
	r.apply()
	ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0")
	ns.WantNoRoute(t, "unreachable")
	r.until("eth0", hasIPv4)
	r.apply()
	ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0")
	ns.WantNoRoute(t, "unreachable 10.65.3.0/26")
	ns.WantRoute(t, "unreachable 10.65.2.0/26")
}

// TestRoutesLeadThroughIPIPByTheHost, also one on another network than the device's: the next hop is where its packets go. A bridge
// stands in for the device.
func TestRoutesLeadThroughIPIPByTheHost(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	way := intent.Route{Dst: netip.MustParsePrefix("10.65.2.0/26"), Kind: intent.RouteTunnel, Link: intent.LinkIPIP, Node: "h2", Via: netip.MustParseAddr("198.51.100.2")}
	r.tbl.Merge(intent.Batch{InSync: true, Routes: []intent.Route{way}})
	if _, err := r.ns.Rtnl().Link(intent.LinkIPIP); err == nil {
		r.ns.Run("ip", "link", "set", intent.LinkIPIP, "name", "kernels")
	}
	r.want("10.65.2.0/26", nil, "interface tunl0 is absent", r.apply())
	r.ns.Run("ip", "link", "add", intent.LinkIPIP, "type", "bridge")
	r.ns.Up(intent.LinkIPIP)
	r.untilUp(intent.LinkIPIP)
	r.want("10.65.2.0/26", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.2.0/26 via 198.51.100.2 dev tunl0 proto 81 "+metric("198.51.100.2")+" onlink")
}

// TestRoutesToOtherHostsAreOursByTheirProtocol: those of before a restart go if nobody wants them, and upstream's agent's stay.
func TestRoutesToOtherHostsAreOursByTheirProtocol(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("eth0", "peer")
	r.ns.Addr("eth0", "192.0.2.1/24")
	r.ns.Route("10.65.2.0/26 via 192.0.2.2 proto 81 metric 512")
	r.ns.Route("10.65.3.0/26 via 192.0.2.3 proto 81 metric 512")
	r.ns.Route("10.65.3.0/26 via 192.0.2.9 proto 80")
	r.until("eth0", hasIPv4)
	r.resync()
	r.tbl.Merge(intent.Batch{Routes: []intent.Route{toward("10.65.3.0/26", intent.RouteDirect, "192.0.2.3")}})
	r.want("10.65.3.0/26", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.2.0/26 via 192.0.2.2") // until all is known
	r.tbl.Merge(intent.Batch{InSync: true})
	r.apply()
	r.ns.WantNoRoute(t, "10.65.2.0/26 via 192.0.2.2")
	r.ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0 proto 81 "+metric("192.0.2.3"))
	r.ns.WantNoRoute(t, "10.65.3.0/26 via 192.0.2.3 dev eth0 proto 81 metric 512") // of an agent before, that had one metric for all
	r.ns.WantRoute(t, "10.65.3.0/26 via 192.0.2.9")
	if found, err := r.tbl.Differences(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("differences %q, %v", found, err)
	}
}

// TestAnEndOfATunnelThatAnotherRouteCovers: the kernel refuses such a route at first, and nothing of what it takes to have it is left.
func TestAnEndOfATunnelThatAnotherRouteCovers(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("eth0", "peer")
	r.ns.Addr("eth0", "2001:db8::1/64")
	r.ns.Run("ip", "link", "add", intent.LinkVXLAN6, "type", "vxlan", "id", "4096", "dstport", "4789", "local", "2001:db8::1", "nolearning")
	r.ns.Up(intent.LinkVXLAN6)
	r.untilUp(intent.LinkVXLAN6)
	r.ns.Route("fd65::/48 via 2001:db8::2")        // less specific
	r.ns.Route("fd65:0:0:2::/122 via 2001:db8::2") // BGP's, which has another metric
	in := toward("fd65:0:0:2::/122", intent.RouteTunnel, "fd65:0:0:2::1")
	in.Link = intent.LinkVXLAN6
	r.tbl.Merge(intent.Batch{InSync: true, Routes: []intent.Route{in}})
	r.want("fd65:0:0:2::/122", nil, "", r.apply())
	r.ns.WantRoute(t, "fd65:0:0:2::/122 via fd65:0:0:2::1 dev vxlan-v6.calico proto 81 "+metric("fd65:0:0:2::1")+" onlink")
	r.ns.WantNoRoute(t, "fd65:0:0:2::1 dev vxlan-v6.calico")
}
