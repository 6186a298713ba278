package daemon

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestABIRDThatDoesNotAnswerIsToldOf(t *testing.T) {
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
