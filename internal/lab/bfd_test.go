package lab

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/lab/script"
)

var busyFor = flag.Duration("busy", 5*time.Second, "how long BFD must bear busy processors")

// bfdInterval is between packets of BFD in a lab.
const bfdInterval = 300 * time.Millisecond

// beforeHold is less than BGP's hold time in a lab, 90 s: routes that go within it have gone because of BFD.
const beforeHold = 45 * time.Second

const threeHosts = `# Three hosts, each with a workload.
hosts h1 h2 h3
workload h1 web 10.65.1.5
workload h2 api 10.65.2.6
workload h3 client 10.65.3.7
reach client web tcp/80
reach web api tcp/80 v6
`

// bfdLab is three hosts that know each other, and have for a while.
func bfdLab(t *testing.T) *Lab {
	machinetest.Expensive(t, "waits for BGP to be at rest")
	s, err := script.Parse("three.txt", threeHosts)
	must(t, err)
	exe := testBinary(t)
	res := Runner{Exe: exe, Keep: true}.Run(t.Context(), s)
	must(t, res.Err)
	l, err := Open(res.Kept)
	must(t, err)
	l.Exe = exe
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, l)
		}
		must(t, l.Down())
	})
	return l
}

// steady waits until all sessions have been up for so long that nothing is kept for who restarts.
func (l *Lab) steady(t *testing.T) {
	t.Helper()
	must(t, until(t.Context(), func(ctx context.Context) error {
		for _, h := range l.Spec.Hosts {
			r, err := l.sessions(ctx, h)
			if err != nil {
				return err
			}
			for _, s := range r.Sessions {
				if s.State != speaker.Established || s.BFD.State != "Up" || time.Since(s.Since) < 6*time.Second {
					return fmt.Errorf("%s: %+v", h.Name, s)
				}
			}
		}
		return nil
	}))
}

func (l *Lab) sessions(ctx context.Context, h Host) (r speaker.Report, err error) {
	cmd := exec.CommandContext(ctx, l.Exe, "bgp", "peers", "-o", "json", "--socket", filepath.Join(l.Dir, h.Name, "bgp.sock"))
	out, err := cmd.Output()
	if len(out) > 0 {
		return r, json.Unmarshal(out, &r) // it fails if a session is down
	}
	return r, err
}

// forgets watches a host until it has no route by an address, and tells when the last went.
func (l *Lab) forgets(t *testing.T, h Host, via []netip.Addr) <-chan time.Time {
	t.Helper()
	p, err := open(l.Spec.hostNS(h))
	must(t, err)
	t.Cleanup(p.close)
	watch, err := p.nl.Watch(rtnl.WatchRoutes)
	must(t, err)
	t.Cleanup(func() { _ = watch.Close() })
	out := make(chan time.Time, 1)
	left := func() int {
		n := 0
		routes, _ := p.nl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolSpeaker})
		for _, r := range routes {
			if r.Gateway == via[0] || r.Gateway == via[1] {
				n++
			}
		}
		return n
	}
	if left() == 0 {
		t.Fatalf("%s has no route by %s", h.Name, via)
	}
	go func() {
		for {
			if _, err := watch.Receive(); errors.Is(err, os.ErrClosed) {
				return
			}
			if left() == 0 { // also if events were lost
				out <- time.Now()
				return
			}
		}
	}()
	return out
}

// port takes a host's port from the bridge, which leaves it its carrier, or puts it back.
func (l *Lab) port(t *testing.T, h Host, connected bool) {
	t.Helper()
	sw, err := open(l.Spec.switchNS())
	must(t, err)
	defer sw.close()
	port, err := sw.nl.Link(h.Name)
	must(t, err)
	bridge, err := sw.nl.Link(switchBridge)
	must(t, err)
	if !connected {
		bridge.Index = 0
	}
	must(t, sw.nl.SetMaster(port.Index, bridge.Index))
}

// busy keeps all processors busy until it is stopped.
func busy(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&scenario{}).busy(ctx, script.Busy{For: time.Hour}) }()
	return func() { cancel(); <-ended }
}

// TestRoutesOfAHostThatIsCutAreRemovedByBFD cuts a host from the link: it receives nothing, and keeps its carrier. All others remove its routes, one because its
// BFD session goes down, one because the reflector withdraws them: long before BGP itself would, on idle hosts and on busy ones. How long it takes is
// logged.
func TestRoutesOfAHostThatIsCutAreRemovedByBFD(t *testing.T) {
	l := bfdLab(t)
	for _, on := range []string{"idle", "busy"} {
		l.steady(t)
		stop := func() {}
		if on == "busy" {
			stop = busy(t)
		}
		t.Logf("on %s hosts", on)
		l.cut(t, l.Spec.Hosts[2])
		stop()
	}
}

// cut takes a host from the link until the others forgot it. All routes are back then.
func (l *Lab) cut(t *testing.T, cut Host) {
	t.Helper()
	reflector := l.Spec.Hosts[1]
	before := l.losses(t, reflector, cut)
	gone := []<-chan time.Time{}
	for _, h := range l.Spec.Hosts[:2] {
		gone = append(gone, l.forgets(t, h, []netip.Addr{cut.V4, cut.V6}))
	}
	began := time.Now()
	l.port(t, cut, false)
	for i, at := range gone {
		select {
		case at := <-at:
			t.Logf("%s forgot it after %s", l.Spec.Hosts[i].Name, at.Sub(began).Round(time.Millisecond))
		case <-time.After(beforeHold):
			t.Fatalf("%s still sends to who is cut", l.Spec.Hosts[i].Name)
		}
	}
	if after := l.losses(t, reflector, cut); after <= before {
		t.Errorf("BFD lost %d sessions with %s before, and %d now", before, cut.Name, after)
	}
	back := time.Now()
	l.port(t, cut, true)
	must(t, l.awaitRoutes(t.Context(), l.Spec.Hosts))
	t.Logf("all routes were back after %s", time.Since(back).Round(time.Millisecond))
}

// losses is how often BFD of a host has lost its sessions with another.
func (l *Lab) losses(t *testing.T, h, with Host) (n uint64) {
	t.Helper()
	r, err := l.sessions(t.Context(), h)
	if len(r.Sessions) == 0 {
		must(t, err)
	}
	for _, s := range r.Sessions {
		if s.Peer == with.V4 || s.Peer == with.V6 {
			n += s.BFD.Losses
		}
	}
	return n
}

// TestNoSessionFlapsOnBusyProcessors: -busy=60s is the criterion; less is for every day. Whether a session flaps says nothing of us while
// the machine runs no real-time thread for an interval of BFD or longer: all hosts are on it, and none sends. Such a round is repeated.
func TestNoSessionFlapsOnBusyProcessors(t *testing.T) {
	const rounds = 10
	longest := stalls(t)
	l := bfdLab(t)
	l.steady(t)
	losses := map[string]uint64{} // before the round, by host and peer
	for round := range rounds {
		wrong := l.busyRound(t, losses)
		stall := longest()
		t.Logf("round %d: %d faults; a processor ran no real-time thread for up to %s", round, len(wrong), stall)
		switch {
		case len(wrong) == 0:
			return
		case stall < bfdInterval:
			t.Fatalf("the longest stall of the machine was %s, and yet:\n%s", stall, strings.Join(wrong, "\n"))
		}
		l.steady(t)
	}
	t.Fatalf("in each of %d rounds the machine withheld its processors from real-time threads", rounds)
}

// busyRound keeps all processors busy for a while, and returns what is wrong with sessions then. It notes their losses for the next round.
func (l *Lab) busyRound(t *testing.T, losses map[string]uint64) (wrong []string) {
	t.Helper()
	stop := busy(t)
	ctx, cancel := context.WithTimeout(t.Context(), *busyFor)
	defer cancel()
	<-ctx.Done()
	stop()
	for _, h := range l.Spec.Hosts {
		r, err := l.sessions(t.Context(), h)
		must(t, err)
		for _, s := range r.Sessions {
			id := h.Name + " " + s.Peer.String()
			if s.State != speaker.Established || s.BFD.State != "Up" || s.BFD.Losses > losses[id] || time.Since(s.Since) < *busyFor || time.Since(s.BFD.Since) < *busyFor {
				wrong = append(wrong, fmt.Sprintf("%s: %+v", h.Name, s))
			}
			losses[id] = s.BFD.Losses
		}
		text, err := scrape(t.Context(), filepath.Join(l.Dir, h.Name, "bfd.sock"))
		must(t, err)
		if n, _ := sumMetric(text, "twill_bfd_packets_total", map[string]string{"what": "received"}); n < busyFor.Seconds()*3 {
			wrong = append(wrong, fmt.Sprintf("%s received %v packets", h.Name, n))
		}
		late, _ := sumMetric(text, "twill_bfd_late_seconds_bucket", map[string]string{"le": "0.0512"})
		all, _ := sumMetric(text, "twill_bfd_late_seconds_count", nil)
		t.Logf("%s: %v of %v packets were sent more than 51 ms late", h.Name, all-late, all)
	}
	return wrong
}
