package bfd_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// side is an engine in a namespace.
type side struct {
	*netnstest.NS
	t      *testing.T
	engine *bfd.Engine
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// link makes two namespaces on one bridge in a third: 192.0.2.1 and .2, 2001:db8::1 and ::2. To take a port from the
// bridge cuts a host, and leaves it its carrier.
func link(t *testing.T) (here, there, bridge *netnstest.NS) {
	t.Helper()
	bridge = netnstest.New(t)
	if err := bridge.Rtnl().AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	bridge.Up("br0")
	var ends []*netnstest.NS
	for i, port := range []string{"p1", "p2"} {
		n := netnstest.New(t)
		bridge.VethTo(n, port, "eth0")
		if err := bridge.Rtnl().SetMaster(bridge.Link(port).Index, bridge.Link("br0").Index); err != nil {
			t.Fatal(err)
		}
		n.Addr("eth0", fmt.Sprintf("192.0.2.%d/24", i+1), fmt.Sprintf("2001:db8::%d/64", i+1))
		ends = append(ends, n)
	}
	return ends[0], ends[1], bridge
}

// start runs an engine that wants these peers.
func start(t *testing.T, n *netnstest.NS, timing bfd.Timing, peers ...string) *side {
	t.Helper()
	s := &side{NS: n, t: t}
	var err error
	way := func(a netip.Addr) (int, error) {
		hop, err := n.Rtnl().Lookup(a)
		if err == nil && hop.Gateway.IsValid() {
			err = fmt.Errorf("%s is behind %s", a, hop.Gateway)
		}
		return hop.Link, err
	}
	n.Do(func() { s.engine, err = bfd.New(bfd.Config{Link: way, Log: slog.New(slog.DiscardHandler)}) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	s.done.Go(func() { _ = n.Handle().Do(func() error { return s.engine.Run(ctx) }) })
	t.Cleanup(s.stop)
	s.want(timing, peers...)
	return s
}

func (s *side) want(timing bfd.Timing, peers ...string) {
	var all []bfd.Peer
	for _, p := range peers {
		all = append(all, bfd.Peer{Addr: netip.MustParseAddr(p), Timing: timing})
	}
	s.engine.SetPeers(all)
}

// stop ends it as a daemon ends that is asked to.
func (s *side) stop() { s.cancel(); s.done.Wait() }

// is waits until the session with a peer satisfies a condition.
func (s *side) is(peer, what string, ok func(bfd.Status) bool) bfd.Status {
	s.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for {
		all, changed := s.engine.Statuses()
		var last bfd.Status
		for _, st := range all {
			if st.Peer.String() == peer {
				if last = st; ok(st) {
					return st
				}
			}
		}
		select {
		case <-changed:
		case <-deadline.C:
			s.t.Fatalf("%s is not %s: %+v", peer, what, last)
		}
	}
}

func up(s bfd.Status) bool   { return s.State == "Up" }
func dead(s bfd.Status) bool { return s.State == "Down" && s.Lost }
func aside(s bfd.Status) bool {
	return s.State == "Down" && !s.Lost
}

var usual = bfd.Timing{Interval: 300 * time.Millisecond, Multiplier: 3}

// calm is that of sessions that a process keeps which has no processor for a while.
var calm = bfd.Timing{Interval: usual.Interval, Multiplier: 200}

// await looks until what a program says has all words.
func await(t *testing.T, words []string, ask func() string) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, missing := ask(), ""
		for _, w := range words {
			if !strings.Contains(out, w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("no %q in:\n%s", missing, out)
		case <-tick.C:
		}
	}
}

// program starts one in a namespace.
func program(t *testing.T, n *netnstest.NS, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.Handle().Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestBIRDSeesUsAndWeIt(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	here, there, bridge := link(t)
	dir := t.TempDir()
	config, socket := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "ctl")
	text := `router id 192.0.2.2;
protocol device {}
protocol bfd { accept direct; interface "eth0" { min rx interval 200 ms; min tx interval 250 ms; idle tx interval 1 s; multiplier 4; };
  neighbor 192.0.2.1 dev "eth0"; neighbor 2001:db8::1 dev "eth0"; }
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() *exec.Cmd { return program(t, there, bird, "-f", "-c", config, "-s", socket) }
	sessions := func() string {
		out, _ := exec.Command("birdc", "-s", socket, "show", "bfd", "sessions").CombinedOutput() // its text says what failed
		return strings.Join(strings.Fields(string(out)), " ")
	}
	b := run()
	s := start(t, here, usual, "192.0.2.2", "2001:db8::2")
	for _, peer := range []string{"192.0.2.2", "2001:db8::2"} {
		// We send each 300 ms, the slower of what both would; it misses four of ours. It sends each 300 ms, since we ask for no
		// more; three may be missing.
		st := s.is(peer, "up", func(st bfd.Status) bool {
			return up(st) && st.Interval == bfd.Period(usual.Interval) && st.Detection == bfd.Period(4*usual.Interval)
		})
		if st.Independent {
			t.Error("BIRD says that its BFD outlives its BGP")
		}
	}
	await(t, []string{"192.0.2.1 eth0 Up", "2001:db8::1 eth0 Up", "0.300 0.900"}, sessions)

	kept := false
	for tries := 0; !kept && tries < 10; tries++ { // a machine that is busy for a second takes it down, too, but not each time
		before := s.is("192.0.2.2", "up", up).Losses
		s.want(bfd.Timing{Interval: 500 * time.Millisecond, Multiplier: 5}, "192.0.2.2", "2001:db8::2")
		await(t, []string{"0.500 2.500"}, sessions)
		kept = s.is("192.0.2.2", "up", up).Losses == before
		s.want(usual, "192.0.2.2", "2001:db8::2")
		await(t, []string{"0.300 0.900"}, sessions)
	}
	if !kept {
		t.Error("other times take it down")
	}

	_ = b.Process.Kill()
	_ = b.Wait()
	s.is("192.0.2.2", "dead", dead)
	s.is("2001:db8::2", "dead", dead)
	run()
	s.is("192.0.2.2", "up", up)
	s.is("2001:db8::2", "up", up)

	if err := bridge.Rtnl().SetMaster(bridge.Link("p2").Index, 0); err != nil {
		t.Fatal(err)
	}
	s.is("2001:db8::2", "dead", dead)
	await(t, []string{"192.0.2.1 eth0 Down"}, sessions)
	if err := bridge.Rtnl().SetMaster(bridge.Link("p2").Index, bridge.Link("br0").Index); err != nil {
		t.Fatal(err)
	}
	s.is("2001:db8::2", "up", up)
	await(t, []string{"192.0.2.1 eth0 Up", "2001:db8::1 eth0 Up"}, sessions)
	s.stop()
	await(t, []string{"192.0.2.1 eth0 Down", "2001:db8::1 eth0 Down"}, sessions)
}

func TestFRRSeesUsAndWeIt(t *testing.T) {
	machinetest.Program(t, "vtysh")
	here, there, bridge := link(t)
	dir, err := os.MkdirTemp("", "frr") // short: it is in the names of sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = os.Chmod(dir, 0o777) // the daemons are another user's
	config := filepath.Join(dir, "frr.conf")
	text := `hostname frr
bfd
 peer 192.0.2.1 interface eth0
  receive-interval 300
  transmit-interval 300
 peer 2001:db8::1 local-address 2001:db8::2 interface eth0
  receive-interval 400
  transmit-interval 400
  detect-multiplier 5
`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	zserv := filepath.Join(dir, "zserv.api")
	daemon := func(name string, more ...string) {
		args := []string{"-f", config, "-i", filepath.Join(dir, name+".pid"), "-z", zserv, "--vty_socket", dir, "-A", "127.0.0.1"}
		program(t, there, filepath.Join("/usr/lib/frr", name), append(args, more...)...)
	}
	daemon("zebra")
	await(t, []string{"zserv.api"}, func() string { f, _ := filepath.Glob(zserv); return strings.Join(f, " ") })
	daemon("bfdd", "--bfdctl", filepath.Join(dir, "bfdd.sock"))
	s := start(t, here, usual, "192.0.2.2", "2001:db8::2")
	s.is("192.0.2.2", "up", func(st bfd.Status) bool { return up(st) && st.Detection == bfd.Period(900*time.Millisecond) })
	s.is("2001:db8::2", "up", func(st bfd.Status) bool {
		return up(st) && st.Interval == bfd.Period(400*time.Millisecond) && st.Detection == bfd.Period(2*time.Second)
	})
	show := func() string {
		out, _ := exec.Command("vtysh", "--vty_socket", dir, "-c", "show bfd peers brief").CombinedOutput() // its text says what failed
		return strings.Join(strings.Fields(string(out)), " ")
	}
	await(t, []string{"192.0.2.1 up", "2001:db8::1 up"}, show)
	if err := bridge.Rtnl().SetMaster(bridge.Link("p2").Index, 0); err != nil {
		t.Fatal(err)
	}
	s.is("192.0.2.2", "dead", dead)
	s.is("2001:db8::2", "dead", dead)
	await(t, []string{"2001:db8::1 down"}, show)
	if err := bridge.Rtnl().SetMaster(bridge.Link("p2").Index, bridge.Link("br0").Index); err != nil {
		t.Fatal(err)
	}
	s.is("192.0.2.2", "up", up)
	s.is("2001:db8::2", "up", up)
}
