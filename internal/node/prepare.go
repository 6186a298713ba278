package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/nodekeep"
	"github.com/twillnet/twill/internal/resources"
)

// Prepare makes the datastore ready for use, if it is to, and keeps the node's addresses in it, until the context ends. Whatever
// fails, it is tried again.
func Prepare(ctx context.Context, etcd datastore.Config, cfg nodekeep.Config, fill bool) {
	const pause = 2 * time.Second
	logged := ""
	for {
		err := prepareOnce(ctx, etcd, cfg, fill)
		if err == nil || ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug // the datastore may be one of our own children, that begins to run
		if !errors.Is(err, datastore.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && logged != err.Error() {
			level, logged = slog.LevelError, err.Error()
		}
		cfg.Log.Log(ctx, level, "keep this node in the datastore", "err", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func prepareOnce(ctx context.Context, etcd datastore.Config, cfg nodekeep.Config, fill bool) error {
	store, err := stores.Open(ctx, etcd)
	if err != nil {
		return err
	}
	defer store.Close()
	if fill {
		if err := errors.Join(resources.Ensure(ctx, store), EnsurePools(ctx, store)); err != nil {
			return err
		}
	}
	if cfg.Idle() {
		return nil
	}
	h, err := rtnl.Open()
	if err != nil {
		return fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer h.Close()
	cfg.Store = store
	cfg.Look = func(ctx context.Context) (nodeaddr.Host, error) { return nodekeep.Look(ctx, h) }
	cfg.Watch = func(ctx context.Context, signal chan<- struct{}) error { return nodekeep.Watch(ctx, h, signal) }
	return nodekeep.New(cfg).Run(ctx)
}
