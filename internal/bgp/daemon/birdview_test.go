package daemon

import (
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestABIRDThatDoesNotAnswerIsReported(t *testing.T) {
	ns := netnstest.New(t)
	w := &confWriter{rtnl: ns.Rtnl(), secrets: newSecretDir(t.TempDir()), cfg: Confd{
		Config: Config{Log: slog.New(slog.DiscardHandler)}, Bird: filepath.Join(t.TempDir(), "ctl"),
	}, plan: plan.Plan{Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Sessions: []plan.Session{
		{Peer: netip.MustParseAddr("192.0.2.2"), Why: "mesh"},
		{Peer: netip.MustParseAddr("192.0.2.3"), Why: "BGPPeer tor", Password: &plan.Secret{Name: "a", Key: "b"}},
	}}}
	r, err := w.report()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "BIRD does not answer") {
		t.Errorf("problems: %q", r.Problems)
	}
	if len(r.Sessions) != 2 || r.Sessions[0].State != "Closed" || !strings.Contains(r.Sessions[1].Why, "password") {
		t.Errorf("sessions: %+v", r.Sessions)
	}
	if _, err := w.routes(); err == nil {
		t.Error("it has routes")
	}
	w.plan = plan.Plan{Node: "h1", Off: "there is no Node h1"}
	if r, err = w.report(); err != nil || r.Off == "" || len(r.Problems) > 0 {
		t.Errorf("off: %+v, %v", r, err)
	}
}

// TestWhatBIRDSaysOfItselfIsReported: since when it runs, when it last read a configuration, its version, and which peers
// are of all nodes; CalicoNodeStatus has them all.
func TestWhatBIRDSaysOfItselfIsReported(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	p := plan.Plan{Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Sessions: []plan.Session{
		{Peer: netip.MustParseAddr("192.0.2.2"), Port: 179, Why: "BGPPeer all", Global: true, AS: 64512, LocalAS: 64512, Keepalive: time.Second, Hold: 3 * time.Second},
		{Peer: netip.MustParseAddr("192.0.2.3"), Port: 179, Why: "BGPPeer one", AS: 64512, LocalAS: 64512, Keepalive: time.Second, Hold: 3 * time.Second},
	}}
	begun := time.Now().Truncate(time.Second) // BIRD says its times to the second
	r := answersOf(t, bird, p)
	if r.Since.Before(begun) || r.Planned.Before(r.Since) || !strings.HasPrefix(r.Version, "BIRD ") {
		t.Errorf("since %s (it was started at %s), configured %s, version %q", r.Since, begun, r.Planned, r.Version)
	}
	if !r.Sessions[0].Global || r.Sessions[1].Global {
		t.Errorf("sessions: %+v", r.Sessions)
	}
}

// TestSessionsOfTemplatesAreFoundByTheirPeers: templates of users give protocols names of their own.
func TestSessionsOfTemplatesAreFoundByTheirPeers(t *testing.T) {
	own, other := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	protocols := map[string]birdctl.Protocol{
		"device1": {Name: "device1"}, "Mesh_192_0_2_2": {Name: "Mesh_192_0_2_2", Peer: own}, "twill_192_0_2_3": {Name: "twill_192_0_2_3", Peer: other}, "Mesh_192_0_2_3": {Name: "Mesh_192_0_2_3", Peer: other},
	}
	for peer, want := range map[netip.Addr]string{own: "Mesh_192_0_2_2", other: "twill_192_0_2_3", netip.MustParseAddr("192.0.2.4"): ""} {
		if is, there := protocolOf(plan.Session{Peer: peer}, protocols); is.Name != want || there != (want != "") {
			t.Errorf("%s: %q, %t, want %q", peer, is.Name, there, want)
		}
	}
}

// TestAPathOfSeveralIsExplained: what is advertised to the peer that the best path is from is another path.
func TestAPathOfSeveralIsExplained(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	paths := []speaker.Route{{From: one, Best: true}, {From: two}}
	for peer, want := range map[netip.Addr][]speaker.Route{one: {{From: two, Best: true}}, two: {{From: one, Best: true}}} {
		if got := notFrom(peer, paths); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", peer, got, want)
		}
	}
	if got := notFrom(one, paths[:1]); len(got) > 0 || paths[1].Best {
		t.Errorf("%+v, %+v", got, paths)
	}
}

// TestABIRDThatRestartsIsReported: as long as it retains stale routes for peers that have not sent End-of-RIB, and no BIRD that
// starts anew does.
func TestABIRDThatRestartsIsReported(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	p := plan.Plan{Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Sessions: []plan.Session{
		{Peer: netip.MustParseAddr("192.0.2.2"), Port: 179, Why: "mesh", AS: 64512, LocalAS: 64512, Keepalive: time.Second, Hold: 3 * time.Second, Restart: time.Minute},
	}}
	if r := answersOf(t, bird, p); !r.Holding.IsZero() {
		t.Errorf("without -R it restarts until %s", r.Holding)
	}
	r := answersOf(t, bird, p, "-R")
	if left := time.Until(r.Holding); left <= 0 || left > 10*time.Minute {
		t.Errorf("with -R it restarts until %s", r.Holding)
	}
	if why := nodestatus.NotReady(r); !slices.ContainsFunc(why, func(s string) bool { return strings.Contains(s, "restarting") }) {
		t.Errorf("while it restarts the node is not ready because of %q", why)
	}
}

// answersOf runs BIRD on a plan in a namespace of its own, and returns the report that has no problems.
func answersOf(t *testing.T, bird string, p plan.Plan, args ...string) speaker.Report {
	t.Helper()
	ns, dir := netnstest.New(t), t.TempDir()
	text, err := birdconf.Render(birdconf.Config{Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	conf, socket := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "ctl")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bird, append([]string{"-f", "-c", conf, "-s", socket}, args...)...)
	if err := ns.Handle().Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w := &confWriter{rtnl: ns.Rtnl(), secrets: newSecretDir(t.TempDir()), cfg: Confd{Config: Config{Log: slog.New(slog.DiscardHandler)}, Bird: socket}, plan: p}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	r, err := w.report()
	for deadline := time.Now().Add(2 * time.Minute); err == nil && len(r.Problems) > 0 && time.Now().Before(deadline); <-tick.C { // until it answers
		r, err = w.report()
	}
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(r.Problems, err)
	}
	return r
}
