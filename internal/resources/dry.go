package resources

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Dry is a store that reads from s and keeps to itself what is written, for one goroutine. It has no transactions and no watches of
// what it keeps.
func Dry(s datastore.Store) datastore.Store {
	return &dryStore{Store: s, changed: map[string]api.Update{}}
}

// dryStore reads from a store and remembers what would be written, so that a
// command which looks at what it did before sees it done.
type dryStore struct {
	datastore.Store
	changed map[string]api.Update // without a value: deleted
}

// Get is part of datastore.Store.
func (s *dryStore) Get(ctx context.Context, key string) (api.Update, error) {
	if u, ok := s.changed[key]; ok {
		if u.Value == nil {
			return api.Update{}, fmt.Errorf("get %s: %w", key, datastore.ErrNotFound)
		}
		return u, nil
	}
	return s.Store.Get(ctx, key)
}

// List is part of datastore.Store.
func (s *dryStore) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	snap, err := s.Store.List(ctx, prefix)
	if err != nil {
		return snap, err
	}
	items := map[string]api.Update{}
	for _, u := range snap.Items {
		items[u.Key] = u
	}
	for key, u := range s.changed {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		delete(items, key)
		if u.Value != nil {
			items[key] = u
		}
	}
	snap.Items = slices.SortedFunc(maps.Values(items), func(a, b api.Update) int { return cmp.Compare(a.Key, b.Key) })
	return snap, nil
}

// Create is part of datastore.Store.
func (s *dryStore) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if _, err := s.Get(ctx, kv.Key); err == nil {
		return kv, fmt.Errorf("create %s: %w", kv.Key, datastore.ErrExists)
	}
	s.changed[kv.Key] = kv
	return kv, nil
}

// Update is part of datastore.Store.
func (s *dryStore) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	was, err := s.Get(ctx, kv.Key)
	switch {
	case err != nil:
		return kv, err
	case !kv.Revision.IsZero() && kv.Revision != was.Revision:
		return kv, fmt.Errorf("update %s: %w", kv.Key, datastore.ErrConflict)
	}
	s.changed[kv.Key] = kv
	return kv, nil
}

// Delete is part of datastore.Store.
func (s *dryStore) Delete(ctx context.Context, key string, _ api.Revision) error {
	if _, err := s.Get(ctx, key); err != nil {
		return err
	}
	s.changed[key] = api.Update{Key: key}
	return nil
}
