package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/syncer"
)

// whole is a store that does not list in pieces.
type whole struct{ datastore.Store }

func (w whole) Unwrap() datastore.Store { return w.Store }

// either returns a store that lists in pieces, or one that does not.
func either(rnd *rand.Rand, s *memstore.Store) datastore.Store {
	if rnd.IntN(2) == 0 {
		return whole{s}
	}
	return s
}

func TestListsInPieces(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, *memstore.Store)
	}{
		{"of a store that does not list in pieces, the first batch has all", func(t *testing.T, s *memstore.Store) {
			write(t, s, "/a=1", "/b=1", "/c=1", "/b=2")
			r := follow(t, whole{s}, all)
			defer r.stop()
			r.take(<-r.sync.Batches())
			r.want("/a=1 /b=2 /c=1")
			r.wantStatus(syncer.InSync, true)
		}},
		{"the first list comes in pieces, and what a second attempt lacks is gone", func(t *testing.T, s *memstore.Store) {
			write(t, s, "/a=1", "/b=1", "/c=1", "/d=1", "/e=1")
			pages := 0
			s.Fail(func(op memstore.Op) error {
				if op.Verb == "page" {
					if pages++; pages > 1 {
						return datastore.ErrUnavailable
					}
				}
				return nil
			})
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			r.want("/a=1 /b=1 /c=1 /d=1")
			r.wantStatus(syncer.WaitForDatastore, false)
			write(t, s, "-/b", "/c=2", "-/e", "/f=1")
			s.Fail(nil)
			r.settle()
			r.want("/a=1 /c=2 /d=1 /f=1")
			r.wantStatus(syncer.InSync, true)
			if r.count != 7 {
				t.Errorf("got %d updates, want 4 and 3 differences", r.count)
			}
		}},
		{"a first list waits for the reader", func(t *testing.T, s *memstore.Store) {
			const keys = 20_000
			for i := range keys {
				if _, err := s.Create(t.Context(), api.Update{Key: fmt.Sprint("/", i), Value: []byte("1")}); err != nil {
					t.Fatal(err)
				}
			}
			r := follow(t, s, all)
			defer r.stop()
			most := 0
			for !r.batch.InSync {
				synctest.Wait() // the syncer does all that it can without the reader
				before := r.count
				r.take(<-r.sync.Batches())
				most = max(most, r.count-before)
			}
			if len(r.sent) != keys || most > keys/10 {
				t.Errorf("%d keys in all, %d at once", len(r.sent), most)
			}
		}},
		{"a list after the first is passed on whole", func(t *testing.T, s *memstore.Store) {
			write(t, s, "/a=1", "/b=1", "/c=1")
			r := follow(t, s, all)
			defer r.stop()
			r.drain()
			s.Fail(func(op memstore.Op) error {
				if op.Verb == "page" {
					t.Error("the list came in pieces")
				}
				return nil
			})
			s.DropWatches(datastore.ErrCompacted)
			write(t, s, "-/a", "-/b", "/c=2", "/d=1")
			_ = s.Compact(t.Context(), datastore.Position{})
			r.settle()
			r.want("/c=2 /d=1")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.test(t, memstore.New()) })
		})
	}
}

// dated is a store with dates and no order, like Kubernetes' API server, before which there may be a cache.
type dated struct {
	datastore.Store
	of  *memstore.Store
	old datastore.Snapshot // what lists are, unless it is zero
}

func (d *dated) Behind(a, b datastore.Position) bool { return d.of.Behind(a, b) }

func (d *dated) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	if !d.old.Position.IsZero() {
		return d.old, nil
	}
	return d.Store.List(ctx, prefix)
}

func TestAListOfALaggingCacheIsNotTaken(t *testing.T) {
	for lag, want := range map[time.Duration]string{900 * time.Millisecond: "/a=2", time.Minute: "/a=1 /b=1"} { // the latter is a store that was put back
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			d := &dated{Store: whole{struct{ datastore.Store }{s}}, of: s}
			write(t, s, "/a=1", "/b=1")
			old, err := s.List(t.Context(), "/")
			if err != nil {
				t.Fatal(err)
			}
			r := follow(t, d, all)
			defer r.stop()
			write(t, s, "/a=2", "-/b")
			r.drain()
			r.want("/a=2")
			count := r.count
			d.old = old
			s.Fail(func(op memstore.Op) error {
				if op.Verb == "watch" { // as one that begins anew finds its history forgotten
					return datastore.ErrCompacted
				}
				return nil
			})
			s.DropWatches(datastore.ErrCompacted)
			timer := time.NewTimer(lag)
			for lags := true; lags; {
				select {
				case b := <-r.sync.Batches():
					r.take(b)
				case <-timer.C:
					lags = false
				}
			}
			if r.wantStatus(syncer.ResyncInProgress, true); lag < time.Minute && r.count != count {
				t.Errorf("%d updates of an old list", r.count-count)
			}
			r.want(want)
			d.old = datastore.Snapshot{}
			s.Fail(nil)
			r.settle()
			r.wantStatus(syncer.InSync, true)
			r.want("/a=2")
		})
	}
}

// TestAListWithAnEarlierPositionAndTheSameContentIsTaken: it is behind what was seen, and no key changed since. So it is where one server counts what happens to other
// keys, and the next one does not. What the reader wrote itself is not compared.
func TestAListWithAnEarlierPositionAndTheSameContentIsTaken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		since []string // what was written after the list
		taken bool
	}{
		{"nothing", nil, true},
		{"a value", []string{"/a=2"}, false},
		{"a new key", []string{"/c=1"}, false},
		{"a key that is gone", []string{"-/b"}, false},
		{"a value that was there before, of another revision", []string{"/a=2", "/a=1"}, false},
		{"a key of the reader's", []string{"/own=2"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				d := &dated{Store: whole{struct{ datastore.Store }{s}}, of: s}
				write(t, s, "/a=1", "/b=1", "/own=1")
				old, err := s.List(t.Context(), "/")
				if err != nil {
					t.Fatal(err)
				}
				r := follow(t, d, all)
				defer r.stop()
				r.drain()
				write(t, s, tt.since...)
				r.drain()
				r.knows("/own")
				d.old = datastore.Snapshot{Items: old.Items, Position: datastore.PositionOf("1")}
				s.DropWatches(datastore.ErrCompacted)
				timer := time.NewTimer(500 * time.Millisecond)
				for lags := true; lags; {
					select {
					case b := <-r.sync.Batches():
						r.take(b)
					case <-timer.C:
						lags = false
					}
				}
				if got := r.batch.Status == syncer.InSync; got != tt.taken {
					t.Errorf("status %v after half a second", r.batch.Status)
				}
			})
		})
	}
}
