package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/nodekeep"
	"github.com/twillnet/twill/internal/relay/discovery"
)

// Prepare makes the datastore ready for use by fill, if there is one, and keeps the node's addresses in it, until the context ends. Whatever
// fails, it is tried again. What is watched is read as by says, which needs no more than settings and a version. Neither waits for the other: in a cluster of an older version, not all may be there that is made else.
// Where the datastore is a mirror, it is made ready once it is complete; this node's Node is what the node itself knows, so it is kept, as it was, while that is rebuilt.
func Prepare(ctx context.Context, cfg datastore.Config, keep nodekeep.Config, by discovery.Host, fill func(context.Context, datastore.Store) error) {
	var parts sync.WaitGroup
	if fill != nil {
		whole := cfg
		parts.Go(func() {
			untilDone(ctx, whole, keep.Log, "make the datastore ready for use", func(store datastore.Store) error {
				return fill(ctx, store)
			})
		})
	}
	if keep.Lasting = len(cfg.Masters) > 0; keep.Lasting {
		cfg.Masters, by = nil, discovery.Host{}
	}
	by.Cluster, by.Node, by.Program, by.Log = cfg, keep.Node, "node", keep.Log
	if keep.Lasting || !keep.Idle() {
		parts.Go(func() {
			untilDone(ctx, cfg, keep.Log, "keep this node in the datastore", func(store datastore.Store) error {
				return keepAddresses(ctx, store, keep, by)
			})
		})
	}
	parts.Wait()
}

// untilDone does something with the datastore, again until it is done or the context ends.
func untilDone(ctx context.Context, cfg datastore.Config, log *slog.Logger, what string, do func(datastore.Store) error) {
	const pause = 2 * time.Second
	logged := ""
	for {
		store, err := stores.Open(ctx, cfg)
		if err == nil {
			err = do(store)
			_ = store.Close() // it is not used any more
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug // the datastore may be one of our own children, that begins to run
		if !errors.Is(err, datastore.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && logged != err.Error() {
			level, logged = slog.LevelError, err.Error()
		}
		log.Log(ctx, level, what, "err", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func keepAddresses(ctx context.Context, store datastore.Store, cfg nodekeep.Config, by discovery.Host) error {
	read, done, err := discovery.Reading(store, by)
	if err != nil {
		return err
	}
	defer done()
	h, err := rtnl.Open()
	if err != nil {
		return fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer h.Close()
	cfg.Store, cfg.Read = store, read
	cfg.Look = func(ctx context.Context) (nodeaddr.Host, error) { return nodekeep.Look(ctx, h) }
	cfg.Watch = func(ctx context.Context, signal chan<- struct{}) error { return nodekeep.Watch(ctx, h, signal) }
	return nodekeep.New(cfg).Run(ctx)
}
