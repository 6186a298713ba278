package etcdstore

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// pagedAttempts is how often a list is begun again in pages when a compaction
// cuts it short. After that it is asked for in one piece, which cannot be cut.
const pagedAttempts = 3

// List returns all keys under prefix, sorted, all as of one revision.
func (s *Store) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	var all datastore.Snapshot
	err := s.list(ctx, prefix, func(p piece) error {
		if p.first {
			all = datastore.Snapshot{Items: make([]api.Update, 0, p.count), Position: p.Position}
		}
		all.Items = append(all.Items, p.Items...)
		return nil
	})
	if err != nil {
		return datastore.Snapshot{}, err
	}
	return all, nil
}

// Pages implements [datastore.Paged]. The list begins once more when a compaction cuts it short.
func (s *Store) Pages(ctx context.Context, prefix string, page func(piece datastore.Snapshot, first bool) error) error {
	return s.list(ctx, prefix, func(p piece) error { return page(p.Snapshot, p.first) })
}

// piece is a part of a list.
type piece struct {
	datastore.Snapshot
	first bool  // the list begins
	count int64 // keys in the whole list; known of the first piece
}

func (s *Store) list(ctx context.Context, prefix string, take func(piece) error) error {
	for attempt := 1; ; attempt++ {
		page := s.cfg.PageSize
		if attempt > pagedAttempts {
			page = 0
		}
		err := s.listPaged(ctx, prefix, page, take)
		if errors.Is(err, datastore.ErrCompacted) && page != 0 {
			s.cfg.Logger.Debug("list again", "prefix", prefix, "err", err)
			continue
		}
		return wrap("list", prefix, err)
	}
}

func (s *Store) listPaged(ctx context.Context, prefix string, page int64, take func(piece) error) error {
	var revision int64
	from, end := span(prefix)
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(page)}
		if revision != 0 {
			opts = append(opts, clientv3.WithRev(revision))
		}
		resp, err := s.do(ctx, clientv3.OpGet(from, opts...))
		if err != nil {
			return err
		}
		got := resp.Get()
		p := piece{first: revision == 0, count: got.Count}
		if p.first {
			revision = got.Header.Revision // the others are read as of it
		}
		p.Position, p.Items = positionOf(revision), make([]api.Update, len(got.Kvs))
		for i, kv := range got.Kvs {
			p.Items[i] = updateOf(kv)
		}
		if err := take(p); err != nil || !got.More || len(got.Kvs) == 0 {
			return err
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
