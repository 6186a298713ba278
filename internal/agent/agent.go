// Package agent joins the parts of the per-host agent; it has no logic of its own.
//
// In: a [Config]. Out: a running agent: datastore → syncer → calc → dataplane →
// kernel, each a named goroutine in one group; status, health and metrics
// beside them. It ends when its context does or when a part of it cannot go on;
// the kernel keeps what it has.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/dataplane/flows"
	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/syncer"
	"github.com/twillnet/twill/internal/upkeep"
)

// Config is all that an agent must be told.
type Config struct {
	Node     string // this node's name in the datastore
	Store    etcdstore.Config
	Local    []config.Layer   // settings known without the datastore, lowest first
	Problems []config.Problem // what was wrong in these
	Version  string
	Socket   string // where to answer `twill status` and plugins; empty: nowhere
	Log      *slog.Logger
	Level    *slog.LevelVar // of Log; settings change it
}

// followed are the keys of which calc is told.
var followed = []string{api.ResourcesPrefix, api.BlockPrefix}

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

	graph := calc.New(cfg.Node, cfg.Local...)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	watch := newReporter(cfg, store, metrics.New(registry))
	source := syncer.New(store, syncer.Config{Prefixes: followed, Logger: cfg.Log.With("part", "syncer")})
	links := ifmon.New(doors.rtnl)
	names := attribution.New()
	policy := nft.New(doors.nft, nft.Config{Prefixes: graph.Settings().Settings.InterfacePrefixes, Names: names})
	interfaces := host.New(doors.rtnl, doors.sysctl, host.Config{})
	routes := fib.New(doors.rtnl)
	live := revoke.New(revoke.Config{Table: doors.conntrack, Local: doors.addrs, Log: cfg.Log.With("part", "revoke")})
	reports := flows.New(flows.Config{Names: names, Open: openReports, Staged: live.Staged, Log: cfg.Log.With("part", "flows")})
	loop := dataplane.New(dataplane.Config{
		Policy: policy, Forwarding: []dataplane.Driver{live, reports, interfaces, routes},
		Outcomes: watch.outcomes, Observer: watch, Log: cfg.Log.With("part", "dataplane"),
	})
	batches := make(chan intent.Batch)
	keep := upkeep.New(upkeep.Config{Node: cfg.Node, Store: store, Log: cfg.Log.With("part", "upkeep")})
	d := decider{node: cfg.Node, graph: graph, watch: watch, keep: keep, in: source.Batches(), out: batches, log: cfg.Log.With("part", "calc"), pings: make(chan struct{}), local: make(chan local)}
	plugins := attach.New(attach.Config{
		Node: cfg.Node, Store: store, Addresses: attach.NewAddresses(store, cfg.Node), Kernel: attached{&d, watch}, Notes: wire.NotesOf(cfg.Socket), Log: cfg.Log.With("part", "attach"),
	})
	checker := health.New(watch.notReady)
	checker.Part(partSyncer, quick, source.Ping)
	checker.Part(partCalc, slow, d.Ping)
	checker.Part(partDataplane, slow, loop.Ping)
	door := &doorway{watch: watch, checker: checker, metrics: registry, tally: tally{doors.counts, names, reports}, plugins: plugins}
	watch.metrics.Traffic(door.tally.traffic)
	listen := door.listeners(cfg)
	d.settings = []func(config.Settings){door.configure, listen.configure}

	group, ctx := errgroup.WithContext(ctx)
	for name, run := range map[string]func(context.Context) error{
		"syncer": source.Run, "ifmon": links.Run, "fib": routes.Run, "host": interfaces.Run, "calc": d.run, "revoke": live.Run, "flows": reports.Run, "attach": plugins.Run,
		"status": watch.run, "upkeep": keep.Run, "socket": listen.socket.Run, "health": listen.health.Run, "metrics": listen.metrics.Run, "profiles": listen.debug.Run,
		"nft":       func(ctx context.Context) error { return policy.Run(ctx, doors.nftEvents) },
		"dataplane": func(ctx context.Context) error { return loop.Run(ctx, batches, links.Changes()) },
	} {
		group.Go(func() error { return named(name, run(ctx)) })
	}
	cfg.Log.Info("agent runs", "node", cfg.Node, "version", cfg.Version)
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // asked to stop
}

// attached is what attach needs of the agent.
type attached struct {
	*decider
	*reporter
}

func (a attached) NotReady() []string { return a.reporter.notReady() }

func named(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// doors are the sockets through which the kernel is read and written. They
// belong to the namespace in which the process was started.
type doors struct {
	rtnl      *rtnl.Handle
	nft       *nftables.Conn
	counts    *nftables.Conn // to read what rules counted, while nft is at work
	nftEvents *nftables.Watcher
	sysctl    *sysctl.Handle
	conntrack *conntrack.Conn
}

// openReports opens what rules report.
func openReports() (flows.Source, error) {
	return nflog.Open(nflog.Config{Group: kernel.NFLogVerdicts})
}

// addrs are the host's own addresses.
func (d doors) addrs() ([]netip.Addr, error) {
	as, err := d.rtnl.Addrs()
	out := make([]netip.Addr, 0, len(as))
	for _, a := range as {
		out = append(out, a.Prefix.Addr())
	}
	return out, err
}

func openDoors() (d doors, err error) {
	if d.rtnl, err = rtnl.Open(); err != nil {
		return d, err
	}
	if d.nft, err = nftables.Open(); err == nil {
		d.nftEvents, err = nftables.Watch(d.nft)
	}
	if err == nil {
		d.counts, err = nftables.Open()
	}
	if err == nil {
		d.sysctl, err = sysctl.Open()
	}
	if err == nil {
		d.conntrack, err = conntrack.Open()
	}
	if err != nil {
		d.close()
	}
	return d, err
}

func (d doors) close() {
	d.rtnl.Close()
	for _, c := range []*nftables.Conn{d.nft, d.counts} {
		if c != nil {
			c.Close()
		}
	}
	if d.nftEvents != nil {
		d.nftEvents.Close()
	}
	if d.sysctl != nil {
		d.sysctl.Close()
	}
	if d.conntrack != nil {
		_ = d.conntrack.Close()
	}
}
