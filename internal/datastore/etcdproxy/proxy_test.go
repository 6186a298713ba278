package etcdproxy_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// socket is a path short enough for a socket's name.
func socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func startMember(t testing.TB, cfg member.Config) *member.Member {
	t.Helper()
	cfg.Dir = cmp.Or(cfg.Dir, t.TempDir())
	if len(cfg.ListenClient) == 0 {
		cfg.ListenClient = []string{"unix://" + socket(t)}
	}
	cfg.StartTimeout = patience
	m, err := member.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// proxy is one that runs, and its endpoint.
type proxy struct {
	*etcdproxy.Proxy
	endpoint string
	stop     func() error
}

// startProxy runs a proxy, and returns when it has a member to ask.
func startProxy(t testing.TB, cfg etcdproxy.Config) *proxy {
	t.Helper()
	p := runProxy(t, cfg)
	await(t, "the proxy to have a member", func() bool { return len(p.NotReady()) == 0 })
	return p
}

func runProxy(t testing.TB, cfg etcdproxy.Config) *proxy {
	t.Helper()
	cfg.Listen = cmp.Or(cfg.Listen, socket(t))
	p := &proxy{Proxy: etcdproxy.New(cfg), endpoint: "unix://" + cfg.Listen}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stopped := false
	p.stop = func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		return <-ended
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("the proxy ended: %v", err)
		}
	})
	return p
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

func to(endpoints ...string) datastore.Config { return datastore.Config{Endpoints: endpoints} }

// open returns a store with times that a process keeps which has no processor for a while. Tests of what does not answer have shorter ones.
func open(t testing.TB, cfg datastore.Config) *etcdstore.Store {
	t.Helper()
	cfg.Progress = cmp.Or(cfg.Progress, 20*time.Second)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, time.Minute)
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, time.Minute)
	s, err := etcdstore.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// etcd returns etcd's own client.
func etcd(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestContract: a store behind a proxy does all that a store must do.
func TestContract(t *testing.T) {
	p := startProxy(t, etcdproxy.Config{Store: to(startMember(t, member.Config{}).Endpoints()...)})
	for _, page := range []int64{1, 7, 0} {
		t.Run(fmt.Sprintf("pages of %d", page), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) datastore.Store {
				// Of what is yet to come a watch finds out when nothing was heard for four of these periods.
				return open(t, datastore.Config{Endpoints: []string{p.endpoint}, PageSize: page, Progress: 3 * time.Second})
			})
		})
	}
}

func TestRootAloneMayUseTheSocket(t *testing.T) {
	path := socket(t)
	startProxy(t, etcdproxy.Config{Listen: path, Store: to(startMember(t, member.Config{}).Endpoints()...)})
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", st.Mode(), err)
	}
	if err := etcdproxy.New(etcdproxy.Config{Listen: path, Store: to("unix:///none")}).Run(t.Context()); err == nil {
		t.Error("a second proxy took the socket of one that runs")
	}
}

// TestWithoutAMemberTheProxySaysWhy: a daemon that asks it has the error that it would have of a member which is away, and the reason.
func TestWithoutAMemberTheProxySaysWhy(t *testing.T) {
	path := socket(t)
	p := runProxy(t, etcdproxy.Config{Store: to("unix://" + path), Follow: follow})
	s := open(t, datastore.Config{Endpoints: []string{p.endpoint}, RequestTimeout: 500 * time.Millisecond})
	if err := s.Ping(t.Context()); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("ping: got %v", err)
	}
	if _, err := s.Watch(t.Context(), "/", datastore.PositionOf("1")); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("watch: got %v", err)
	}
	if len(p.NotReady()) == 0 {
		t.Error("it says that it is ready")
	}
	m := startMember(t, member.Config{ListenClient: []string{"unix://" + path}})
	patient := open(t, to(p.endpoint))
	await(t, "the proxy to find the member", func() bool { return patient.Ping(t.Context()) == nil })
	await(t, "the proxy to be ready", func() bool { return len(p.NotReady()) == 0 })
	m.Close()
	await(t, "the proxy not to be ready", func() bool { return len(p.NotReady()) == 1 })
}

// TestAReadIsNeverOfACache: not even one that etcd allows to be old. What a client of another host wrote is read at once.
func TestAReadIsNeverOfACache(t *testing.T) {
	m := startMember(t, member.Config{})
	p := startProxy(t, etcdproxy.Config{Store: to(m.Endpoints()...)})
	near, far := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}}), etcd(t, clientv3.Config{Endpoints: m.Endpoints()})
	for i := range 5 {
		want := fmt.Sprint(i)
		if _, err := far.Put(t.Context(), "/k", want); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
			got, err := near.Get(t.Context(), "/k", opts...)
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want {
				t.Errorf("read %v, error %v, want %s", got, err, want)
			}
		}
	}
}

func TestLeasesAreKeptAndEnd(t *testing.T) {
	m := startMember(t, member.Config{})
	p := startProxy(t, etcdproxy.Config{Store: to(m.Endpoints()...)})
	c, ctx := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}}), t.Context()
	var lease clientv3.LeaseID
	await(t, "a lease to be kept", func() bool { // which ends where a process gets no processor for so long: then another one
		granted, err := c.Grant(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		lease = granted.ID
		if _, err := c.Put(ctx, "/k", "v", clientv3.WithLease(lease)); err != nil {
			t.Logf("put: %v", err)
			return false
		}
		alive, err := c.KeepAlive(ctx, lease)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if r := <-alive; r == nil || r.TTL != 5 {
				t.Logf("keepalive: got %v", r)
				return false
			}
		}
		return true
	})
	if _, err := c.Revoke(ctx, lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, "/k"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("after the lease the key is %v, error %v", got, err)
	}
	s := open(t, to(p.endpoint))
	for range 3 { // the second and third prolong the lease of the first
		if err := s.PutFor(ctx, api.Update{Key: "/for", Value: []byte("v")}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "one lease to be left", func() bool {
		left, err := c.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(left.Leases) == 1
	})
}

// TestWhatIsOfOneMemberIsRefused: `twill etcd defrag` must not reach a member that it did not name.
func TestWhatIsOfOneMemberIsRefused(t *testing.T) {
	p := startProxy(t, etcdproxy.Config{Store: to(startMember(t, member.Config{}).Endpoints()...)})
	c, ctx := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}}), t.Context()
	for what, do := range map[string]func() error{
		"defragment": func() error { _, err := c.Defragment(ctx, p.endpoint); return err },
		"hash":       func() error { _, err := c.HashKV(ctx, p.endpoint, 0); return err },
		"move":       func() error { _, err := c.MoveLeader(ctx, 1); return err },
	} {
		if err := do(); err == nil {
			t.Errorf("%s: was done", what)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
	if st, err := c.Status(ctx, p.endpoint); err != nil || st.Version == "" {
		t.Errorf("status: %v, error %v", st, err)
	}
}
