package outagetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/outagetest"
)

// faults are what happens to etcd, or to the way to it.
var faults = []struct {
	name  string
	fault func(*world)
}{
	{"etcd is away while things change", func(w *world) {
		w.cut()
		w.change()
		w.proxy.Set(outagetest.Fault{})
	}},
	{"etcd is away again and again", func(w *world) {
		for i := range 3 {
			w.proxy.Set(outagetest.Fault{Cut: true})
			w.put("/k/stay02", fmt.Sprint(i))
			w.until("the loss", w.away)
			w.proxy.Set(outagetest.Fault{})
			w.until("the return", w.synced)
		}
		w.change()
	}},
	{"etcd accepts and says nothing", func(w *world) {
		w.proxy.Set(outagetest.Fault{Hang: true})
		began := time.Now()
		w.change()
		w.until("the silence to be noticed", w.away)
		w.t.Logf("noticed after %s, with progress asked for every %s and requests bounded by %s", time.Since(began).Round(time.Millisecond), progress, request)
		w.proxy.Set(outagetest.Fault{})
	}},
	{"etcd is silent and then resets", func(w *world) {
		w.proxy.Set(outagetest.Fault{Hang: true})
		w.change()
		w.until("the silence to be noticed", w.away)
		w.proxy.Set(outagetest.Fault{Cut: true})
		w.put("/k/stay03", "1")
		w.proxy.Set(outagetest.Fault{})
	}},
	{"its history is compacted while it is away", func(w *world) {
		w.cut()
		w.change()
		w.compact()
		w.proxy.Set(outagetest.Fault{})
	}},
	{"it restarts, compacted in between", func(w *world) {
		w.cut()
		w.change()
		w.compact()
		w.member.Close()
		w.start()
		w.put("/k/stay04", "1")
		w.proxy.Set(outagetest.Fault{})
	}},
	{"a list is cut half-way, many times", func(w *world) {
		w.cut()
		w.change()
		w.compact()
		step := 200 // some end within a page, some between two
		if w.relay != "" {
			step = 900 // since a relay asks each 3 s by then
		}
		for after := 100; after < 2500; after += step {
			w.proxy.Set(outagetest.Fault{After: after})
			before := w.proxy.Dropped()
			w.until("a list to be cut", func() bool { return w.proxy.Dropped() > before })
		}
		w.proxy.Set(outagetest.Fault{})
	}},
	{"it is put back from an older backup", func(w *world) {
		backup := w.backup()
		w.until("the return", w.synced)
		w.put("/k/later", "1") // and lost with the backup
		w.change()
		w.truth()
		w.proxy.Set(outagetest.Fault{Cut: true})
		w.restore(backup)
		w.proxy.Set(outagetest.Fault{})
		w.until("what is lost to be gone", func() bool { return w.values["/k/later"] == "" })
	}},
	{"a snapshot is restored in its place", func(w *world) {
		file := w.snapshot()
		w.put("/k/later", "1") // and lost
		w.change()
		w.truth()
		w.proxy.Set(outagetest.Fault{Cut: true})
		w.restoreSnapshot(file)
		w.proxy.Set(outagetest.Fault{})
		w.until("what is lost to be gone", func() bool { return w.values["/k/later"] == "" })
	}},
}

func TestTheTruthArrivesAndNothingFlaps(t *testing.T) { testFaults(t, func(*world) {}) }

// TestTheTruthArrivesBehindAnEtcdProxy: a `twill etcd proxy` between the reader and what is faulty changes nothing of it. In particular the
// reader does not take a proxy that answers for a store that does.
func TestTheTruthArrivesBehindAnEtcdProxy(t *testing.T) { testFaults(t, (*world).startEtcdProxy) }

// TestTheTruthArrivesBehindARelay: the same faults between a relay and its etcd, which forgets its history behind it, is put back and restarts. The reader
// learns from the relay that the datastore is away.
func TestTheTruthArrivesBehindARelay(t *testing.T) { testFaults(t, (*world).startRelay) }

func testFaults(t *testing.T, between func(*world)) {
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // each waits for timers, most of the time
			w := newWorld(t)
			between(w)
			w.follow(datastore.Config{})
			w.until("the first sync", w.synced)
			tt.fault(w)
			w.truth()
			w.put("/k/stay05", "last") // and it is followed as before
			w.truth()
		})
	}
}

func TestASlowStoreIsOnlySlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.proxy.Set(outagetest.Fault{Delay: 100 * time.Millisecond})                        // a list of 7 pages
	w.follow(datastore.Config{Progress: 20 * time.Second, RequestTimeout: time.Minute}) // a busy machine is slow, too
	w.until("the first sync", w.synced)
	for i := range 5 {
		w.put("/k/stay00", fmt.Sprint(i))
		w.until("a change", func() bool { return w.values["/k/stay00"] == fmt.Sprint(i) })
		if !w.synced() {
			t.Errorf("status is %v: slow is not away", w.batch.Status)
		}
	}
	w.change()
	w.truth()
}

func TestAMemberWithoutALeaderIsNoticed(t *testing.T) {
	machinetest.Expensive(t, "takes 15 s")
	t.Parallel()
	var cluster, peers []string
	for i := range 3 {
		peers = append(peers, "http://"+machinetest.Address(t))
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	dir := must(os.MkdirTemp(memory, "etcd"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var cfgs []member.Config
	for i := range 3 {
		cfgs = append(cfgs, member.Config{
			Dir: filepath.Join(dir, fmt.Sprint(i)), Name: fmt.Sprint("m", i), ListenPeer: peers[i : i+1],
			ListenClient: []string{"unix://" + filepath.Join(dir, fmt.Sprint("s", i))}, Cluster: strings.Join(cluster, ","),
		})
	}
	members := startAll(t, cfgs)
	w := newWorldOn(t, members[0])
	w.follow(datastore.Config{})
	w.until("the first sync", w.synced)
	w.change()
	members[1].Close()
	members[2].Close()
	// The member that is left answers, but knows nothing new: that must not pass for calm.
	w.until("the loss of the leader", w.away)
	startAll(t, cfgs[1:])
	w.truth()
	w.put("/k/stay05", "last")
	w.truth()
}

// startAll starts members at once, since each waits for most of the others.
func startAll(t *testing.T, cfgs []member.Config) []*member.Member {
	t.Helper()
	members := make([]*member.Member, len(cfgs))
	var group errgroup.Group
	for i, cfg := range cfgs {
		group.Go(func() (err error) {
			members[i], err = member.Start(t.Context(), cfg)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		t.Cleanup(m.Close)
	}
	return members
}

// backup stops etcd, copies its data and starts it again.
func (w *world) backup() string {
	w.t.Helper()
	w.member.Close()
	dir := filepath.Join(w.t.TempDir(), "backup")
	w.copy(filepath.Join(w.cfg.Dir, "member-data"), dir)
	w.start()
	return dir
}

func (w *world) restore(backup string) {
	w.t.Helper()
	w.member.Close()
	data := filepath.Join(w.cfg.Dir, "member-data")
	if err := os.RemoveAll(data); err != nil {
		w.t.Fatal(err)
	}
	w.copy(backup, data)
	w.start()
}

// snapshot is what `twill etcd snapshot` writes.
func (w *world) snapshot() string {
	w.t.Helper()
	admin := must(etcdadmin.Open(w.t.Context(), datastore.Config{Endpoints: w.member.Endpoints()}))(w.t)
	defer admin.Close()
	file := filepath.Join(w.t.TempDir(), "snapshot")
	w.retried("save", func(ctx context.Context) error {
		_, err := admin.Save(ctx, file, func(int64) {})
		return err
	})
	return file
}

// restoreSnapshot does what `twill etcd restore` says.
func (w *world) restoreSnapshot(file string) {
	w.t.Helper()
	w.member.Close()
	w.cfg.Dir = filepath.Join(w.cfg.Dir, "restored")
	must(etcdadmin.Restore(file, w.cfg))(w.t)
	w.start()
}

// copy starts no program: until that has begun it would hold, with all other files of this process, the locks of members that another test
// closes just then, which could not start again.
func (w *world) copy(from, to string) {
	w.t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		w.t.Fatal(err)
	}
}
