package etcdstore

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore"
)

// Compact makes etcd forget its history up to a position, or up to now, as it does by itself where
// it is set up to. Who watches from an older revision must list again. The lab
// does this to agents that are cut off.
func (s *Store) Compact(ctx context.Context, upTo datastore.Position) error {
	client, err := s.connect(ctx)
	if err != nil {
		return err
	}
	revision := number(upTo.String())
	if upTo.IsZero() {
		now, err := client.Get(ctx, "/", clientv3.WithCountOnly())
		if err != nil {
			return translate(ctx, err)
		}
		revision = now.Header.Revision
	}
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // it is forgotten already
	}
	return translate(ctx, err)
}
