// Package mirror makes of a store that others rebuild one that is complete, or away.
//
// In: a [datastore.Store], and the names of its masters: whoever has the truth, such as Neutron's database, and writes it there. Out: a Store
// that answers only while each master's [Mark] says that its part is complete. Until then it is [datastore.ErrUnavailable],
// so that who follows it keeps what it has, as in any outage; then it lists everything anew, and changes over in one step. A datastore that was
// lost, or is rebuilt by somebody who dies half-way, takes nothing away from anybody.
//
// What holds:
//   - No list, and no change of a watch, is of a moment at which a part was not complete.
//   - A watch does not go on from one generation to another: it is [datastore.ErrCompacted].
//   - A list that is older than one of the same generation before is refused: the datastore was put back to a backup.
//   - No write begins while it is not complete: addresses that are in use would be given out again.
//
// A part that its own master deletes piece by piece, without [Begin], is changed, not lost: that is indistinguishable.
package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Mirrored is what a store must do so that it can be a mirror.
type Mirrored interface {
	datastore.Transactional
	datastore.Expiring
	datastore.Paged
	datastore.Ordered
}

// Store is a mirror of its masters. It is safe for concurrent use.
type Store struct {
	inner   Mirrored
	masters []string

	mu   sync.Mutex
	seen map[string]seen // by prefix
}

// seen is how far lists and watches of a prefix have come.
type seen struct {
	generation string
	position   datastore.Position
}

// Of returns a store as a mirror of masters, at least one.
func Of(inner Mirrored, masters []string) *Store {
	return &Store{inner: inner, masters: slices.Sorted(slices.Values(masters)), seen: map[string]seen{}}
}

// Unwrap is the store itself, which has the order.
func (s *Store) Unwrap() datastore.Store { return s.inner }

// generation is one text for those of all masters, or an error that says which of them is not complete.
func (s *Store) generation(marks map[string]Mark) (string, error) {
	var all []string
	for _, name := range s.masters {
		m, ok := marks[name]
		switch {
		case !ok:
			return "", fmt.Errorf("%w: it is a mirror of %s, which has not written anything yet", datastore.ErrUnavailable, name)
		case !m.Complete:
			return "", fmt.Errorf("%w: it is a mirror of %s, which rebuilds it since %s", datastore.ErrUnavailable, name, m.At.Format(time.RFC3339))
		}
		all = append(all, m.Generation)
	}
	return strings.Join(all, " "), nil
}

// ask reads the generation.
func (s *Store) ask(ctx context.Context) (string, error) {
	marks, err := Marks(ctx, s.inner)
	if err != nil {
		return "", err
	}
	return s.generation(marks)
}

// covers reports whether the marks are among the keys of a prefix, so that they are of the same moment as what they speak of.
func covers(prefix string) bool { return strings.HasPrefix(Prefix, prefix) }

// Get is part of [datastore.Store].
func (s *Store) Get(ctx context.Context, key string) (api.Update, error) {
	before, err := s.ask(ctx)
	if err != nil {
		return api.Update{}, err
	}
	kv, err := s.inner.Get(ctx, key)
	if after, asked := s.ask(ctx); asked != nil || after != before {
		return api.Update{}, s.changed(asked)
	}
	return kv, err
}

func (s *Store) changed(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: it was rebuilt meanwhile", datastore.ErrUnavailable)
}

// List is part of [datastore.Store].
func (s *Store) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	var all datastore.Snapshot
	err := s.Pages(ctx, prefix, func(piece datastore.Snapshot, first bool) error {
		if first {
			all.Items = nil
		}
		all.Items, all.Position = append(all.Items, piece.Items...), piece.Position
		return nil
	})
	if err != nil {
		return datastore.Snapshot{}, err
	}
	return all, nil
}

// Pages is part of [datastore.Paged]. Whether all of it is of one complete state is known at the end.
func (s *Store) Pages(ctx context.Context, prefix string, page func(piece datastore.Snapshot, first bool) error) error {
	before, err := s.ask(ctx)
	if err != nil {
		return err
	}
	var at datastore.Position
	marks := map[string]Mark{}
	err = s.inner.Pages(ctx, prefix, func(piece datastore.Snapshot, first bool) error {
		if first {
			clear(marks)
		}
		for name, m := range marksOf(piece.Items) {
			marks[name] = m
		}
		at = piece.Position
		piece.Items = withoutMarks(piece.Items)
		return page(piece, first)
	})
	if err != nil {
		return err
	}
	var now string
	if covers(prefix) {
		now, err = s.generation(marks)
	} else if now, err = s.ask(ctx); err == nil && now != before {
		err = s.changed(nil)
	}
	if err != nil {
		return err
	}
	return s.took(prefix, now, at)
}

// took notes what was listed, unless it is older than what was seen of its generation.
func (s *Store) took(prefix, generation string, at datastore.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.seen[prefix]; was.generation == generation && s.inner.Behind(at, was.position) {
		return fmt.Errorf("%w: it was put back to an older state (%s, after %s) that says it is complete, which a mirror cannot be: empty it, and have its masters rebuild it",
			datastore.ErrUnavailable, at, was.position)
	}
	s.seen[prefix] = seen{generation, at}
	return nil
}

// follows notes how far a watch has come.
func (s *Store) follows(prefix, generation string, at datastore.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.seen[prefix]; was.generation == generation && s.inner.Behind(was.position, at) {
		s.seen[prefix] = seen{generation, at}
	}
}

func withoutMarks(all []api.Update) []api.Update {
	mark := func(u api.Update) bool { return strings.HasPrefix(u.Key, Prefix) }
	if !slices.ContainsFunc(all, mark) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), mark)
}

// Create is part of [datastore.Store].
func (s *Store) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if _, err := s.ask(ctx); err != nil {
		return api.Update{}, err
	}
	return s.inner.Create(ctx, kv)
}

// Update is part of [datastore.Store].
func (s *Store) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	if _, err := s.ask(ctx); err != nil {
		return api.Update{}, err
	}
	return s.inner.Update(ctx, kv)
}

// Delete is part of [datastore.Store].
func (s *Store) Delete(ctx context.Context, key string, revision api.Revision) error {
	if _, err := s.ask(ctx); err != nil {
		return err
	}
	return s.inner.Delete(ctx, key, revision)
}

// PutFor is part of [datastore.Expiring].
func (s *Store) PutFor(ctx context.Context, kv api.Update, ttl time.Duration) error {
	if _, err := s.ask(ctx); err != nil {
		return err
	}
	return s.inner.PutFor(ctx, kv, ttl)
}

// Transact is part of [datastore.Transactional].
func (s *Store) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	if _, err := s.ask(ctx); err != nil {
		return api.Revision{}, err
	}
	return s.inner.Transact(ctx, t)
}
