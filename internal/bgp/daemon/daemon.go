// Package daemon joins the parts of `twill bgp`; it has no logic of its own.
//
// In: a [Config]. Out: datastore → syncer → plan → speaker ↔ kernel, and a socket that serves its state. The last plan is
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

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/probe"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/relay/discovery"
	"github.com/twillnet/twill/internal/serve"
	"github.com/twillnet/twill/internal/syncer"
)

// Config is what the daemon needs.
type Config struct {
	Node     string // this node's name in the datastore
	RouterID string // see [plan.Resources]
	Store    datastore.Config
	Relay    config.Relay   // by which the plan is read, and what CalicoNodeStatuses ask for
	Local    []config.Layer // what the agent has of settings that are not the datastore's
	Dir      string         // where the last plan is kept
	// Secrets is where passwords are files: a folder for each secret, a file for each of its keys. Empty: they are Secrets of Kubernetes, in
	// SecretsNamespace, if that is the datastore, and else at DefaultSecrets.
	Secrets, SecretsNamespace string
	Socket                    string // of the HTTP server; empty: none
	BFD                       string // the BFD daemon's socket; empty: there is none
	Version                   string
	// Reflector: this host is a dedicated route reflector.
	Reflector bool
	Log       *slog.Logger
	Level     *slog.LevelVar // of Log; resources may set it. nil: they may not
}

const (
	dialRetry          = 2 * time.Second
	secretPollInterval = 5 * time.Second // at files of passwords
	planFile           = "bgp-plan.json"
	socketName         = "BGP's socket"
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
		return fmt.Errorf("bgp: open netlink (are you root?): %w", err)
	}
	defer h.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	secrets, err := newPasswords(ctx, cfg)
	if err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	plans := make(chan plan.Plan)
	k := newPlanSource(cfg, plans, secrets)
	alive := make(chan []bfd.Status)
	s := speaker.New(speaker.Config{
		Rtnl: h, Secret: secrets.read, BFD: alive, Echo: echo(h), Restarting: cfg.Reflector && k.previous.Node != "", Log: cfg.Log.With("part", "speaker"),
	})
	k.statuses = statuses{s, h}
	socket := serve.New(socketName, handler(s), cfg.Log)
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
	return nil // asked to stop: peers get no notification, and retain our routes until we are back
}

// echoSize is the size in bytes of the IP packet of an echo: small enough for any path.
const echoSize = 64

// echo asks a peer by the way of encrypted packets, so that it answers also while keys are not agreed upon.
func echo(h *rtnl.Handle) func(netip.Addr, time.Duration) error {
	return func(peer netip.Addr, within time.Duration) error {
		mark, err := h.EncryptedMark()
		if err != nil {
			return err
		}
		return probe.Echo(peer, echoSize, mark, within)
	}
}

// planSource makes plans from the datastore, and stores the last on disk.
type planSource struct {
	cfg      Config
	statuses statuses // zero: no CalicoNodeStatus is written
	out      chan<- plan.Plan
	secrets  passwords
	file     string
	marks    string    // of the last plan's passwords
	previous plan.Plan // stored by the last run
	last     plan.Plan
	unsaved  bool       // last is not on disk yet
	frozen   bool       // the datastore is not ready
	began    bool       // this process has made a plan of what the datastore holds
	needs    needs      // what this plan depends on, in addition to what every plan does
	bird     bool       // plans are for BIRD
	keys     bool       // plans have keys for templates
	flagged  slog.Level // of the log, if resources do not set it
	logged   string     // the error that was logged last
}

// newPlanSource reads the stored plan, if it is of this node and in the same role.
func newPlanSource(cfg Config, out chan<- plan.Plan, secrets passwords) *planSource {
	k := &planSource{cfg: cfg, out: out, secrets: secrets, file: filepath.Join(cfg.Dir, planFile)}
	if cfg.Level != nil {
		k.flagged = cfg.Level.Level()
	}
	if p, err := load(k.file); err == nil && p.Node == cfg.Node && p.Dedicated == cfg.Reflector {
		k.previous = p
	}
	return k
}

// Remains reports whether a speaker that ran before on this host left a plan with sessions in a directory.
func Remains(dir, node string) bool {
	p, err := load(filepath.Join(dir, planFile))
	return err == nil && p.Node == node && len(p.Sessions) > 0
}

func (k *planSource) run(ctx context.Context) error {
	if k.previous.Node != "" {
		k.cfg.Log.Info("going on with the last plan until the datastore answers", "file", k.file)
		if err := k.send(ctx, k.previous); err != nil {
			return err
		}
	}
	store, read, done, err := k.dial(ctx)
	if err != nil {
		return err
	}
	defer done()
	group, ctx := errgroup.WithContext(ctx)
	if k.statuses.speaker != nil {
		keep := nodestatus.New(nodestatus.Config{Node: k.cfg.Node, Store: store, Read: read, Ask: k.statuses.facts(k.cfg.Version), Log: k.cfg.Log.With("part", "status")})
		group.Go(func() error { return keep.Run(ctx) })
	}
	group.Go(func() error { return k.plans(ctx, read) })
	return group.Wait()
}

// plans makes plans of what a datastore has, until the context ends.
func (k *planSource) plans(ctx context.Context, store datastore.Store) error {
	for {
		if err := k.watch(ctx, store); !errors.Is(err, errOtherNeeds) {
			return err
		}
	}
}

// errOtherNeeds ends a watch that follows services or workloads in vain, or lacks them. The last plan holds meanwhile.
var errOtherNeeds = errors.New("the plan depends on services or workloads now, or no longer")

// watch is plans until its needs change. Services and workloads change often, and there are many: they are followed only by those whose plan
// depends on some.
func (k *planSource) watch(ctx context.Context, store datastore.Store) error {
	prefixes := k.prefixes()
	source := syncer.New(store, syncer.Config{Prefixes: prefixes, Logger: k.cfg.Log.With("part", "syncer")})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error { return k.follow(ctx, source.Batches()) })
	return group.Wait()
}

// dial waits until the datastore answers, of which what is watched may be a relay's. Done closes both.
func (k *planSource) dial(ctx context.Context) (store, read datastore.Store, done func(), err error) {
	logged := ""
	for {
		opened, err := stores.Open(ctx, k.cfg.Store)
		if err == nil {
			read, end, failed := discovery.Reading(opened, discovery.Host{Relay: k.cfg.Relay, Cluster: k.cfg.Store, Who: relay.Who{Node: k.cfg.Node, Program: "bgp", Version: k.cfg.Version}, Log: k.cfg.Log})
			if failed == nil {
				return opened, read, func() { end(); _ = opened.Close() }, nil
			}
			_ = opened.Close()
			err = failed
		}
		if logged != err.Error() {
			k.cfg.Log.Error("datastore", "err", err, "retry_in", dialRetry)
			logged = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil, nil, nil, ctx.Err()
		case <-time.After(dialRetry):
		}
	}
}

// follow turns batches into plans. A plan is made only once in sync: a part of the resources would close sessions.
func (k *planSource) follow(ctx context.Context, batches <-chan syncer.Batch) error {
	resources, complete := k.resources(), false
	look := time.NewTicker(secretPollInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, open := <-batches:
			if !open {
				return ctx.Err()
			}
			for _, u := range b.Updates {
				resources.Update(u)
			}
			if b.InSync && !complete && !k.began && len(k.last.Sessions) > 0 && resources.Readiness() == api.Blank {
				resources.Lost() // these sessions, of before this process, were made of something
			}
			if complete = complete || b.InSync; !complete || k.freeze(resources) {
				continue
			}
			k.began = true
			if needs := k.needsOf(resources); needs != k.needs {
				k.needs = needs
				return errOtherNeeds
			}
			p := k.plan(resources)
			if reflect.DeepEqual(p, k.last) {
				continue
			}
			if err := k.send(ctx, p); err != nil {
				return err
			}
			k.unsaved = true
			k.saveIfPending()
		case <-look.C:
			k.saveIfPending()
			if err := k.sendIfChanged(ctx); err != nil {
				return err
			}
		case <-k.secrets.changes():
			if err := k.sendIfChanged(ctx); err != nil {
				return err
			}
		}
	}
}

// freeze reports whether the datastore says that nothing it holds may be acted upon.
func (k *planSource) freeze(r *plan.Resources) bool {
	if now := r.Readiness(); now.Frozen() != k.frozen {
		k.frozen = now.Frozen()
		if k.frozen {
			k.cfg.Log.Warn("the datastore is not ready; sessions and routes stay as they are", "reason", now.Why())
		} else {
			k.cfg.Log.Info("the datastore is ready again")
		}
	}
	return k.frozen
}

// saveIfPending writes the last plan to disk, unless that is done.
func (k *planSource) saveIfPending() {
	if !k.unsaved {
		return
	}
	err := save(k.file, k.last)
	if err == nil {
		k.unsaved, k.logged = false, ""
		return
	}
	if why := err.Error(); why != k.logged {
		k.logged = why
		k.cfg.Log.Error("the plan cannot be saved: a restart without the datastore would have no peers", "err", err, "retry_in", secretPollInterval)
	}
}

// sendIfChanged sends the last plan again if a password of it has changed.
func (k *planSource) sendIfChanged(ctx context.Context) error {
	if k.secrets.stamps(k.last) == k.marks {
		return nil
	}
	return k.send(ctx, k.last)
}

func (k *planSource) send(ctx context.Context, p plan.Plan) error {
	k.logAs(p.LogSeverity)
	for _, problem := range p.Problems {
		if !slices.Contains(k.last.Problems, problem) {
			k.cfg.Log.Warn("resource", "err", problem)
		}
	}
	k.secrets.use(ctx, p)
	k.last, k.marks = p, k.secrets.stamps(p) // what changes from now on is sent again
	select {
	case k.out <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
