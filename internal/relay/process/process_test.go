package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/relay"
)

// TestWhatARelayRefusesToServe: the datastore to whoever reaches an address, unless that is asked for by name.
func TestWhatARelayRefusesToServe(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string // of the error; empty: none
	}{
		{Config{Listen: ":5473"}, "say --plaintext"},
		{Config{Listen: "192.0.2.1:5473"}, "say --plaintext"},
		{Config{Listen: "192.0.2.1:5473", Plaintext: true}, ""},
		{Config{Listen: "127.0.0.1:5473"}, ""},
		{Config{Listen: "unix:///run/twill/relay.sock"}, ""},
		{Config{Listen: ":5473", TLS: relay.TLS{CertFile: "c", KeyFile: "k"}}, "without a file of: CA"},
		{Config{Listen: "127.0.0.1:5473", TLS: relay.TLS{CN: "agent"}}, "without a file of: certificate, key, CA"},
		{Config{Listen: ":5473", Plaintext: true, TLS: relay.TLS{CAFile: "a"}}, "leave one of them out"},
	} {
		switch err := tt.cfg.Check(); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

// TestTheStatusIsAskedAtASocket of a relay that runs, also while its datastore is away.
func TestTheStatusIsAskedAtASocket(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "status.sock")
	cfg := Config{
		Store: datastore.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "nothing")}}, Listen: "unix://" + filepath.Join(dir, "relay.sock"), Socket: socket,
		Relays: 4, Limits: relay.Limits{Most: 9, Least: 3}, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	st, err := Ask(ctx, socket)
	for (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)) && len(ended) == 0 { // it begins
		st, err = Ask(ctx, socket)
	}
	if err != nil || st.Relays != 4 || st.Share != 3 || st.Most != 9 || len(st.NotReady) != 2 || len(st.Clients) != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHowManyRelaysThereAre: as a flag says, or as many endpoints of a service as are ready.
func TestHowManyRelaysThereAre(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch watch := r.URL.Query().Get("watch") == "true"; {
		case r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/net/endpointslices" || r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=relays":
			http.NotFound(w, r)
		case watch:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, `{"kind": "EndpointSliceList", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}, "addressType": "IPv4", "ports": [{"name": "grpc", "port": 1}, {"name": "x", "port": 2}],
				"endpoints": [{"addresses": ["192.0.2.1"]}, {"addresses": ["192.0.2.2"], "conditions": {"ready": false}}, {"addresses": ["192.0.2.3"], "conditions": {"ready": true}}]}]}`)
		}
	}))
	defer srv.Close()
	service := Service{Namespace: "net", Name: "relays", Port: "grpc", Cluster: datastore.Config{Type: "kubernetes", Server: srv.URL}}
	for _, tt := range []struct {
		name string
		cfg  Config
		want []int
	}{
		{"nobody says", Config{}, []int{0}},
		{"a flag", Config{Relays: 5}, []int{5}},
		{"a service", Config{Service: service}, []int{0, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Log = slog.New(slog.DiscardHandler)
			got := make(chan int, 10)
			count, err := tt.cfg.count(func(n int) { got <- n })
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- count(ctx) }()
			for _, want := range tt.want {
				if n := <-got; n != want {
					t.Errorf("%d relays, want %d", n, want)
				}
			}
			cancel()
			<-ended
		})
	}
}
