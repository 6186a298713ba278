// Package daemon joins the parts of `twill bgp`; it has no logic of its own.
//
// In: a [Config]. Out: datastore → syncer → plan → speaker ↔ kernel, and a socket that says how it is. The last plan is
// kept on disk, so that a speaker that starts while the datastore is away goes on with it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/probe"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/serve"
	"github.com/twillnet/twill/internal/syncer"
)

// Config is all that the daemon must be told.
type Config struct {
	Node     string // this node's name in the datastore
	RouterID string // see [plan.World]
	Store    datastore.Config
	Dir      string // where the last plan is kept
	Secrets  string // passwords: a folder for each secret, a file for each of its keys
	Socket   string // where to answer; empty: nowhere
	BFD      string // the BFD daemon's socket; empty: there is none
	Version  string
	// Reflector: this host reflects, and does nothing else.
	Reflector bool
	Log       *slog.Logger
}

const (
	redial     = 2 * time.Second
	lookAgain  = 5 * time.Second // at files of passwords
	planFile   = "bgp-plan.json"
	socketName = "BGP's socket"
)

// Run speaks BGP in the network namespace of the calling thread's process until the context ends.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Node == "" {
		return errors.New("bgp: no node name; set NODENAME or --node")
	}
	if err := plan.CheckRouterID(cfg.RouterID); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	h, err := rtnl.Open()
	if err != nil {
		return fmt.Errorf("bgp: open the kernel's door (are you root?): %w", err)
	}
	defer h.Close()
	secrets, plans := newSecretDir(cfg.Secrets), make(chan plan.Plan)
	k := newKeeper(cfg, plans, secrets)
	alive := make(chan []bfd.Status)
	s := speaker.New(speaker.Config{
		Rtnl: h, Secret: secrets.read, Alive: alive, Answers: answersEcho, Returns: cfg.Reflector && k.before.Node != "", Log: cfg.Log.With("part", "speaker"),
	})
	k.statuses = statuses{s, h}
	socket := serve.New(socketName, answers(s), cfg.Log)
	if cfg.Socket != "" {
		socket.Move(serve.At{Network: "unix", Address: cfg.Socket})
	}
	group, ctx := errgroup.WithContext(ctx)
	parts := map[string]func(context.Context) error{
		"speaker": func(ctx context.Context) error { return s.Run(ctx, plans) },
		"socket":  socket.Run,
		"plan":    k.run,
	}
	if cfg.BFD != "" {
		parts["BFD"] = func(ctx context.Context) error { return watchBFD(ctx, cfg.BFD, alive, cfg.Log) }
	}
	for name, run := range parts {
		group.Go(func() error { return fmt.Errorf("%s: %w", name, run(ctx)) })
	}
	cfg.Log.Info("bgp runs", "node", cfg.Node)
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // asked to stop: peers are told nothing, and keep what they have until we are back
}

// echoSize is the bytes of an IP packet that asks whether a path is alive: small enough for every way.
const echoSize = 64

func answersEcho(peer netip.Addr, within time.Duration) error {
	return probe.Echo(peer, echoSize, within)
}

// keeper makes plans of what the datastore has, and keeps the last.
type keeper struct {
	cfg      Config
	statuses statuses // zero: nobody is told how sessions are
	out      chan<- plan.Plan
	secrets  *secretDir
	file     string
	before   plan.Plan // of the last run
	last     plan.Plan
	unkept   bool   // last is to be on disk, and is not
	said     string // why, as the log has it
}

// newKeeper reads the plan of before, if it is one of this node in its present part.
func newKeeper(cfg Config, out chan<- plan.Plan, secrets *secretDir) *keeper {
	k := &keeper{cfg: cfg, out: out, secrets: secrets, file: filepath.Join(cfg.Dir, planFile)}
	if p, err := load(k.file); err == nil && p.Node == cfg.Node && p.Dedicated == cfg.Reflector {
		k.before = p
	}
	return k
}

func (k *keeper) run(ctx context.Context) error {
	if k.before.Node != "" {
		k.cfg.Log.Info("going on with the last plan until the datastore answers", "file", k.file)
		if err := k.send(ctx, k.before); err != nil {
			return err
		}
	}
	store, err := k.dial(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	group, ctx := errgroup.WithContext(ctx)
	if k.statuses.speaker != nil {
		keep := nodestatus.New(nodestatus.Config{Node: k.cfg.Node, Store: store, Ask: k.statuses.facts(k.cfg.Version), Log: k.cfg.Log.With("part", "status")})
		group.Go(func() error { return keep.Run(ctx) })
	}
	source := syncer.New(store, syncer.Config{Prefixes: plan.Prefixes(), Logger: k.cfg.Log.With("part", "syncer")})
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error { return k.follow(ctx, source.Batches()) })
	return group.Wait()
}

// dial waits until the datastore answers.
func (k *keeper) dial(ctx context.Context) (datastore.Client, error) {
	said := ""
	for {
		store, err := stores.Open(ctx, k.cfg.Store)
		if err == nil {
			return store, nil
		}
		if said != err.Error() {
			k.cfg.Log.Error("datastore", "err", err, "retry_in", redial)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(redial):
		}
	}
}

// follow turns batches into plans. A plan is made only of all that there is: half a world would close sessions.
func (k *keeper) follow(ctx context.Context, batches <-chan syncer.Batch) error {
	world, complete := plan.New(), false
	world.RouterID = k.cfg.RouterID
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	marks := k.secrets.marks(k.last)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, open := <-batches:
			if !open {
				return ctx.Err()
			}
			for _, u := range b.Updates {
				world.Update(u)
			}
			if complete = complete || b.InSync; !complete {
				continue
			}
			p := world.Plan(k.cfg.Node)
			if k.cfg.Reflector {
				p = p.Reflector()
			}
			if reflect.DeepEqual(p, k.last) {
				continue
			}
			if err := k.send(ctx, p); err != nil {
				return err
			}
			marks = k.secrets.marks(p)
			k.unkept = true
			k.keep()
		case <-look.C:
			k.keep()
			if fresh := k.secrets.marks(k.last); fresh != marks {
				marks = fresh
				if err := k.send(ctx, k.last); err != nil {
					return err
				}
			}
		}
	}
}

// keep writes the last plan to disk, if that is still to do.
func (k *keeper) keep() {
	if !k.unkept {
		return
	}
	err := save(k.file, k.last)
	if err == nil {
		k.unkept, k.said = false, ""
		return
	}
	if why := err.Error(); why != k.said {
		k.said = why
		k.cfg.Log.Error("the last plan is not kept: without the datastore a restart would know no peers", "err", err, "retry_in", lookAgain)
	}
}

func (k *keeper) send(ctx context.Context, p plan.Plan) error {
	for _, problem := range p.Problems {
		if !slices.Contains(k.last.Problems, problem) {
			k.cfg.Log.Warn("resource", "err", problem)
		}
	}
	k.last = p
	select {
	case k.out <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
