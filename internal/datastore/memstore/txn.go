package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Transact makes all changes of t at one revision if all its conditions hold.
func (s *Store) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	keys := strings.Join(t.Keys(), " ")
	if err := s.admit(ctx, Op{"transact", keys}); err != nil {
		return api.Revision{}, err
	}
	if err := t.Check(); err != nil {
		return api.Revision{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(t.If)) {
		if is, want := s.items[key].Revision, t.If[key]; is != want {
			return api.Revision{}, fmt.Errorf("transact %s: %w: revision is %q, not %q", key, datastore.ErrConflict, is, want)
		}
	}
	gone := slices.DeleteFunc(slices.Clone(t.Delete), func(key string) bool { _, ok := s.items[key]; return !ok })
	if len(t.Put)+len(gone) == 0 {
		return s.revisionNow(), nil // as etcd, which counts changes only
	}
	s.revision++
	for _, kv := range t.Put {
		s.putNow(kv)
	}
	for _, key := range gone {
		s.deleteNow(key)
	}
	s.wake()
	return s.revisionNow(), nil
}
