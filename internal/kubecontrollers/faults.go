package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/metrics"
)

// faults are what the controllers that run fail to do.
type faults struct {
	metrics *metrics.Controllers

	mu     sync.Mutex
	since  time.Time                   // when they began
	synced map[string]func() bool      // by controller: whether it has read what it goes by
	failed map[string]map[string]fault // by controller, by key
}

// fault is a key whose last turn failed.
type fault struct {
	since time.Time // the first failure in a row
	err   error
}

// usersFault marks an error that a user is to fix: it is logged, and no fault of the controllers.
type usersFault struct{ error }

func (u usersFault) Unwrap() error { return u.error }

// begin forgets what was, for controllers that begin now.
func (f *faults) begin(synced map[string]func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since, f.synced, f.failed = time.Now(), synced, map[string]map[string]fault{}
}

// end forgets all: who does not lead has no turns.
func (f *faults) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.failed {
		f.metrics.Failing(name, 0)
	}
	f.synced, f.failed = nil, nil
}

// forget forgets what a controller failed to do, which begins again.
func (f *faults) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, name)
	f.metrics.Failing(name, 0)
}

// turn returns how a controller says how its turns end.
func (f *faults) turn(name string) func(key string, err error) {
	return func(key string, err error) {
		if errors.Is(err, context.Canceled) {
			return
		}
		f.metrics.Reconciled(name, err)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.failed == nil {
			return
		}
		var users usersFault
		if of := f.failed[name]; err == nil || controller.IsTerminal(err) || errors.As(err, &users) {
			delete(of, key)
		} else {
			if of == nil {
				of = map[string]fault{}
				f.failed[name] = of
			}
			is := of[key]
			if is.err = err; is.since.IsZero() {
				is.since = time.Now()
			}
			of[key] = is
		}
		f.metrics.Failing(name, len(f.failed[name]))
	}
}

// reasons say of each controller what it has failed to do for as long as patience, if there is anything.
func (f *faults) reasons() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(f.synced)) {
		if now.Sub(f.since) >= patience && !f.synced[name]() {
			out = append(out, fmt.Sprintf("%s: has not read the datastore and Kubernetes for %s; the log says why", name, now.Sub(f.since).Round(time.Second)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.failed)) {
		var keys []string
		for key, is := range f.failed[name] {
			if now.Sub(is.since) >= patience {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			continue
		}
		first := slices.MinFunc(keys, func(a, b string) int {
			of := f.failed[name]
			if c := of[a].since.Compare(of[b].since); c != 0 {
				return c
			}
			return strings.Compare(a, b)
		})
		is := f.failed[name][first]
		text := fmt.Sprintf("%s: has failed for %s: %v", name, now.Sub(is.since).Round(time.Second), is.err)
		if more := len(keys) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more)", more)
		}
		out = append(out, text)
	}
	return out
}
