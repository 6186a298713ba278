package memstore

import (
	"context"
	"fmt"

	"github.com/twillnet/twill/internal/datastore"
)

// Op is a call that is about to be made.
type Op struct {
	Verb string // get, list, watch, next, create, update, delete, put, transact, compact
	Key  string // or the prefix, or the keys with blanks between them
}

// Fail makes each call ask f first, and fail with the error it returns. Nil
// ends that. A failed next ends its watch.
func (s *Store) Fail(f func(Op) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// DropWatches ends every watch that runs with err; nil stands for ErrUnavailable.
func (s *Store) DropWatches(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = fmt.Errorf("watch dropped: %w", datastore.ErrUnavailable)
	}
	s.drops++
	s.dropErr = err
	s.wake()
}

// Rewind acts as a restore from a backup: the store gets the content of
// another, with its lower revision, and none of the history.
func (s *Store) Rewind(to *Store) {
	to.mu.Lock()
	defer to.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.items)
	for k, kv := range to.items {
		s.items[k] = kv
	}
	s.history, s.compacted, s.revision = nil, to.revision, to.revision
	s.drops++
	s.dropErr = datastore.ErrCompacted
	s.wake()
}

// admit returns the error that a call must fail with, if any.
func (s *Store) admit(ctx context.Context, op Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail == nil {
		return nil
	}
	if err := fail(op); err != nil {
		return fmt.Errorf("%s %s: %w", op.Verb, op.Key, err)
	}
	return nil
}
