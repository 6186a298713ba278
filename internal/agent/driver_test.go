package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestTheFirstCommitKnowsTheInterfaces: of an endpoint whose interface was there before the agent began, nothing is said but that all is in force. Its policy
// and route are from the session before.
func TestTheFirstCommitKnowsTheInterfaces(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("cali0", "w0")
	ns.Up("cali0")
	ns.Up("w0")
	addr := netip.MustParseAddr("10.65.0.1")
	b := intent.Batch{
		Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "prod", Name: "web"}, Link: "cali0", Addrs: []netip.Addr{addr}}},
		Routes:    []intent.Route{{Dst: netip.PrefixFrom(addr, 32), Link: "cali0"}},
		InSync:    true,
	}
	for range 10 {
		var s remote.Session
		ns.Do(func() {
			var err error
			s, err = KernelDriver{Log: slog.New(slog.DiscardHandler)}.Begin(t.Context(), "h1", func(o intent.Outcome) { t.Errorf("by itself came %+v", o) })
			if err != nil {
				t.Fatal(err)
			}
		})
		out, err := s.Commit(t.Context(), b)
		if len(out) > 0 || err != nil {
			t.Errorf("the first commit is answered by %+v, %v", out, err)
		}
		s.End()
	}
}

// TestWhatAnAgentIsSentOfItsDriver: what is wrong, with the answer to a commit or by itself, and that it is no more, also where that becomes known while
// another commit is under way; of what was never wrong nothing.
func TestWhatAnAgentIsSentOfItsDriver(t *testing.T) {
	a, b := intent.Outcome{Key: intent.SetID("a")}, intent.Outcome{Key: intent.SetID("b")}
	absent, failed := b, a
	absent.Reason, failed.Err = "interface is absent", errors.New("no room")
	var by []intent.Outcome
	s := &kernelSession{
		changed: func(o intent.Outcome) { by = append(by, o) }, rounds: make(chan struct{}, 1), since: map[intent.Key]intent.Outcome{}, reported: map[intent.Key]bool{},
	}
	commit := func(list ...intent.Outcome) []intent.Outcome {
		s.commit = true
		s.Merged()
		s.outcomes(list)
		if _, done := s.answer(s.merged); done {
			t.Error("a commit is done before the drivers are")
		}
		s.Round(false, []string{"nft"})
		if _, done := s.answer(s.merged); done {
			t.Error("a commit is done although a driver is not")
		}
		s.Round(true, nil)
		out, done := s.answer(s.merged)
		if !done {
			t.Error("a commit is not done although the drivers are")
		}
		return out
	}
	if out := commit(failed, a, absent); len(out) != 1 || out[0] != absent {
		t.Errorf("the answer is %+v", out)
	}
	if out := commit(b); len(out) != 1 || out[0] != b {
		t.Errorf("that it is wrong no more: %+v", out)
	}
	s.outcomes([]intent.Outcome{a, b})
	if len(by) != 0 {
		t.Errorf("what is known is sent: %+v", by)
	}
	s.outcomes([]intent.Outcome{failed})
	s.outcomes([]intent.Outcome{a})
	if len(by) != 2 || by[0] != failed || by[1] != a {
		t.Errorf("by itself came %+v", by)
	}
}
