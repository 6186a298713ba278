package fib_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestRoutesToOurWorkloadsAreTakenOver: what leads through an interface of a workload to the address of one of our
// endpoints is what another agent left there. Upstream's makes such routes with protocol boot (3), or a configured one.
func TestRoutesToOurWorkloadsAreTakenOver(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl1p")
	r.ns.Veth("wl2", "wl2p")
	for _, was := range []string{
		"10.65.0.5/32 dev wl1 proto boot scope link",
		"2001:db8::5/128 dev wl1 proto boot metric 1024",
		"10.65.0.6/32 dev wl1 proto static scope link src 192.0.2.9", // moved to wl2 since
		"2001:db8::6/128 dev wl1 proto static",
		"blackhole 10.65.0.0/26 proto bird",
		"blackhole 2001:db8::/122 proto bird",
		"10.65.0.7/32 via 10.65.0.5 dev wl1 proto boot onlink", // somebody routes through a workload: not ours to take
		"10.65.1.0/26 dev wl1 proto boot scope link",
		"10.65.9.0/26 via 10.65.0.5 dev wl1 proto 80 onlink", // to another node, as upstream's agent makes them: stays until ours is there
	} {
		if strings.Contains(was, "src") {
			r.ns.Run("ip", "addr", "add", "192.0.2.9/32", "dev", "wl1")
		}
		r.ns.Route(was)
	}
	r.tbl.Merge(both("wl1"))
	r.tbl.Merge(intent.Batch{Routes: []intent.Route{
		route("10.65.0.6/32", "wl2"), route("2001:db8::6/128", "wl2"), route("10.65.0.7/32", "wl1"), route("10.65.1.0/26", "wl1"),
		{Dst: netip.MustParsePrefix("10.65.0.0/26"), Kind: intent.RouteBlackhole},
		{Dst: netip.MustParsePrefix("2001:db8::/122"), Kind: intent.RouteBlackhole},
	}})
	r.untilUp("wl1")
	r.untilUp("wl2")
	w, err := r.ns.Rtnl().Watch(4)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	out := r.apply()
	for _, dst := range []string{"10.65.0.5/32", "2001:db8::5/128", "10.65.0.6/32", "2001:db8::6/128", "10.65.0.0/26", "2001:db8::/122", "10.65.1.0/26"} {
		r.want(dst, nil, "", out)
	}
	r.want("10.65.0.7/32", fib.ErrForeign, "", out)
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80")
	r.ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80")
	r.ns.WantRoute(t, "10.65.0.6 dev wl2 proto 80")
	r.ns.WantRoute(t, "2001:db8::6 dev wl2 proto 80")
	r.ns.WantRoute(t, "blackhole 10.65.0.0/26 proto 80")
	r.ns.WantRoute(t, "blackhole 2001:db8::/122 dev lo proto 80")
	r.ns.WantRoute(t, "10.65.0.7 via 10.65.0.5 dev wl1")
	r.ns.WantRoute(t, "10.65.9.0/26 via 10.65.0.5 dev wl1 proto 80")
	for _, words := range []string{"10.65.0.5 dev wl1 proto 80 scope link", "10.65.0.6 dev wl2 proto 80 scope link", "proto boot scope", "2001:db8::5 dev wl1 proto boot", "proto static", "proto bird"} {
		r.ns.WantNoRoute(t, words)
	}
	if got := len(r.tbl.Repairs()); got != 7 {
		t.Errorf("%d routes were logged as taken over, want 7", got)
	}

	// One step for each: no packet finds neither route.
	r.ns.Route("192.0.2.0/24 dev wl1") // marks the end
	for last := false; !last; {
		events, err := w.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if last = e.Route.Dst.String() == "192.0.2.0/24"; e.Gone {
				t.Errorf("%+v was deleted before the other was there", *e.Route)
			}
		}
	}
	if out := r.apply(); len(out) != 0 {
		t.Errorf("nothing is pending, but outcomes are %v", out)
	}
}

func TestAForeignRouteThatIsDeletedIsNoticedAtOnce(t *testing.T) {
	for _, tt := range []struct{ name, change string }{
		{"it is deleted", "ip route del 10.65.0.5; ip -6 route del 2001:db8::5"},
		{"it leads to our workload from now on", "ip route replace 10.65.0.5 dev wl1 proto 4 scope link; ip -6 route replace 2001:db8::5 dev wl1 proto 4"},
		{"its interface goes down, of which there is no event for IPv4", "ip link set other down"},
		{"its interface goes", "ip link del other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, netnstest.New(t))
			r.ns.Veth("wl1", "wl1p")
			r.ns.Veth("other", "otherp")
			r.ns.Route("10.65.0.5/32 dev other proto 4")
			r.ns.Route("2001:db8::5/128 dev other proto 4")
			r.tbl.Merge(both("wl1"))
			r.untilUp("wl1")
			r.untilUp("other")
			r.watched(func() {
				out := r.apply()
				r.want("10.65.0.5/32", fib.ErrForeign, "", out)
				r.want("2001:db8::5/128", fib.ErrForeign, "", out)
				r.ns.Run("sh", "-c", tt.change)
				for deadline := time.After(netnstest.Patience); ; {
					routes := r.ns.Run("ip", "route") + r.ns.Run("ip", "-6", "route")
					if strings.Contains(routes, "10.65.0.5 dev wl1 proto 80") && strings.Contains(routes, "2001:db8::5 dev wl1 proto 80") {
						return
					}
					select {
					case note := <-r.tbl.Drift():
						note()
					case cs := <-r.mon.Changes():
						r.tbl.Links(cs)
					case <-deadline:
						t.Fatalf("still wrong:\n%s", routes)
					}
					r.apply()
				}
			})
		})
	}
}

// watched does something while the table receives events of the kernel.
func (r *rig) watched(do func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.tbl.Run(ctx) }()
	for notified := false; !notified; { // a route of ours that nobody wants is noted, once the watch has begun
		r.ns.Run("ip", "route", "replace", "198.51.100.1", "dev", "wl1", "proto", "80", "scope", "link")
		r.ns.Run("ip", "route", "del", "198.51.100.1")
		select {
		case note := <-r.tbl.Drift():
			note()
			notified = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	do()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		r.t.Errorf("Run = %v", err)
	}
}
