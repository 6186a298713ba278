package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/syncer"
)

// reader is what a consumer has been told.
type reader struct {
	t     *testing.T
	sync  *syncer.Syncer
	sent  map[string]string
	wrote map[string]bool // keys that the reader wrote itself
	batch syncer.Batch    // the last one, without updates
	count int             // updates received
	stop  func()
}

// follow runs a syncer over store, inside a synctest bubble.
func follow(t *testing.T, store datastore.Store, cfg syncer.Config) *reader {
	t.Helper()
	s := syncer.New(store, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &reader{t: t, sync: s, sent: map[string]string{}, wrote: map[string]bool{}}
	r.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: got %v", err)
		}
		if _, open := <-s.Batches(); open {
			t.Error("batches are still open after run")
		}
	}
	return r
}

func (r *reader) take(b syncer.Batch) {
	r.t.Helper()
	seen := map[string]bool{}
	for _, u := range b.Updates {
		if seen[u.Key] {
			r.t.Errorf("%s is twice in a batch", u.Key)
		}
		seen[u.Key] = true
		r.count++
		if u.Value == nil {
			if _, ok := r.sent[u.Key]; !ok && !r.wrote[u.Key] {
				r.t.Errorf("%s is gone, but was never told of", u.Key)
			}
			delete(r.sent, u.Key)
		} else {
			r.sent[u.Key] = string(u.Value)
		}
	}
	if r.batch.InSync && !b.InSync {
		r.t.Error("InSync was taken back")
	}
	b.Updates = nil
	r.batch = b
}

// knows says that the reader is about to write a key, and goes by that.
func (r *reader) knows(key string) {
	r.t.Helper()
	r.wrote[key] = true
	if err := r.sync.Know(r.t.Context(), key); err != nil {
		r.t.Fatal(err)
	}
}

// writes has the reader write a value itself, or delete the key if that is 0, and go by it.
func (r *reader) writes(s *memstore.Store, key string, value int) {
	r.t.Helper()
	r.knows(key)
	if value == 0 {
		_ = s.Delete(r.t.Context(), key, api.Revision{}) // may be missing
		delete(r.sent, key)
		return
	}
	r.sent[key] = fmt.Sprint(value)
	write(r.t, s, key+"="+r.sent[key])
}

// drain takes what there is until all goroutines wait.
func (r *reader) drain() {
	r.t.Helper()
	for {
		synctest.Wait()
		select {
		case b := <-r.sync.Batches():
			r.take(b)
		default:
			return
		}
	}
}

// settle drains for a virtual while, longer than any backoff.
func (r *reader) settle() {
	r.t.Helper()
	timer := time.NewTimer(time.Minute)
	for {
		select {
		case b := <-r.sync.Batches():
			r.take(b)
		case <-timer.C:
			r.drain()
			return
		}
	}
}

func (r *reader) want(words string) {
	r.t.Helper()
	var got []string
	for _, k := range slices.Sorted(maps.Keys(r.sent)) {
		got = append(got, k+"="+r.sent[k])
	}
	if g := strings.Join(got, " "); g != words {
		r.t.Errorf("reader has %q, want %q", g, words)
	}
}

func (r *reader) wantStatus(status syncer.Status, inSync bool) {
	r.t.Helper()
	if r.batch.Status != status || r.batch.InSync != inSync {
		r.t.Errorf("status is %v, in sync %v; want %v, %v", r.batch.Status, r.batch.InSync, status, inSync)
	}
}

// write sets keys from words like a=1, and deletes those like -a.
func write(t *testing.T, s *memstore.Store, words ...string) {
	t.Helper()
	for _, w := range words {
		var err error
		if key, gone := strings.CutPrefix(w, "-"); gone {
			err = s.Delete(t.Context(), key, api.Revision{})
		} else {
			key, value, _ := strings.Cut(w, "=")
			kv := api.Update{Key: key, Value: []byte(value)}
			if _, err = s.Update(t.Context(), kv); errors.Is(err, datastore.ErrNotFound) {
				_, err = s.Create(t.Context(), kv)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var all = syncer.Config{Prefixes: []string{"/"}}

func TestSyncer(t *testing.T) {
	down := func(memstore.Op) error { return datastore.ErrUnavailable }
	for _, tt := range []struct {
		name string
		test func(*testing.T, *memstore.Store)
	}{
		{"an empty store is in sync", func(t *testing.T, s *memstore.Store) {
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			r.wantStatus(syncer.InSync, true)
			r.want("")
		}},
		{"changes follow", func(t *testing.T, s *memstore.Store) {
			r := follow(t, s, all)
			defer r.stop()
			write(t, s, "/a=1", "/b=1", "-/a", "/c=")
			r.drain()
			r.want("/b=1 /c=")
		}},
		{"only the prefixes asked for are told of", func(t *testing.T, s *memstore.Store) {
			r := follow(t, s, syncer.Config{Prefixes: []string{"/y/", "/x/", "/x/sub/"}})
			defer r.stop()
			write(t, s, "/x/a=1", "/x/sub/a=1", "/y/a=1", "/z/a=1")
			r.drain()
			r.want("/x/a=1 /x/sub/a=1 /y/a=1")
			if r.count != 3 {
				t.Errorf("got %d updates, want 3", r.count)
			}
		}},
		{"a slow reader gets the last value of each key, and nothing of what came and went", func(t *testing.T, s *memstore.Store) {
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			for i := range 1000 {
				write(t, s, fmt.Sprint("/a=", i), fmt.Sprint("/brief", i, "=1"), fmt.Sprint("-/brief", i))
				synctest.Wait()
			}
			r.drain()
			r.want("/a=999")
			if r.count != 1 {
				t.Errorf("got %d updates, want 1", r.count)
			}
		}},
		{"a store that is away is waited for", func(t *testing.T, s *memstore.Store) {
			s.Fail(down)
			r := follow(t, s, all)
			defer r.stop()
			r.settle()
			r.wantStatus(syncer.WaitForDatastore, false)
			s.Fail(nil)
			write(t, s, "/a=1")
			r.settle()
			r.wantStatus(syncer.InSync, true)
			r.want("/a=1")
		}},
		{"one prefix that cannot be listed withholds InSync", func(t *testing.T, s *memstore.Store) {
			s.Fail(func(op memstore.Op) error {
				if op.Verb == "list" && op.Key == "/y/" {
					return datastore.ErrUnauthorized
				}
				return nil
			})
			write(t, s, "/x/a=1", "/y/a=1")
			r := follow(t, s, syncer.Config{Prefixes: []string{"/x/", "/y/"}})
			defer r.stop()
			r.settle()
			r.want("/x/a=1")
			r.wantStatus(syncer.ResyncInProgress, false)
			s.Fail(nil)
			r.settle()
			r.want("/x/a=1 /y/a=1")
			r.wantStatus(syncer.InSync, true)
		}},
		{"a lost watch goes on where it was", func(t *testing.T, s *memstore.Store) {
			write(t, s, "/a=1")
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			s.Fail(down)
			s.DropWatches(nil)
			r.settle()
			r.wantStatus(syncer.WaitForDatastore, true)
			s.Fail(func(op memstore.Op) error {
				if op.Verb == "list" {
					t.Error("listed again without need")
				}
				return nil
			})
			write(t, s, "/b=1", "-/a")
			r.settle()
			r.want("/b=1")
			r.wantStatus(syncer.InSync, true)
			if r.count != 3 {
				t.Errorf("got %d updates, want 3", r.count)
			}
		}},
		{"after a compaction only differences are told", func(t *testing.T, s *memstore.Store) {
			write(t, s, "/a=1", "/b=1", "/c=1")
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			s.Fail(down)
			s.DropWatches(nil)
			r.settle()
			write2 := func() { s.Fail(nil); write(t, s, "/b=2", "-/c", "/d=1") }
			write2()
			_ = s.Compact(t.Context(), datastore.Position{})
			r.settle()
			r.want("/a=1 /b=2 /d=1")
			r.wantStatus(syncer.InSync, true)
			if r.count != 6 {
				t.Errorf("got %d updates, want 3 and 3 differences", r.count)
			}
		}},
		{"what the reader wrote, and somebody deletes at once, is gone", func(t *testing.T, s *memstore.Store) {
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			r.knows("/k")
			write(t, s, "/k=1")
			r.sent["/k"] = "1"
			if err := s.Delete(t.Context(), "/k", api.Revision{}); err != nil {
				t.Fatal(err)
			}
			r.settle()
			r.want("")
		}},
		{"a store put back from a backup becomes the truth", func(t *testing.T, s *memstore.Store) {
			write(t, s, "/a=1", "/b=1", "/c=1", "/c=2")
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			backup := memstore.New()
			write(t, backup, "/a=9", "/b=1")
			s.Rewind(backup)
			r.settle()
			r.want("/a=9 /b=1")
			r.wantStatus(syncer.InSync, true)
			write(t, s, "/a=10")
			r.settle()
			r.want("/a=10 /b=1")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.test(t, memstore.New()) })
		})
	}
}

func TestBackoffIsBoundedAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		calls := 0
		s.Fail(func(memstore.Op) error { calls++; return datastore.ErrUnavailable })
		r := follow(t, s, all)
		defer r.stop()
		r.settle() // a minute
		// Five steps up to 3s, then one each 1.5 to 3s.
		if calls < 12 || calls > 40 {
			t.Errorf("%d attempts in a minute", calls)
		}
	})
}

// silent is a store that answers nothing for as long as a request may take.
type silent struct {
	datastore.Store
	ended time.Time     // the last request
	gap   time.Duration // the longest between two
}

func (s *silent) List(context.Context, string) (datastore.Snapshot, error) {
	if !s.ended.IsZero() {
		s.gap = max(s.gap, time.Since(s.ended))
	}
	<-time.After(10 * time.Second)
	s.ended = time.Now()
	return datastore.Snapshot{}, datastore.ErrUnavailable
}

func TestAStoreThatAnswersNothingIsAlwaysAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{Store: memstore.New()}
		r := follow(t, s, all)
		r.settle() // a minute
		r.settle()
		r.stop()
		if s.gap == 0 || s.gap > 100*time.Millisecond {
			t.Errorf("up to %s between two requests", s.gap)
		}
	})
}

func TestAStoreThatIsBackAndHasForgottenIsListedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		write(t, s, "/a=1")
		r := follow(t, s, all)
		defer r.stop()
		r.drain()
		s.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
		s.DropWatches(nil)
		r.settle() // a minute
		s.Fail(nil)
		write(t, s, "/a=2")
		_ = s.Compact(t.Context(), datastore.Position{})
		back := time.Now()
		for r.sent["/a"] != "2" {
			r.take(<-r.sync.Batches())
		}
		// Up to 3s until it is asked, and 0.4s until it is listed.
		if took := time.Since(back); took > 3500*time.Millisecond {
			t.Errorf("in sync after %s", took)
		}
	})
}

// TestAnyFaultsSameState lets a store change by the reader's hand and by others', fail, drop its watches, forget
// and go back while the reader is now quick, now slow. Once the faults stop,
// the reader must have what the store has.
func TestAnyFaultsSameState(t *testing.T) {
	seedtest.Each(t, nil, 20, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { chaos(t, rand.New(rand.NewPCG(seed, 0))) })
	})
}

func chaos(t *testing.T, rnd *rand.Rand) {
	prefixes := []string{"/x/", "/y/"}
	s := memstore.New()
	listed := map[string]bool{} // prefixes that were listed without a fault
	faults := rand.New(rand.NewPCG(rnd.Uint64(), 0))
	var mu sync.Mutex // both feeds ask
	calm := false
	setCalm := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		calm = on
	}
	fail := func(op memstore.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains([]string{"create", "update", "delete"}, op.Verb) {
			return nil
		}
		if !calm && faults.IntN(4) == 0 {
			return []error{datastore.ErrUnavailable, datastore.ErrCompacted, datastore.ErrUnauthorized, errors.New("odd")}[faults.IntN(4)]
		}
		if op.Verb == "list" {
			listed[op.Key] = true
		}
		return nil
	}
	s.Fail(fail) // before anyone lists
	r := follow(t, either(rnd, s), syncer.Config{Prefixes: prefixes})
	defer r.stop()
	backups := []*memstore.Store{}
	for range 1500 {
		switch key := prefixes[rnd.IntN(2)] + fmt.Sprint(rnd.IntN(8)); rnd.IntN(14) {
		case 0, 1, 2, 3, 4:
			write(t, s, fmt.Sprint(key, "=", rnd.IntN(5)))
		case 5, 6:
			_ = s.Delete(t.Context(), key, api.Revision{}) // may be missing
		case 7:
			s.DropWatches(nil)
		case 8:
			s.Forget(s.Revision() - rnd.Int64N(3))
		case 9:
			<-time.After(time.Duration(rnd.IntN(2000)) * time.Millisecond) // virtual
		case 10:
			r.drain()
			mu.Lock()
			if r.batch.InSync && len(listed) < len(prefixes) {
				t.Error("InSync was invented")
			}
			mu.Unlock()
		case 11, 12:
			r.writes(s, key, rnd.IntN(6))
		case 13:
			if backups = rewind(rnd, s, backups); backups == nil {
				// A store that passes its old revision before the watch is
				// back cannot be told from one that only went on.
				r.settle()
				setCalm(true)
				r.settle()
				setCalm(false)
			}
		}
	}
	s.Fail(nil)
	r.settle()
	r.wantStatus(syncer.InSync, true)
	snap, err := s.List(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, kv := range snap.Items {
		words = append(words, kv.Key+"="+string(kv.Value))
	}
	r.want(strings.Join(words, " "))
}

// rewind takes a backup now and then, and now and then puts one back; then it
// returns nil.
func rewind(rnd *rand.Rand, s *memstore.Store, backups []*memstore.Store) []*memstore.Store {
	switch {
	case rnd.IntN(3) == 0:
		b := memstore.New()
		b.Rewind(s)
		return append(backups, b)
	case rnd.IntN(8) == 0 && len(backups) > 0:
		s.Rewind(backups[rnd.IntN(len(backups))])
		return nil
	}
	return backups
}
