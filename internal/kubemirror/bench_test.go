package kubemirror_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/kubemirror"
)

// alive is the profile of a namespace that every cluster has.
const alive = "profiles/kns.kube-system"

// bench is a mirror between two stores in memory, in virtual time.
type bench struct {
	*testing.T
	from *faulty // Kubernetes
	to   *faulty
	log  log
}

// faulty is a store that can be made to lie.
type faulty struct {
	*memstore.Store
	mu     sync.Mutex
	empty  bool // lists have nothing
	silent bool // watches bring nothing
	none   bool // nothing is found by its key
	hangs  bool // who asks for a key waits as long as it will
}

func (f *faulty) set(flag *bool, value bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*flag = value
}

func (f *faulty) is(flag *bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *flag
}

func (f *faulty) Pages(ctx context.Context, prefix string, page func(datastore.Snapshot, bool) error) error {
	if f.is(&f.empty) {
		return page(datastore.Snapshot{Position: f.Position()}, true)
	}
	return f.Store.Pages(ctx, prefix, page)
}

func (f *faulty) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	if f.is(&f.empty) {
		return datastore.Snapshot{Position: f.Position()}, nil
	}
	return f.Store.List(ctx, prefix)
}

func (f *faulty) Get(ctx context.Context, key string) (api.Update, error) {
	if f.is(&f.hangs) {
		<-ctx.Done()
		return api.Update{}, ctx.Err()
	}
	if f.is(&f.none) {
		return api.Update{}, datastore.ErrNotFound
	}
	return f.Store.Get(ctx, key)
}

func (f *faulty) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	w, err := f.Store.Watch(ctx, prefix, after)
	return watcher{w, f}, err
}

type watcher struct {
	datastore.Watcher
	f *faulty
}

func (w watcher) Next(ctx context.Context) (datastore.Changes, error) {
	c, err := w.Watcher.Next(ctx)
	if w.f.is(&w.f.silent) {
		c.Updates = nil
	}
	return c, err
}

// log is what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// run starts a mirror; what is in the stores is "key=value", keys without what all begin with.
func run(t *testing.T, cfg kubemirror.Config, from, to []string, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, from: &faulty{Store: memstore.New()}, to: &faulty{Store: memstore.New()}}
		put(t, b.from, alive+"={}")
		put(t, b.from, from...)
		put(t, b.to, to...)
		cfg.From, cfg.To, cfg.Log = b.from, b.to, slog.New(slog.NewTextHandler(&b.log, nil))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = kubemirror.New(cfg).Run(ctx)
		}()
		b.settle()
		test(b)
		cancel()
		<-done
	})
}

func (b *bench) settle() { <-time.After(time.Minute); synctest.Wait() } // virtual; longer than any back-off

func put(t *testing.T, s datastore.Store, words ...string) {
	t.Helper()
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		if err := datastore.Put(t.Context(), s, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, s datastore.Store, names ...string) {
	t.Helper()
	for _, key := range names {
		if err := s.Delete(t.Context(), api.ResourcesPrefix+key, api.Revision{}); err != nil {
			t.Fatal(err)
		}
	}
}

// holds compares all that To holds, but for the profile that is always there.
func (b *bench) holds(what string, want ...string) {
	b.Helper()
	b.settle()
	all, err := b.to.List(b.Context(), api.ResourcesPrefix)
	if err != nil {
		b.Fatal(err)
	}
	var got []string
	for _, u := range all.Sorted() {
		if key := strings.TrimPrefix(u.Key, api.ResourcesPrefix); key != alive {
			got = append(got, key+"="+string(u.Value))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.Errorf("%s:\n got %s\nwant %s\n log %.4000s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "), b.log.String())
	}
}
