package etcdstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// maxSilentPeriods is the number of progress periods without an answer after which a watch fails.
const maxSilentPeriods = 3

// watcher is one watch, on a stream of its own: asking a shared one for
// progress gets no answer while any other watch on it is behind.
type watcher struct {
	s      *Store
	prefix string
	ctx    context.Context
	cancel context.CancelFunc
	rpc    clientv3.Watcher
	ch     clientv3.WatchChan

	seen    int64  // all changes up to this revision were delivered
	cluster uint64 // the cluster's id; another one means another history
}

// Watch delivers every change under prefix after a position. It
// returns when etcd has begun the watch.
func (s *Store) Watch(ctx context.Context, prefix string, position datastore.Position) (datastore.Watcher, error) {
	after := number(position.String())
	if after == maxRevision {
		return nil, fmt.Errorf("watch %s: %w: %q is no position of etcd", prefix, datastore.ErrCompacted, position)
	}
	client, err := s.connect(ctx)
	if err != nil {
		return nil, wrap("watch", prefix, err)
	}
	w := &watcher{s: s, prefix: prefix, seen: after, rpc: clientv3.NewWatcher(client)}
	// Require a leader: a member without a quorum would deliver nothing, without an error.
	w.ctx, w.cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	from, end := span(prefix)
	// Watch itself waits for the stream, without end if etcd is away.
	waiting := time.AfterFunc(s.cfg.RequestTimeout, w.cancel)
	w.ch = w.rpc.Watch(w.ctx, from, clientv3.WithRange(end), clientv3.WithRev(after+1),
		clientv3.WithProgressNotify(), clientv3.WithFragment(), clientv3.WithCreatedNotify())
	resp, ok := <-w.ch
	if !waiting.Stop() || !ok {
		w.Close()
		if ctx.Err() != nil {
			return nil, wrap("watch", prefix, translate(ctx, ctx.Err()))
		}
		return nil, fmt.Errorf("watch %s: %w: no stream within %s", prefix, datastore.ErrUnavailable, s.cfg.RequestTimeout)
	}
	if err := resp.Err(); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s after %d: %w", prefix, after, translate(ctx, refusal(err)))
	}
	w.cluster = resp.Header.ClusterId
	if resp.Header.Revision < after {
		if err := w.verify(ctx); err != nil {
			w.Close()
			return nil, fmt.Errorf("watch %s after %d: %w", prefix, after, err)
		}
	}
	return w, nil
}

// Next waits for changes. When none come, it asks etcd where it is, so that a
// dead connection, a lost leader and a store restored to an older state are
// all found within a known time.
func (w *watcher) Next(ctx context.Context) (datastore.Changes, error) {
	changes, err := w.next(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("watch %s after %d: %w", w.prefix, w.seen, translate(w.ctx, err))
		w.Close()
	}
	return changes, err
}

func (w *watcher) next(ctx context.Context) (datastore.Changes, error) {
	tick := time.NewTicker(w.s.cfg.Progress)
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case <-ctx.Done():
			return datastore.Changes{}, ctx.Err()
		case resp, ok := <-w.ch:
			if !ok {
				return datastore.Changes{}, fmt.Errorf("%w: the watch ended", datastore.ErrUnavailable)
			}
			changes, news, err := w.read(ctx, resp)
			if err != nil || news {
				return changes, err
			}
			if resp.Header.Revision >= w.seen {
				silent = 0 // else a member that lags: as no answer
			}
		case <-tick.C:
			if silent++; silent > maxSilentPeriods {
				if err := w.verify(ctx); err != nil {
					return datastore.Changes{}, err
				}
				return datastore.Changes{}, fmt.Errorf("%w: nothing heard for %s", datastore.ErrUnavailable, maxSilentPeriods*w.s.cfg.Progress)
			}
			w.ask()
		}
	}
}

// verify asks the cluster, as opposed to a member that may lag, whether it has
// reached the watch's revision. If not, it was restored from a backup, and what
// is written until it passes that revision would be missed.
func (w *watcher) verify(ctx context.Context) error {
	resp, err := w.s.do(ctx, clientv3.OpGet(w.prefix+"\x00", clientv3.WithCountOnly()))
	if err != nil {
		return err
	}
	if rev := resp.Get().Header.Revision; rev < w.seen {
		return fmt.Errorf("%w: the store went back to %d", datastore.ErrCompacted, rev)
	}
	return nil
}

// refusal finds the reason for which etcd refused a watch, which it gives as
// text only.
func refusal(err error) error {
	for _, u := range unauthorized {
		if strings.Contains(err.Error(), u.Error()) {
			return u
		}
	}
	return err
}

// ask requests a progress notification. It does not wait for it, nor for a stream that
// is being reopened: the lack of answers is what counts.
func (w *watcher) ask() {
	ctx, cancel := context.WithTimeout(w.ctx, w.s.cfg.Progress/4)
	defer cancel()
	if err := w.rpc.RequestProgress(ctx); err != nil {
		w.s.cfg.Logger.Debug("ask for progress", "prefix", w.prefix, "err", err)
	}
}

// read returns the changes of a response, and whether to return them to the caller.
func (w *watcher) read(ctx context.Context, resp clientv3.WatchResponse) (c datastore.Changes, news bool, err error) {
	if err := resp.Err(); err != nil {
		return c, false, refusal(err)
	}
	if id := resp.Header.ClusterId; id != w.cluster {
		return c, false, fmt.Errorf("%w: cluster is %x, was %x", datastore.ErrCompacted, id, w.cluster)
	}
	if len(resp.Events) > 0 {
		for _, e := range resp.Events {
			// The header has the store's revision, which may be ahead of what
			// a watch that is catching up was sent.
			w.seen = max(w.seen, e.Kv.ModRevision)
			c.Updates = append(c.Updates, changeOf(e))
		}
		c.Position = positionOf(w.seen)
		return c, true, nil
	}
	rev := resp.Header.Revision
	if rev > w.seen && w.s.progress.trusted(ctx, w.s) {
		w.seen = rev
		return datastore.Changes{Position: positionOf(rev)}, true, nil
	}
	return c, false, nil
}

func changeOf(e *clientv3.Event) api.Update {
	if e.Type == mvccpb.Event_DELETE {
		return api.Update{Key: string(e.Kv.Key), Revision: revisionOf(e.Kv.ModRevision)}
	}
	return updateOf(e.Kv)
}

// Close ends the watch and frees its stream.
func (w *watcher) Close() {
	w.cancel()
	w.rpc.Close()
}
