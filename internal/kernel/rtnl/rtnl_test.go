package rtnl_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestRoutesAreReadAsTheyWereWritten(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	ns.Addr("wl1", "192.0.2.1/24", "2001:db8:1::1/64")
	h, link := ns.Rtnl(), ns.Link("wl1").Index
	for _, want := range []rtnl.Route{
		{Dst: prefix("10.65.0.5/32"), Link: link, Protocol: 80},
		{Dst: prefix("10.65.0.5/32"), Link: link, Protocol: 80, Global: true},
		{Dst: prefix("2001:db8::5/128"), Link: link, Protocol: 80},
		{Dst: prefix("10.65.0.0/26"), Kind: rtnl.Blackhole, Protocol: 80},
		{Dst: prefix("2001:db8::/122"), Kind: rtnl.Blackhole, Protocol: 80},
		{Dst: prefix("10.65.1.0/26"), Kind: rtnl.Unreachable, Protocol: 80, Metric: 7},
		{Dst: prefix("10.66.0.0/26"), Link: link, Gateway: netip.MustParseAddr("192.0.2.2"), Source: netip.MustParseAddr("192.0.2.1"), Protocol: 80, Metric: 2048},
		{Dst: prefix("2001:db8:2::/64"), Link: link, Gateway: netip.MustParseAddr("2001:db8:1::2"), Protocol: 80, Metric: 2048},
		{Dst: prefix("10.67.0.0/26"), Link: link, Gateway: netip.MustParseAddr("198.51.100.1"), OnLink: true, Protocol: 80, Table: 300},
		{Dst: prefix("10.68.0.0/26"), Hops: twoHops(link, "192.0.2.2", "192.0.2.3"), Protocol: 186, Metric: 2048},
		{Dst: prefix("10.69.0.0/26"), Protocol: 186, Metric: 2048, Hops: rtnl.MakeHops(
			rtnl.Hop{Link: link, Gateway: netip.MustParseAddr("192.0.2.2")}, rtnl.Hop{Link: link, Gateway: netip.MustParseAddr("198.51.100.1"), OnLink: true})},
		{Dst: prefix("2001:db8:3::/64"), Hops: twoHops(link, "2001:db8:1::2", "2001:db8:1::3"), Protocol: 186, Metric: 2048},
		{Dst: prefix("0.0.0.0/0"), Link: link, Gateway: netip.MustParseAddr("192.0.2.2"), Protocol: 80},
		{Dst: prefix("::/0"), Link: link, Gateway: netip.MustParseAddr("2001:db8:1::2"), Protocol: 80},
	} {
		t.Run(fmt.Sprintf("%s in table %d", want.Dst, want.Table), func(t *testing.T) {
			w, err := h.Watch(rtnl.WatchRoutes)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if err := h.AddRoute(want); err != nil {
				t.Fatal(err)
			}
			if err := h.AddRoute(want); !errors.Is(err, rtnl.ErrExists) {
				t.Errorf("second AddRoute = %v, want %v", err, rtnl.ErrExists)
			}
			got, err := h.Routes(rtnl.RouteFilter{Protocol: want.Protocol, Table: want.Table})
			if err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("Routes = %+v, %v\nwant %+v", got, err, want)
			}
			if got, gone := routeEvent(t, w, want.Dst); gone || got != want {
				t.Errorf("event = %+v, gone %t\nwant %+v", got, gone, want)
			}
			other := want
			other.Protocol = 4
			if err := h.DeleteRoute(other); !errors.Is(err, rtnl.ErrNotFound) {
				t.Errorf("DeleteRoute of another protocol = %v, want %v", err, rtnl.ErrNotFound)
			}
			if err := h.DeleteRoute(want); err != nil {
				t.Error(err)
			}
			if got, gone := routeEvent(t, w, want.Dst); !gone || got != want {
				t.Errorf("event = %+v, gone %t\nwant the end of %+v", got, gone, want)
			}
		})
	}
}

func twoHops(link int, a, b string) rtnl.Hops {
	return rtnl.MakeHops(rtnl.Hop{Link: link, Gateway: netip.MustParseAddr(b)}, rtnl.Hop{Link: link, Gateway: netip.MustParseAddr(a)})
}

func TestLookupFindsTheNextHop(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	ns.Addr("wl1", "192.0.2.1/24", "2001:db8:1::1/64")
	ns.Route("10.66.0.0/26 via 192.0.2.2")
	ns.Route("blackhole 10.67.0.0/26")
	ns.Route("10.65.0.5 dev wl1 scope global")
	ns.Route("10.65.0.6 dev wl1")
	ns.Route("10.68.0.0/26 via 10.65.0.5 dev wl1 onlink")
	ns.Run("ip", "route", "add", "10.70.0.0/26", "via", "inet6", "fe80::9", "dev", "wl1")
	ns.Run("ip", "route", "add", "10.69.0.0/26", "nexthop", "via", "10.65.0.5", "dev", "wl1", "onlink", "nexthop", "via", "10.65.0.7", "dev", "wl1", "onlink")
	h, link := ns.Rtnl(), ns.Link("wl1").Index
	for _, tt := range []struct {
		to   string
		want rtnl.Hop
		err  bool
	}{
		{to: "192.0.2.9", want: rtnl.Hop{Link: link}},
		{to: "2001:db8:1::9", want: rtnl.Hop{Link: link}},
		{to: "10.66.0.1", want: rtnl.Hop{Link: link, Gateway: netip.MustParseAddr("192.0.2.2")}},
		{to: "10.65.0.5", want: rtnl.Hop{Link: link, OnLink: true}},
		{to: "10.65.0.6", want: rtnl.Hop{Link: link}},
		{to: "10.68.0.1", want: rtnl.Hop{Link: link, Gateway: netip.MustParseAddr("10.65.0.5"), OnLink: true}},
		{to: "10.70.0.1", want: rtnl.Hop{Link: link}}, // its gateway is of IPv6
		{to: "10.67.0.1", err: true},
		{to: "192.0.2.1", err: true}, // the host itself
		{to: "203.0.113.1", err: true},
	} {
		if got, err := h.Lookup(netip.MustParseAddr(tt.to)); got != tt.want || (err != nil) != tt.err {
			t.Errorf("Lookup(%s) = %+v, %v; want %+v", tt.to, got, err, tt.want)
		}
	}
}

func TestRouteToSaysWhatTheHostSendsFrom(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer")
	ns.Addr("eth0", "192.0.2.1/24", "192.0.2.7/24", "2001:db8:1::1/64")
	ns.Route("10.66.0.0/26 via 192.0.2.2 src 192.0.2.7")
	ns.Route("unreachable 10.67.0.0/26")
	for _, tt := range []struct{ to, want string }{
		{"192.0.2.9", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"},
		{"10.66.0.1", "192.0.2.7"},
		{"2001:db8:1::9", "2001:db8:1::1"},
		{"10.67.0.1", ""},
		{"203.0.113.1", ""},
		{"2001:db8:2::1", ""},
	} {
		got, err := ns.Rtnl().RouteTo(netip.MustParseAddr(tt.to))
		if tt.want == "" && !errors.Is(err, rtnl.ErrNotFound) || tt.want != "" && (err != nil || got.Source.String() != tt.want) {
			t.Errorf("RouteTo(%s) = from %s, %v; want %s", tt.to, got.Source, err, tt.want)
		}
	}
}

func TestAddressesSayIfTheyAreForUse(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer")
	ns.Run("ip", "-6", "addr", "add", "2001:db8::1/64", "dev", "eth0")
	ns.Run("ip", "-6", "addr", "add", "2001:db8::2/64", "dev", "eth0", "preferred_lft", "0")
	ns.Addr("eth0", "192.0.2.1/24", "192.0.2.2/24") // the second is secondary, whose flag is that of temporary ones
	addrs, err := ns.Rtnl().Addrs()
	if err != nil {
		t.Fatal(err)
	}
	passing := map[string]bool{}
	for _, a := range addrs {
		passing[a.Prefix.String()] = a.Transient
	}
	for p, want := range map[string]bool{"2001:db8::1/64": false, "2001:db8::2/64": true, "192.0.2.1/24": false, "192.0.2.2/24": false} {
		if got, there := passing[p]; !there || got != want {
			t.Errorf("%s: passing %v (there: %v), want %v", p, got, there, want)
		}
	}
}

// routeEvent is the next event about a destination; the kernel has others to
// tell in between, such as IPv6 addresses that are no longer tentative.
func routeEvent(t *testing.T, w *rtnl.Watcher, dst netip.Prefix) (r rtnl.Route, gone bool) {
	for {
		events, err := w.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Route != nil && e.Route.Dst == dst {
				return *e.Route, e.Gone
			}
		}
	}
}

func TestDeleteNamesItsMetric(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	h, link := ns.Rtnl(), ns.Link("wl1").Index
	far := rtnl.Route{Dst: prefix("2001:db8::5/128"), Link: link, Protocol: 80, Metric: 2048}
	if err := h.AddRoute(far); err != nil {
		t.Fatal(err)
	}
	near := far
	near.Metric = 0
	if err := h.DeleteRoute(near); !errors.Is(err, rtnl.ErrNotFound) {
		t.Errorf("DeleteRoute of the default metric = %v, want %v", err, rtnl.ErrNotFound)
	}
	ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80 metric 2048")
}

func TestLinksAddressesAndNeighbours(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	if _, err := h.Link("none"); !errors.Is(err, rtnl.ErrNotFound) {
		t.Errorf("Link = %v, want %v", err, rtnl.ErrNotFound)
	}
	ns.Veth("wl1", "wl1p")
	if err := h.AddVeth(rtnl.Veth{Name: "wl1", Peer: "x"}); !errors.Is(err, rtnl.ErrExists) {
		t.Errorf("AddVeth = %v, want %v", err, rtnl.ErrExists)
	}
	link := ns.Link("wl1").Index
	if err := h.SetMAC(link, "02:00:00:00:00:01"); err != nil {
		t.Error(err)
	}
	if l := ns.Link("wl1"); l.MAC != "02:00:00:00:00:01" || !l.Up || !l.Running || l.Kind != "veth" {
		t.Errorf("Link = %+v", l)
	}
	for _, a := range []rtnl.Addr{{Link: link, Prefix: prefix("169.254.1.1/32"), LinkScope: true, Lasting: true}, {Link: link, Prefix: prefix("2001:db8::1/64"), Global: true, Lasting: true}} {
		if err := h.AddAddr(a); err != nil {
			t.Fatal(err)
		}
		if err := h.AddAddr(a); !errors.Is(err, rtnl.ErrExists) {
			t.Errorf("second AddAddr = %v, want %v", err, rtnl.ErrExists)
		}
		if got, err := h.Addrs(); err != nil || !slices.Contains(got, a) {
			t.Errorf("Addrs = %+v, %v; want %+v among them", got, err, a)
		}
		if err := h.DeleteAddr(a); err != nil {
			t.Error(err)
		}
		if err := h.DeleteAddr(a); !errors.Is(err, rtnl.ErrNotFound) {
			t.Errorf("second DeleteAddr = %v, want %v", err, rtnl.ErrNotFound)
		}
	}
	for _, addr := range []string{"10.65.0.5", "2001:db8::5"} {
		n := rtnl.Neighbour{Link: link, Addr: netip.MustParseAddr(addr), MAC: "02:00:00:00:00:05", Permanent: true}
		if err := errors.Join(h.SetNeighbour(n), h.SetNeighbour(n)); err != nil {
			t.Error(err)
		}
		if got, err := h.Neighbours(); err != nil || !slices.Contains(got, n) {
			t.Errorf("Neighbours = %+v, %v; want %+v among them", got, err, n)
		}
		if err := h.DeleteNeighbour(n); err != nil {
			t.Error(err)
		}
	}
	proxy := rtnl.Neighbour{Link: link, Addr: netip.MustParseAddr("2001:db8::9"), Proxy: true}
	if err := h.SetNeighbour(proxy); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Proxies(); err != nil || len(got) != 1 || got[0].Addr != proxy.Addr || !got[0].Proxy {
		t.Errorf("Proxies = %+v, %v", got, err)
	}
}

func TestOverrunIsReportedAndTheWatchGoesOn(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	h := ns.Rtnl()
	w, err := h.Watch(rtnl.WatchAddrs)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Shrink(t) // to a few events
	for i := range 50 {
		ns.Addr("wl1", fmt.Sprintf("10.65.0.%d/32", i))
	}
	for {
		if _, err := w.Receive(); errors.Is(err, rtnl.ErrOverrun) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	ns.Addr("wl1", "192.0.2.9/32")
	for {
		events, err := w.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(events, func(e rtnl.Event) bool { return e.Addr.Prefix == prefix("192.0.2.9/32") }) {
			return
		}
	}
}

func TestCloseEndsAReceiveThatWaits(t *testing.T) {
	w, err := netnstest.New(t).Rtnl().Watch(rtnl.WatchLinks)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { _, err := w.Receive(); done <- err }()
	_ = w.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Receive = %v, want %v", err, os.ErrClosed)
	}
}

func TestAPairIsMadeWholeInOneRequest(t *testing.T) {
	here, there := netnstest.New(t), netnstest.New(t)
	inside, err := rtnl.OpenIn(there.Handle())
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	h, err := rtnl.OpenIn(here.Handle())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	v := rtnl.Veth{Name: "near", Peer: "far", PeerIn: there.Handle(), MTU: 1400, PeerMAC: "02:00:00:00:00:07", Queues: 3}
	if err := h.AddVeth(v); err != nil {
		t.Fatal(err)
	}
	near, err := h.Link("near")
	if err != nil || near.Up || near.MTU != 1400 || near.Queues != 3 {
		t.Errorf("this end: %+v, %v", near, err)
	}
	far, err := inside.Link("far")
	if err != nil || far.Up || far.MTU != 1400 || far.Queues != 3 || far.MAC != v.PeerMAC || far.Index != near.Peer {
		t.Errorf("the other end: %+v, %v; the first has %+v", far, err, near)
	}
	if err := h.AddVeth(rtnl.Veth{Name: "x", Peer: "y", PeerMAC: "no"}); err == nil {
		t.Error("an address that is none is accepted")
	}
	if _, err := h.Link("x"); !errors.Is(err, rtnl.ErrNotFound) {
		t.Errorf("what was refused is there: %v", err)
	}
}
