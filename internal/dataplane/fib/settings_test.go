package fib_test

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// settings are a batch that only has those of routes.
func settings(s intent.RouteSettings) intent.Batch {
	return intent.Batch{Host: &intent.HostSettings{Routes: s}}
}

func TestSettingsSayWhatRoutesAre(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("eth0", "peer")
	r.ns.Addr("eth0", "192.0.2.1/24", "2001:db8:1::1/64")
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.apply()
	for _, tt := range []struct {
		name      string
		is        intent.RouteSettings
		four, six string
		fails4    bool
	}{
		{
			name: "an address to send from", is: intent.RouteSettings{Source: [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:1::1")}},
			four: "10.65.0.5 dev wl1 proto 80 src 192.0.2.1", six: "2001:db8::5 dev wl1 proto 80 src 2001:db8:1::1 metric 1024",
		},
		{name: "none again", four: "10.65.0.5 dev wl1 proto 80", six: "2001:db8::5 dev wl1 proto 80 metric 1024"},
		{
			name: "metrics", is: intent.RouteSettings{Metric: [2]int{1024, 512}},
			four: "10.65.0.5 dev wl1 proto 80 metric 1024", six: "2001:db8::5 dev wl1 proto 80 metric 512",
		},
		{
			name: "the kernel's own by name, and the other family's another", is: intent.RouteSettings{Metric: [2]int{7, 1024}},
			four: "10.65.0.5 dev wl1 proto 80 metric 7", six: "2001:db8::5 dev wl1 proto 80 metric 1024",
		},
		{
			name: "an address that this host has not", is: intent.RouteSettings{Source: [2]netip.Addr{netip.MustParseAddr("192.0.2.77")}},
			fails4: true, six: "2001:db8::5 dev wl1 proto 80 metric 1024",
		},
		{name: "as ever", four: "10.65.0.5 dev wl1 proto 80", six: "2001:db8::5 dev wl1 proto 80 metric 1024"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.tbl.Merge(settings(tt.is))
			out := r.apply()
			if o := out["10.65.0.5/32"]; (o.Err != nil) != tt.fails4 {
				t.Errorf("outcome %+v", o)
			}
			for _, want := range []string{tt.four, tt.six} {
				if want != "" {
					r.ns.WantRoute(t, want)
				}
			}
			for _, family := range []string{"-4", "-6"} {
				if got := r.ns.Run("ip", family, "route", "show", "proto", "80"); strings.Count(got, "\n") > 1 {
					t.Errorf("there are others:\n%s", got)
				}
			}
			if out, err := r.tbl.Differences(t.Context()); err != nil || !tt.fails4 && len(out) > 0 {
				t.Errorf("differences: %q, %v", out, err)
			}
		})
	}
}

func TestARouteIsThereWhileItsMetricChanges(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.apply()
	r.tbl.Merge(settings(intent.RouteSettings{Metric: [2]int{1024, 0}}))
	r.tbl.Withdraw(t.Context())
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link") // the loop withdraws before it applies
	r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link metric 1024")
}

// TestARouteIsThereWhileItsProtocolChanges: by one step in the kernel, which a watch sees as one change.
func TestARouteIsThereWhileItsProtocolChanges(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.apply()
	w, err := r.ns.Rtnl().Watch(rtnl.WatchRoutes)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, protocol := range []int{3, 99, 0} {
		r.tbl.Merge(settings(intent.RouteSettings{Protocol: protocol}))
		r.tbl.Withdraw(t.Context())
		r.apply()
		want := strconv.Itoa(cmp.Or(protocol, 80))
		for _, family := range []string{"-4", "-6"} {
			if got := r.ns.Run("ip", "-N", family, "route", "show", "proto", want); strings.Count(got, "\n") != 1 || !strings.Contains(got, "dev wl1") {
				t.Errorf("routes of protocol %s: %q", want, got)
			}
		}
		r.ns.Run("ip", "route", "add", "198.51.100.0/24", "dev", "wl1", "proto", "17") // the last event
		for last := false; !last; {
			events, err := w.Receive()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				last = last || !e.Gone && e.Route.Protocol == 17
				if e.Gone && e.Route.Protocol != 17 {
					t.Errorf("protocol %d: %s was away", protocol, e.Route.Dst)
				}
			}
		}
		r.ns.Run("ip", "route", "del", "198.51.100.0/24", "dev", "wl1", "proto", "17")
	}
}

// TestAProtocolOfSettingsMayBeOthers: of a protocol that boot scripts have, what leads to one address through a workload is ours.
func TestAProtocolOfSettingsMayBeOthers(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.ns.Veth("wl2", "wl2p")
	r.ns.Veth("eth0", "peer")
	others := []string{"10.66.0.9 dev eth0", "10.67.0.0/24 dev wl2", "10.68.0.9 via 10.65.0.5 dev wl2 onlink", "blackhole 10.69.0.9"}
	for _, words := range append([]string{"10.65.0.5 dev wl1 src 127.0.0.1", "10.65.0.6 dev wl2"}, others...) { // of an agent before
		r.ns.Route(words + " proto boot")
	}
	b := settings(intent.RouteSettings{Protocol: 3})
	b.Host.Prefixes = []string{"wl"}
	r.tbl.Merge(b)
	r.tbl.Merge(both("wl1"))
	r.untilUp("wl1")
	r.untilUp("wl2")
	r.resync()
	r.want("10.65.0.5/32", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 scope")
	r.ns.WantNoRoute(t, "10.65.0.6")
	for _, words := range others {
		dst, _, _ := strings.Cut(words, " dev")
		dst, _, _ = strings.Cut(dst, " via")
		r.ns.WantRoute(t, dst)
	}
	r.watched(func() {
		r.ns.Run("ip", "route", "del", "10.65.0.5", "dev", "wl1")
		for deadline := time.After(netnstest.Patience); !strings.Contains(r.ns.Run("ip", "route"), "10.65.0.5 dev wl1"); r.apply() {
			select {
			case note := <-r.tbl.Drift():
				note()
			case <-deadline:
				t.Fatal("its deletion is not undone")
			}
		}
	})
}

func TestSomebodyElseMakesTheRoutes(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.ns.Route("10.65.0.9/32 dev lo proto 80 scope link") // of before, and not wanted
	r.tbl.Merge(settings(intent.RouteSettings{Off: true}))
	r.resync()
	b := both("wl1")
	b.Routes[0].MAC = "02:00:00:00:00:05"
	r.tbl.Merge(b)
	r.untilUp("wl1")
	out := r.apply()
	r.want("10.65.0.5/32", nil, "", out)
	r.tbl.Withdraw(t.Context())
	r.ns.WantNoRoute(t, "10.65.0.5")
	r.ns.WantRoute(t, "10.65.0.9 dev lo proto 80 scope link")
	if got := r.ns.Run("ip", "neigh", "show", "nud", "permanent", "dev", "wl1"); got != "" {
		t.Errorf("neighbours %q", got)
	}
	if got, err := r.tbl.Differences(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("differences: %q, %v", got, err)
	}
	r.tbl.Merge(settings(intent.RouteSettings{}))
	r.want("10.65.0.5/32", nil, "", r.apply())
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	r.ns.WantNoRoute(t, "10.65.0.9")
}

func TestRoutesOfOthersThroughWorkloadsGoAfterAWhile(t *testing.T) {
	others := []string{
		"10.66.0.0/24 dev wl1 proto boot scope link", "10.67.0.0/24 via 10.65.0.5 dev wl1 proto static onlink", "2001:db8:66::/64 dev wl1 proto static",
	}
	kept := []string{
		"10.68.0.0/24 dev eth0 proto static scope link",       // not a workload's interface
		"10.69.0.0/24 via 10.65.0.5 dev wl1 proto bgp onlink", // BGP's
		"10.70.0.0/24 dev wl1 proto kernel scope link",        // the kernel's
		"unreachable 10.71.0.0/24 proto static",               // through no interface
	}
	for _, tt := range []struct {
		name        string
		settings    intent.RouteSettings
		hurry, gone bool
	}{
		{name: "seen a moment ago"},
		{name: "seen a while ago", hurry: true, gone: true},
		{name: "a setting keeps them", settings: intent.RouteSettings{KeepExternal: true}, hurry: true},
		{name: "somebody else makes all routes", settings: intent.RouteSettings{Off: true}, hurry: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, netnstest.New(t))
			r.ns.Veth("wl1", "wl1p")
			r.ns.Veth("eth0", "peer")
			if tt.hurry {
				r.tbl.Grace(0)
			}
			for _, words := range append(append([]string{}, others...), kept...) {
				r.ns.Route(words)
			}
			r.tbl.Merge(settings(tt.settings))
			r.tbl.Merge(both("wl1"))
			r.untilUp("wl1")
			r.apply()
			r.resync()
			r.apply()
			for _, words := range others {
				dst, _, _ := strings.Cut(words, " ")
				if tt.gone {
					r.ns.WantNoRoute(t, dst)
				} else {
					r.ns.WantRoute(t, dst)
				}
			}
			for _, words := range kept {
				dst, _, _ := strings.Cut(words, " dev")
				dst, _, _ = strings.Cut(dst, " via")
				dst, _, _ = strings.Cut(dst, " proto")
				r.ns.WantRoute(t, dst)
			}
			if n := len(r.tbl.Repairs()); tt.gone != (n == len(others)) {
				t.Errorf("%d repairs", n)
			}
		})
	}
}
