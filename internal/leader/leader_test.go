package leader

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/seedtest"
)

// shelf is a lock in memory.
type shelf struct {
	mu      sync.Mutex
	record  Record
	version int
}

// hand is one process's way to it.
type hand struct {
	*shelf
	mu     sync.Mutex
	cut    bool // requests fail
	hang   bool // requests are not answered
	mute   bool // requests are done, and the answer is lost
	delays func() time.Duration
}

func (h *hand) faults(ctx context.Context) (mute bool, err error) {
	h.mu.Lock()
	cut, hang, mute, delays := h.cut, h.hang, h.mute, h.delays
	h.mu.Unlock()
	if delays != nil {
		wait(ctx, delays())
	}
	if hang {
		<-ctx.Done()
	}
	if cut {
		return mute, errors.New("connection refused")
	}
	return mute, ctx.Err()
}

func (h *hand) set(cut, hang, mute bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut, h.hang, h.mute = cut, hang, mute
}

func (h *hand) Get(ctx context.Context) (Record, string, error) {
	if _, err := h.faults(ctx); err != nil {
		return Record{}, "", err
	}
	h.shelf.mu.Lock()
	defer h.shelf.mu.Unlock()
	if h.version == 0 {
		return Record{}, "", nil
	}
	return h.record, strconv.Itoa(h.version), nil
}

func (h *hand) Put(ctx context.Context, r Record, version string) (string, error) {
	mute, err := h.faults(ctx)
	if err != nil {
		return "", err
	}
	h.shelf.mu.Lock()
	defer h.shelf.mu.Unlock()
	if now := strconv.Itoa(h.version); version != now && (version != "" || h.version != 0) {
		return "", ErrChanged
	}
	h.version++
	h.record = r
	if mute {
		return "", errors.New("connection reset")
	}
	return strconv.Itoa(h.version), nil
}

// crew notes who acts.
type crew struct {
	t      *testing.T
	mu     sync.Mutex
	acting map[string]bool
	turns  []string
	ends   []context.CancelFunc
}

// close ends all candidates, and waits until they have.
func (c *crew) close() {
	for _, end := range c.ends {
		end()
	}
	after(time.Minute)
}

// candidate runs one process, until it is ended. What it leads goes on for a while after its context has ended, if it says so.
func (c *crew) candidate(id string, h *hand) (end context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.ends = append(c.ends, cancel)
	e := New(Config{Lock: h, ID: id})
	go func() {
		_ = e.Run(ctx, func(ctx context.Context) error {
			c.note(id, true)
			<-ctx.Done()
			c.note(id, false)
			return ctx.Err()
		})
	}()
	return cancel
}

func (c *crew) note(id string, acts bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if acts && len(c.acting) > 0 {
		c.t.Errorf("%s acts, and so does another: %v", id, c.acting)
	}
	if acts {
		c.acting[id] = true
		c.turns = append(c.turns, id)
	} else {
		delete(c.acting, id)
	}
}

func (c *crew) who() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.acting {
		return id
	}
	return ""
}

func after(d time.Duration) { <-time.After(d) }

func TestOneActsAndAnotherTakesOver(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  func(h *hand, end context.CancelFunc)
		within time.Duration // it stops to act
		over   time.Duration // the other acts
	}{
		{"ended in order", func(_ *hand, end context.CancelFunc) { end() }, 0, 5 * time.Second},
		{"cut off", func(h *hand, _ context.CancelFunc) { h.set(true, false, false) }, 10 * time.Second, 20 * time.Second},
		{"not answered", func(h *hand, _ context.CancelFunc) { h.set(false, true, false) }, 10 * time.Second, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := &crew{t: t, acting: map[string]bool{}}, &shelf{}
				h := &hand{shelf: s}
				endA := c.candidate("a", h)
				defer c.close()
				after(time.Second)
				c.candidate("b", &hand{shelf: s})
				after(time.Hour)
				if got := c.who(); got != "a" {
					t.Fatalf("%q acts, want a", got)
				}
				tt.fault(h, endA)
				after(tt.within)
				if got := c.who(); got == "a" {
					t.Errorf("after %s it acts still", tt.within)
				}
				after(tt.over - tt.within)
				if got := c.who(); got != "b" {
					t.Errorf("after %s %q acts, want b", tt.over, got)
				}
				h.set(false, false, false)
				after(time.Hour)
				if got := c.who(); got != "b" || s.record.Transitions == 0 {
					t.Errorf("later %q acts, want b; transitions %d", got, s.record.Transitions)
				}
			})
		})
	}
}

func TestALostAnswerLosesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := &crew{t: t, acting: map[string]bool{}}, &hand{shelf: &shelf{}}
		c.candidate("a", h)
		defer c.close()
		after(time.Minute)
		h.set(false, false, true)
		after(5 * time.Second)
		h.set(false, false, false)
		after(time.Minute)
		if got := c.who(); got != "a" || len(c.turns) != 1 {
			t.Errorf("%q acts, after turns of %v", got, c.turns)
		}
	})
}

// TestALeaseThatAnotherTookEndsTheLeader puts another's name into the lease, as a server put back from a backup would.
func TestALeaseThatAnotherTookEndsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := &crew{t: t, acting: map[string]bool{}}, &shelf{}
		c.candidate("a", &hand{shelf: s})
		defer c.close()
		after(time.Minute)
		s.mu.Lock()
		s.record.Holder, s.version = "x", s.version+1
		s.mu.Unlock()
		after(3 * time.Second)
		if got := c.who(); got != "" {
			t.Errorf("%q acts, though another has the lease", got)
		}
		after(time.Minute) // which never renews it
		if got := c.who(); got != "a" {
			t.Errorf("%q acts, want a", got)
		}
	})
}

func TestWhatIsLedAndEndsEndsTheCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		s := &shelf{}
		e := New(Config{Lock: &hand{shelf: s}, ID: "a"})
		if err := e.Run(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		if s.record.Holder != "" {
			t.Errorf("the lease is still %s's", s.record.Holder)
		}
	})
}

// TestNeverTwoAct has three candidates under random faults: at no moment do two act, and when all is well one does.
func TestNeverTwoAct(t *testing.T) {
	rnd := seedtest.Rand(t)
	synctest.Test(t, func(t *testing.T) {
		c, s := &crew{t: t, acting: map[string]bool{}}, &shelf{}
		var hands []*hand
		var mu sync.Mutex
		for _, id := range []string{"a", "b", "c"} {
			h := &hand{shelf: s, delays: func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(rnd.IntN(3000)) * time.Millisecond
			}}
			hands = append(hands, h)
			c.candidate(id, h)
		}
		defer c.close()
		for range 300 {
			mu.Lock()
			h, cut, hang, mute, d := hands[rnd.IntN(3)], rnd.IntN(3) == 0, rnd.IntN(4) == 0, rnd.IntN(4) == 0, time.Duration(rnd.IntN(20_000))*time.Millisecond
			mu.Unlock()
			h.set(cut, hang, mute)
			after(d)
		}
		for _, h := range hands {
			h.set(false, false, false)
		}
		after(time.Minute)
		if c.who() == "" {
			t.Error("nobody acts, and all is well")
		}
		if len(c.turns) < 5 {
			t.Errorf("only %v acted: the faults did nothing", c.turns)
		}
	})
}
