package speaker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
)

// A peer without a password calls one for whom a password is wanted: there must be no session.
func TestAPasswordThatTheKernelDoesNotTakeOpensNoSession(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	four, six := session("192.0.2.2", 64512), session("2001:db8:1::2", 64512)
	four.Passive, six.Passive = true, true
	four.Password = &plan.Secret{Name: "bgp", Key: "long"} // longer than TCP_MD5SIG_MAXKEYLEN
	six.Closed = "spec.password: want an object"
	h.start(planOf(four, six))
	for peer, want := range map[string]string{"192.0.2.2": "the kernel does not take its password", "2001:db8:1::2": "spec.password: want an object"} {
		await(t, patience, func() error {
			if s := h.session(peer); s.State != "Closed" || !strings.Contains(s.Why, want) {
				return fmt.Errorf("session with %s: %+v", peer, s)
			}
			return nil
		})
	}
	four.Password, six.Closed = nil, "" // both ends without one: the peer did call
	h.plan(planOf(four, six))
	h.up("192.0.2.2", "2001:db8:1::2")
}

func TestAPasswordStaysInUseWhenItsFileIsGone(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct; password \"sesame\";", "", ""))
	four := session("192.0.2.2", 64512)
	four.Password = &plan.Secret{Name: "bgp", Key: "stale"}
	h.start(planOf(four))
	h.up("192.0.2.2")
	h.plan(planOf(four))
	r := h.ask(request{}).Report
	if s := r.Sessions[0]; s.State != speaker.Established {
		t.Errorf("%+v", s)
	}
	if want := "session 192.0.2.2: password: its file is gone; the last one stays in use"; !slices.Contains(r.Problems, want) {
		t.Errorf("problems %q, want %q", r.Problems, want)
	}
}

// TestAPasswordThatChangesIsTaken: the plan names it as before.
func TestAPasswordThatChangesIsTaken(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct; password \"sesame\";", "", ""))
	four := session("192.0.2.2", 64512)
	four.Password = &plan.Secret{Name: "bgp", Key: "set"}
	h.launch()
	p := planOf(four)
	h.ask(request{Plan: &p, Secret: "open"})
	another := func(when string) {
		t.Helper()
		await(t, patience, func() error {
			if s := h.session("192.0.2.2"); s.State == speaker.Established || !strings.Contains(s.Why, "packets whose password is not that of their session") {
				return fmt.Errorf("with another password, %s: %+v", when, s)
			}
			return nil
		})
	}
	another("from the beginning")
	h.ask(request{Plan: &p, Secret: "sesame"})
	h.up("192.0.2.2")
	birds[0].configure("sesame", "open") // it closes the session, and says why
	another("that the peer has had since the session was up")
}
