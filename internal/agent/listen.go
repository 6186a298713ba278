package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/serve"
)

// How long a part may be busy before it counts as dead.
const (
	quick = 10 * time.Second
	slow  = 90 * time.Second // a big transaction takes the kernel long
)

// Parts of the agent with a liveness probe.
const (
	partSyncer    = "syncer"
	partCalc      = "calc"
	partDataplane = "dataplane"
)

// listeners are the agent's HTTP servers.
type listeners struct{ socket, health, metrics, debug *serve.Server }

// handlers are what they serve.
type handlers struct {
	watch   *reporter
	hidden  atomic.Pointer[[]string] // prefixes of the names of metrics that settings hide
	checker *health.Checker
	metrics prometheus.Gatherer
	tally   tally
	plugins *attach.Server
}

// newChecker returns the checker with the liveness probes of an agent's parts.
func newChecker(notReady func() []string, source, decides, loop func(context.Context) error) *health.Checker {
	c := health.New(notReady)
	c.Part(partSyncer, quick, source)
	c.Part(partCalc, slow, decides)
	c.Part(partDataplane, slow, loop)
	return c
}

// numbers serves the metrics, which are counted on request.
func (d *handlers) numbers() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		d.watch.count()
		all, err := d.metrics.Gather()
		if hidden := d.hidden.Load(); hidden != nil {
			all = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
				return slices.ContainsFunc(*hidden, func(begin string) bool { return strings.HasPrefix(f.GetName(), begin) })
			})
		}
		return all, err
	})
}

// configure takes over settings of what is served.
func (d *handlers) configure(s config.Settings) {
	hidden := []string{}
	if !s.GoMetrics {
		hidden = append(hidden, "go_")
	}
	if !s.ProcessMetrics {
		hidden = append(hidden, "process_")
	}
	d.hidden.Store(&hidden)
	for _, part := range []string{partSyncer, partCalc, partDataplane} {
		d.checker.Patience(part, s.HealthTimeouts[part])
	}
}

func (d *handlers) listeners(cfg Config) listeners {
	log := cfg.Log.With("part", "listen")
	answers := http.NewServeMux()
	answers.Handle("GET /", d.checker.Handler())
	answers.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(d.watch.report()) // the reader has gone
	})
	answers.HandleFunc("GET /settings", localSettings(cfg))
	answers.HandleFunc("GET /usage", d.watch.usageReport)
	numbers := http.NewServeMux()
	numbers.Handle("GET /metrics", promhttp.HandlerFor(d.numbers(), promhttp.HandlerOpts{}))
	all := http.NewServeMux()
	all.Handle("GET /metrics", numbers)
	all.Handle("GET /", answers)
	d.tally.serve(all)
	d.plugins.Serve(all)
	var g serve.Group
	l := listeners{
		socket: g.New("the agent's socket", all, log), health: g.New("health", answers, log),
		metrics: g.New("metrics", numbers, log), debug: g.New("profiles", serve.Profiles(), log),
	}
	if cfg.Socket != "" {
		l.socket.Move(serve.At{Network: "unix", Address: cfg.Socket})
	}
	return l
}

// configure moves the listeners to the addresses in the settings.
func (l listeners) configure(s config.Settings) {
	l.health.Move(at(s.Health))
	l.debug.Move(at(s.Debug))
	numbers := at(s.Metrics)
	if numbers != (serve.At{}) {
		numbers.CertFile, numbers.KeyFile, numbers.ClientCAFile = s.MetricsTLS.CertFile, s.MetricsTLS.KeyFile, s.MetricsTLS.ClientCAFile
	}
	l.metrics.Move(numbers)
}

func at(l config.Listener) serve.At {
	if !l.Enabled {
		return serve.At{}
	}
	return serve.At{Network: "tcp", Address: net.JoinHostPort(l.Host, strconv.Itoa(l.Port))}
}

// Ask fetches the report of the agent at a socket.
func Ask(ctx context.Context, socket string) (Report, error) {
	resp, err := ask(ctx, socket, "/status")
	if err != nil {
		return Report{}, err
	}
	defer resp.Body.Close()
	var out Report
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return Report{}, fmt.Errorf("the agent's answer: %w", err)
	}
	return out, nil
}

// Read returns what the agent at a socket serves at a path, such as /metrics: the first most bytes.
func Read(ctx context.Context, socket, path string, most int64) ([]byte, error) {
	resp, err := ask(ctx, socket, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, most))
}

// ask fetches a path from the agent at a socket.
func ask(ctx context.Context, socket, path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the agent answers %s to %s; is it of this version?", resp.Status, path)
	}
	return resp, nil
}
