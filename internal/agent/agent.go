// Package agent joins the parts of the per-host agent; it has no logic of its own.
//
// In: a [Config]. Out: a running agent: datastore → syncer → gate → calc →
// dataplane → kernel, each a named goroutine in one group. It ends when its
// context does or when a part of it cannot go on; the kernel keeps what it has.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
	"github.com/twillnet/twill/internal/syncer"
)

// Config is all that an agent must be told.
type Config struct {
	Node     string   // this node's name in the datastore
	Prefixes []string // of workload interfaces' names; nil means "cali"
	Store    etcdstore.Config
	Log      *slog.Logger
}

// Run runs an agent in the network namespace of the calling thread's process.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Node == "" {
		return errors.New("agent: no node name; set NODENAME or --node")
	}
	doors, err := openDoors()
	if err != nil {
		return fmt.Errorf("agent: open the kernel's doors (are you root?): %w", err)
	}
	defer doors.close()
	store, err := etcdstore.New(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer store.Close()

	source := syncer.New(store, syncer.Config{Logger: cfg.Log.With("part", "syncer")})
	links := ifmon.New(doors.rtnl)
	routes := fib.New(doors.rtnl)
	loop := dataplane.New(dataplane.Config{
		Policy: nft.New(doors.nft, nft.Config{Prefixes: cfg.Prefixes}),
		Forwarding: []dataplane.Driver{
			host.New(doors.rtnl, doors.sysctl, host.Config{WorkloadPrefixes: cfg.Prefixes}),
			routes,
		},
		Outcomes: func(os []intent.Outcome) { logOutcomes(cfg.Log, os) },
		Log:      cfg.Log.With("part", "dataplane"),
	})
	batches := make(chan intent.Batch)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return named("syncer", source.Run(ctx)) })
	group.Go(func() error { return named("ifmon", links.Run(ctx)) })
	group.Go(func() error { return named("fib", routes.Run(ctx)) })
	group.Go(func() error {
		return named("calc", decide(ctx, calc.New(cfg.Node), source.Batches(), batches, cfg.Log.With("part", "calc")))
	})
	group.Go(func() error { return named("dataplane", loop.Run(ctx, batches, links.Changes())) })
	cfg.Log.Info("agent runs", "node", cfg.Node)
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // asked to stop
}

func named(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// decide is calc's goroutine: updates in, what changes for this node out.
func decide(ctx context.Context, g *calc.Graph, in <-chan syncer.Batch, out chan<- intent.Batch, log *slog.Logger) error {
	problems := problemLog{log: log, told: map[string]string{}}
	synced := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-in:
			if !ok {
				return context.Canceled // the syncer has ended, and says why
			}
			g.Update(readable(b.Updates, &problems))
			if b.InSync && !synced {
				synced = true
				g.SetInSync()
			}
		}
		problems.tell(g.Problems())
		batch := g.Flush()
		if batch.Empty() && !batch.InSync {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case out <- batch:
		}
	}
}

// doors are the sockets through which the kernel is read and written. They
// belong to the namespace in which the process was started.
type doors struct {
	rtnl   *rtnl.Handle
	nft    *nftables.Conn
	sysctl *sysctl.Handle
}

func openDoors() (d doors, err error) {
	if d.rtnl, err = rtnl.Open(); err != nil {
		return d, err
	}
	if d.nft, err = nftables.Open(); err == nil {
		d.sysctl, err = sysctl.Open()
	}
	if err != nil {
		d.close()
	}
	return d, err
}

func (d doors) close() {
	d.rtnl.Close()
	if d.nft != nil {
		d.nft.Close()
	}
}
