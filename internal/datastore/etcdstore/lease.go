package etcdstore

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
)

// lease is the one under which a store's expiring keys are written.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration
}

// PutFor writes a key that goes when ttl is over. All such keys of a store share
// one lease, which each write prolongs: a node that writes every 30 seconds
// leaves no trail of leases behind.
func (s *Store) PutFor(ctx context.Context, kv api.Update, ttl time.Duration) error {
	id, err := s.leaseFor(ctx, ttl)
	if err == nil {
		_, err = s.do(ctx, clientv3.OpPut(kv.Key, string(kv.Value), clientv3.WithLease(id)))
	}
	if err != nil {
		s.forgetLease(id)
	}
	return wrap("put", kv.Key, err)
}

// leaseFor prolongs the lease, or grants one if there is none of that ttl.
func (s *Store) leaseFor(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	s.mu.Lock()
	held := s.lease
	s.mu.Unlock()
	if held.id != 0 && held.ttl == ttl {
		switch _, err := client.KeepAliveOnce(ctx, held.id); {
		case err == nil:
			return held.id, nil
		case !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return 0, translate(ctx, err)
		}
	}
	// An old lease of another ttl is left to end by itself: its keys may be written under the new one by then.
	granted, err := client.Grant(ctx, int64(max(ttl.Round(time.Second), time.Second)/time.Second))
	if err != nil {
		return 0, translate(ctx, err)
	}
	s.mu.Lock()
	s.lease = lease{granted.ID, ttl}
	s.mu.Unlock()
	return granted.ID, nil
}

// forgetLease makes the next write ask for a new one.
func (s *Store) forgetLease(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.id == id {
		s.lease = lease{}
	}
}
