package etcdstore

import (
	"context"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// pagedAttempts is how often a list is begun again in pages when a compaction
// cuts it short. After that it is asked for in one piece, which cannot be cut.
const pagedAttempts = 3

// List returns all keys under prefix, sorted, all as of one revision.
func (s *Store) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	for attempt := 1; ; attempt++ {
		page := s.cfg.PageSize
		if attempt > pagedAttempts {
			page = 0
		}
		snap, err := s.listPaged(ctx, prefix, page)
		if errors.Is(err, datastore.ErrCompacted) && page != 0 {
			s.cfg.Logger.Debug("list again", "prefix", prefix, "err", err)
			continue
		}
		if err != nil {
			return datastore.Snapshot{}, wrap("list", prefix, err)
		}
		return snap, nil
	}
}

func (s *Store) listPaged(ctx context.Context, prefix string, page int64) (datastore.Snapshot, error) {
	var snap datastore.Snapshot
	var revision int64
	from, end := span(prefix)
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(page)}
		if revision != 0 {
			opts = append(opts, clientv3.WithRev(revision))
		}
		resp, err := s.do(ctx, clientv3.OpGet(from, opts...))
		if err != nil {
			return datastore.Snapshot{}, err
		}
		got := resp.Get()
		if revision == 0 {
			// The first page decides the revision; the others are read as of it.
			revision = got.Header.Revision
			snap.Position = positionOf(revision)
			snap.Items = slices.Grow([]api.Update(nil), int(got.Count))
		}
		for _, kv := range got.Kvs {
			snap.Items = append(snap.Items, updateOf(kv))
		}
		if !got.More || len(got.Kvs) == 0 {
			return snap, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// span returns the range of keys that begin with prefix, as etcd wants it.
func span(prefix string) (from, end string) {
	if prefix == "" {
		return "\x00", "\x00" // all keys
	}
	return prefix, clientv3.GetPrefixRangeEnd(prefix)
}
