package rtnl_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// block is the n-th of a million blocks.
func block(n int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(n)<<4)
	return netip.PrefixFrom(netip.AddrFrom4(a), 28)
}

func TestAChangeThatFailsStopsNoOther(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	ns.Addr("wl1", "192.0.2.1/24")
	h, link := ns.Rtnl(), ns.Link("wl1").Index
	const n = 5000 // more than go at once
	gateway := netip.MustParseAddr("192.0.2.2")
	var b rtnl.Batch
	for i := range n {
		via := gateway
		if i == 777 {
			via = netip.MustParseAddr("203.0.113.1")
		}
		b.AddRoute(rtnl.Route{Dst: block(i), Link: link, Gateway: via, Protocol: 81, Metric: 512})
		if i == 99 {
			b.SetNeighbour(rtnl.Neighbour{Link: link, Addr: gateway, MAC: "no address", Permanent: true})
		}
	}
	for i, err := range h.Write(&b) {
		switch want := map[int]string{100: "neighbour 192.0.2.2 on link", 778: "add route " + block(777).String() + ": "}[i]; {
		case want == "" && err != nil:
			t.Fatalf("change %d: %v", i, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("change %d: %v, want %q", i, err, want)
		}
	}
	if rs, err := h.Routes(rtnl.RouteFilter{Protocol: 81}); err != nil || len(rs) != n-1 {
		t.Errorf("%d routes, %v; want %d", len(rs), err, n-1)
	}
	if b.Len() != 0 {
		t.Errorf("%d changes are left", b.Len())
	}
}

func TestAllOfABatchMayFail(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	const n = 20_000
	for range 2 { // the second is of what came after the first
		var b rtnl.Batch
		for i := range n {
			b.DeleteRoute(rtnl.Route{Dst: block(i), Kind: rtnl.Blackhole, Protocol: 81})
		}
		for i, err := range h.Write(&b) {
			if !errors.Is(err, rtnl.ErrNotFound) || !strings.Contains(err.Error(), block(i).String()) {
				t.Fatalf("change %d: %v", i, err)
			}
		}
	}
}

func TestChangesAreMadeInTheirOrder(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	route := func(n int, k rtnl.RouteKind) rtnl.Route {
		return rtnl.Route{Dst: block(n), Kind: k, Protocol: 80}
	}
	var b rtnl.Batch
	b.AddRoute(route(1, rtnl.Blackhole))
	b.AddRoute(route(1, rtnl.Unreachable)) // exists
	b.DeleteRoute(route(1, rtnl.Blackhole))
	b.AddRoute(route(1, rtnl.Unreachable))
	b.AddRoute(route(2, rtnl.Blackhole))
	b.ReplaceRoute(route(2, rtnl.Unreachable))
	b.AddRoute(route(3, rtnl.Blackhole))
	b.DeleteRoute(route(3, rtnl.Blackhole))
	b.DeleteRoute(route(3, rtnl.Blackhole)) // gone
	for i, err := range h.Write(&b) {
		if want := map[int]error{1: rtnl.ErrExists, 8: rtnl.ErrNotFound}[i]; !errors.Is(err, want) {
			t.Errorf("change %d: %v, want %v", i, err, want)
		}
	}
	got, err := h.Routes(rtnl.RouteFilter{Protocol: 80})
	if want := []rtnl.Route{route(1, rtnl.Unreachable), route(2, rtnl.Unreachable)}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestNeighboursAndForwardsInOneBatch(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	if err := h.AddVXLAN(rtnl.VXLAN{Name: "vx", VNI: 7, Port: 4789, Local: netip.MustParseAddr("192.0.2.1"), MAC: "66:00:00:00:00:01", MTU: 1400}); err != nil {
		t.Fatal(err)
	}
	ns.Up("vx")
	link := ns.Link("vx").Index
	const n = 3000
	var b rtnl.Batch
	for i := range n {
		mac := fmt.Sprintf("66:00:00:01:%02x:%02x", i>>8, i&0xff)
		b.SetForward(rtnl.Forward{Link: link, MAC: mac, Host: block(i).Addr()})
		b.SetNeighbour(rtnl.Neighbour{Link: link, Addr: block(i).Addr(), MAC: mac, Permanent: true})
	}
	if err := errors.Join(h.Write(&b)...); err != nil {
		t.Fatal(err)
	}
	forwards, err := h.Forwards(link)
	if err != nil || len(forwards) != n {
		t.Errorf("%d forwards, %v", len(forwards), err)
	}
	neighbours, err := h.Neighbours()
	neighbours = slices.DeleteFunc(neighbours, func(n rtnl.Neighbour) bool { return !n.Permanent || n.Link != link || !n.Addr.Is4() })
	if err != nil || len(neighbours) != n {
		t.Errorf("%d neighbours, %v", len(neighbours), err)
	}
	for _, f := range forwards {
		b.DeleteForward(f)
	}
	for _, n := range neighbours {
		b.DeleteNeighbour(n)
	}
	if err := errors.Join(h.Write(&b)...); err != nil {
		t.Error(err)
	}
	if forwards, err := h.Forwards(link); err != nil || len(forwards) != 0 {
		t.Errorf("%d forwards are left, %v", len(forwards), err)
	}
}

func TestSeveralWriteAtOnce(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			for i := range 50 {
				var b rtnl.Batch
				r := rtnl.Route{Dst: block(who*50 + i), Kind: rtnl.Blackhole, Protocol: 80}
				b.AddRoute(r)
				b.AddRoute(r)
				if errs := h.Write(&b); errs[0] != nil || !errors.Is(errs[1], rtnl.ErrExists) {
					t.Errorf("%v", errs)
				}
			}
		})
	}
	all.Wait()
}
