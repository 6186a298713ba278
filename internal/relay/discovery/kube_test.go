package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/relay"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// TestRelaysOfAServiceOfKubernetesAreFollowed, on a real API server, by real connections: none, a service without endpoints, one that is not ready, one,
// another in its place, and none again, when the relay in use stays.
func TestRelaysOfAServiceOfKubernetesAreFollowed(t *testing.T) {
	s := kubetest.Start(t)
	ns := s.Namespace(t)
	host := outward(t)
	one, end := startRelay(t, host, "the first")
	two, _ := startRelay(t, host, "the second")
	log := &lines{}
	read, done, err := Reading(memstore.New(), Host{
		Relay: config.Relay{Service: "calico-typha", Namespace: ns, Plaintext: true}, Cluster: datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig},
		Who: relay.Who{Node: "h1", Program: "agent", Version: "test"}, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	awaitAnswer := func(want string) {
		t.Helper()
		for got := ""; !strings.Contains(got, want); {
			snap, err := read.List(t.Context(), "/x/")
			switch {
			case err != nil:
				got = err.Error()
			case len(snap.Items) == 1:
				got = string(snap.Items[0].Value)
			}
			if t.Context().Err() != nil {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	slice := func(name, port string, ready bool) {
		t.Helper()
		s.Apply(t, fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: calico-typha}}, addressType: IPv4, ports: [{name: calico-typha, port: %s, protocol: TCP}], endpoints: [{addresses: [%s], conditions: {ready: %t}}]}", name, ns, port, host, ready))
	}
	awaitAnswer("service " + ns + "/calico-typha: there is no such service")
	s.Apply(t, "{apiVersion: v1, kind: Service, metadata: {name: calico-typha, namespace: "+ns+"}, spec: {ports: [{name: calico-typha, port: 5473}]}}")
	slice("one", one, false)
	awaitAnswer("none of its 1 endpoints is ready")
	slice("one", one, true)
	awaitAnswer("the first")

	snap, err := read.List(t.Context(), "/x/")
	if err != nil {
		t.Fatal(err)
	}
	w, err := read.Watch(t.Context(), "/x/", snap.Position)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	slice("other", two, true)
	slice("one", one, false) // it may be about to end: whoever begins goes elsewhere
	awaitAnswer("the second")
	end()
	if changes, err := w.Next(t.Context()); err == nil {
		t.Errorf("the watch of a relay that has ended brought %v", changes)
	}

	s.Clear(t, "discovery.k8s.io/v1", "endpointslices")
	log.await(t, "no relay is found; the last stay in use")
	awaitAnswer("the second")
}

// outward is an address of this machine that an EndpointSlice may have, which one of the loopback is not.
func outward(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but the loopback's")
	return ""
}

// startRelay runs a relay that serves a key with a value, and returns its port, and what ends it.
func startRelay(t *testing.T, host, value string) (port string, end func()) {
	t.Helper()
	store := memstore.New()
	if err := datastore.Put(t.Context(), store, api.Update{Key: "/x/a", Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := relay.NewServer(store, relay.ServerConfig{Prefixes: []string{"/x/"}})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.Run(ctx) })
	parts.Go(func() { _ = s.Serve(ctx, l, relay.Plaintext(), 0) })
	end = func() { cancel(); parts.Wait() }
	t.Cleanup(end)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, end
}

// lines is a log that can be waited for.
type lines struct {
	mu    sync.Mutex
	text  strings.Builder
	woken chan struct{}
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.woken != nil {
		close(l.woken)
		l.woken = nil
	}
	return l.text.Write(b)
}

func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	for {
		l.mu.Lock()
		if l.woken == nil {
			l.woken = make(chan struct{})
		}
		found, woken := strings.Contains(l.text.String(), part), l.woken
		l.mu.Unlock()
		if found {
			return
		}
		<-woken
	}
}
