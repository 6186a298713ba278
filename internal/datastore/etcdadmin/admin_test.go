package etcdadmin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// fixture is members that run, and who looks after them.
type fixture struct {
	t       *testing.T
	configs []member.Config
	members []*member.Member
	admin   *etcdadmin.Admin
	store   *etcdstore.Store
}

// newFixture starts so many members. Change is what is other than usual.
func newFixture(t *testing.T, n int, change func(*member.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, configs: configs(t, n)}
	for i := range f.configs {
		change(&f.configs[i])
	}
	f.members = make([]*member.Member, n)
	f.start()
	cfg := datastore.Config{RequestTimeout: time.Minute, DialTimeout: time.Minute}
	for _, c := range f.configs {
		cfg.Endpoints = append(cfg.Endpoints, c.ListenClient...)
	}
	f.admin = must(etcdadmin.Open(t.Context(), cfg))(t)
	t.Cleanup(f.admin.Close)
	f.store = must(etcdstore.New(t.Context(), cfg))(t)
	t.Cleanup(func() { f.store.Close() })
	return f
}

func configs(t *testing.T, n int) (out []member.Config) {
	t.Helper()
	dir := must(os.MkdirTemp("", "etcd"))(t) // short, as the name of a socket must be
	t.Cleanup(func() { os.RemoveAll(dir) })
	var cluster []string
	for i := range n {
		name := fmt.Sprint("h", i+1)
		cfg := member.Config{Dir: filepath.Join(dir, name), ListenClient: []string{"unix://" + filepath.Join(dir, name+".sock")}}
		if n > 1 {
			peer := "http://" + machinetest.Address(t)
			cfg.Name, cfg.ListenPeer = name, []string{peer}
			cluster = append(cluster, name+"="+peer)
		}
		out = append(out, cfg)
	}
	for i := range out {
		out[i].Cluster = strings.Join(cluster, ",")
	}
	return out
}

// start starts all members that do not run, at once, since each waits for most of the others.
func (f *fixture) start() {
	f.t.Helper()
	var group errgroup.Group
	for i := range f.configs {
		if f.members[i] == nil {
			group.Go(func() (err error) {
				f.configs[i].StartTimeout = patience
				f.members[i], err = member.Start(f.t.Context(), f.configs[i])
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
	for _, m := range f.members {
		f.t.Cleanup(m.Close)
	}
}

func (f *fixture) stop(i int) {
	f.members[i].Close()
	f.members[i] = nil
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

// status asks until it is so, since members elect a leader, or learn of one, in time of their own.
func (f *fixture) status(what string, is func(etcdadmin.Cluster) bool) etcdadmin.Cluster {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		c, err := f.admin.Status(ctx)
		if err == nil && is(c) {
			return c
		}
		if ctx.Err() != nil {
			f.t.Fatalf("waited for %s; got %+v, error %v", what, c, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// again does something until it goes well: who looks after members gives each two seconds to answer, and some seconds for what it asks.
func (f *fixture) again(what string, do func() error) {
	f.t.Helper()
	err := do()
	for until := time.Now().Add(patience); err != nil && time.Now().Before(until); err = do() {
		f.t.Logf("%s: %v", what, err)
		<-time.After(20 * time.Millisecond)
	}
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
}

// put writes a key, whether it exists or not, until a member takes it.
func (f *fixture) put(key, value string) error {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for tried := false; ; tried = true {
		err := datastore.Put(ctx, f.store, api.Update{Key: key, Value: []byte(value)})
		if tried && errors.Is(err, datastore.ErrExists) {
			return nil // by an earlier try, whose answer was lost: each key is written once
		}
		if !errors.Is(err, datastore.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

func TestStatusSaysHowManyMembersMayFail(t *testing.T) {
	f := newFixture(t, 3, func(c *member.Config) { c.Quota = 64 << 20 })
	c := f.status("three that answer", func(c etcdadmin.Cluster) bool { return c.Healthy == 3 && leaders(c) == 1 && len(c.Problems()) == 0 })
	for i, m := range c.Members {
		if m.Name != fmt.Sprint("h", i+1) || m.Version == "" || m.Quota != 64<<20 || m.Size < m.InUse || m.InUse == 0 || m.Endpoint != f.configs[i].ListenClient[0] {
			t.Errorf("member %d is %+v", i, m)
		}
	}
	if c.MayFail != 1 {
		t.Errorf("%d may fail, want 1", c.MayFail)
	}

	f.stop(2)
	c = f.status("two that answer", func(c etcdadmin.Cluster) bool { return c.Healthy == 2 && c.AlarmsUnknown == "" })
	if p := strings.Join(c.Problems(), "; "); c.MayFail != 0 || !strings.HasPrefix(p, "h3: it does not answer: ") {
		t.Errorf("%d may fail, problems %q", c.MayFail, p)
	}
	f.wants("h3: it does not answer", func() error {
		_, err := f.admin.Defragment(t.Context(), false, func(m string) { t.Errorf("%s was defragmented", m) })
		return err
	})

	f.stop(1)
	c = f.status("no majority", func(c etcdadmin.Cluster) bool {
		return c.MayFail < 0 && c.Healthy == 0 && !strings.HasPrefix(c.Members[0].Err, "it does not answer")
	})
	if p := strings.Join(c.Problems(), "; "); !strings.Contains(p, "there is no majority: 0 of 3 voting members answer, and 2 are needed") ||
		!strings.Contains(p, "h1: it knows no leader") || !strings.Contains(p, "which alarms there are is not known") {
		t.Errorf("problems %q", p)
	}
	if _, err := f.admin.Disarm(t.Context()); err == nil {
		t.Error("alarms were disarmed that nobody knows")
	}

	f.start()
	f.status("three that answer again", func(c etcdadmin.Cluster) bool { return c.MayFail == 1 && len(c.Problems()) == 0 })
}

// leaders counts the members that say that they lead.
func leaders(c etcdadmin.Cluster) (n int) {
	for _, m := range c.Members {
		if m.Leader {
			n++
		}
	}
	return n
}

// leader is the name of the member that leads, once all are healthy.
func (f *fixture) leader() (name string) {
	f.t.Helper()
	for _, m := range f.status("one leader", func(c etcdadmin.Cluster) bool { return leaders(c) == 1 && len(c.Problems()) == 0 }).Members {
		if m.Leader {
			name = m.Name
		}
	}
	return name
}

func TestMembersAreDefragmentedOneByOneAndTheLeaderLast(t *testing.T) {
	f := newFixture(t, 3, func(c *member.Config) { c.Retention = -1 })
	for i := range 60 { // so much history that no member deletes all of it in one go
		var changes datastore.Txn
		for k := range 100 {
			changes.Put = append(changes.Put, api.Update{Key: fmt.Sprint("/k", k), Value: []byte(strings.Repeat(fmt.Sprint(i%10), 1000))})
		}
		f.again("write", func() error { // which is lost with a leader
			_, err := f.store.Transact(t.Context(), changes)
			return err
		})
	}
	f.status("three that have all", func(c etcdadmin.Cluster) bool {
		return c.MayFail == 1 && c.Members[0].Behind+c.Members[1].Behind+c.Members[2].Behind == 0
	})
	before := map[string]int64{} // what a member took before the first try, whose answer may be lost
	for _, m := range f.status("what they take", func(c etcdadmin.Cluster) bool { return c.Healthy == 3 }).Members {
		before[m.Name] = m.Size
	}
	f.again("all members in turn", func() error {
		leads, turns := f.leader(), []string(nil)
		freed, err := f.admin.Defragment(t.Context(), true, func(m string) {
			if turns = append(turns, m); len(turns) == 1 && f.leader() != leads {
				leads = "" // another leads than a moment ago, and which of them was to be the last is not known
			}
		})
		for i, m := range freed {
			before[m.Member] = max(before[m.Member], m.Before)
			if m.Member != turns[i] || m.After > before[m.Member]/10 {
				t.Errorf("%+v in the turn of %s: want a tenth of it at most", m, turns[i])
			}
		}
		switch {
		case err != nil || leads == "":
			return errors.Join(err, fmt.Errorf("freed %+v in turns %v, another leader: %t", freed, turns, leads == ""))
		case len(freed) != 3 || len(turns) != 3 || turns[2] != leads:
			t.Errorf("%s leads, and freed is %+v in turns %v", leads, freed, turns)
		}
		return nil
	})
}

func TestAFullClusterTakesWritesAgain(t *testing.T) {
	f := newFixture(t, 1, func(c *member.Config) { c.Quota, c.Retention = 4<<20, -1 })
	f.disarm(0)
	var err error
	for i := 0; err == nil; i++ {
		err = f.put("/k", strings.Repeat(fmt.Sprint(i%10), 100_000))
	}
	if !errors.Is(err, datastore.ErrFull) {
		t.Fatal(err)
	}
	f.again("alarms", func() error {
		alarms, err := f.admin.Alarms(t.Context())
		if err == nil && (len(alarms) != 1 || alarms[0] != (etcdadmin.Alarm{Member: "twill", Alarm: "NOSPACE"})) {
			t.Errorf("alarms %v", alarms)
		}
		return err
	})
	healthy := func(c etcdadmin.Cluster) bool { return c.Healthy == 1 && c.AlarmsUnknown == "" }
	if p := f.status("its alarm", healthy).Problems(); len(p) != 1 || p[0] != "twill has the alarm NOSPACE" {
		t.Errorf("problems %q", p)
	}
	f.wants("defragment first", func() error {
		_, err := f.admin.Disarm(t.Context())
		return err
	})
	f.again("defragment", func() error {
		_, err := f.admin.Defragment(t.Context(), true, func(string) {})
		return err
	})
	if err := f.put("/k", "small"); !errors.Is(err, datastore.ErrFull) {
		t.Errorf("before it is disarmed: %v", err)
	}
	f.disarm(1)
	if err := f.put("/k", "small"); err != nil {
		t.Errorf("after it is disarmed: %v", err)
	}
	if p := f.status("no alarm", healthy).Problems(); len(p) != 0 {
		t.Errorf("problems %q", p)
	}
}

// disarm disarms so many alarms, or none, if that was done by a try whose answer was lost.
func (f *fixture) disarm(want int) {
	f.t.Helper()
	tried := false
	f.again("disarm", func() error {
		alarms, err := f.admin.Disarm(f.t.Context())
		if err == nil && len(alarms) != want && (len(alarms) > 0 || !tried) {
			f.t.Errorf("disarmed %v, want %d", alarms, want)
		}
		tried = true
		return err
	})
}

func TestABackupIsWholeOrThereIsNone(t *testing.T) {
	f := newFixture(t, 1, func(*member.Config) {})
	for i := range 3 {
		if err := f.put(fmt.Sprint("/k", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	var came int64
	var s etcdadmin.Snapshot
	f.again("save", func() (err error) {
		s, err = f.admin.Save(t.Context(), file, func(n int64) { came = n })
		return err
	})
	if s.Keys != 3 || s.Revision != 4 || s.Size != came || s.File != file {
		t.Fatalf("saved %+v of %d bytes", s, came)
	}
	if again, err := etcdadmin.Inspect(file); err != nil || again != s {
		t.Errorf("read again: %+v, error %v", again, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", st.Mode(), err)
	}
	if _, err := f.admin.Save(t.Context(), file, func(int64) {}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over one that exists: %v", err)
	}
	f.stop(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := f.admin.Save(ctx, filepath.Join(dir, "other.db"), func(int64) {}); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("of a member that is away: %v", err)
	}
	if left := must(os.ReadDir(dir))(t); len(left) != 1 {
		t.Errorf("%v are left", left)
	}
}

// save makes a backup.
func (f *fixture) save(file string) (s etcdadmin.Snapshot) {
	f.t.Helper()
	f.again("save", func() (err error) {
		s, err = f.admin.Save(f.t.Context(), file, func(int64) {})
		return err
	})
	return s
}

func TestWhatIsNoBackupIsRefusedAndNothingIsMade(t *testing.T) {
	f := newFixture(t, 1, func(*member.Config) {})
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	f.save(file)
	whole := must(os.ReadFile(file))(t)
	bent := append([]byte{}, whole...)
	bent[len(bent)/2] ^= 1
	occupied := filepath.Join(dir, "occupied")
	if err := os.MkdirAll(filepath.Join(occupied, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		content []byte
		cfg     member.Config
		want    string
	}{
		{"a part of one", whole[:len(whole)-4096], member.Config{}, "its content is not that of its hash"},
		{"one without its hash", whole[:len(whole)-32], member.Config{}, "a part of one is missing"},
		{"one with a bit that flipped", bent, member.Config{}, "its content is not that of its hash"},
		{"nothing", nil, member.Config{}, "it is no snapshot"},
		{"a directory that has something", whole, member.Config{Dir: occupied}, "is not empty; stop the member that it belongs to"},
		{"a member that is not in its cluster", whole, member.Config{Name: "h9", ListenPeer: []string{"http://192.0.2.1:2380"}, Cluster: "h1=http://192.0.2.1:2380"}, "h9"},
		{"a cluster without an address for peers", whole, member.Config{Cluster: "h1=http://192.0.2.1:2380"}, "needs an address to listen on for its peers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := t.TempDir()
			if err := os.WriteFile(filepath.Join(in, "f"), tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.cfg.Dir == "" {
				tt.cfg.Dir = filepath.Join(in, "etcd")
			}
			if _, err := etcdadmin.Restore(filepath.Join(in, "f"), tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			if left := must(os.ReadDir(in))(t); len(left) != 1 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestABackupIsRestored, of one member and of three: all is there, at a revision that no client has seen, and the members go on together.
func TestABackupIsRestored(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := newFixture(t, n, func(*member.Config) {})
			if err := f.put("/k", "kept"); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "backup.db")
			s := f.save(file)
			if err := f.put("/k", "lost"); err != nil {
				t.Fatal(err)
			}
			var seen datastore.Position
			f.again("list", func() error {
				all, err := f.store.List(t.Context(), "/")
				seen = all.Position
				return err
			})
			for i := range n {
				f.stop(i)
			}
			for i := range f.configs {
				f.configs[i].Dir += ".new"
				r, err := etcdadmin.Restore(file, f.configs[i])
				if err != nil || r.Revision <= s.Revision || r.Snapshot.Keys != 1 || r.Dir != f.configs[i].Dir {
					t.Fatalf("restored %+v, error %v", r, err)
				}
			}
			f.start()
			f.status("all to answer", func(c etcdadmin.Cluster) bool { return c.Healthy == n && len(c.Problems()) == 0 })
			f.again("read", func() error {
				kv, err := f.store.Get(t.Context(), "/k")
				if err == nil && string(kv.Value) != "kept" {
					t.Errorf("restored %q", kv.Value)
				}
				return err
			})
			f.again("a watch from what is lost", func() error {
				w, err := f.store.Watch(t.Context(), "/", seen)
				if err == nil {
					_, err = w.Next(t.Context())
					w.Close()
				}
				if errors.Is(err, datastore.ErrUnavailable) {
					return err
				}
				if !errors.Is(err, datastore.ErrCompacted) {
					t.Errorf("a watch from what is lost: %v, want it to say that only a list helps", err)
				}
				return nil
			})
			if err := f.put("/k2", "new"); err != nil {
				t.Error(err)
			}
		})
	}
}
