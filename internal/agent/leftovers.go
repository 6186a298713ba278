package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/hostfacts"
)

// Times of looks: what an upstream agent left stands until somebody removes it, and who looks at the status wants to see
// that it is gone.
const (
	looksEvery = 10 * time.Minute
	looksAgain = time.Second // the least time between two, if something was there
)

// traces knows what an upstream agent left in the kernel: chains, sets and devices.
type traces struct {
	look func() ([]string, error) // nil: run opens the host
	log  *slog.Logger

	mu   sync.Mutex
	left []string
	at   time.Time
}

// run looks now and then until the context ends, into the namespace of the process.
func (t *traces) run(ctx context.Context) error {
	if t.look == nil {
		h, err := hostfacts.Open()
		if err != nil {
			return err
		}
		defer h.Close()
		t.look = func() ([]string, error) {
			var f doctor.Facts
			err := h.Traces(&f)
			return f.Leftovers().Lines(), err
		}
	}
	ticker := time.NewTicker(looksEvery)
	defer ticker.Stop()
	for {
		t.mu.Lock()
		t.renew()
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// renew looks. What it finds is logged when it is new. The caller has the lock.
func (t *traces) renew() {
	left, err := t.look()
	t.at = time.Now()
	switch {
	case err != nil:
		t.log.Warn("look for what an upstream agent left", "err", err)
		return
	case slices.Equal(left, t.left):
	case len(left) == 0:
		t.log.Info("nothing of an upstream agent is left any more")
	default:
		t.log.Warn("an upstream agent left something; its rules still decide about packets", "what", strings.Join(left, "; "), "remove", doctor.FixLeftovers)
	}
	t.left = left
}

// lines is what stands, one line for each kind of things.
func (t *traces) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.left) > 0 && time.Since(t.at) >= looksAgain {
		t.renew()
	}
	return t.left
}
