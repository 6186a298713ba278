package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	d := &handlers{watch: watch, checker: health.New(watch.unprobed), metrics: registry}
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
	var g serve.Group
	l := listeners{health: g.New("health", handler("health"), log), metrics: g.New("metrics", handler("metrics"), log), debug: g.New("profiles", handler("debug"), log)}
	group, ctx := errgroup.WithContext(t.Context())
	ctx, cancel := context.WithCancel(ctx)
	for _, s := range []*serve.Server{l.health, l.metrics, l.debug} {
		group.Go(func() error { return s.Run(ctx) })
	}
	t.Cleanup(func() { cancel(); _ = group.Wait() })
	settings := func(spec string) config.Settings { return settingsOf(t, spec) }
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
		{"health and metrics swap", fmt.Sprintf(spec, true, five, true, four, three), map[string]string{three: "debug", four: "metrics", five: "health"}},
		{"and back", fmt.Sprintf(spec, true, four, true, five, three), map[string]string{three: "debug", four: "health", five: "metrics"}},
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
	t.Run("metrics, for those who show a certificate", func(t *testing.T) {
		cert, key := selfSigned(t)
		files := fmt.Sprintf(`"prometheusMetricsCertFile":%q,"prometheusMetricsKeyFile":%q,"prometheusMetricsCAFile":%q,`, cert, key, cert)
		l.configure(settings(`{` + files + fmt.Sprintf(spec, true, one, true, two, three)[1:]))
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		answersTo(t, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, "https://127.0.0.1:"+two, "metrics")
		answersTo(t, &tls.Config{InsecureSkipVerify: true}, "https://127.0.0.1:"+two, "")
		answers(t, "127.0.0.1:"+one, "health") // without TLS
	})
}

// selfSigned makes a certificate that is its own CA.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// settingsOf are the settings of h1 under a FelixConfiguration.
func settingsOf(t *testing.T, spec string) config.Settings {
	t.Helper()
	f := &api.FelixConfiguration{}
	f.Metadata.Name = "default"
	if err := json.Unmarshal([]byte(spec), &f.Spec); err != nil {
		t.Fatal(err)
	}
	r := config.New("h1")
	r.Set(f)
	return r.Resolve().Settings
}

// answers waits until the right one answers at an address, or nobody.
func answers(t *testing.T, at, want string) {
	t.Helper()
	answersTo(t, nil, "http://"+at, want)
}

func answersTo(t *testing.T, conf *tls.Config, at, want string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf}}
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		got := ""
		resp, err := client.Get(at + "/")
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

// TestSettingsSayHowLongEachPartMayBeBusy: the parts of this agent, by their names, and no longer than it grants of itself.
func TestSettingsSayHowLongEachPartMayBeBusy(t *testing.T) {
	for _, tt := range []struct {
		part string
		own  time.Duration
	}{{partSyncer, quick}, {partCalc, slow}, {partDataplane, slow}} {
		t.Run(tt.part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watch := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
				release := make(chan error)
				ping := func(part string) func(context.Context) error {
					return func(context.Context) error {
						if part == tt.part {
							return <-release
						}
						return nil
					}
				}
				d := &handlers{watch: watch, checker: newChecker(watch.unprobed, ping(partSyncer), ping(partCalc), ping(partDataplane))}
				alive := func(says, dead string) {
					t.Helper()
					w := httptest.NewRecorder()
					d.checker.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/liveness", http.NoBody))
					if (w.Code == http.StatusOK) != (dead == "") || !strings.HasPrefix(w.Body.String(), dead) {
						t.Errorf("%s: %d %q, want %q to be dead", says, w.Code, w.Body, dead)
					}
				}
				alive("it has only just been asked", "")
				<-time.After(5 * time.Second) // virtual
				d.configure(config.Settings{HealthTimeouts: map[string]time.Duration{tt.part: time.Second}})
				alive("it may be busy for a second", tt.part+": ")
				d.configure(config.Settings{})
				alive("it may be busy as long as it asks for", "")
				<-time.After(tt.own) // virtual
				alive("it has been busy longer", tt.part+": ")
				release <- nil
			})
		})
	}
}
