package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/serve"
)

func TestSettingsHideMetricsOfGoAndOfTheProcess(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	watch := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(registry))
	d := &doorway{watch: watch, checker: health.New(watch.notReady), metrics: registry}
	for _, tt := range []struct {
		name     string
		settings config.Settings
		want     []string
	}{
		{"both are shown", config.Settings{GoMetrics: true, ProcessMetrics: true}, []string{"felix", "go", "process", "twill"}},
		{"Go's are hidden", config.Settings{ProcessMetrics: true}, []string{"felix", "process", "twill"}},
		{"the process's are hidden", config.Settings{GoMetrics: true}, []string{"felix", "go", "twill"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.configure(tt.settings)
			families, err := d.numbers().Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range families {
				begin, _, _ := strings.Cut(f.GetName(), "_")
				got = append(got, begin)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("metrics begin with %v, want %v", got, tt.want)
			}
		})
	}
}

// TestListenersAreWhereSettingsSay: each of the three is open only while its settings say so, at the address and port of its own.
func TestListenersAreWhereSettingsSay(t *testing.T) {
	handler := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	}
	log := slog.New(slog.DiscardHandler)
	l := listeners{health: serve.New("health", handler("health"), log), metrics: serve.New("metrics", handler("metrics"), log), debug: serve.New("profiles", handler("debug"), log)}
	group, ctx := errgroup.WithContext(t.Context())
	ctx, cancel := context.WithCancel(ctx)
	for _, s := range []*serve.Server{l.health, l.metrics, l.debug} {
		group.Go(func() error { return s.Run(ctx) })
	}
	t.Cleanup(func() { cancel(); _ = group.Wait() })
	settings := func(spec string) config.Settings {
		f := &api.FelixConfiguration{}
		f.Metadata.Name = "default"
		if err := json.Unmarshal([]byte(spec), &f.Spec); err != nil {
			t.Fatal(err)
		}
		r := config.New("h1")
		r.Set(f)
		return r.Resolve().Settings
	}
	port := func() (number string) { _, number, _ = net.SplitHostPort(machinetest.Address(t)); return number }
	one, two, three, four, five := port(), port(), port(), port(), port()
	const everywhere = `"healthHost":"127.0.0.1","prometheusMetricsHost":"127.0.0.1","debugHost":"127.0.0.1"`
	spec := `{` + everywhere + `,"healthEnabled":%v,"healthPort":%s,"prometheusMetricsEnabled":%v,"prometheusMetricsPort":%s,"debugPort":%s}`
	for _, tt := range []struct {
		name, spec string
		want       map[string]string // who answers at a port; empty: nobody
	}{
		{"all are on", fmt.Sprintf(spec, true, one, true, two, three), map[string]string{one: "health", two: "metrics", three: "debug"}},
		{"health and metrics move", fmt.Sprintf(spec, true, four, true, five, three), map[string]string{one: "", two: "", three: "debug", four: "health", five: "metrics"}},
		{"health is off", fmt.Sprintf(spec, false, four, true, five, three), map[string]string{three: "debug", four: "", five: "metrics"}},
		{"metrics are off", fmt.Sprintf(spec, true, four, false, five, three), map[string]string{three: "debug", four: "health", five: ""}},
		{"by default there are no profiles", fmt.Sprintf(`{`+everywhere+`,"healthPort":%s}`, four), map[string]string{three: "", four: "health", five: ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l.configure(settings(tt.spec))
			for at, want := range tt.want {
				answers(t, "127.0.0.1:"+at, want)
			}
		})
	}
	t.Run("at one address alone", func(t *testing.T) {
		l.configure(settings(strings.ReplaceAll(fmt.Sprintf(spec, true, one, true, two, three), "127.0.0.1", "127.0.0.2")))
		for at, want := range map[string]string{one: "health", two: "metrics", three: "debug"} {
			answers(t, "127.0.0.2:"+at, want)
			answers(t, "127.0.0.1:"+at, "")
		}
	})
}

// answers waits until the right one answers at an address, or nobody.
func answers(t *testing.T, at, want string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		got := ""
		resp, err := client.Get("http://" + at + "/")
		if err == nil {
			var body []byte
			body, err = io.ReadAll(resp.Body)
			got = string(body)
			_ = resp.Body.Close()
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q answers (%v), want %q", at, got, err, want)
		}
	}
}

// TestSettingsSayHowLongEachPartMayBeBusy: the parts of this agent, by their names.
func TestSettingsSayHowLongEachPartMayBeBusy(t *testing.T) {
	for _, part := range []string{partSyncer, partCalc, partDataplane} {
		t.Run(part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watch := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
				d := &doorway{watch: watch, checker: health.New(watch.notReady)}
				release := make(chan error)
				d.checker.Part(part, time.Minute, func(context.Context) error { return <-release })
				alive := func(says string, want int) {
					t.Helper()
					w := httptest.NewRecorder()
					d.checker.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/liveness", http.NoBody))
					if w.Code != want {
						t.Errorf("%s: %d %q, want %d", says, w.Code, w.Body, want)
					}
				}
				alive("it has only just been asked", http.StatusOK)
				<-time.After(15 * time.Second) // virtual
				d.configure(config.Settings{HealthTimeouts: map[string]time.Duration{part: 10 * time.Second}})
				alive("it may be busy for 10 s", http.StatusServiceUnavailable)
				d.configure(config.Settings{})
				alive("it may be busy as long as it asks for", http.StatusOK)
				release <- nil
			})
		})
	}
}
