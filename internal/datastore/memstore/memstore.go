// Package memstore is a store in memory with etcd's semantics of revisions.
//
// In: calls of [datastore.Store]. Out: what etcd would answer. It is the
// reference for the other stores, and can be made to
// fail, to test what uses a store.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Store is a datastore in memory. It is safe for concurrent use.
type Store struct {
	mu        sync.Mutex
	items     map[string]api.Update
	history   []change // every change with a revision above compacted, in order
	compacted int64    // changes up to this revision are forgotten
	revision  int64
	changed   chan struct{} // closed, and replaced, at each change of any of these
	fail      func(Op) error
	drops     int // how often watches were dropped
	dropErr   error
}

// change is one of a key, with its revision as a number.
type change struct {
	kv       api.Update
	revision int64
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
	snap := datastore.Snapshot{Position: s.position()}
	for key, kv := range s.items {
		if strings.HasPrefix(key, prefix) {
			snap.Items = append(snap.Items, copyOf(kv))
		}
	}
	slices.SortFunc(snap.Items, func(a, b api.Update) int { return cmp.Compare(a.Key, b.Key) })
	return snap, nil
}

// Pages implements [datastore.Paged]: two keys at a time, so that tests with few keys have several pieces. Each piece is a call
// to fail, with the verb "list" for the first and "page" for the others.
func (s *Store) Pages(ctx context.Context, prefix string, page func(piece datastore.Snapshot, first bool) error) error {
	all, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	for first := true; first || len(all.Items) > 0; first = false {
		if !first {
			if err := s.admit(ctx, Op{"page", prefix}); err != nil {
				return err
			}
		}
		n := min(2, len(all.Items))
		if err := page(datastore.Snapshot{Items: all.Items[:n:n], Position: all.Position}, first); err != nil {
			return err
		}
		all.Items = all.Items[n:]
	}
	return nil
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
func (s *Store) Delete(ctx context.Context, key string, revision api.Revision) error {
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

// Compact forgets the history up to a position, or up to now.
func (s *Store) Compact(ctx context.Context, upTo datastore.Position) error {
	if err := s.admit(ctx, Op{"compact", upTo.String()}); err != nil {
		return err
	}
	if upTo.IsZero() {
		s.Forget(s.Revision())
	} else {
		s.Forget(number(upTo.String()))
	}
	return nil
}

// Forget is Compact up to an earlier revision, that one included. A revision
// that is not reached yet, or forgotten already, changes nothing.
func (s *Store) Forget(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.revision || revision <= s.compacted {
		return
	}
	s.history = slices.Clone(s.history[s.after(revision):])
	s.compacted = revision
	s.wake()
}

// Revision counts the changes; that of a new store is 1.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Position is where a watch would begin that brings what is still to come.
func (s *Store) Position() datastore.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position()
}

func (s *Store) position() datastore.Position {
	return datastore.PositionOf(strconv.FormatInt(s.revision, 10))
}

// number reads a revision or a position: -1 for what this store never wrote.
func number(text string) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return -1
}

// Older says whether revision a was given before b.
func (s *Store) Older(a, b api.Revision) bool { return number(a.String()) < number(b.String()) }

// Behind says whether position a comes before b.
func (s *Store) Behind(a, b datastore.Position) bool { return number(a.String()) < number(b.String()) }

func (s *Store) check(key string, revision api.Revision) error {
	switch kv, ok := s.items[key]; {
	case !ok:
		return datastore.ErrNotFound
	case !revision.IsZero() && kv.Revision != revision:
		return fmt.Errorf("%w: revision is %s, not %s", datastore.ErrConflict, kv.Revision, revision)
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
	kv.Revision = s.revisionNow()
	s.items[kv.Key] = kv
	s.history = append(s.history, change{kv, s.revision})
	return kv
}

// deleteNow removes at the present revision.
func (s *Store) deleteNow(key string) {
	delete(s.items, key)
	s.history = append(s.history, change{api.Update{Key: key, Revision: s.revisionNow()}, s.revision})
}

func (s *Store) revisionNow() api.Revision {
	return api.RevisionOf(strconv.FormatInt(s.revision, 10))
}

func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// after returns the index of the first change that is younger than revision.
// A transaction has one revision for all its changes.
func (s *Store) after(revision int64) int {
	return sort.Search(len(s.history), func(i int) bool { return s.history[i].revision > revision })
}

func copyOf(kv api.Update) api.Update {
	kv.Value = slices.Clone(kv.Value)
	return kv
}
