package outagetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/outagetest"
	"github.com/twillnet/twill/internal/status"
)

// raw is a client that does what no store of ours does.
func (w *world) raw() *clientv3.Client {
	w.t.Helper()
	c := must(clientv3.New(clientv3.Config{Endpoints: w.member.Endpoints(), Logger: zap.NewNop()}))(w.t)
	w.t.Cleanup(func() { c.Close() })
	return c
}

func TestAFullStoreIsReadAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := must(os.MkdirTemp(memory, "etcd"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := newWorldOn(t, must(member.Start(t.Context(), member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, "s")}, Quota: 2 << 20, StartTimeout: patience}))(t))
	w.follow(datastore.Config{})
	w.until("the first sync", w.synced)
	var err error
	for i := 0; (err == nil || errors.Is(err, datastore.ErrUnavailable)) && i < 5000; i++ { // the member looks at its size when it has written to disk, ten times a second
		_, err = w.direct.Create(t.Context(), api.Update{Key: fmt.Sprintf("/fill/%d", i), Value: []byte(strings.Repeat("x", 100<<10))})
	}
	if !errors.Is(err, datastore.ErrFull) || !strings.Contains(err.Error(), "twill etcd defrag") {
		t.Fatalf("the store is filled and says %v", err)
	}
	w.truth() // it is read as before
	if ms := w.members(); len(ms) != 1 || !ms[0].Full {
		t.Errorf("members of a full store: %+v", ms)
	}
	err = w.tells(false)
	if !errors.Is(err, datastore.ErrFull) || !strings.Contains(err.Error(), "docs/etcd.md") {
		t.Errorf("a node that cannot say how it is says %v", err)
	}
	w.cut()
	w.proxy.Set(outagetest.Fault{})
	w.until("the return", w.synced) // and listed again

	c := w.raw()
	got := must(c.Delete(t.Context(), "/fill/", clientv3.WithPrefix()))(t)
	must(c.Compact(t.Context(), got.Header.Revision, clientv3.WithCompactPhysical()))(t)
	must(c.Defragment(t.Context(), w.member.Endpoints()[0]))(t)
	must(c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}))(t)
	if ms := w.members(); ms[0].Full {
		t.Errorf("members of a store that was emptied: %+v", ms)
	}
	if err := w.tells(true); err != nil {
		t.Errorf("a node that can say how it is says %v", err)
	}
	w.change()
	w.truth()
}

// members are those that answered, for which a store waits some seconds.
func (w *world) members() (ms []datastore.Member) {
	w.t.Helper()
	w.retried("members", func(ctx context.Context) (err error) {
		if ms, err = w.direct.(datastore.Clustered).Members(ctx); err == nil && len(ms) == 1 {
			err = ms[0].Err
		}
		return err
	})
	return ms
}

// tells has a node report to the store until that goes well, or until it fails, and returns what is said of it then.
func (w *world) tells(well bool) (report error) {
	w.t.Helper()
	r := status.New(status.Config{Node: "h1", Store: w.direct, Host: func() (bool, []string) { return true, nil }, Log: slog.New(slog.DiscardHandler)})
	r.Configure(status.Settings{Interval: time.Minute, TTL: 2 * time.Minute})
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	w.until("the report", func() bool {
		_, err := w.direct.Get(w.t.Context(), "/calico/felix/v2/no-region/host/h1/status")
		report = r.WriteError()
		return report != nil && !errors.Is(report, datastore.ErrUnavailable) || well && err == nil && report == nil
	})
	cancel()
	<-done
	return report
}

func TestListing100000KeysAgainRepeatsNoUpdateAndKeepsNoMemory(t *testing.T) {
	machinetest.Expensive(t, "writes 100,000 keys")
	w := newWorld(t)
	c := w.raw()
	const keys = 100_000
	var group errgroup.Group
	group.SetLimit(32) // etcd writes them to disk together
	for at := 0; at < keys; at += 100 {
		group.Go(func() error {
			var ops []clientv3.Op
			for i := range 100 {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("/k/many/%06d", at+i), strings.Repeat("v", 500)))
			}
			_, err := c.Txn(t.Context()).Then(ops...).Commit()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w.follow(datastore.Config{PageSize: 2000, RequestTimeout: 5 * time.Second})
	w.until("the first sync", w.synced)
	before, count := heap(), w.count
	for i := range 3 {
		w.put("/other", fmt.Sprint(i)) // else there is nothing to compact
		w.cut()
		w.compact() // so that only a list helps
		w.proxy.Set(outagetest.Fault{})
		began := time.Now()
		w.until("the return", w.synced)
		t.Logf("listed again in %s", time.Since(began).Round(time.Millisecond))
	}
	if w.count != count {
		t.Errorf("%d updates of what had not changed", w.count-count)
	}
	// One list is some 60 MB; a tenth of it that stays each time would show. Pools give theirs back after some collections, connections when they are read.
	after := heap()
	defer func() { t.Logf("the heap has %d MB, had %d", after>>20, before>>20) }()
	w.until("a heap as large as before", func() bool {
		after = heap()
		return after <= before+20<<20
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
