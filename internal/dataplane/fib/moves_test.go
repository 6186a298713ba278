package fib_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/announce"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/packet"
)

var (
	machine     = announce.MAC{2, 0, 0, 0, 0, 5}
	machineAddr = netip.MustParseAddr("10.65.0.5")
)

const (
	elevated4 = "10.65.0.5 dev wl1 proto 80 scope link metric 512"
	elevated6 = "2001:db8::5 dev wl1 proto 80 metric 512"
	normal4   = "10.65.0.5 dev wl1 proto 80 scope link"
	normal6   = "2001:db8::5 dev wl1 proto 80 metric 1024"
)

// guest is a rig with a machine behind wl1, whose interface is wl1p.
type guest struct {
	*rig
	out  *packet.Socket
	over func() // ends the wait for which routes keep the elevated metric
	wait time.Duration
}

func newGuest(t *testing.T, ns *netnstest.NS) *guest {
	g := &guest{rig: newRig(t, ns)}
	var err error
	ns.Do(func() { g.out, err = packet.Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.out.Close() })
	g.tbl.Arrivals(t.Context(), ns.Do)
	g.tbl.Clock(func(wait time.Duration, over func()) { g.wait, g.over = wait, over })
	return g
}

// moves are routes to the machine that moves.
func moves(m intent.Move) intent.Batch {
	b := both("wl1")
	for i := range b.Routes {
		b.Routes[i].Move, b.Routes[i].MAC = m, "02:00:00:00:00:05"
	}
	b.Host = &intent.HostSettings{Routes: intent.RouteSettings{Elevated: [2]int{512, 512}, Settle: 30 * time.Second}}
	return b
}

// say sends a frame from the machine.
func (g *guest) say(frame []byte) {
	g.t.Helper()
	if err := g.out.Send(g.ns.Link("wl1p").Index, frame); err != nil {
		g.t.Fatal(err)
	}
}

// note calls the next function that the driver has for the loop.
func (g *guest) note() map[string]intent.Outcome {
	g.t.Helper()
	select {
	case f := <-g.tbl.Drift():
		f()
	case <-time.After(netnstest.Patience):
		g.t.Fatal("the driver has nothing to do")
	}
	return g.apply()
}

func (g *guest) wants(routes ...string) {
	g.t.Helper()
	have := g.ns.Run("ip", "route") + g.ns.Run("ip", "-6", "route")
	if n := strings.Count(have, "10.65.0.5 ") + strings.Count(have, "2001:db8::5 "); n != len(routes) {
		g.t.Errorf("%d routes, want %q:\n%s", n, routes, have)
	}
	for _, r := range routes {
		g.ns.WantRoute(g.t, r)
	}
}

// TestAMachineComes: nothing leads to a machine until it announces itself by its own interface, and then routes of the elevated metric do, until
// the migration has been over for a while.
func TestAMachineComes(t *testing.T) {
	for name, hello := range map[string]announce.Announcement{"ARP": {MAC: machine, Addr: machineAddr}, "RARP": {MAC: machine}} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, netnstest.New(t))
			g.tbl.Merge(moves(intent.Comes))
			g.until("lo", func(_ ifmon.Link, there bool) bool { return there })
			g.want("10.65.0.5/32", nil, "interface wl1 is absent", g.apply())
			g.ns.Veth("wl1", "wl1p")
			g.untilUp("wl1")
			if o := g.apply()["10.65.0.5/32"]; o.Err != nil || o.Reason != "" || !strings.Contains(o.Note, "waits for the virtual machine") {
				t.Errorf("outcome %+v", o)
			}
			g.wants()

			g.say(announce.Announcement{MAC: announce.MAC{2, 0, 0, 0, 0, 6}, Addr: machineAddr}.Frame())
			g.say(announce.Announcement{MAC: announce.MAC{2, 0, 0, 0, 0, 6}}.Frame())
			g.say(announce.Announcement{MAC: machine, Addr: netip.MustParseAddr("10.65.0.6")}.Frame())
			g.note() // what is of the machine, and not of its address
			g.wants()

			g.say(hello.Frame())
			if o := g.note()["10.65.0.5/32"]; o.Err != nil || o.Reason != "" || !strings.Contains(o.Note, "elevated") {
				t.Errorf("outcome %+v", o)
			}
			g.wants(elevated4, elevated6)
			if g.tbl.Listens() {
				t.Error("it still listens")
			}

			g.tbl.Merge(moves(intent.Stays))
			g.apply()
			g.wants(elevated4, elevated6)
			if g.wait != 30*time.Second {
				t.Errorf("the metric stays for %s", g.wait)
			}
			go g.over()
			g.note()
			g.wants(normal4, normal6)
			if n := g.tbl.Moving(); n > 0 {
				t.Errorf("%d machines move", n)
			}
		})
	}
}

// TestAMachineThatAnnouncedItselfToNobody counts as here when the migration is over: the other host has no endpoint of it any more.
func TestAMachineThatAnnouncedItselfToNobody(t *testing.T) {
	g := newGuest(t, netnstest.New(t))
	g.ns.Veth("wl1", "wl1p")
	b := moves(intent.Comes)
	for i := range b.Routes {
		b.Routes[i].MAC = ""
	}
	g.tbl.Merge(b)
	g.untilUp("wl1")
	if o := g.apply()["10.65.0.5/32"]; !strings.Contains(o.Note, "has no MAC") {
		t.Errorf("outcome %+v", o)
	}
	g.wants()
	g.tbl.Merge(moves(intent.Stays))
	g.apply()
	g.wants(elevated4, elevated6)
}

// TestAMigrationThatIsForgottenForAWhile, as when a datastore is restored: what was seen of the machine counts, and nothing else.
func TestAMigrationThatIsForgottenForAWhile(t *testing.T) {
	for _, tt := range []struct {
		name         string
		there, seen  bool
		forgot, back []string
	}{
		{"it has no interface here", false, false, nil, nil},
		{"it has one, and has not announced itself", true, false, []string{elevated4, elevated6}, nil},
		{"it has come", true, true, []string{elevated4, elevated6}, []string{elevated4, elevated6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuest(t, netnstest.New(t))
			if tt.there {
				g.ns.Veth("wl1", "wl1p")
				g.untilUp("wl1")
			} else {
				g.until("lo", func(_ ifmon.Link, there bool) bool { return there })
			}
			g.tbl.Merge(moves(intent.Comes))
			g.apply()
			if tt.seen {
				g.say(announce.Announcement{MAC: machine}.Frame())
				g.note()
			}
			g.tbl.Merge(moves(intent.Stays))
			g.apply()
			g.wants(tt.forgot...)
			g.tbl.Merge(moves(intent.Comes))
			g.apply()
			g.wants(tt.back...)
			if !tt.there {
				g.ns.Veth("wl1", "wl1p")
				g.untilUp("wl1")
				g.apply()
				g.wants()
			}
			if g.tbl.Listens() == tt.seen {
				t.Errorf("it listens: %v", !tt.seen)
			}
		})
	}
}

// TestAMigrationThatIsCancelledLeavesNothing, in each phase.
func TestAMigrationThatIsCancelledLeavesNothing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		seen     bool
		settling bool
	}{{"before it comes", false, false}, {"when it is here", true, false}, {"while routes settle", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuest(t, netnstest.New(t))
			g.ns.Veth("wl1", "wl1p")
			g.tbl.Merge(moves(intent.Comes))
			g.untilUp("wl1")
			g.apply()
			if tt.seen {
				g.say(announce.Announcement{MAC: machine}.Frame())
				g.note()
				g.wants(elevated4, elevated6)
			}
			if tt.settling {
				g.tbl.Merge(moves(intent.Stays))
				g.apply()
			}
			g.tbl.Merge(gone("10.65.0.5/32"))
			g.tbl.Merge(gone("2001:db8::5/128"))
			g.apply()
			g.wants()
			if n := g.tbl.Moving(); n > 0 || g.tbl.Listens() {
				t.Errorf("%d machines move, it listens: %v", n, g.tbl.Listens())
			}
			if tt.settling {
				g.over() // nobody waits for it
			}
			g.tbl.Merge(moves(intent.Stays)) // the next machine with that interface and address is a usual one
			g.apply()
			g.wants(normal4, normal6)
		})
	}
}

// TestANewAgentKnowsHowFarAMachineIs, by the routes that the last one left, and changes none of them before it must.
func TestANewAgentKnowsHowFarAMachineIs(t *testing.T) {
	for _, tt := range []struct {
		name        string
		left, after []string
		is          intent.Move
		settles     bool
	}{
		{"it has not come", nil, nil, intent.Comes, false},
		{"it is here", []string{elevated4, elevated6}, []string{elevated4, elevated6}, intent.Comes, false},
		{"it is here, and one route was lost", []string{elevated6}, []string{elevated4, elevated6}, intent.Comes, false},
		{"the migration is over", []string{elevated4, elevated6}, []string{elevated4, elevated6}, intent.Stays, true},
		{"it has been over for long", []string{normal4, normal6}, []string{normal4, normal6}, intent.Stays, false},
		{"it leaves again", []string{elevated4, elevated6}, []string{normal4 + " metric 1024", normal6}, intent.Goes, false},
		{"it had routes before its migration was known", []string{normal4, normal6}, nil, intent.Comes, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := netnstest.New(t)
			ns.Veth("wl1", "wl1p")
			for _, r := range tt.left {
				ns.Route(r)
			}
			w, err := ns.Rtnl().Watch(4)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			g := newGuest(t, ns)
			g.untilUp("wl1")
			b := moves(tt.is)
			b.InSync = false
			g.tbl.Merge(b)
			_ = g.tbl.Withdraw(t.Context())
			g.apply()
			g.tbl.Merge(intent.Batch{InSync: true})
			_ = g.tbl.Withdraw(t.Context())
			g.apply()
			g.wants(tt.after...)
			if (g.over != nil) != tt.settles {
				t.Errorf("it waits for the end: %v", g.over != nil)
			}
			if tt.settles {
				go g.over()
				g.note()
				g.wants(normal4, normal6)
			}
			ns.Route("192.0.2.0/24 dev wl1") // marks the end
			for last := false; !last; {
				events, err := w.Receive()
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					last = last || e.Route.Dst.String() == "192.0.2.0/24"
					if e.Gone && len(tt.left) == len(tt.after) && !tt.settles && tt.is == intent.Comes {
						t.Errorf("%+v was deleted", *e.Route)
					}
				}
			}
		})
	}
}

// TestAnInterfaceThatGoesAndComesIsListenedTo: a migration that began anew on the host has another interface of the same name.
func TestAnInterfaceThatGoesAndComesIsListenedTo(t *testing.T) {
	g := newGuest(t, netnstest.New(t))
	g.ns.Veth("wl1", "wl1p")
	g.tbl.Merge(moves(intent.Comes))
	g.untilUp("wl1")
	g.apply()
	old := g.ns.Link("wl1").Index
	g.ns.Delete("wl1")
	g.ns.Veth("wl1", "wl1p")
	g.until("wl1", func(l ifmon.Link, there bool) bool { return there && l.Up && l.Index != old })
	g.apply()
	g.say(announce.Announcement{MAC: machine}.Frame())
	for g.tbl.Listens() { // the old interface's error may come before
		g.note()
	}
	g.wants(elevated4, elevated6)
	g.ns.Flap("wl1")
	g.until("wl1", func(ifmon.Link, bool) bool {
		g.apply()
		return strings.Contains(g.ns.Run("ip", "route"), "10.65.0.5 ")
	})
	g.wants(elevated4, elevated6)
}

// TestTheRouteOfAMachineThatLeavesIsNoBetterThanNormal: this host, too, prefers the other's elevated one, which BGP brings.
func TestTheRouteOfAMachineThatLeavesIsNoBetterThanNormal(t *testing.T) {
	g := newGuest(t, netnstest.New(t))
	g.ns.Veth("wl1", "wl1p")
	g.tbl.Merge(moves(intent.Stays))
	g.untilUp("wl1")
	g.apply()
	g.wants(normal4, normal6)
	g.tbl.Merge(moves(intent.Goes))
	g.apply()
	g.wants(normal4+" metric 1024", normal6)
	g.tbl.Merge(moves(intent.Stays)) // it was cancelled
	g.apply()
	g.wants(normal4, normal6)
	b := moves(intent.Goes)
	b.Host.Routes.Metric = [2]int{900, 901}
	g.tbl.Merge(b)
	g.apply()
	g.wants(normal4+" metric 900", "2001:db8::5 dev wl1 proto 80 metric 901")
}

// TestElevatedMetricsAreLive, also that there is none that is better.
func TestElevatedMetricsAreLive(t *testing.T) {
	g := newGuest(t, netnstest.New(t))
	g.ns.Veth("wl1", "wl1p")
	g.tbl.Merge(moves(intent.Comes))
	g.untilUp("wl1")
	g.apply()
	g.say(announce.Announcement{MAC: machine}.Frame())
	g.note()
	b := moves(intent.Comes)
	b.Host.Routes.Elevated = [2]int{100, 0}
	g.tbl.Merge(intent.Batch{Host: b.Host})
	g.apply()
	g.wants("10.65.0.5 dev wl1 proto 80 scope link metric 100", normal6)
}

// TestAComparisonKnowsMachinesThatCome: twill verify listens to nothing, and finds nothing wrong in any phase.
func TestAComparisonKnowsMachinesThatCome(t *testing.T) {
	g := newGuest(t, netnstest.New(t))
	g.ns.Veth("wl1", "wl1p")
	g.tbl.Merge(moves(intent.Comes))
	g.untilUp("wl1")
	g.apply()
	compare := func() {
		t.Helper()
		links, err := ifmon.List(g.ns.Rtnl())
		if err != nil {
			t.Fatal(err)
		}
		other := fib.New(g.ns.Rtnl())
		other.Links(links)
		other.Merge(moves(intent.Comes))
		if found, err := other.Differences(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("differences %q, %v", found, err)
		}
	}
	compare()
	g.say(announce.Announcement{MAC: machine}.Frame())
	g.note()
	compare()
}
