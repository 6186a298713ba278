package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

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
