package relay

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/syncer"
)

// judging is an agent that works out what is to be in force.
type judging struct {
	source *syncer.Syncer
	graph  *calc.Graph
}

func (w *world) judging(read datastore.Store) *judging {
	j := &judging{syncer.New(read, syncer.Config{Prefixes: w.prefixes}), calc.New("h1")}
	go func() { _ = j.source.Run(w.Context()) }()
	return j
}

// takes has it receive what comes within a time.
func (j *judging) takes(d time.Duration) {
	for timer := time.NewTimer(d); ; {
		select {
		case b := <-j.source.Batches():
			if j.graph.Update(b.Updates); b.InSync {
				j.graph.SetInSync()
			}
			j.graph.Flush()
			continue
		case <-timer.C:
		}
		return
	}
}

// TestWhatIsWrongInTheStoreIsJudgedAsWithoutARelay: worlds in which much is wrong, cut short or no resource at all, read directly and by a relay, come to
// the same policy, problems and readiness after each change. Nothing wrong is taken for right on the way, and nothing that closes is dropped.
func TestWhatIsWrongInTheStoreIsJudgedAsWithoutARelay(t *testing.T) {
	wrong, unread := 0, 0
	seedtest.Each(t, nil, 15, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.prefixes = Prefixes()
			of := calctest.Random(rand.New(rand.NewPCG(seed, 0)), calctest.Config{Wrong: 40, Blocks: 4, Pools: 2})
			w.puts(of.State())
			w.restart(1 << 20)
			synctest.Wait()
			direct, by := w.judging(w.store), w.judging(newClient(w.store, ClientConfig{}, w.open, func() error { return nil }))
			for step := range 40 {
				direct.takes(time.Second)
				by.takes(time.Second)
				for _, differ := range []struct {
					what      string
					got, want any
				}{
					{"what is to be in force", by.graph.Intents(), direct.graph.Intents()},
					{"problems", by.graph.Problems(), direct.graph.Problems()},
					{"readiness", readiness(by.graph), readiness(direct.graph)},
				} {
					if !reflect.DeepEqual(differ.got, differ.want) {
						t.Fatalf("step %d: %s differ:\nby a relay %+v\ndirectly   %+v", step, differ.what, differ.got, differ.want)
					}
				}
				wrong += len(direct.graph.Problems())
				unread += len(readiness(direct.graph))
				w.puts(of.Step())
			}
		})
	})
	if wrong == 0 || unread == 0 {
		t.Errorf("%d problems and %d resources that could not be read: the worlds are too good", wrong, unread)
	}
}

func readiness(g *calc.Graph) []string {
	_, why := g.Ready()
	return why
}

// puts writes what a world has become.
func (w *world) puts(updates []api.Update) {
	w.Helper()
	for _, u := range updates {
		if u.Value == nil {
			_ = w.store.Delete(w.Context(), u.Key, api.Revision{}) // may be missing
		} else if err := datastore.Put(w.Context(), w.store, api.Update{Key: u.Key, Value: u.Value}); err != nil {
			w.Fatal(err)
		}
	}
}
