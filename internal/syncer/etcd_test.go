package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/syncer"
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// etcdWorld is a syncer on a real member, in real time.
type etcdWorld struct {
	*reader
	cfg    member.Config
	member *member.Member
	store  datastore.Client // which waits for long
}

func newEtcdWorld(t *testing.T) *etcdWorld {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &etcdWorld{cfg: member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, "s")}, StartTimeout: patience}}
	w.start(t)
	open := func(cfg datastore.Config) datastore.Client {
		cfg.Endpoints = w.member.Endpoints()
		s, err := stores.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	w.store = open(datastore.Config{RequestTimeout: time.Minute})
	w.reader = follow(t, open(datastore.Config{Progress: 100 * time.Millisecond, RequestTimeout: 5 * time.Second}), syncer.Config{Prefixes: []string{"/"}, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	t.Cleanup(w.stop)
	return w
}

func (w *etcdWorld) start(t *testing.T) {
	t.Helper()
	m, err := member.Start(t.Context(), w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	w.member = m
}

// until reads batches until what was told satisfies a condition.
func (w *etcdWorld) until(what string, ok func() bool) {
	w.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !ok() {
		select {
		case b := <-w.sync.Batches():
			w.take(b)
		case <-limit.C:
			w.t.Fatalf("waited for %s; reader has %v, %+v", what, w.sent, w.batch)
		}
	}
}

func (w *etcdWorld) put(key, value string) {
	w.t.Helper()
	for tries := 0; ; tries++ { // of a write that took too long it is not known whether it was done
		_, err := w.store.Create(w.t.Context(), api.Update{Key: key, Value: []byte(value)})
		switch {
		case err == nil || tries > 0 && errors.Is(err, datastore.ErrExists):
			return
		case tries == 20 || !errors.Is(err, datastore.ErrUnavailable):
			w.t.Fatal(err)
		}
	}
}

func (w *etcdWorld) synced() bool { return w.batch.Status == syncer.InSync }
func (w *etcdWorld) away() bool   { return w.batch.Status == syncer.WaitForDatastore }

func TestSyncerOutlivesRestartOfEtcd(t *testing.T) {
	w := newEtcdWorld(t)
	w.put("/a", "1")
	w.until("a", func() bool { return w.sent["/a"] == "1" && w.synced() })
	for i := range 2 {
		w.member.Close()
		w.until("the loss", w.away)
		w.start(t)
		w.until("the return", w.synced)
		key := fmt.Sprint("/b", i)
		w.put(key, "1")
		w.until(key, func() bool { return w.sent[key] == "1" })
	}
	w.want("/a=1 /b0=1 /b1=1")
	if w.count != 3 {
		t.Errorf("got %d updates, want 3", w.count)
	}
}

func TestSyncerOutlivesCompactionOfEtcd(t *testing.T) {
	w := newEtcdWorld(t)
	w.put("/a", "1")
	w.put("/b", "1")
	w.until("in sync", func() bool { return len(w.sent) == 2 && w.synced() })
	// While the syncer cannot hear, keys change and their history goes.
	direct := func() *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: w.member.Endpoints(), Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range 5 {
		c := direct()
		if _, err := c.Put(t.Context(), "/a", fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
		resp, err := c.Put(t.Context(), fmt.Sprint("/new", i), "1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		c.Close()
		w.member.Close()
		w.start(t)
	}
	c := direct()
	defer c.Close()
	if _, err := c.Delete(context.Background(), "/b"); err != nil {
		t.Fatal(err)
	}
	w.until("the last state", func() bool {
		_, b := w.sent["/b"]
		return !b && w.sent["/a"] == "x4" && w.sent["/new4"] == "1" && w.synced()
	})
	w.want("/a=x4 /new0=1 /new1=1 /new2=1 /new3=1 /new4=1")
}
