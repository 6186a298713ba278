package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/member/certs"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// cluster is three members with TLS for clients and peers.
type cluster struct {
	dir     string // of the certificates
	configs []member.Config
	members []*member.Member
}

func makeCerts(t *testing.T, names ...string) string {
	t.Helper()
	cfg := certs.Config{Dir: t.TempDir(), Clients: []string{"agent"}}
	for _, n := range names {
		cfg.Members = append(cfg.Members, certs.Host{Name: n, Names: []string{"127.0.0.1"}})
	}
	if _, err := certs.Make(cfg); err != nil {
		t.Fatal(err)
	}
	return cfg.Dir
}

// secured is a member's configuration with the certificates of dir.
func secured(t *testing.T, dir, name, peer string) member.Config {
	t.Helper()
	in := func(file string) string { return filepath.Join(dir, name, file) }
	return member.Config{
		Name: name, Dir: t.TempDir(),
		ListenClient: []string{"https://" + machinetest.Address(t)}, ListenPeer: []string{peer},
		CertFile: in("server.crt"), KeyFile: in("server.key"), ClientCAFile: in("ca.crt"),
		PeerCertFile: in("peer.crt"), PeerKeyFile: in("peer.key"), PeerCAFile: in("peer-ca.crt"),
	}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	names := []string{"h1", "h2", "h3"}
	c := &cluster{dir: makeCerts(t, names...), members: make([]*member.Member, len(names))}
	var all []string
	for _, n := range names {
		peer := "https://" + machinetest.Address(t)
		all = append(all, n+"="+peer)
		c.configs = append(c.configs, secured(t, c.dir, n, peer))
	}
	errs := make(chan error)
	for i := range c.configs {
		c.configs[i].Cluster = strings.Join(all, ",")
		go func() {
			var err error
			c.members[i], err = member.Start(t.Context(), c.configs[i]) // each waits for the others
			errs <- err
		}()
	}
	for range c.configs {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.Close()
		}
	})
	return c
}

// client opens a store that speaks to one member alone, as a client of that directory of certificates, and waits so long for an answer.
func (c *cluster) client(t *testing.T, member int, certDir, ca string, wait time.Duration) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.New(t.Context(), datastore.Config{
		Endpoints: c.configs[member].ListenClient, CAFile: ca,
		CertFile: filepath.Join(certDir, "client.crt"), KeyFile: filepath.Join(certDir, "client.key"), RequestTimeout: wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (c *cluster) agent(t *testing.T, member int) *etcdstore.Store {
	t.Helper()
	return c.client(t, member, filepath.Join(c.dir, "agent"), filepath.Join(c.dir, "ca.crt"), time.Minute)
}

// eventually repeats what may fail while a leader is elected.
func eventually(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestThreeMembersWithTLSServeWhileMostOfThemRun(t *testing.T) {
	c := startCluster(t)
	ctx := t.Context()
	write := func(to *etcdstore.Store, key, value string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := to.Create(ctx, api.Update{Key: key, Value: []byte(value)})
			if errors.Is(err, datastore.ErrExists) {
				return nil // an earlier try was carried out, though its answer was lost
			}
			return err
		}
	}
	eventually(t, "write", write(c.agent(t, 0), "/k", "1"))
	read := func(from *etcdstore.Store, what, key, want string) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			kv, err := from.Get(ctx, key)
			if err == nil && string(kv.Value) != want {
				t.Errorf("%s: %s is %q, want %q", what, key, kv.Value, want)
			}
			if errors.Is(err, datastore.ErrNotFound) {
				t.Fatal(err)
			}
			return err
		})
	}
	third := c.agent(t, 2)
	read(third, "read by another member", "/k", "1")

	c.members[0].Close()
	second := c.agent(t, 1)
	eventually(t, "write while one of three is down", write(second, "/k2", "2"))
	read(third, "read while one of three is down", "/k2", "2")

	var err error
	if c.members[0], err = member.Start(ctx, c.configs[0]); err != nil {
		t.Fatalf("the member that was down: %v", err)
	}
	read(c.agent(t, 0), "what was written without the member that was down", "/k2", "2")
}

func TestAClusterRefusesCertificatesOfOthers(t *testing.T) {
	c := startCluster(t)
	other := makeCerts(t, "h1")
	for _, tt := range []struct{ name, certs, ca, want string }{
		{"a client that another authority signed", filepath.Join(other, "agent"), filepath.Join(c.dir, "ca.crt"), "certificate"},
		{"a server that the client does not trust", filepath.Join(c.dir, "agent"), filepath.Join(other, "ca.crt"), "certificate signed by unknown authority"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := c.client(t, 0, tt.certs, tt.ca, 2*time.Second)
			err := s.Ping(t.Context())
			for until := time.Now().Add(patience); errors.Is(err, datastore.ErrUnavailable) && !strings.Contains(err.Error(), tt.want) && time.Now().Before(until); {
				err = s.Ping(t.Context()) // it looks for the reason for a second
			}
			if !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want it to be %v and to say %q", err, datastore.ErrUnavailable, tt.want)
			}
		})
	}
}

func TestAPeerOfAnotherAuthorityDoesNotJoinAndBothSay(t *testing.T) {
	right, wrong := makeCerts(t, "h1", "h2"), makeCerts(t, "h1", "h2")
	// A client's authority is no peers' authority.
	peers := []string{"https://" + machinetest.Address(t), "https://" + machinetest.Address(t)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs := [2]*logged{newLogged(), newLogged()}
	done := make(chan error)
	for i, dir := range []string{right, wrong} {
		name := fmt.Sprint("h", i+1)
		cfg := secured(t, dir, name, peers[i])
		cfg.Cluster = "h1=" + peers[0] + ",h2=" + peers[1]
		cfg.Logger = slog.New(slog.NewTextHandler(logs[i], nil))
		go func() {
			m, err := member.Start(ctx, cfg)
			if err == nil {
				m.Close()
			}
			done <- err
		}()
	}
	for _, l := range logs {
		l.await(t, "certificate signed by unknown authority")
	}
	stop()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want a member that never was ready", err)
		}
	}
}

func TestAMemberOfSeveralNeedsAllThatMakesItOne(t *testing.T) {
	dir := makeCerts(t, "h1")
	for _, tt := range []struct {
		name   string
		change func(*member.Config)
		want   string
	}{
		{"peers with TLS and no authority", func(c *member.Config) { c.PeerCAFile = "" }, "need a certificate, its key and the peers' authority"},
		{"a cluster without a port for peers", func(c *member.Config) { c.ListenPeer = nil }, "needs an address to listen on for its peers"},
		{"a cluster without this member", func(c *member.Config) { c.Cluster = "h2=https://192.0.2.1:2380" }, "h1"},
		{"an address for clients that is none", func(c *member.Config) { c.AdvertiseClient = []string{"h1:2379"} }, "want http://HOST:PORT"},
		{"joining where nobody answers", func(c *member.Config) { c.Join = true }, "cluster"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := secured(t, dir, "h1", "https://"+machinetest.Address(t))
			cfg.Cluster = "h1=" + cfg.ListenPeer[0] + ",h2=https://" + machinetest.Address(t)
			tt.change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			m, err := member.Start(ctx, cfg)
			if err == nil {
				m.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to say %q", err, tt.want)
			}
		})
	}
}

// logged is what was logged so far.
type logged struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
}

func newLogged() *logged { return &logged{wrote: make(chan struct{}, 1)} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.text.String()))
}

// await waits until a line says that.
func (l *logged) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(patience)
	for !slices.ContainsFunc(l.lines(), func(line string) bool { return strings.Contains(line, want) }) {
		select {
		case <-l.wrote:
		case <-deadline:
			t.Fatalf("nothing says %q in:\n%s", want, strings.Join(l.lines(), ""))
		}
	}
}
