// Package memstore keeps a store in memory, exact about revisions.
//
// In: calls of [datastore.Store]. Out: what etcd would answer. It is the
// reference that the other stores are held against, and it can be told to
// fail, so that what reads a store can be tested without one.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Store is a datastore in memory. Any goroutine may use it.
type Store struct {
	mu        sync.Mutex
	items     map[string]api.Update
	history   []api.Update // every change with a revision above compacted, in order
	compacted int64        // changes up to this revision are forgotten
	revision  int64
	changed   chan struct{} // closed, and replaced, at each change of any of these
	fail      func(Op) error
	drops     int // how often watches were dropped
	dropErr   error
}

// New returns an empty store. Its revision is 1, as that of a new etcd.
func New() *Store {
	return &Store{items: map[string]api.Update{}, compacted: 1, revision: 1, changed: make(chan struct{})}
}

// Get returns the present value of a key, or ErrNotFound.
func (s *Store) Get(ctx context.Context, key string) (api.Update, error) {
	if err := s.admit(ctx, Op{"get", key}); err != nil {
		return api.Update{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kv, ok := s.items[key]
	if !ok {
		return api.Update{}, fmt.Errorf("get %s: %w", key, datastore.ErrNotFound)
	}
	return copyOf(kv), nil
}

// List returns all keys under prefix, sorted, as they are now.
func (s *Store) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	if err := s.admit(ctx, Op{"list", prefix}); err != nil {
		return datastore.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := datastore.Snapshot{Revision: s.revision}
	for key, kv := range s.items {
		if strings.HasPrefix(key, prefix) {
			snap.Items = append(snap.Items, copyOf(kv))
		}
	}
	slices.SortFunc(snap.Items, func(a, b api.Update) int { return cmp.Compare(a.Key, b.Key) })
	return snap, nil
}

// Create writes a new key, or returns ErrExists.
func (s *Store) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := s.admit(ctx, Op{"create", kv.Key}); err != nil {
		return api.Update{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.items[kv.Key]; ok {
		return api.Update{}, fmt.Errorf("create %s: %w", kv.Key, datastore.ErrExists)
	}
	return s.put(kv), nil
}

// Update replaces an existing key, if it still has the revision given.
func (s *Store) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := s.admit(ctx, Op{"update", kv.Key}); err != nil {
		return api.Update{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(kv.Key, kv.Revision); err != nil {
		return api.Update{}, fmt.Errorf("update %s: %w", kv.Key, err)
	}
	return s.put(kv), nil
}

// Delete removes a key, if it still has the revision given.
func (s *Store) Delete(ctx context.Context, key string, revision int64) error {
	if err := s.admit(ctx, Op{"delete", key}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(key, revision); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	s.revision++
	s.deleteNow(key)
	s.wake()
	return nil
}

// Compact forgets the history up to a revision, that one included. A revision
// that is not reached yet, or forgotten already, changes nothing.
func (s *Store) Compact(_ context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.revision || revision <= s.compacted {
		return nil
	}
	s.history = slices.Clone(s.history[s.after(revision):])
	s.compacted = revision
	s.wake()
	return nil
}

// Revision returns that of the last change.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *Store) check(key string, revision int64) error {
	switch kv, ok := s.items[key]; {
	case !ok:
		return datastore.ErrNotFound
	case revision != 0 && kv.Revision != revision:
		return fmt.Errorf("%w: revision is %d, not %d", datastore.ErrConflict, kv.Revision, revision)
	}
	return nil
}

func (s *Store) put(kv api.Update) api.Update {
	s.revision++
	kv = s.putNow(kv)
	s.wake()
	return copyOf(kv)
}

// putNow writes at the present revision.
func (s *Store) putNow(kv api.Update) api.Update {
	kv = copyOf(kv)
	if kv.Value == nil {
		kv.Value = []byte{} // nil would say that it is gone
	}
	kv.Revision = s.revision
	s.items[kv.Key] = kv
	s.history = append(s.history, kv)
	return kv
}

// deleteNow removes at the present revision.
func (s *Store) deleteNow(key string) {
	delete(s.items, key)
	s.history = append(s.history, api.Update{Key: key, Revision: s.revision})
}

func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// after returns the index of the first change that is younger than revision.
// A transaction has one revision for all its changes.
func (s *Store) after(revision int64) int {
	return sort.Search(len(s.history), func(i int) bool { return s.history[i].Revision > revision })
}

func copyOf(kv api.Update) api.Update {
	kv.Value = slices.Clone(kv.Value)
	return kv
}
