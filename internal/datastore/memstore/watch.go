package memstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// watch walks the store's history at its own pace; it holds no events.
type watch struct {
	s      *Store
	ctx    context.Context
	prefix string
	seen   int64 // revision up to which all was delivered
	drops  int   // value of s.drops when the watch began
	closed chan struct{}
	once   sync.Once
}

// Watch delivers every change under prefix after a position.
func (s *Store) Watch(ctx context.Context, prefix string, position datastore.Position) (datastore.Watcher, error) {
	if err := s.admit(ctx, Op{"watch", prefix}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	after := number(position.String())
	if after < s.compacted || after > s.revision { // the latter: the store was put back
		return nil, fmt.Errorf("watch %s after %d: %w", prefix, after, datastore.ErrCompacted)
	}
	return &watch{s: s, ctx: ctx, prefix: prefix, seen: after, drops: s.drops, closed: make(chan struct{})}, nil
}

// Next waits for a change of the store's revision and returns what of it is
// under the prefix.
func (w *watch) Next(ctx context.Context) (datastore.Changes, error) {
	for {
		if err := w.s.admit(ctx, Op{"next", w.prefix}); err != nil {
			w.Close()
			return datastore.Changes{}, err
		}
		changes, wait, err := w.take()
		if err != nil {
			w.Close()
			return datastore.Changes{}, fmt.Errorf("watch %s after %d: %w", w.prefix, w.seen, err)
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

// take returns the changes at hand, or a channel that closes when there may be some.
func (w *watch) take() (datastore.Changes, <-chan struct{}, error) {
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
	if w.seen < s.compacted {
		return datastore.Changes{}, nil, datastore.ErrCompacted
	}
	if w.seen >= s.revision {
		return datastore.Changes{}, s.changed, nil
	}
	var updates []api.Update
	for _, c := range s.history[s.after(w.seen):] {
		if strings.HasPrefix(c.kv.Key, w.prefix) {
			updates = append(updates, copyOf(c.kv))
		}
	}
	w.seen = s.revision
	return datastore.Changes{Updates: updates, Position: s.position()}, nil, nil
}

// Close ends the watch; a Next that waits returns an error.
func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }
