package etcdstore

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Compact makes etcd forget its history up to now, as it does by itself where
// it is set up to. Who watches from an older revision must list again. The lab
// does this to agents that are cut off.
func (s *Store) Compact(ctx context.Context) error {
	client, err := s.connect(ctx)
	if err != nil {
		return err
	}
	now, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err == nil {
		_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // nothing was written since the last time
	}
	return translate(ctx, err)
}
