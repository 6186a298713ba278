package speaker

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// However often something happens, what failed is tried again two seconds later, and tables are read again.
func TestEventsDoNotPutOffARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: slog.New(slog.DiscardHandler)})
		s.plan = plan.Plan{Node: "h1", Off: "there is no Node h1"}
		s.setProblem("something", errors.New("does not work"))
		tries, last := 0, s.planned
		go func() { _ = s.loop(t.Context(), nil, nil) }()
		for range 100 { // ten seconds, with something that happens all the time
			_ = s.run(t.Context(), func() {
				if s.planned != last {
					tries, last = tries+1, s.planned
				}
			})
			<-time.After(100 * time.Millisecond)
		}
		if tries < 4 {
			t.Errorf("tried again %d times in 10 s, want one in %s", tries, retryAfter)
		}
	})
}

func TestAnAlarmRingsAtItsFirstTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, began := newOneShot(), time.Now()
		for range 5 {
			a.arm(time.Second)
			<-time.After(150 * time.Millisecond)
		}
		<-a.C
		if after := time.Since(began); after != time.Second {
			t.Errorf("it rang after %s", after)
		}
		a.fired()
		a.arm(time.Second)
		<-a.C
		if after := time.Since(began); after != 2*time.Second {
			t.Errorf("it rang again after %s", after)
		}
	})
}
