package memstore

import (
	"context"
	"time"

	"github.com/twillnet/twill/api"
)

// PutFor writes a key, and deletes it when ttl is over unless it was written again.
func (s *Store) PutFor(ctx context.Context, kv api.Update, ttl time.Duration) error {
	if err := s.admit(ctx, Op{"put", kv.Key}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	revision := s.put(kv).Revision
	time.AfterFunc(ttl, func() { _ = s.Delete(context.Background(), kv.Key, revision) })
	return nil
}
