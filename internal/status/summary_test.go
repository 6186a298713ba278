package status

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// summaryOf is what the datastore has of a node; nil: nothing.
func nodeSummary(t *testing.T, s datastore.Store, node string) *Summary {
	t.Helper()
	nodes, err := Nodes(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node == node && n.Summary != nil {
			return n.Summary
		}
	}
	return nil
}

func TestASummarySaysWhatIsInForce(t *testing.T) {
	run(t, func(b *bench) {
		a, c := version("a", 1), version("c", 1)
		b.r.InForce([]Version{VersionOf(a)})
		pass(time.Minute)
		if s := nodeSummary(b.T, b.store, "h1"); s != nil {
			b.Errorf("not all is in force yet, and the summary is %+v", s)
		}
		b.r.Complete()
		pass(time.Second)
		have := func(us ...api.Update) map[string]bool {
			return nodeSummary(b.T, b.store, "h1").Policies.Have(VersionsOf(us))
		}
		if got := have(a); !got[a.Key] {
			b.Errorf("in force: %v", got)
		}
		b.r.Fail(map[string]string{c.Key: "over its budget"})
		b.r.InForce([]Version{VersionOf(c)})
		pass(2 * time.Second)
		if got := have(a, c); !got[a.Key] || got[c.Key] {
			b.Errorf("in force: %v", got)
		}
		nodes, err := Nodes(b.Context(), b.store)
		if err != nil {
			b.Fatal(err)
		}
		is := RealisedOn(nodes, VersionsOf([]api.Update{a, c}))
		if is[a.Key].Nodes != 1 || is[a.Key].Where != 1 || is[c.Key].Where != 0 || is[c.Key].Not["h1"] != "over its budget" {
			b.Errorf("realised: %+v", is)
		}
		b.r.Fail(nil)
		pass(2 * time.Second)
		if got := have(a, c); !got[c.Key] {
			b.Errorf("in force: %v", got)
		}
		// Who takes it away, or writes something else, is put right.
		key := place{node: "h1"}.summary()
		if err := b.store.Delete(b.Context(), key, api.Revision{}); err != nil {
			b.Fatal(err)
		}
		pass(relistInterval + 3*time.Second)
		if got := have(a, c); len(got) != 2 {
			b.Errorf("in force: %v", got)
		}
	})
}

// TestAgentsWriteNoMoreSummariesThanTheDatastoreCanTake: each waits the longer the more nodes there are, and then says all at once.
func TestAgentsWriteNoMoreSummariesThanTheDatastoreCanTake(t *testing.T) {
	run(t, func(b *bench) {
		b.r.Nodes(1000)
		b.r.Complete()
		pass(20 * time.Second)
		var writes atomic.Int64
		b.store.Fail(func(o memstore.Op) error {
			if o.Key == (place{node: "h1"}).summary() && o.Verb != "get" {
				writes.Add(1)
			}
			return nil
		})
		last := version("p", 0)
		for i := range 600 { // a change each 100 ms, for a minute
			last = version("p", i)
			b.r.InForce([]Version{VersionOf(last)})
			pass(100 * time.Millisecond)
		}
		if n := writes.Load(); n < 5 || n > 7 {
			b.Errorf("%d writes in a minute, want 6", n)
		}
		pass(10 * time.Second)
		if s := nodeSummary(b.T, b.store, "h1"); !s.Policies.Have([]Version{VersionOf(last)})[last.Key] {
			b.Error("the last version is not in the summary")
		}
	})
}

// TestAgentsTakeTurnsWithWhatAllSayAtOnce: of 1,000 that were quiet, about a hundred write in each second, and one waits for its turn and no longer.
func TestAgentsTakeTurnsWithWhatAllSayAtOnce(t *testing.T) {
	const nodes = 1000
	inSecond := map[time.Duration]int{}
	for i := range nodes {
		inSecond[turn(fmt.Sprintf("worker-%d.example", i), nodes)/time.Second]++
	}
	for s := range time.Duration(10) {
		if n := inSecond[s]; n < 50 || n > 150 {
			t.Errorf("%d write in second %d", n, s)
		}
	}
	if len(inSecond) != 10 {
		t.Errorf("they write in %d seconds", len(inSecond))
	}
	run(t, func(b *bench) {
		b.r.Nodes(nodes)
		b.r.Complete()
		pass(time.Minute)
		a, mine := version("a", 1), turn("h1", nodes)
		b.r.InForce([]Version{VersionOf(a)})
		has := func() bool { return nodeSummary(b.T, b.store, "h1").Policies.Have([]Version{VersionOf(a)})[a.Key] }
		if pass(mine - 100*time.Millisecond); has() {
			b.Error("it does not wait for its turn")
		}
		if pass(300 * time.Millisecond); !has() {
			b.Error("it waits for longer")
		}
	})
}

// deriving makes endpoints of something else, as Kubernetes' API does of pods.
type deriving struct{ storetest.InMemory }

func (deriving) Derives(string) bool { return true }

func TestWhereEndpointsAreDerivedTheSummaryHasTheirStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, store: storetest.New(t), cancel: cancel, over: func(s storetest.InMemory) datastore.Store { return deriving{s} }}
		b.start(ctx)
		var writes, lists atomic.Int64
		b.store.Fail(func(o memstore.Op) error {
			switch o.Verb {
			case "list":
				lists.Add(1)
			case "get":
			default:
				writes.Add(1)
			}
			return nil
		})
		for i := range 300 {
			b.set(wep(fmt.Sprintf("p%03d", i)), Endpoint{Status: Up})
		}
		for i := range 150 {
			b.set(wep(fmt.Sprintf("d%03d", i)), Endpoint{Status: Down, Reason: "no link"})
		}
		b.r.Complete()
		pass(5 * time.Second)
		if w, l := writes.Load(), lists.Load(); w > 6 || l > 0 {
			t.Errorf("%d writes and %d lists, of 450 endpoints", w, l)
		}
		key, _ := EndpointKey("h1", wep("d000"))
		sum := nodeSummary(t, b.store, "h1")
		if sum == nil || sum.Endpoints[Up] != 300 || sum.Endpoints[Down] != 150 || len(sum.NotUp) != mostNotUp || sum.NotUp[key].Reason != "no link" {
			t.Errorf("the summary is %+v", sum)
		}
		if text, _ := json.Marshal(sum); len(text) > 20_000 {
			t.Errorf("it has %d bytes", len(text))
		}
		b.want(workloads)
		cancel()
		synctest.Wait()
	})
}
