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

// Intervals of searches: leftovers of an upstream agent stay until they are removed, and the status should show soon
// that they are gone.
const (
	leftoverInterval    = 10 * time.Minute
	minLeftoverInterval = time.Second // the least time between two, if something was found
)

// leftovers caches what an upstream agent left in the kernel: chains, sets and devices.
type leftovers struct {
	find func() ([]string, error) // nil: run opens the host
	log  *slog.Logger

	mu   sync.Mutex
	left []string
	at   time.Time
}

// run searches at intervals until the context ends, in the namespace of the process.
func (t *leftovers) run(ctx context.Context) error {
	if t.find == nil {
		h, err := hostfacts.Open()
		if err != nil {
			return err
		}
		defer h.Close()
		t.find = func() ([]string, error) {
			var f doctor.Facts
			err := h.Leftovers(&f)
			return f.Leftovers().Lines(), err
		}
	}
	ticker := time.NewTicker(leftoverInterval)
	defer ticker.Stop()
	for {
		t.mu.Lock()
		t.refresh()
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// refresh searches, and logs what is new. The caller has the lock.
func (t *leftovers) refresh() {
	left, err := t.find()
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

// lines describes what was found, one line for each kind.
func (t *leftovers) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.left) > 0 && time.Since(t.at) >= minLeftoverInterval {
		t.refresh()
	}
	return t.left
}
