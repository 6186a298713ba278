package outagetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/outagetest"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/syncer"
)

const (
	patience = 3 * time.Minute // bounds what a test waits for
	progress = 100 * time.Millisecond
	request  = time.Second
	memory   = "/dev/shm" // etcd waits for its disk at each write, which is not what is tested
)

// world is a syncer that reaches a real etcd through a proxy, and a store that
// reaches it without.
type world struct {
	t      *testing.T
	cfg    member.Config
	member *member.Member
	proxy  *outagetest.Proxy
	near   string // endpoint of an etcd proxy before it; empty: there is none
	relay  string // address of a relay that reads by it; empty: there is none
	direct datastore.Client

	sync   *syncer.Syncer
	values map[string]string
	batch  syncer.Batch // the last one, without updates
	count  int          // updates
	stays  map[string]bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := must(os.MkdirTemp(memory, "etcd"))(t) // short, as the name of a socket must be
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, "s")}, StartTimeout: patience}
	w := newWorldOn(t, must(member.Start(t.Context(), cfg))(t))
	w.cfg = cfg
	return w
}

func newWorldOn(t *testing.T, m *member.Member) *world {
	t.Helper()
	w := &world{t: t, member: m, values: map[string]string{}, stays: map[string]bool{}}
	t.Cleanup(m.Close)
	w.proxy = must(outagetest.Listen(m.Endpoints()[0]))(t)
	t.Cleanup(w.proxy.Close)
	w.direct = openStore(t, datastore.Config{Endpoints: w.member.Endpoints(), RequestTimeout: time.Minute}) // the reader alone is to notice soon
	for i := range 20 {                                                                                     // these are there all the time
		key := fmt.Sprintf("/k/stay%02d", i)
		w.stays[key] = true
		w.put(key, "0")
	}
	w.put("/k/leave", "0")
	return w
}

// startEtcdProxy puts a `twill etcd proxy` between the reader and the proxy that is faulty.
func (w *world) startEtcdProxy() {
	w.t.Helper()
	dir := must(os.MkdirTemp(memory, "etcd"))(w.t)
	p := etcdproxy.New(etcdproxy.Config{Listen: filepath.Join(dir, "p"), Store: datastore.Config{Endpoints: []string{w.proxy.Endpoint()}}, Follow: progress})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("etcd proxy: %v", err)
		}
		os.RemoveAll(dir)
	})
	w.near = "unix://" + filepath.Join(dir, "p")
}

// startRelay puts a relay between the reader and the proxy that is faulty.
func (w *world) startRelay() {
	w.t.Helper()
	dir := must(os.MkdirTemp(memory, "relay"))(w.t)
	socket := filepath.Join(dir, "s")
	store := openStore(w.t, datastore.Config{Endpoints: []string{w.proxy.Endpoint()}, PageSize: 3})
	s := relay.NewServer(store, relay.ServerConfig{Prefixes: []string{"/k/"}})
	l := must(net.Listen("unix", socket))(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.Run(ctx) })
	parts.Go(func() { _ = s.Serve(ctx, l, relay.Plaintext(), 0) })
	w.t.Cleanup(func() {
		cancel()
		parts.Wait()
		os.RemoveAll(dir)
	})
	w.relay = "unix://" + socket
}

// follow starts the syncer. Its store has small pages, so that a list has several answers.
func (w *world) follow(cfg datastore.Config) {
	w.t.Helper()
	cfg.Endpoints, cfg.PageSize = []string{cmp.Or(w.near, w.proxy.Endpoint())}, cmp.Or(cfg.PageSize, 3) // endpoints are etcd's
	var store datastore.Store = openStore(w.t, cfg)
	if w.relay != "" {
		c := must(relay.NewClient(store, relay.ClientConfig{Address: w.relay, Creds: relay.Plaintext()}))(w.t)
		w.t.Cleanup(func() { _ = c.Close() })
		store = c
	}
	w.sync = syncer.New(store, syncer.Config{Prefixes: []string{"/k/"}, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.sync.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("run: got %v", err)
		}
	})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func openStore(t testing.TB, cfg datastore.Config) datastore.Client {
	t.Helper()
	cfg.Progress, cfg.RequestTimeout = cmp.Or(cfg.Progress, progress), cmp.Or(cfg.RequestTimeout, request)
	s := must(stores.Open(t.Context(), cfg))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func (w *world) start() {
	w.t.Helper()
	w.member = must(member.Start(w.t.Context(), w.cfg))(w.t)
	w.t.Cleanup(w.member.Close)
}

// cut takes etcd away and waits until that is noticed.
func (w *world) cut() {
	w.t.Helper()
	w.proxy.Set(outagetest.Fault{Cut: true})
	w.until("the loss", w.away)
}

// retried does something as often as it takes for etcd to be back.
func (w *world) retried(what string, do func(context.Context) error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, datastore.ErrUnavailable) || ctx.Err() != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// put writes past the proxy.
func (w *world) put(key, value string) {
	w.t.Helper()
	w.retried("put "+key, func(ctx context.Context) error {
		u := api.Update{Key: key, Value: []byte(value)}
		_, err := w.direct.Update(ctx, u)
		if errors.Is(err, datastore.ErrNotFound) {
			_, err = w.direct.Create(ctx, u)
		}
		if errors.Is(err, datastore.ErrExists) {
			err = nil // an earlier try did it
		}
		return err
	})
}

func (w *world) remove(key string) {
	w.t.Helper()
	w.retried("delete "+key, func(ctx context.Context) error {
		err := w.direct.Delete(ctx, key, api.Revision{})
		if errors.Is(err, datastore.ErrNotFound) {
			return nil
		}
		return err
	})
}

// change is what happens behind the syncer's back.
func (w *world) change() {
	w.t.Helper()
	w.put("/k/stay00", "1")
	w.put("/k/stay01", "1")
	w.put("/k/new", "1")
	w.put("/k/brief", "1")
	w.remove("/k/brief")
	w.remove("/k/leave")
}

// compact forgets all history.
func (w *world) compact() {
	w.t.Helper()
	c := must(clientv3.New(clientv3.Config{Endpoints: w.member.Endpoints(), Logger: zap.NewNop()}))(w.t)
	defer c.Close()
	got := must(c.Get(w.t.Context(), "/"))(w.t)
	must(c.Compact(w.t.Context(), got.Header.Revision, clientv3.WithCompactPhysical()))(w.t)
}

// take holds each batch to what must never happen.
func (w *world) take(b syncer.Batch) {
	w.t.Helper()
	for _, u := range b.Updates {
		w.count++
		if u.Value == nil {
			if w.stays[u.Key] {
				w.t.Errorf("%s is reported gone; it was there all the time", u.Key)
			}
			delete(w.values, u.Key)
			continue
		}
		w.values[u.Key] = string(u.Value)
	}
	if w.batch.InSync && !b.InSync {
		w.t.Error("InSync was taken back")
	}
	if b.InSync {
		for key := range w.stays {
			if _, ok := w.values[key]; !ok {
				w.t.Fatalf("in sync, but without %s", key)
			}
		}
	}
	b.Updates = nil
	w.batch = b
}

// until reads batches until it is so.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	w.within(patience, what, is)
}

func (w *world) within(most time.Duration, what string, is func() bool) {
	w.t.Helper()
	limit := time.NewTimer(most)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case b := <-w.sync.Batches():
			w.take(b)
		case <-look.C:
		case <-limit.C:
			w.t.Fatalf("waited for %s; reader has %v, %+v", what, w.values, w.batch)
		}
	}
}

func (w *world) synced() bool { return w.batch.Status == syncer.InSync }
func (w *world) away() bool   { return w.batch.Status == syncer.WaitForDatastore }

// truth reads batches until the reader has what etcd has.
func (w *world) truth() {
	w.t.Helper()
	want := map[string]string{}
	w.retried("list", func(ctx context.Context) error {
		snap, err := w.direct.List(ctx, "/k/")
		for _, kv := range snap.Items {
			want[kv.Key] = string(kv.Value)
		}
		return err
	})
	w.until("the truth", func() bool { return w.synced() && maps.Equal(w.values, want) })
}
