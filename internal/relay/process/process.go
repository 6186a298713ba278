// Package process is `twill relay`: a relay with a store, a listener, health and metrics.
//
// In: a [Config]. Out: a relay that serves, until its context ends; then it sends its clients elsewhere, and ends.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/relay/discovery"
	"github.com/twillnet/twill/internal/serve"
)

// Config is what a relay needs.
type Config struct {
	Store     datastore.Config
	Listen    string // HOST:PORT or unix://PATH
	TLS       relay.TLS
	Plaintext bool   // serve without TLS although others than this machine may reach the address
	Health    string // address at which health is served; empty: nowhere
	Metrics   string // likewise
	Socket    string // a path, where [Ask] asks; empty: nowhere
	Signs     relay.Signs
	Limits    relay.Limits
	Relays    int // how many there are, this one among them; zero: Service says it, or nobody
	Service   Service
	Drain     time.Duration
	Log       *slog.Logger
}

// Service is a Service of Kubernetes whose ready endpoints are the relays of a cluster; without a name there is none.
type Service struct {
	Namespace, Name, Port string
	Cluster               datastore.Config // where Kubernetes is
}

// Check returns an error if the relay would serve what it must not, or cannot.
func (c Config) Check() error {
	switch none := c.TLS == (relay.TLS{}); {
	case c.Plaintext && !none:
		return errors.New("--plaintext and files of TLS: leave one of them out")
	case none && !c.Plaintext && !relay.Near(c.Listen):
		return fmt.Errorf("%s is not of this machine alone: whoever reaches it would read the datastore. Give --tls-cert, --tls-key and --tls-ca, or say --plaintext", c.Listen)
	case none:
		return nil
	}
	return c.TLS.Check()
}

// count returns what says how many relays there are whenever that changes, until its context ends.
func (c Config) count(set func(relays int)) (func(context.Context) error, error) {
	set(c.Relays)
	if c.Service.Name == "" || c.Relays > 0 {
		return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil
	}
	client, err := apiserver.New(c.Service.Cluster)
	if err != nil {
		return nil, fmt.Errorf("service %s/%s: %w", c.Service.Namespace, c.Service.Name, err)
	}
	of := &discovery.Service{From: client, Namespace: c.Service.Namespace, Name: c.Service.Name, Port: c.Service.Port, Log: c.Log.With("part", "relays")}
	return func(ctx context.Context) error {
		of.Follow(ctx, func(all []discovery.Endpoint, _ error) { set(len(all)) })
		return ctx.Err()
	}, nil
}

// Run runs a relay until ctx ends and its clients have gone, or something fails.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	store, err := stores.Open(ctx, cfg.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s := relay.NewServer(store, relay.ServerConfig{Signs: cfg.Signs, Limits: cfg.Limits, Meter: metrics.NewRelay(registry), Log: cfg.Log.With("part", "syncer")})
	count, err := cfg.count(s.SetRelays)
	if err != nil {
		return err
	}
	l, creds, err := cfg.listen()
	if err != nil {
		return err
	}
	log := cfg.Log.With("part", "listen")
	checks := serve.New("health", health.New(s.NotReady).Handler(), log)
	numbers := http.NewServeMux()
	numbers.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	counts := serve.New("metrics", numbers, log)
	status := serve.New("status", statusHandler(s), log)
	if cfg.Socket != "" {
		status.Move(serve.At{Network: "unix", Address: cfg.Socket})
	}
	move(checks, cfg.Health)
	move(counts, cfg.Metrics)

	// All but the listener goes on while clients leave.
	group, ctx2 := errgroup.WithContext(context.WithoutCancel(ctx))
	for name, run := range map[string]func(context.Context) error{
		"datastore": s.Run, "health": checks.Run, "metrics": counts.Run, "relays": count, "status": status.Run,
		"serve": func(parts context.Context) error {
			serving, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(parts, cancel)()
			return s.Serve(serving, l, creds, cfg.Drain)
		},
	} {
		group.Go(func() error {
			if err := run(ctx2); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	cfg.Log.Info("relay runs", "listen", l.Addr().String(), "tls", cfg.TLS != (relay.TLS{}))
	if err = group.Wait(); ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // asked to stop
	}
	return err
}

// listen opens the port or socket for clients.
func (c Config) listen() (net.Listener, relay.Creds, error) {
	at := serve.At{Network: "tcp", Address: c.Listen}
	if path, unix := strings.CutPrefix(c.Listen, "unix://"); unix {
		at = serve.At{Network: "unix", Address: path}
	}
	l, err := serve.Listen(at)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("listen: %w", err)
	case c.TLS != relay.TLS{}:
		return l, c.TLS.ServerCreds(), nil
	}
	return l, relay.Plaintext(), nil
}

func move(s *serve.Server, address string) {
	if address != "" {
		s.Move(serve.At{Network: "tcp", Address: address})
	}
}
