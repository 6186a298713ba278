package agent

import (
	"errors"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

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
