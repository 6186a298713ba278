package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/seedtest"
)

// paused is a datastore in which something happens once, after so many calls.
type paused struct {
	datastore.Store
	left int
	do   func()
}

func (p *paused) step() {
	if p.left--; p.left == 0 {
		p.do()
	}
}

func (p *paused) Get(ctx context.Context, key string) (api.Update, error) {
	defer p.step()
	return p.Store.Get(ctx, key)
}

func (p *paused) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	defer p.step()
	return p.Store.List(ctx, prefix)
}

func (p *paused) Create(ctx context.Context, u api.Update) (api.Update, error) {
	defer p.step()
	return p.Store.Create(ctx, u)
}

func (p *paused) Update(ctx context.Context, u api.Update) (api.Update, error) {
	defer p.step()
	return p.Store.Update(ctx, u)
}

func (p *paused) Delete(ctx context.Context, key string, r api.Revision) error {
	defer p.step()
	return p.Store.Delete(ctx, key, r)
}

// handOver is one server's.
func handOver(t *testing.T, store datastore.Store, text string, resync bool) {
	t.Helper()
	w := writer{store, "", slog.New(slog.DiscardHandler)}
	var p Port
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	var err error
	if resync {
		var was snapshot
		if was, err = w.snapshot(t.Context()); err == nil {
			_, err = w.resync(t.Context(), was, &State{Ports: []Port{p}})
		}
	} else {
		_, err = w.putPort(t.Context(), &p)
	}
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

// TestTwoServersThatWriteOnePort: one is interrupted after each of its calls, and the other does all of its own meanwhile. Whoever has the later state, and
// whether each hands over the port or resyncs, what is stored in the end is of the later state, and of that alone.
func TestTwoServersThatWriteOnePort(t *testing.T) {
	states := map[string]func(revision int) string{
		"on h1":          func(r int) string { return portOf("a", "h1", r) },
		"on h2":          func(r int) string { return portOf("a", "h2", r) },
		"from h1 to h2":  func(r int) string { return migrating("a", "h1", r, "h2") },
		"from h1 to h3":  func(r int) string { return migrating("a", "h1", r, "h3") },
		"at h2, from h1": func(r int) string { return migrating("a", "h2", r, "-h1") },
	}
	random := rand.New(rand.NewPCG(seedtest.New(t), 0))
	names := slices.Sorted(maps.Keys(states))
	some := func(revision int) string { return states[names[random.IntN(len(names))]](revision) }
	for range 80 {
		before, older, newer := some(1), some(2), some(3)
		interrupted, other, resyncs, otherResyncs := older, newer, random.IntN(2) == 0, random.IntN(2) == 0
		if random.IntN(2) == 0 {
			interrupted, other = newer, older
		}
		for after := 1; ; after++ {
			store := memstore.New()
			handOver(t, store, before, false)
			p := &paused{Store: store, left: after, do: func() { handOver(t, store, other, otherResyncs) }}
			handOver(t, p, interrupted, resyncs)
			if p.left > 0 {
				break
			}
			if d := cmp.Diff(keysOfPort(t, newer), keysOf(t, store)); d != "" {
				t.Fatalf("before %s\nafter %d calls, %s (resync: %t)\nwas interrupted by %s (resync: %t)\nof the later (-want +got):\n%s", before, after, interrupted, resyncs, other, otherResyncs, d)
			}
			all, err := store.List(t.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "openstack"))
			if err != nil || slices.ContainsFunc(all.Items, func(u api.Update) bool { return revisionOf(u) != 3 }) {
				t.Fatalf("after %d calls, %s was interrupted by %s: an endpoint of an older state is left (%v)", after, interrupted, other, err)
			}
		}
	}
}

// TestServersThatWriteAtOnce: without a resync, all have the last state in the end, whoever wrote it.
func TestServersThatWriteAtOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(seedtest.New(t), 0))
	for range 50 {
		store := memstore.New()
		var all sync.WaitGroup
		last := ""
		for revision := range 6 {
			last = anyMigration(random, "a", revision+1)
			text, resync := last, random.IntN(3) == 0
			all.Go(func() { handOver(t, store, text, resync) })
		}
		all.Wait()
		if d := cmp.Diff(keysOfPort(t, last), keysOf(t, store)); d != "" {
			t.Fatalf("of %s (-want +got):\n%s", strings.TrimSpace(fmt.Sprint(last)), d)
		}
	}
}
