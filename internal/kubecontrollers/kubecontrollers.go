// Package kubecontrollers keeps a cluster's resources in step with Kubernetes: what calico-kube-controllers does.
//
// In: a datastore, an API server, the environment and the KubeControllersConfiguration default, which is followed. Out: what hung on
// nodes that left Kubernetes is deleted; addresses that nobody has are freed, after a grace period; Services of type LoadBalancer have
// addresses; policies of Kubernetes that are closed in part, and nodes whose agents do not report, have that in events and conditions, and policies
// on how many nodes they are in force; with etcd,
// Nodes have the labels of
// Kubernetes' nodes, and what Kubernetes says of policies, namespaces, accounts and pods is in etcd (package kubemirror). Of several processes one acts, by a Lease (package leader); all serve health and metrics.
//
// What holds: a process that loses its lease stops before another may begin. Nothing is deleted for a node before Kubernetes has
// been asked for that very node, nor while its agent lives or pods are on it. No address is freed but on proof (package ipam), which has
// held at each look for the whole grace period, and at the last two with not one key changed between.
package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/kubemirror"
	"github.com/twillnet/twill/internal/leader"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/serve"
)

// Config is what a process needs.
type Config struct {
	Store       datastore.Config // of resources
	Cluster     datastore.Config // how to reach Kubernetes, of type kubernetes; the same as Store where its API is the datastore
	Environment Environment
	Namespace   string // of the lease
	ID          string // of this process, in the lease
	Health      string // address at which health is served, such as 127.0.0.1:9440; empty: nowhere
	Version     string
	Log         *slog.Logger
	Level       *slog.LevelVar // of Log; settings change it
}

// LeaseName is the name of the lease.
const LeaseName = "twill-kube-controllers"

// process is one of several.
type process struct {
	cfg     Config
	same    bool            // Kubernetes' API is the datastore
	store   datastore.Store // of resources
	shown   datastore.Store // which shows Kubernetes' nodes
	views   datastore.Store // which shows what Kubernetes has itself, and nothing else
	objects statuses        // says of policies in store which have a status
	cluster *apiserver.Client
	elector *leader.Elector
	metrics *metrics.Controllers
	faults  faults

	health, numbers, profiles *serve.Server
	known                     chan struct{} // closed when the settings are known

	mu       sync.Mutex
	settings Settings
	warned   []string
	again    []func()      // has what is led look again
	changed  chan struct{} // closed when settings change
}

// Run runs until the context ends, or what it leads does.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Environment.Check(); err != nil {
		return err
	}
	p := &process{cfg: cfg, same: cfg.Store.Type == "kubernetes", known: make(chan struct{}), changed: make(chan struct{})}
	store, err := stores.Open(ctx, cfg.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	cfg.Cluster.Views = true
	views, err := stores.Open(ctx, cfg.Cluster)
	if err != nil {
		return err
	}
	defer views.Close()
	p.store, p.shown, p.views = store, store, views
	objects := store
	if !p.same { // the cluster has no definitions of ours
		p.shown, objects = views, views
	}
	p.objects = objects.(statuses) // of an API server
	if p.cluster, err = apiserver.New(cfg.Cluster); err != nil {
		return err
	}
	p.elector = leader.New(leader.Config{Lock: p.cluster.Lease(cfg.Namespace, LeaseName), ID: cfg.ID, Log: cfg.Log.With("part", "lease")})
	p.serve()
	settings := p.follow()
	err = together(ctx, map[string]func(context.Context) error{
		"settings": settings.Run, "health": p.health.Run, "metrics": p.numbers.Run, "profiles": p.profiles.Run,
		"lease": func(ctx context.Context) error { return p.elector.Run(ctx, p.lead) },
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // asked to stop
	}
	return err
}

// together runs parts until one of them ends, and then ends all.
func together(ctx context.Context, parts map[string]func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, run := range parts {
		group.Go(func() error {
			if err := run(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// lead runs the controllers as long as this process has the lease.
func (p *process) lead(ctx context.Context) error {
	select {
	case <-p.known:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.metrics.Leads(true)
	defer p.metrics.Leads(false)
	defer p.leave()
	return together(ctx, p.controllers())
}

// part is a controller.
type part struct {
	run    func(context.Context) error
	synced func() bool // whether it has read what it goes by
}

// controllers are all there are: each runs while this process leads, and does nothing while the settings turn it off.
func (p *process) controllers() map[string]func(context.Context) error {
	log := func(part string) *slog.Logger { return p.cfg.Log.With("part", part) }
	gc := newCollector(collectConfig{
		Store: p.store, Cluster: p.shown, Settings: p.Settings, Pod: p.cluster.Pod, HasMachine: p.cluster.HasMachine, Services: p.cluster, Metrics: p.metrics, Turn: p.faults.turn("addresses"), Log: log("addresses"),
	})
	nodes := newNodes(nodeConfig{
		Store: p.store, Cluster: p.shown, Settings: p.Settings, Deleted: func() { p.metrics.NodeDeleted(); gc.again() }, Turn: p.faults.turn("nodes"), Log: log("nodes"),
	})
	balancer := newBalancer(balancerConfig{
		Store: p.store, Cluster: p.shown, Settings: p.Settings, Services: p.cluster, Turn: p.faults.turn("services"), Log: log("services"),
	})
	hosts := newHosts(hostsConfig{
		Store: p.store, Same: p.same, Environment: p.cfg.Environment, Settings: p.Settings, Turn: p.faults.turn("hostendpoints"), Log: log("hostendpoints"),
	})
	closed := newClosed(closedConfig{Views: p.views, Users: p.cluster, Turn: p.faults.turn("policies"), Log: log("policies")})
	networks := newAvailable(availableConfig{
		Store: p.store, Cluster: p.shown, Settings: p.Settings, Network: p.cluster.NodeNetwork, Turn: p.faults.turn("networks"), Log: log("networks"),
	})
	running := newRunning(runningConfig{
		Store: p.store, Same: p.same, Environment: p.cfg.Environment, Turn: p.faults.turn("configuration"), Log: log("configuration"),
	})
	conditions := newRealised(realisedConfig{
		Store: p.store, Objects: p.objects, Users: p.cluster, Turn: p.faults.turn("conditions"), Log: log("conditions"),
	})
	names := newPolicyNames(policyNamesConfig{Store: p.store, Settings: p.Settings, Turn: p.faults.turn("policynames"), Log: log("policynames")})
	all := map[string]part{
		"nodes":         {nodes.run, nodes.loop.Synced},
		"addresses":     {gc.run, gc.loop.Synced},
		"services":      {balancer.run, balancer.loop.Synced},
		"hostendpoints": {hosts.Run, hosts.Synced},
		"policies":      {closed.run, closed.loop.Synced},
		"conditions":    {conditions.run, conditions.loop.Synced},
		"networks":      {networks.run, networks.loop.Synced},
		"configuration": {running.loop.Run, running.loop.Synced},
		"policynames":   {names.loop.Run, names.loop.Synced},
	}
	p.others(all, gc, log)
	p.mu.Lock()
	p.again = []func(){nodes.again, gc.again, balancer.again, hosts.Again, names.again}
	p.mu.Unlock()
	return p.begin(all)
}

// others are the controllers of one kind of datastore alone.
func (p *process) others(all map[string]part, gc *collector, log func(part string) *slog.Logger) {
	if p.same { // an object of Kubernetes' API that is deleted stays for as long as it has finalizers; elsewhere it is gone
		pools := newPools(holdConfig{Store: p.store, Turn: p.faults.turn("pools"), Log: log("pools")})
		tiers := newTiers(holdConfig{Store: p.store, Turn: p.faults.turn("tiers"), Log: log("tiers")})
		gc.cfg.Counted = pools.counted
		all["pools"], all["tiers"] = part{pools.loop.Run, pools.loop.Synced}, part{tiers.loop.Run, tiers.loop.Synced}
		return
	}
	always := func() bool { return true }
	all["copies"] = part{func(ctx context.Context) error { return p.whenever(ctx, p.copy) }, always}
	all["compaction"] = part{func(ctx context.Context) error { return p.whenever(ctx, p.compact) }, always}
}

// begin has the faults of controllers counted.
func (p *process) begin(all map[string]part) map[string]func(context.Context) error {
	run, synced := map[string]func(context.Context) error{}, map[string]func() bool{}
	for name, c := range all {
		run[name], synced[name] = c.run, c.synced
	}
	p.faults.begin(synced)
	return run
}

// copy keeps in etcd what Kubernetes says.
func (p *process) copy(ctx context.Context, s CopySettings) error {
	p.faults.forget("copies")
	return kubemirror.New(kubemirror.Config{
		From: p.shown, To: p.store, Controllers: append([]string{}, s.Controllers...), Resync: s.Resync, Turn: p.faults.turn("copies"), Log: p.cfg.Log.With("part", "copies"),
	}).Run(ctx)
}

// compact has etcd forget its history.
func (p *process) compact(ctx context.Context, s CopySettings) error {
	turn := p.faults.turn("compaction")
	if err := datastore.CompactEvery(ctx, p.store, s.Compact, func(err error) { turn("history", err) }, p.cfg.Log.With("part", "compaction")); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// whenever runs something until ctx ends, and begins again with the new settings of copies when they change.
func (p *process) whenever(ctx context.Context, run func(context.Context, CopySettings) error) error {
	for {
		s, changed := p.copySettings()
		running, end := context.WithCancel(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			defer end()
			for now := s; equal(now, s); now, changed = p.copySettings() {
				select {
				case <-changed:
				case <-running.Done():
					return
				}
			}
		}()
		err := run(running, s)
		end()
		<-stopped
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

// copySettings are the present ones, and what is closed when any settings change.
func (p *process) copySettings() (CopySettings, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings.Copy, p.changed
}

// leave forgets what was led.
func (p *process) leave() {
	p.mu.Lock()
	p.again = nil
	p.mu.Unlock()
	p.faults.end()
}

// Settings are those in effect.
func (p *process) Settings() Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

const theConfiguration = "default"

// follow returns the loop that keeps the settings as the resource says.
func (p *process) follow() *controller.Controller {
	var now *api.KubeControllersConfiguration
	prefix := api.KeyPrefix(api.KindKubeControllersConfiguration, "")
	loop := controller.New(controller.Config{
		Name: "settings", Store: p.store, Prefixes: []string{prefix}, Log: p.cfg.Log,
		Observe: func(u api.Update) []string {
			if u.Key != prefix+theConfiguration {
				return nil
			}
			if u.Value == nil {
				now = nil
				return []string{theConfiguration}
			}
			st, err := api.Admit(u)
			r, ok := st.Resource.(*api.KubeControllersConfiguration)
			if err != nil || !ok {
				p.cfg.Log.Warn("the KubeControllersConfiguration cannot be read: what it said before stays in effect", "err", err)
				return nil
			}
			now = r
			return []string{theConfiguration}
		},
		Reconcile: func(context.Context, string) (time.Time, error) {
			p.configure(p.cfg.Environment.Resolve(now, p.same))
			return time.Time{}, nil
		},
	})
	loop.Enqueue(theConfiguration, 0) // also without a resource
	return loop
}

// configure brings settings into effect.
func (p *process) configure(s Settings, warnings []string) {
	p.mu.Lock()
	was, first := p.settings, p.warned == nil
	warn := !slices.Equal(p.warned, warnings)
	p.settings, p.warned = s, append([]string{}, warnings...)
	close(p.changed)
	p.changed = make(chan struct{})
	again := p.again
	p.mu.Unlock()
	p.cfg.Level.Set(s.Level)
	p.numbers.Move(listen("", s.MetricsPort))
	p.profiles.Move(listen("127.0.0.1", s.ProfilePort))
	p.health.Move(p.healthAt(s.Health))
	if warn {
		for _, w := range warnings {
			p.cfg.Log.Warn("a setting has no effect", "setting", w)
		}
	}
	if first {
		close(p.known)
	}
	if first || !equal(was, s) {
		p.cfg.Log.Info("settings", "node", s.Node != nil, "nodeSettings", fmt.Sprintf("%+v", s.Node), "copies", fmt.Sprintf("%+v", s.Copy), "loadBalancer", fmt.Sprintf("%+v", s.LoadBalancer), "policyNames", s.PolicyNames, "metricsPort", s.MetricsPort, "profilePort", s.ProfilePort, "health", s.Health)
		for _, look := range again {
			look()
		}
	}
}

func equal[S any](a, b S) bool { return reflect.DeepEqual(a, b) }

// listen is at a port; zero: nowhere. An empty host is all addresses.
func listen(host string, port int) serve.At {
	if port == 0 {
		return serve.At{}
	}
	return serve.At{Network: "tcp", Address: net.JoinHostPort(host, strconv.Itoa(port))}
}

// Patience with the lease: a candidate looks at it every two seconds.
const patience = 30 * time.Second

// serve makes the servers of health and metrics, which listen once the settings are known; health does so before.
func (p *process) serve() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.metrics = metrics.NewControllers(registry)
	p.faults.metrics = p.metrics
	checker := health.New(p.notReady)
	checker.Part("lease", patience, func(context.Context) error {
		if _, age, _ := p.elector.State(); age > patience {
			return fmt.Errorf("has not been looked at for %s", age.Round(time.Second))
		}
		return nil
	})
	numbers := http.NewServeMux()
	numbers.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	log := p.cfg.Log.With("part", "listen")
	p.health, p.numbers = serve.New("health", checker.Handler(), log), serve.New("metrics", numbers, log)
	p.profiles = serve.New("profiles", serve.Profiles(), log)
	p.health.Move(p.healthAt(true))
}

func (p *process) healthAt(on bool) serve.At {
	if !on || p.cfg.Health == "" {
		return serve.At{}
	}
	return serve.At{Network: "tcp", Address: p.cfg.Health}
}

// notReady says why this process could not act, or does not although it leads. One that waits to take over is ready.
func (p *process) notReady() (reasons []string) {
	if _, _, err := p.elector.State(); err != nil {
		reasons = append(reasons, err.Error())
	}
	select {
	case <-p.known:
	default:
		reasons = append(reasons, "the datastore has not said which settings there are")
	}
	return append(reasons, p.faults.reasons()...)
}
