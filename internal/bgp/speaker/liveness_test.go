package speaker_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
)

func alive(peer string) bfd.Status {
	return bfd.Status{Peer: netip.MustParseAddr(peer), State: "Up", Independent: true}
}

// lost is what BFD says of a path that died; independent: not because the peer's BGP restarts.
func lost(peer string, independent bool) bfd.Status {
	return bfd.Status{Peer: netip.MustParseAddr(peer), State: "Down", Lost: true, Losses: 1, Independent: independent, Why: "no packet for 900ms"}
}

// watched is a session with BFD, whose routes stay for long after a restart.
func watched(peer string, as uint32) plan.Session {
	s := session(peer, as)
	s.BFD, s.Restart = plan.BFD{BFD: api.DefaultBFD}, time.Minute
	return s
}

func TestADeadPathTakesRoutesAtOnceAndTheSessionComesBack(t *testing.T) {
	h, birds := network(t, 2)
	for i, b := range birds {
		b.run(strings.ReplaceAll(statics, "204", fmt.Sprint(204+i)) + speaks("twill", "local as 64512; direct;", "", ""))
	}
	p := planOf(watched("192.0.2.2", 64512), watched("192.0.2.3", 64512))
	h.start(p)
	h.alive(alive("192.0.2.2"), alive("192.0.2.3"))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.wantRoute("10.205.0.0/26 via 192.0.2.3 proto 186")
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)

	down := alive("192.0.2.2")
	down.State, down.Why = "Down", "the neighbour restarted the session"
	h.alive(down, alive("192.0.2.3")) // which says nothing of the path
	h.alive(alive("192.0.2.2"), alive("192.0.2.3"))
	began := time.Now()
	answer := h.alive(lost("192.0.2.2", false), alive("192.0.2.3")) // TCP knows nothing yet, and BIRD's BFD shares its fate
	if s := answer.Report.Sessions[0]; s.State == "Established" || s.BFD.State != "Down" {
		t.Errorf("%+v", s)
	}
	h.wantNoRoute("10.204.0.0/26")
	t.Logf("the route went after %s", time.Since(began))
	if w := h.session("192.0.2.2").Why; !strings.Contains(w, "BFD: no packet for 900ms") {
		t.Errorf("why: %q", w)
	}
	h.up("192.0.2.2") // although BFD is still down: it may be that only its packets are lost
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.alive(lost("192.0.2.2", false), alive("192.0.2.3")) // the same loss as before
	if s := h.session("192.0.2.2"); s.State != "Established" {
		t.Errorf("one loss took the session down twice: %+v", s)
	}
	if went := gone(); len(went) != 1 || went[0] != prefix("10.204.0.0/26") {
		t.Errorf("went %v", went)
	}
}

// TestARestartOrACut: a peer whose BGP is gone restarts, unless its BFD, which outlives its BGP, says that it is dead.
func TestARestartOrACut(t *testing.T) {
	for _, independent := range []bool{false, true} {
		t.Run(fmt.Sprintf("BFD outlives BGP: %t", independent), func(t *testing.T) {
			h, birds := network(t, 1)
			b := birds[0]
			b.run(statics + speaks("twill", "local as 64512; direct;", "", ""))
			h.start(planOf(watched("192.0.2.2", 64512), watched("2001:db8:1::2", 64512)))
			h.alive(alive("192.0.2.2"))
			h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
			await(t, patience, func() error { // the time in which all that nobody tells stays
				if r := h.ask(request{}).Report; !r.Holding.IsZero() {
					return fmt.Errorf("%+v", r)
				}
				return nil
			})
			gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
			b.kill()
			await(t, patience, func() error {
				if s := h.session("192.0.2.2"); !strings.Contains(s.Why, "its routes are kept") {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
			h.alive(lost("192.0.2.2", independent))
			if independent {
				h.wantNoRoute("10.204.0.0/26")
				b.start("-f") // as after a reboot: it waits for nobody
				h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
				return
			}
			b.restart()
			h.up("192.0.2.2")
			if went := gone(); len(went) > 0 {
				t.Errorf("while the peer restarted went %v", went)
			}
		})
	}
}

func TestWhoDiedDuringOurRestartIsNotSentTo(t *testing.T) {
	h, birds := network(t, 3)
	for i, b := range birds {
		own := strings.ReplaceAll(statics, "204", fmt.Sprint(204+i))
		b.run(strings.Replace(own, "protocol static s4 { ipv4;", "protocol static s4 { ipv4; route 10.210.0.0/26 blackhole;", 1) + speaks("twill", "local as 65001; multihop;", "", ""))
	}
	p := planOf(watched("192.0.2.2", 65001), watched("192.0.2.3", 65001), watched("192.0.2.4", 65001))
	h.start(p)
	h.wantRoute("10.210.0.0/26 proto 186 nexthop via 192.0.2.2 nexthop via 192.0.2.3 nexthop via 192.0.2.4")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	h.wantRoute("10.205.0.0/26 via 192.0.2.3 proto 186")
	h.kill()
	for _, b := range birds {
		b.kill() // nobody tells anything anew
	}
	h.start(p)
	h.alive(lost("192.0.2.2", true), alive("192.0.2.3"), lost("192.0.2.4", false))
	h.wantNoRoute("10.204.0.0/26")
	h.wantRoute("10.210.0.0/26 proto 186 nexthop via 192.0.2.3 nexthop via 192.0.2.4")
	if err := errors.Join(h.routeIs("10.205.0.0/26 via 192.0.2.3", true), h.routeIs("10.206.0.0/26 via 192.0.2.4", true)); err != nil {
		t.Error(err)
	}
	h.alive(lost("192.0.2.2", true), lost("192.0.2.3", true), lost("192.0.2.4", false))
	h.wantNoRoute("10.205.0.0/26")
	h.wantRoute("10.210.0.0/26 via 192.0.2.4 proto 186")
}

// TestBFDKeepsNothingForEver: a peer whose BGP is gone and whose BFD is up restarts, but only for so long.
func TestBFDKeepsNothingForEver(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct; graceful restart time 5;", "", ""))
	h.start(planOf(watched("192.0.2.2", 64512)))
	h.alive(alive("192.0.2.2"))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	birds[0].kill()
	began := time.Now()
	h.wantNoRoute("10.204.0.0/26")
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("stale routes went after %s, want 5s", took)
	}
}
