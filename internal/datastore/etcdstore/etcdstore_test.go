package etcdstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// started starts an etcd on a socket.
func started(t testing.TB) *member.Member {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startMember(t, member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, "s")}})
}

func startMember(t testing.TB, cfg member.Config) *member.Member {
	t.Helper()
	cfg.StartTimeout = patience
	m, err := member.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// open returns a store with times that a process keeps which has no processor for a while. Tests of what does not answer have shorter ones.
func open(t testing.TB, cfg datastore.Config) *etcdstore.Store {
	t.Helper()
	cfg.Progress = cmp.Or(cfg.Progress, 20*time.Second)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, time.Minute)
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, time.Minute) // passwords are slow to check, on purpose
	s, err := etcdstore.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func admin(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// from is a position, or a revision, of which the counter of etcd is n.
func from(n int64) datastore.Position { return datastore.PositionOf(strconv.FormatInt(n, 10)) }

// count is etcd's counter in a revision or a position.
func count(t testing.TB, of fmt.Stringer) int64 {
	t.Helper()
	n, err := strconv.ParseInt(of.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestContract(t *testing.T) {
	m := started(t)
	for _, page := range []int64{1, 7, 0} {
		t.Run(fmt.Sprintf("pages of %d", page), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) datastore.Store {
				return open(t, datastore.Config{Endpoints: m.Endpoints(), PageSize: page})
			})
		})
	}
}

func TestWatchFollowsTheRevisionOfAQuietPrefix(t *testing.T) {
	m := started(t)
	s := open(t, datastore.Config{Endpoints: m.Endpoints(), Progress: 400 * time.Millisecond})
	w, err := s.Watch(t.Context(), "/quiet/", from(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Close() }()
	kv, err := s.Create(t.Context(), api.Update{Key: "/loud/a", Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for seen := int64(1); seen < count(t, kv.Revision); {
		c, err := w.Next(ctx)
		if errors.Is(err, datastore.ErrUnavailable) && ctx.Err() == nil { // a machine that is busy for several periods
			w.Close()
			w = must(s.Watch(ctx, "/quiet/", from(seen)))(t)
			continue
		}
		if err != nil || len(c.Updates) > 0 {
			t.Fatalf("got %v, error %v", c, err)
		}
		seen = count(t, c.Position)
	}
}

func TestListOutlivesCompaction(t *testing.T) {
	m := started(t)
	s := open(t, datastore.Config{Endpoints: m.Endpoints(), PageSize: 1})
	c := admin(t, m.Endpoints())
	for i := range 30 {
		if _, err := s.Create(t.Context(), api.Update{Key: fmt.Sprintf("/a/%02d", i), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // writes and compacts all the time, so that most lists in pages are cut short
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if kv, err := s.Update(t.Context(), api.Update{Key: "/a/00", Value: []byte("v")}); err == nil {
				_, _ = c.Compact(t.Context(), count(t, kv.Revision))
			}
		}
	}()
	for range 20 {
		snap, err := s.List(t.Context(), "/a/")
		if err != nil || len(snap.Items) != 30 {
			t.Errorf("got %d keys, error %v", len(snap.Items), err)
		}
	}
	close(stop)
	<-done
}

func TestANewStoreNeedsNoEtcd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	for _, cfg := range []datastore.Config{
		{Endpoints: []string{"unix://" + path}},
		{Endpoints: []string{"unix://" + path}, Username: "u", Password: "p", DialTimeout: 100 * time.Millisecond},
	} {
		cfg.RequestTimeout = 300 * time.Millisecond
		s := open(t, cfg)
		_, err := s.List(t.Context(), "/")
		if !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("list: got %v", err)
		}
		if _, err = s.Watch(t.Context(), "/", from(1)); !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("watch: got %v", err)
		}
		if err = s.Ping(t.Context()); !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("ping: got %v", err)
		}
		s.Close()
		if err = s.Ping(t.Context()); !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("ping of a closed store: got %v", err)
		}
	}
}

// TestOneOfSeveralEndpointsIsEnough: whichever of them in the list it is.
func TestOneOfSeveralEndpointsIsEnough(t *testing.T) {
	m := started(t)
	none := "unix://" + filepath.Join(t.TempDir(), "none")
	for _, endpoints := range [][]string{{none, m.Endpoints()[0]}, {m.Endpoints()[0], none}} {
		if err := open(t, datastore.Config{Endpoints: endpoints}).Ping(t.Context()); err != nil {
			t.Errorf("%q: %v", endpoints, err)
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  datastore.Config
	}{
		{"no endpoint", datastore.Config{}},
		{"an empty endpoint", datastore.Config{Endpoints: []string{""}}},
		{"a user without a password", datastore.Config{Endpoints: []string{"unix:///x"}, Username: "u"}},
		{"a certificate without a key", datastore.Config{Endpoints: []string{"https://x:1"}, CertFile: "/x"}},
		{"an authority that is missing", datastore.Config{Endpoints: []string{"https://x:1"}, CAFile: "/nonexistent"}},
		{"an authority that is none", datastore.Config{Endpoints: []string{"https://x:1"}, CAPEM: []byte("x")}},
		{"a certificate that is none", datastore.Config{Endpoints: []string{"https://x:1"}, CertPEM: []byte("x"), KeyPEM: []byte("x")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := etcdstore.New(t.Context(), tt.cfg); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func BenchmarkList100k(b *testing.B) {
	m := started(b)
	s := open(b, datastore.Config{Endpoints: m.Endpoints()})
	c := admin(b, m.Endpoints())
	value := string(make([]byte, 500))
	for i := 0; i < 100_000; i += 100 {
		var ops []clientv3.Op
		for j := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/calico/bench/%06d", i+j), value))
		}
		if _, err := c.Txn(b.Context()).Then(ops...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if snap, err := s.List(b.Context(), "/calico/bench/"); err != nil || len(snap.Items) != 100_000 {
			b.Fatal(len(snap.Items), err)
		}
	}
}

func BenchmarkPutToWatch(b *testing.B) {
	m := started(b)
	s := open(b, datastore.Config{Endpoints: m.Endpoints(), Progress: time.Minute})
	kv, err := s.Create(b.Context(), api.Update{Key: "/a", Value: []byte("1")})
	if err != nil {
		b.Fatal(err)
	}
	w, err := s.Watch(b.Context(), "/", from(count(b, kv.Revision)))
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for b.Loop() {
		if _, err := s.Update(b.Context(), api.Update{Key: "/a", Value: []byte("2")}); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
