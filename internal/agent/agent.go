// Package agent joins the parts of the per-host agent; it has no logic of its own.
//
// In: a [Config]. Out: a running agent: datastore → syncer → calc → dataplane →
// kernel, each a named goroutine in one group; status, health and metrics
// in addition. It ends when its context does or when a part of it fails;
// the kernel's state stays.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

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
	"github.com/twillnet/twill/internal/dataplane/policysync"
	"github.com/twillnet/twill/internal/dataplane/proxy"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/dataplane/shape"
	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
	"github.com/twillnet/twill/internal/kernel/wg"
	"github.com/twillnet/twill/internal/logs"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/syncer"
	"github.com/twillnet/twill/internal/tunneladdr"
	"github.com/twillnet/twill/internal/upkeep"
)

// Config is what an agent needs.
type Config struct {
	Node     string // this node's name in the datastore
	Store    datastore.Config
	Local    []config.Layer   // settings known without the datastore, lowest first
	Problems []config.Problem // problems in Local
	Version  string
	Socket   string // of the server for `twill status` and plugins; empty: none
	Log      *slog.Logger
	Level    *slog.LevelVar // of Log; settings change it
	JSON     bool           // lines of Log are JSON, and so are those of the log file that settings ask for

	logs *logs.Logs // what else Log writes to; nil: nothing
}

// watchedPrefixes are the prefixes of the keys that calc needs.
var watchedPrefixes = []string{api.ResourcesPrefix, api.BlockPrefix}

// run runs an agent until it ends. Its policy goes to a backend; none: to that with which an agent begins. The error is an [other] if settings want
// another one.
func run(ctx context.Context, cfg Config, in backend) error {
	handles, graph, in, err := begin(cfg, in)
	if err != nil {
		return fmt.Errorf("agent: open netlink (are you root?): %w", err)
	}
	defer handles.close()
	store, read, done, err := openStore(ctx, cfg, graph.Settings().Settings.Relay)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer done()

	registry := newRegistry()
	watch := newReporter(cfg, store, metrics.New(registry))
	watch.links, watch.wireguard = handles.rtnl.Links, wgDoor{handles.wireguard(cfg.Socket), handles.rtnl}
	source := syncer.New(read, syncer.Config{Prefixes: watchedPrefixes, Logger: cfg.Log.With("part", "syncer")})
	links, names := ifmon.New(handles.rtnl), attribution.New()
	handles.probeOwner(cfg.Log, graph.Settings().Settings)
	tunnels := tunneladdr.New(tunneladdr.Config{Node: cfg.Node, Store: store, Know: source.Know, Log: cfg.Log.With("part", "tunnels")})
	policy, watchPolicy := handles.policy(in, cfg, graph.Settings().Settings.InterfacePrefixes, names, tunnels.Key)
	interfaces, routes := host.New(handles.rtnl, handles.sysctl, host.Config{}), handles.routes(ctx)
	live := revoke.New(revoke.Config{Table: handles.conntrack, Local: handles.addrs, Log: cfg.Log.With("part", "revoke")})
	dropped, logged := newCollectors(cfg.Log, names, live)
	arrived, heap := &arrival{all: make(chan struct{})}, &heapProfiles{log: cfg.Log}
	devices := tunnel.New(handles.rtnl, tunnel.Config{MTUFile: mtuFile(cfg.Socket), Notify: watch.sized, WireGuard: handles.wireguard(cfg.Socket), Sysctl: handles.sysctl, Keys: tunnels.Key})
	proxies := newProxies(cfg, graph)
	forwarding, followers := in.parts([]dataplane.Driver{interfaces, devices, routes, shape.New(handles.rtnl), proxy.New(handles.rtnl, handles.sysctl)}, []dataplane.Follower{live, dropped, logged}, arrived)
	loop := dataplane.New(dataplane.Config{
		Policy: policy, Forwarding: forwarding, Followers: append(followers, proxies.Server),
		Outcomes: watch.outcomes, Observer: watch, Log: cfg.Log.With("part", "dataplane"),
	})
	batches := make(chan intent.Batch)
	keep := upkeep.New(upkeep.Config{Node: cfg.Node, Store: store, Know: source.Know, Log: cfg.Log.With("part", "upkeep")})
	d := calcLoop{node: cfg.Node, graph: graph, watch: watch, keep: keepers{keep, tunnels}, in: source.Batches(), out: batches, log: cfg.Log.With("part", "calc"), pings: make(chan struct{}), local: make(chan local), proxied: proxies.changed, hold: handles.guarded(cfg.Log) || handles.elsewhere(in), remains: handles.remains(graph.Settings().Settings), overlay: attach.Overlay{Order: datastore.OrderOf(store)}}
	ended, report, err := newFeedback(cfg)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	plugins := attach.New(attach.Config{
		Node: cfg.Node, Store: store, Addresses: attach.NewAddresses(store, cfg.Node), Kernel: attached{&d, watch}, Know: source.Know, Ended: ended, Claimants: watch.claimants, MTU: watch.mtu, Frozen: watch.frozen(store), Notes: wire.NotesOf(cfg.Socket), Log: cfg.Log.With("part", "attach"),
	})
	claims := d.claims(cfg, store, handles, source.Know)
	server := &handlers{watch: watch, checker: newChecker(watch.unprobed, source.Ping, d.Ping, loop.Ping), metrics: registry, tally: tally{handles.counts, names, dropped, logged, policy}, plugins: plugins}
	watch.measure(server.tally)
	listen := server.listeners(cfg)
	within, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	d.settings = append(informing(policy, graph), func(s config.Settings) { links.Refresh(s.InterfaceRefresh) }, heap.configure, claims.Configure, server.configure, listen.configure, d.wanting(tunnels), d.choosing(handles, in, leave), d.proxying(proxies))

	err = together(within, map[string]func(context.Context) error{
		"syncer": source.Run, "ifmon": links.Run, "fib": routes.Run, "devices": devices.Run, "host": interfaces.Run, "calc": d.run, "revoke": live.Run, "flows": dropped.Run, "logs": logged.Run, "attach": plugins.Run, "feedback": report, "leftovers": watch.leftovers.run,
		"endpoint plugins": claims.Run, "status": watch.run, "endpoint files": watch.files.Run, "usage": watch.usage.Run, "upkeep": keep.Run, "tunnels": tunnels.Run, "policy sync": proxies.Run, "socket": listen.socket.Run, "health": listen.health.Run, "metrics": listen.metrics.Run, "profiles": listen.debug.Run, "memory profiles": heap.run,
		"policy":    watchPolicy,
		"backends":  func(ctx context.Context) error { return handles.leaveOthers(ctx, in, policy, arrived, cfg.Log) },
		"overlay":   func(ctx context.Context) error { return d.overlay.Verify(ctx, store, d.apply) },
		"dataplane": func(ctx context.Context) error { return loop.Run(ctx, batches, links.Changes()) },
	}, func() { cfg.Log.Info("agent runs", "node", cfg.Node, "version", cfg.Version) })
	return end(within, err)
}

// end is why an agent has ended; nil: it was asked to.
func end(ctx context.Context, err error) error {
	if to, ok := errors.AsType[other](context.Cause(ctx)); ok {
		return to
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// together runs parts until one of them ends, or the context, and then ends all. It calls started once all run.
func together(ctx context.Context, parts map[string]func(context.Context) error, started func()) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, run := range parts {
		group.Go(func() error { return named(name, run(ctx)) })
	}
	started()
	return group.Wait()
}

// newRegistry returns a registry with the metrics of the process itself.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// probeOwner logs if this kernel cannot protect our table from changes by others, although the settings ask for it.
func (d kernelHandles) probeOwner(log *slog.Logger, s config.Settings) {
	if err := d.nft.ProbeOwner(); err != nil && s.OwnTable {
		log.Warn("others may change the nftables table, see docs/decisions/015", "table", table, "err", err)
	}
}

// mtuFile is empty without a socket: nobody attaches workloads.
func mtuFile(socket string) string {
	if socket == "" {
		return ""
	}
	return wire.MTUFileOf(socket)
}

// wanting returns what hands on, to the keeper of addresses of tunnels, whether settings want WireGuard.
func (d *calcLoop) wanting(tunnels *tunneladdr.Controller) func(config.Settings) {
	return func(s config.Settings) {
		if d.synced { // before, that nobody wants it means nothing
			tunnels.Want(s.WireGuard.Enabled)
		}
	}
}

// wireguard returns the door to WireGuard devices; those of processes are found by the agent's socket.
func (d kernelHandles) wireguard(socket string) *wg.Handle {
	cfg := wg.Config{Command: []string{"/proc/self/exe", "wireguard"}}
	if socket != "" {
		cfg.Dir = wire.TunnelSockets(socket)
	}
	return wg.New(d.rtnl.Namespace(), cfg)
}

// attached implements [attach.Kernel].
type attached struct {
	*calcLoop
	*reporter
}

func (a attached) NotReady() []string { return a.reporter.notReady() }

func named(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// kernelHandles are the sockets through which the kernel is read and written. They
// belong to the namespace in which the process was started.
type kernelHandles struct {
	rtnl      *rtnl.Handle
	nft       *nftables.Conn
	counts    *nftables.Conn // reads counters, concurrently with nft
	readConn  *nftables.Conn // reads the table back, likewise
	nftEvents *nftables.Watcher
	sysctl    *sysctl.Handle
	conntrack *conntrack.Conn
}

// routes is the driver of routes, which sees virtual machines that come, until the context ends.
func (d kernelHandles) routes(ctx context.Context) *fib.Table {
	t := fib.New(d.rtnl)
	t.Arrivals(ctx, func(f func()) { f() })
	return t
}

// newCollectors returns the collectors of flows that rules decided about, and of those that rules with action Log logged: each
// has flows and listeners of its own, so that logs do not push drops out.
func newCollectors(log *slog.Logger, names *attribution.Table, live *revoke.Driver) (dropped, logged *flows.Collector) {
	open := func(group uint16) func() (flows.Source, error) {
		return func() (flows.Source, error) { return nflog.Open(nflog.Config{Group: group}) }
	}
	dropped = flows.New(flows.Config{Names: names, Open: open(kernel.NFLogVerdicts), Staged: live.Staged, Log: log.With("part", "flows")})
	log = log.With("part", "logs")
	logged = flows.New(flows.Config{Names: names, Open: open(kernel.NFLogLogged), What: "what rules with action Log match", Log: log, Print: log})
	return dropped, logged
}

// begin opens the kernel's interfaces, makes calc, and finds out in which backend policy is, if that is not given.
func begin(cfg Config, in backend) (kernelHandles, *calc.Graph, backend, error) {
	d, err := openKernel()
	if err != nil {
		return d, nil, in, err
	}
	g, err := d.graph(cfg)
	if err == nil && in == "" {
		logging(cfg.Level, cfg.logs, g.Settings().Settings)
		in, err = d.begins(g.Settings().Settings, noted(cfg.Socket))
	}
	if err == nil {
		err = in.note(cfg.Socket)
	}
	if err != nil {
		d.close()
	}
	return d, g, in, err
}

// graph makes calc for the host, with the interfaces that plugins attached before: by their alias, which only the
// host can write.
func (d kernelHandles) graph(cfg Config) (*calc.Graph, error) {
	links, err := d.rtnl.Links()
	g := calc.New(cfg.Node, cfg.Local...)
	if is, noErr := policysync.Noted(cfg.proxied()); noErr == nil { // else nobody has a proxy, which an agent logs
		g.Proxied(is)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Alias, wire.AliasPrefix) {
			g.Attached(l.Name)
		}
	}
	return g, err
}

// addrs returns the host's own addresses.
func (d kernelHandles) addrs() ([]netip.Addr, error) {
	as, err := d.rtnl.Addrs()
	out := make([]netip.Addr, 0, len(as))
	for _, a := range as {
		out = append(out, a.Prefix.Addr())
	}
	return out, err
}

func openKernel() (d kernelHandles, err error) {
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
		d.readConn, err = nftables.Open()
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

func (d kernelHandles) close() {
	d.rtnl.Close()
	for _, c := range []*nftables.Conn{d.nft, d.counts, d.readConn} {
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
