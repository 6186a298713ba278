package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// oneIn is how many deliveries a watch of a poor store makes until it ends, on the average.
const oneIn = 8

// poorWatch is a watch of each kind under a prefix.
type poorWatch struct {
	s      *Poor
	ctx    context.Context
	prefix string
	at     place
	drops  int
	closed chan struct{}
	once   sync.Once
}

// Watch delivers every change under prefix after a position, until it ends.
func (s *Poor) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	if err := s.admit(ctx, "watch", prefix); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.places[after.String()]
	if !known {
		return nil, fmt.Errorf("watch %s after %s: %w", prefix, after, datastore.ErrCompacted)
	}
	w := &poorWatch{s: s, ctx: ctx, prefix: prefix, at: maps.Clone(at), drops: s.drops, closed: make(chan struct{})}
	if w.forgotten() {
		return nil, fmt.Errorf("watch %s after %s: %w", prefix, after, datastore.ErrCompacted)
	}
	return w, nil
}

// forgotten reports whether changes that the watch has not delivered are lost. A
// kind that the position does not name had no keys.
func (w *poorWatch) forgotten() bool {
	for _, kind := range w.s.kindsUnder(w.prefix) {
		if w.at[kind] < w.s.kinds[kind].first {
			return true
		}
	}
	return false
}

// Next waits for changes and returns some of one kind.
func (w *poorWatch) Next(ctx context.Context) (datastore.Changes, error) {
	for {
		if err := w.s.admit(ctx, "next", w.prefix); err != nil {
			w.Close()
			return datastore.Changes{}, err
		}
		changes, wait, err := w.take()
		if err != nil {
			w.Close()
			return datastore.Changes{}, fmt.Errorf("watch %s: %w", w.prefix, err)
		}
		if wait == nil {
			return changes, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return datastore.Changes{}, ctx.Err()
		case <-w.ctx.Done():
			return datastore.Changes{}, w.ctx.Err()
		case <-w.closed:
		}
	}
}

// take returns changes, or a channel that closes when there may be some.
func (w *poorWatch) take() (datastore.Changes, <-chan struct{}, error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.closed:
		return datastore.Changes{}, nil, datastore.ErrUnavailable
	case <-w.ctx.Done():
		return datastore.Changes{}, nil, w.ctx.Err()
	default:
	}
	if w.drops != s.drops {
		return datastore.Changes{}, nil, s.dropErr
	}
	if w.forgotten() {
		return datastore.Changes{}, nil, datastore.ErrCompacted
	}
	for _, kind := range s.kindsUnder(w.prefix) {
		c := s.kinds[kind]
		unseen := c.events[w.at[kind]:]
		if len(unseen) == 0 {
			continue
		}
		if s.rand.IntN(oneIn) == 0 && !s.steady {
			return datastore.Changes{}, nil, w.end()
		}
		n := 1 + s.rand.IntN(len(unseen))
		w.at[kind] += n
		var out []api.Update
		for _, kv := range unseen[:n] {
			if strings.HasPrefix(kv.Key, w.prefix) {
				out = append(out, copyOf(kv))
			}
		}
		return datastore.Changes{Updates: out, Position: s.position(w.at)}, nil, nil
	}
	return datastore.Changes{}, s.changed, nil
}

// end is how the watch ends for no reason.
func (w *poorWatch) end() error {
	if w.s.Forgets && w.s.rand.IntN(2) == 0 {
		return datastore.ErrCompacted
	}
	return fmt.Errorf("%w: the server ended the watch", datastore.ErrUnavailable)
}

// Close ends the watch; a Next that waits returns an error.
func (w *poorWatch) Close() { w.once.Do(func() { close(w.closed) }) }

// resumed watches again, from the last position, when a watch ends at random, as
// whoever follows a store must.
type resumed struct {
	f     *fixture
	after datastore.Position

	mu     sync.Mutex
	w      datastore.Watcher
	closed bool
}

// Next is that of the watch that runs.
func (r *resumed) Next(ctx context.Context) (datastore.Changes, error) {
	for {
		w, err := r.running()
		if err != nil {
			return datastore.Changes{}, err
		}
		c, err := w.Next(ctx)
		if err == nil {
			r.after = c.Position
			return c, nil
		}
		if !errors.Is(err, datastore.ErrUnavailable) {
			return c, err
		}
		r.mu.Lock()
		r.w = nil
		r.mu.Unlock()
	}
}

func (r *resumed) running() (w datastore.Watcher, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, datastore.ErrUnavailable
	}
	if r.w == nil {
		r.w, err = r.f.store.Watch(r.f.ctx, r.f.prefix, r.after)
	}
	return r.w, err
}

// Close ends the watch that runs, and begins no other.
func (r *resumed) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.w != nil {
		r.w.Close()
	}
}
