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
	"github.com/twillnet/twill/internal/resources"
)

// Prepare makes the datastore ready for use by fill, if there is one, and keeps the node's addresses in it, until the context ends. Whatever
// fails, it is tried again. What is watched is read as by says, which needs no more than settings and a version. Neither waits for the other: in a cluster of an older version, not all may be there that is made else.
// Where the datastore is a mirror, it is made ready once it is complete; this node's Node is what the node itself knows, so it is kept, as it was, while that is rebuilt.
func Prepare(ctx context.Context, cfg datastore.Config, keep nodekeep.Config, by discovery.Host, fill func(context.Context, datastore.Store) error) {
	var parts sync.WaitGroup
	if fill != nil {
		whole := cfg
		parts.Go(func() {
			_ = untilDone(ctx, whole, keep.Log, making, func(store datastore.Store) error { return fill(ctx, store) }, nil) // it ends with the context
		})
	}
	if keep.Lasting = len(cfg.Masters) > 0; keep.Lasting {
		cfg.Masters, by = nil, discovery.Host{}
	}
	by.Cluster, by.Node, by.Program, by.Log = cfg, keep.Node, "node", keep.Log
	if keep.Lasting || !keep.Idle() {
		parts.Go(func() {
			_ = untilDone(ctx, cfg, keep.Log, "keep this node in the datastore", func(store datastore.Store) error {
				return keepAddresses(ctx, store, keep, by)
			}, nil) // it ends with the context
		})
	}
	parts.Wait()
}

const making = "make the datastore ready for use"

// MakeReady makes the datastore ready for use by fill, and ends: with nil once it is, or with an error that does not go away by itself, such as
// that of an account that lacks a right. A datastore that is away is waited for.
func MakeReady(ctx context.Context, cfg datastore.Config, log *slog.Logger, fill func(context.Context, datastore.Store) error) error {
	return untilDone(ctx, cfg, log, making, func(store datastore.Store) error { return fill(ctx, store) }, resources.Passes)
}

// untilDone does something with the datastore, again until it is done, the context ends, or it fails with an error that does not pass; nil: any does.
func untilDone(ctx context.Context, cfg datastore.Config, log *slog.Logger, what string, do func(datastore.Store) error, passes func(error) bool) error {
	const pause = 2 * time.Second
	logged := ""
	for {
		store, err := stores.Open(ctx, cfg)
		if err == nil {
			err = do(store)
			_ = store.Close() // it is not used any more
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil || passes != nil && !passes(err):
			return err
		}
		level := slog.LevelDebug // the datastore may be one of our own children, that begins to run
		if !errors.Is(err, datastore.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && logged != err.Error() {
			level, logged = slog.LevelError, err.Error()
		}
		log.Log(ctx, level, what, "err", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
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
