package speaker_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestMartiansAreRefusedAndReported(t *testing.T) {
	h := hostileNetwork(t, 1)
	h.agent("10.65.1.0/26")
	h.Route("10.210.0.0/26 via 192.0.2.9 proto static metric 20")
	h.Route("10.210.0.0/26 via 192.0.2.9 proto 186 metric 20000")
	r := h.call(t, 0)
	before := h.Run("ip", "-4", "route", "show", "table", "local")
	bad := map[string]string{
		"127.0.0.0/8": "loopback", "127.9.9.9/32": "loopback", "169.254.0.0/16": "link-local", "224.0.0.0/4": "multicast",
		"239.1.1.1/32": "multicast", "0.1.2.0/24": "no host has", "192.0.2.1/32": "an address of this host",
	}
	good := []string{"0.0.0.0/0", "192.0.2.7/32", "10.65.1.9/32", "10.65.1.0/26"}
	var dsts []netip.Prefix
	for dst := range bad {
		dsts = append(dsts, prefix(dst))
	}
	for _, dst := range good {
		dsts = append(dsts, prefix(dst))
	}
	if _, err := r.Write(update(nil, join(origin, asPath, nextHopOf(hostileAddr(0)), localPref), wire(dsts...))); err != nil {
		t.Fatal(err)
	}
	via := " via " + hostileAddr(0) + " proto 186 metric 2048"
	for _, dst := range []string{"default", "192.0.2.7", "10.65.1.9"} {
		h.wantRoute(dst + via)
	}
	for dst, why := range bad {
		p := h.ask(request{Explain: prefix(dst)}).Explain.Paths
		if len(p) != 1 || !strings.HasPrefix(p[0].Kernel, "refused: ") || !strings.Contains(p[0].Kernel, why) {
			t.Errorf("%s: %+v, want refused: %s", dst, p, why)
		}
		if err := h.routeIs(strings.TrimSuffix(dst, "/32")+" via", false); err != nil {
			t.Error(err)
		}
	}
	// A route of the agent's is preferred to any that is learned.
	if err := h.routeIs("10.65.1.0/26"+via, false); err != nil {
		t.Error(err)
	}
	if after := h.Run("ip", "-4", "route", "show", "table", "local"); after != before {
		t.Errorf("the kernel's own addresses were\n%s\nand are\n%s", before, after)
	}
	for _, s := range h.ask(request{}).Report.Sessions {
		if s.Peer.String() == hostileAddr(0) && (s.Received != uint64(2+len(dsts)) || s.Received-s.Accepted != uint64(len(bad))) { // two were there before
			t.Errorf("%d of %d accepted, and %d are refused", s.Accepted, s.Received, len(bad))
		}
	}
	if ps := h.ask(request{}).Report.Problems; len(ps) != 1 || !strings.HasPrefix(ps[0], "refused 0.1.2.0/24: ") || !strings.HasSuffix(ps[0], "; and 6 others") {
		t.Errorf("problems: %q", ps)
	}
	h.Addr("br0", "192.0.2.7/32") // an address that becomes this host's
	h.wantNoRoute("192.0.2.7" + via)

	// Beside routes of others.
	e := h.ask(request{Explain: prefix("10.210.0.0/26")}).Explain
	want := []string{
		"protocol static via 192.0.2.9, metric 20: it is preferred to ours, and is not touched",
		"protocol bgp via 192.0.2.9, metric 20000: it is less preferred than ours, and is not touched",
	}
	if !slices.Equal(e.OtherRoutes, want) || len(e.Paths) != 1 || e.Paths[0].Kernel != "installed" {
		t.Errorf("got %q, %+v, want %q", e.OtherRoutes, e.Paths, want)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	h.kill() // who comes after does not touch them either
	h.start(planOf(session("192.0.2.2", 64512)))
	h.wantNoRoute("10.210.0.0/26 via " + hostileAddr(0))
	for _, r := range []string{"10.210.0.0/26 via 192.0.2.9 proto 4 metric 20", "10.210.0.0/26 via 192.0.2.9 proto 186 metric 20000"} {
		if err := h.routeIs(r, true); err != nil {
			t.Error(err)
		}
	}
}
