package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// watcher is one watch of a mirror, of one generation.
type watcher struct {
	s          *Store
	inner      datastore.Watcher
	prefix     string
	generation string
}

// Watch is part of [datastore.Store]. It goes on only from a list of the generation that there is now.
func (s *Store) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	s.mu.Lock()
	listed := s.seen[prefix].generation
	s.mu.Unlock()
	inner, err := s.inner.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	w := &watcher{s: s, inner: inner, prefix: prefix, generation: listed}
	if err := w.still(ctx); err != nil { // the watch may be one of another datastore, which has the place of the one that was listed
		inner.Close()
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	return w, nil
}

// Next is part of [datastore.Watcher].
func (w *watcher) Next(ctx context.Context) (datastore.Changes, error) {
	changes, err := w.inner.Next(ctx)
	if err != nil {
		return changes, err
	}
	if err := w.judge(ctx, changes.Updates); err != nil {
		w.Close()
		return datastore.Changes{}, fmt.Errorf("watch %s: %w", w.prefix, err)
	}
	w.s.follows(w.prefix, w.generation, changes.Position)
	changes.Updates = withoutMarks(changes.Updates)
	return changes, nil
}

// judge reports an error unless changes are of the watch's generation. Those that the store delivers together are of one moment: where the
// marks are among them, they are as of these; else they are read after the changes were made.
func (w *watcher) judge(ctx context.Context, us []api.Update) error {
	if len(us) == 0 {
		return nil
	}
	if !covers(w.prefix) {
		return w.still(ctx)
	}
	for _, u := range us {
		if name, ok := strings.CutPrefix(u.Key, Prefix); ok && w.s.of(name) {
			return fmt.Errorf("%w: %s has emptied, or begun to rebuild, its part of the datastore", datastore.ErrCompacted, name)
		}
	}
	return nil
}

// still reports an error unless the datastore is now of the watch's generation.
func (w *watcher) still(ctx context.Context) error {
	now, err := w.s.ask(ctx)
	if err == nil && now != w.generation {
		err = fmt.Errorf("%w: the datastore was rebuilt", datastore.ErrCompacted)
	}
	return err
}

// of reports whether the datastore is a mirror of a master.
func (s *Store) of(master string) bool {
	return slices.Contains(s.masters, master)
}

// Close is part of [datastore.Watcher].
func (w *watcher) Close() { w.inner.Close() }
