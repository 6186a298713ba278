package kubecontrollers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/leader"
)

// live is a process without an API server, which never leads; its servers listen on real sockets.
type live struct {
	*testing.T
	store  storetest.InMemory
	level  slog.LevelVar
	health string

	mu  sync.Mutex
	log bytes.Buffer
}

func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (l *live) logged(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.log.String(), text)
}

// held is the lease of another.
type held struct{}

func (held) Get(context.Context) (leader.Record, string, error) {
	return leader.Record{Holder: "another", Duration: time.Hour}, "1", nil
}

func (held) Put(context.Context, leader.Record, string) (string, error) {
	return "", leader.ErrChanged
}

func startLive(t *testing.T, env Environment) *live {
	t.Helper()
	l := &live{T: t, store: storetest.New(t), health: machinetest.Address(t)}
	p := &process{
		cfg:   Config{Environment: env, Health: l.health, Level: &l.level, Log: slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: &l.level}))},
		store: l.store, shown: l.store, same: true, known: make(chan struct{}), changed: make(chan struct{}), elector: leader.New(leader.Config{Lock: held{}, ID: "a"}),
	}
	p.serve()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for _, run := range []func(context.Context) error{
		p.follow().Run, p.health.Run, p.numbers.Run, p.profiles.Run, func(ctx context.Context) error { return p.elector.Run(ctx, p.lead) },
	} {
		done.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() { cancel(); done.Wait() })
	return l
}

// configure stores a spec.
func (l *live) configure(spec string) {
	l.Helper()
	key := api.KeyPrefix(api.KindKubeControllersConfiguration, "") + "default"
	if err := datastore.Put(l.Context(), l.store, api.Update{Key: key, Value: []byte(`{"metadata":{"name":"default"},"spec":{` + spec + `}}`)}); err != nil {
		l.Fatal(err)
	}
}

// await waits until something holds.
func (l *live) await(what string, holds func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.Fatalf("waited for %s; the log is\n%s", what, l.log.String())
		}
	}
}

// get is the answer to a request; without a code, nobody listens.
func (l *live) get(url string) (code int, body string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// TestSettingsTakeEffectAtOnce: listeners, the log's level, and what has no effect.
func TestSettingsTakeEffectAtOnce(t *testing.T) {
	_, numbers, _ := strings.Cut(machinetest.Address(t), ":")
	_, profiles, _ := strings.Cut(machinetest.Address(t), ":")
	l := startLive(t, Environment{"NODE_WORKERS": "3"})
	metrics, ready := fmt.Sprintf("http://127.0.0.1:%s/metrics", numbers), "http://"+l.health+"/readiness"
	l.configure(fmt.Sprintf(`"logSeverityScreen":"Debug","debugProfilePort":%s,"prometheusMetricsPort":%s,"controllers":{"node":{}}`, profiles, numbers))
	l.await("metrics", func() bool {
		code, body := l.get(metrics)
		return code == http.StatusOK && strings.Contains(body, "twill_controllers_leader 0")
	})
	l.await("readiness", func() bool { code, _ := l.get(ready); return code == http.StatusOK })
	l.await("the level", func() bool { return l.level.Level() == slog.LevelDebug })
	l.await("a warning", func() bool { return l.logged("NODE_WORKERS") })
	heap := fmt.Sprintf("http://127.0.0.1:%s/debug/pprof/heap?debug=1", profiles)
	l.await("profiles", func() bool {
		code, body := l.get(heap)
		return code == http.StatusOK && strings.Contains(body, "heap profile")
	})

	l.configure(`"healthChecks":"Disabled","prometheusMetricsPort":0,"controllers":{}`)
	l.await("no metrics", func() bool { code, _ := l.get(metrics); return code == 0 })
	l.await("no profiles", func() bool { code, _ := l.get(heap); return code == 0 })
	l.await("no health", func() bool { code, _ := l.get(ready); return code == 0 })
	l.await("the level", func() bool { return l.level.Level() == slog.LevelInfo })

	// What cannot be read leaves all as it is; without a resource, Calico's defaults hold.
	key := api.KeyPrefix(api.KindKubeControllersConfiguration, "") + "default"
	if err := datastore.Put(t.Context(), l.store, api.Update{Key: key, Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	l.configure(`"healthChecks":"Enabled","prometheusMetricsPort":0,"controllers":{}`)
	l.await("health", func() bool { code, _ := l.get(ready); return code == http.StatusOK })
}

// TestReadinessSaysWhy: the settings are not known while the datastore does not answer.
func TestReadinessSaysWhy(t *testing.T) {
	p := &process{known: make(chan struct{}), elector: leader.New(leader.Config{ID: "a"})}
	if got := p.notReady(); len(got) != 2 || !strings.Contains(got[0], "lease") || !strings.Contains(got[1], "which settings") {
		t.Errorf("got %q", got)
	}
	close(p.known)
	if got := p.notReady(); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}
