package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/datastore"
)

// direct is the epoch of positions that the store itself gave.
const direct = "direct"

// probeEvery is how often a client that goes to the store itself asks whether the relay is back.
const probeEvery = 10 * time.Second

// fallback knows since when a relay does not answer.
type fallback struct {
	mu    sync.Mutex
	since time.Time
}

// over notes how a call to the relay ended, and says whether it has been away for longer than a patience; if that is zero, never.
func (f *fallback) over(err error, patience time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, datastore.ErrCompacted):
		f.since = time.Time{}
	case errors.Is(err, context.Canceled): // by us
	case f.since.IsZero():
		f.since = time.Now()
	}
	return patience > 0 && !f.since.IsZero() && time.Since(f.since) >= patience
}

func (c *Client) listDirect(ctx context.Context, prefix string, why error) (datastore.Snapshot, error) {
	snap, err := c.Store.List(ctx, prefix)
	if err == nil {
		c.cfg.Log.Warn("the relay is away: asking the datastore itself", "prefix", prefix, "err", why)
		snap.Position = place{epoch: direct, store: snap.Position}.position()
	}
	return snap, err
}

// watchDirect watches the store itself, until the relay answers again.
func (c *Client) watchDirect(ctx context.Context, prefix string, at place) (datastore.Watcher, error) {
	w, err := c.Store.Watch(ctx, prefix, at.store)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &directWatcher{Watcher: w, cancel: cancel, back: make(chan struct{})}
	go func() {
		for c.probe(ctx, prefix) != nil {
			timer := time.NewTimer(probeEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
		c.away.over(nil, 0)
		close(d.back)
	}()
	return d, nil
}

// probe returns an error unless the relay could serve.
func (c *Client) probe(ctx context.Context, prefix string) error {
	w, err := c.begin(ctx, &relaypb.FollowRequest{Prefix: prefix, Epoch: direct})
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = w.recv(ctx, c.cfg.Timeout)
	if err = c.errorOf("probe", err); errors.Is(err, datastore.ErrCompacted) { // it has no such position, but it has some
		return nil
	}
	return err
}

type directWatcher struct {
	datastore.Watcher
	cancel context.CancelFunc
	back   chan struct{} // closed when the relay is
}

// Next implements [datastore.Watcher].
func (d *directWatcher) Next(ctx context.Context) (datastore.Changes, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.back:
			cancel()
		case <-ctx.Done():
		}
	}()
	changes, err := d.Watcher.Next(ctx)
	select {
	case <-d.back:
		return datastore.Changes{}, fmt.Errorf("the relay is back: %w", datastore.ErrCompacted)
	default:
	}
	changes.Position = place{epoch: direct, store: changes.Position}.position()
	return changes, err
}

// Close implements [datastore.Watcher].
func (d *directWatcher) Close() {
	d.cancel()
	d.Watcher.Close()
}
