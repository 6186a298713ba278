package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/intent"
)

// TestMain runs all of it on a store without leases, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var settings = Settings{Interval: 30 * time.Second, TTL: 90 * time.Second, Endpoints: true, Delay: time.Second}

// bench is a reporter on a store in memory, in virtual time.
type bench struct {
	*testing.T
	store  storetest.InMemory
	over   func(storetest.InMemory) datastore.Store // what the reporter has of it; nil: itself
	r      *Reporter
	errs   atomic.Pointer[[]string]
	cancel func()
}

func run(t *testing.T, test func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, store: storetest.New(t), cancel: cancel}
		b.start(ctx)
		test(b)
		cancel()
		synctest.Wait()
	})
}

func (b *bench) start(ctx context.Context) {
	b.errs.Store(&[]string{})
	store := datastore.Store(b.store)
	if b.over != nil {
		store = b.over(b.store)
	}
	b.r = New(Config{Node: "h1", Version: "v", Store: store, Log: slog.New(slog.DiscardHandler), Host: func() (bool, []string) {
		errs := *b.errs.Load()
		return len(errs) == 0, errs
	}})
	b.r.Configure(settings)
	go b.r.Run(ctx)
}

// pass lets time go by, and all that is due with it.
func pass(d time.Duration) {
	<-time.After(d) // virtual
	synctest.Wait()
}

func wep(name string) intent.EndpointID {
	return intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: "h1-k8s-" + name + "-eth0"}
}

func (b *bench) set(id intent.EndpointID, e Endpoint) {
	b.r.Set(map[intent.EndpointID]Endpoint{id: e})
}

// want compares what the store has under a prefix of /calico/felix/.
func (b *bench) want(prefix string, want ...string) {
	b.Helper()
	all, _ := b.store.List(b.Context(), api.Root+"felix/"+prefix)
	var got []string
	for _, kv := range all.Sorted() {
		got = append(got, strings.TrimPrefix(kv.Key, api.Root+"felix/"+prefix)+" "+string(kv.Value))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("the store has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const workloads = "v2/no-region/host/h1/workload/"

func TestEndpointsAreReportedAtUpstreamsKeys(t *testing.T) {
	run(t, func(b *bench) {
		b.set(wep("web"), Endpoint{Status: Up})
		b.set(wep("db--0"), Endpoint{Status: Down, Reason: "interface cali1 is absent"})
		b.set(intent.EndpointID{Kind: intent.Host, Name: "h1-eth0"}, Endpoint{Status: Up})
		b.set(intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: "odd"}, Endpoint{Status: Up})
		b.r.Complete()
		pass(3 * time.Second)
		b.want(workloads,
			`k8s/prod%2fdb-0/endpoint/eth0 {"status":"down","reason":"interface cali1 is absent"}`,
			`k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
		b.want("v1/", `host/h1/endpoint/h1-eth0 {"status":"up"}`)
		b.r.Remove([]intent.EndpointID{wep("db--0")})
		pass(3 * time.Second)
		b.want(workloads, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
	})
}

// TestNodesThatBeginTogetherDoNotListTogether: after a power cut all do, and each list is of the whole prefix of a node.
func TestNodesThatBeginTogetherDoNotListTogether(t *testing.T) {
	const nodes = 20
	run(t, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var mu sync.Mutex
		at := map[time.Time]int{}
		b.store.Fail(func(op memstore.Op) error {
			if op.Verb == "list" && strings.HasSuffix(op.Key, "/workload/") {
				mu.Lock()
				defer mu.Unlock()
				at[time.Now()]++
			}
			return nil
		})
		for range nodes {
			b.start(ctx)
			b.r.Complete()
		}
		pass(time.Second)
		mu.Lock()
		clear(at) // the first cannot wait
		mu.Unlock()
		pass(2 * relistInterval)
		mu.Lock()
		defer mu.Unlock()
		cancel()
		total := 0
		for when, n := range at {
			if total += n; n > nodes/2 {
				b.Errorf("at %s %d of %d nodes list", when, n, nodes)
			}
		}
		if total < nodes {
			b.Errorf("%d lists of %d nodes in %s", total, nodes, 2*relistInterval)
		}
	})
}

// TestKeysOfAFormerVersionGoBeforeTheirSuccessorsCome: they had %2F where upstream's have %2f. For upstream's plugin in Neutron the last event
// of a port says how it is, whichever its key is.
func TestKeysOfAFormerVersionGoBeforeTheirSuccessorsCome(t *testing.T) {
	run(t, func(b *bench) {
		for _, key := range []string{"k8s/prod%2Fgone", "k8s/prod%2Fweb", "k8s/prod%2Fdb", "k8s/prod%2fdb"} { // of db, as another agent has written it too
			if _, err := b.store.Create(t.Context(), api.Update{Key: api.Root + "felix/" + workloads + key + "/endpoint/eth0", Value: []byte(`{"status":"up"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		last := b.lastWrites(api.Root + "felix/" + workloads)
		b.set(wep("web"), Endpoint{Status: Up})
		b.set(wep("db"), Endpoint{Status: Up})
		b.r.Complete()
		pass(5 * time.Second)
		b.want(workloads, `k8s/prod%2fdb/endpoint/eth0 {"status":"up"}`, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
		for _, name := range []string{"web", "db"} {
			key := api.Root + "felix/" + workloads + "k8s/prod%2f" + name + "/endpoint/eth0"
			if got := last()[key]; !strings.HasSuffix(got, " "+key) || strings.HasPrefix(got, "delete") {
				t.Errorf("the last change of %s is %q", name, got)
			}
		}
	})
}

// lastWrites are, from now on, the last change of each endpoint below a prefix, by its key in upstream's form.
func (b *bench) lastWrites(prefix string) func() map[string]string {
	var mu sync.Mutex
	last := map[string]string{}
	b.store.Fail(func(op memstore.Op) error {
		if mu.Lock(); strings.HasPrefix(op.Key, prefix) && op.Verb != "list" && op.Verb != "watch" && op.Verb != "get" {
			last[current(op.Key)] = op.Verb + " " + op.Key
		}
		mu.Unlock()
		return nil
	})
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(last)
	}
}

func TestWhatAnAgentBeforeLeftIsTakenOverOrRemoved(t *testing.T) {
	run(t, func(b *bench) {
		for _, key := range []string{"k8s/prod%2fgone/endpoint/eth0", "k8s/prod%2fweb/endpoint/eth0"} {
			if _, err := b.store.Create(t.Context(), api.Update{Key: api.Root + "felix/" + workloads + key, Value: []byte(`{"status":"up"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		b.set(wep("web"), Endpoint{Status: Up})
		pass(time.Minute)
		b.want(workloads, `k8s/prod%2fgone/endpoint/eth0 {"status":"up"}`, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
		b.r.Complete()
		pass(3 * time.Second)
		b.want(workloads, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
	})
}

// TestWhatSomebodyDoesToAStatusIsUndone: until the endpoint's next change, which may never come, nothing else would.
func TestWhatSomebodyDoesToAStatusIsUndone(t *testing.T) {
	run(t, func(b *bench) {
		key := func(name string) string {
			return api.Root + "felix/" + workloads + "k8s/prod%2f" + name + "/endpoint/eth0"
		}
		right := func() {
			b.Helper()
			b.want(workloads, `k8s/prod%2fdb/endpoint/eth0 {"status":"up"}`, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
			b.want("v1/", `host/h1/endpoint/h1-eth0 {"status":"up"}`)
		}
		b.set(wep("web"), Endpoint{Status: Up})
		b.set(wep("db"), Endpoint{Status: Up})
		b.set(intent.EndpointID{Kind: intent.Host, Name: "h1-eth0"}, Endpoint{Status: Up})
		b.r.Complete()
		pass(3 * time.Second)
		right()
		for _, k := range []string{key("web"), api.Root + "felix/v1/host/h1/endpoint/h1-eth0"} {
			if err := b.store.Delete(b.Context(), k, api.Revision{}); err != nil {
				b.Fatal(err)
			}
		}
		if err := datastore.Put(b.Context(), b.store, api.Update{Key: key("db"), Value: []byte(`{"status":"down"}`)}); err != nil {
			b.Fatal(err)
		}
		if _, err := b.store.Create(b.Context(), api.Update{Key: key("stranger"), Value: []byte(`{"status":"up"}`)}); err != nil {
			b.Fatal(err)
		}
		pass(relistInterval + 3*time.Second)
		right()
		s := settings
		s.Interval = 0
		b.r.Configure(s)
		pass(2 * time.Minute) // its own last report expires
		before, lists := b.store.Revision(), atomic.Int64{}
		b.store.Fail(func(o memstore.Op) error {
			if o.Verb == "list" {
				lists.Add(1)
			}
			return nil
		})
		pass(time.Hour)
		if got := b.store.Revision(); got != before {
			b.Errorf("nobody did anything, and the store's revision went from %d to %d", before, got)
		}
		if n := lists.Load(); n < 1 || n > 2*int64(time.Hour/relistInterval) {
			b.Errorf("%d lists in an hour, want two each %v", n, relistInterval)
		}
		s.Endpoints = false
		b.r.Configure(s)
		pass(3 * time.Second)
		b.want(workloads)
		lists.Store(0)
		pass(time.Hour)
		if n := lists.Load(); n != 0 {
			b.Errorf("endpoints are not reported, and there were %d lists", n)
		}
	})
}

func TestAChangeThatIsTakenBackIsNeverWritten(t *testing.T) {
	run(t, func(b *bench) {
		b.set(wep("web"), Endpoint{Status: Up})
		b.r.Complete()
		pass(3 * time.Second)
		before := b.store.Revision()
		b.set(wep("web"), Endpoint{Status: Error, Reason: "x"})
		pass(500 * time.Millisecond)
		b.set(wep("web"), Endpoint{Status: Up})
		pass(5 * time.Second)
		if got := b.store.Revision(); got != before {
			t.Errorf("the store's revision went from %d to %d", before, got)
		}
	})
}

func TestNoMoreThan50WritesASecondTheLongestWaitingFirst(t *testing.T) {
	run(t, func(b *bench) {
		pass(time.Second)
		b.r.Complete()
		pass(time.Second)
		before := b.store.Revision()
		b.set(wep("zz"), Endpoint{Status: Up})
		pass(500 * time.Millisecond)
		for i := range 500 {
			b.set(wep(fmt.Sprintf("a%03d", i)), Endpoint{Status: Up})
		}
		pass(1100 * time.Millisecond) // what was set is due for 600 ms and 100 ms
		b.want(workloads+"k8s/prod%2fzz", `/endpoint/eth0 {"status":"up"}`)
		pass(2 * time.Second)
		if wrote := b.store.Revision() - before; wrote < 90 || wrote > 51+2*50 {
			t.Errorf("%d writes in 2.1 s, want about 105", wrote)
		}
		pass(10 * time.Second)
		if wrote := b.store.Revision() - before; wrote != 501 {
			t.Errorf("%d writes in the end, want 501", wrote)
		}
	})
}

func TestTheAgentsOwnStatusGoesWhenNobodyConfirmsIt(t *testing.T) {
	run(t, func(b *bench) {
		process := func() (p Process) {
			kv, err := b.store.Get(t.Context(), api.Root+"felix/v2/no-region/host/h1/status")
			if err != nil {
				return p
			}
			if err := json.Unmarshal(kv.Value, &p); err != nil {
				t.Fatal(err)
			}
			var upstreams struct { // by the names that upstream's readers look for
				Time        string   `json:"time"`
				Uptime      *float64 `json:"uptime"`
				FirstUpdate *bool    `json:"first_update"`
			}
			if err := json.Unmarshal(kv.Value, &upstreams); err != nil || upstreams.Time == "" || upstreams.Uptime == nil || upstreams.FirstUpdate == nil {
				t.Errorf("upstream's three are not in %s: %v", kv.Value, err)
			}
			return p
		}
		pass(100 * time.Millisecond)
		if p := process(); !p.FirstUpdate || !p.Ready || p.Version != "v" || p.Time == "" {
			t.Errorf("the first report is %+v", p)
		}
		pass(5 * time.Minute)
		if p := process(); p.FirstUpdate || p.Uptime < 270 {
			t.Errorf("after 5 minutes the report is %+v", p)
		}
		b.errs.Store(&[]string{"nft: no such file"})
		b.r.Touch()
		pass(1500 * time.Millisecond)
		if p := process(); p.Ready || len(p.Errors) != 1 {
			t.Errorf("an error is not reported soon: %+v", p)
		}
		alive := func() bool {
			nodes, err := Nodes(context.Background(), b.store)
			if err != nil || len(nodes) != 1 {
				t.Fatalf("%+v, %v", nodes, err)
			}
			_, again, err := KeysOf(context.Background(), b.store, "h1")
			if err != nil || again != nodes[0].Alive {
				t.Errorf("KeysOf: alive %v, %v", again, err)
			}
			return nodes[0].Alive
		}
		if b.cancel(); !alive() {
			t.Error("an agent that has just reported is taken for dead")
		}
		pass(settings.TTL + Skew)
		if alive() {
			t.Error("the agent is gone for 2 minutes, and is taken for alive")
		}
		if p := process(); !storetest.IsPoor() && p.Time != "" {
			t.Errorf("the agent is gone for 2 minutes, and its status is %+v", p)
		}
		if _, err := b.store.Get(context.Background(), api.Root+"felix/v2/no-region/host/h1/last_reported_status"); err != nil {
			t.Error(err)
		}
	})
}

func TestSettingsAreLive(t *testing.T) {
	run(t, func(b *bench) {
		b.set(wep("web"), Endpoint{Status: Up})
		b.r.Complete()
		pass(3 * time.Second)
		s := settings
		s.Region = "north/1"
		b.r.Configure(s)
		pass(3 * time.Second)
		b.want(workloads)
		b.want("v2/region-north%2f1/host/h1/workload/", `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
		s.Endpoints, s.Interval = false, 0
		b.r.Configure(s)
		pass(3 * time.Minute)
		b.want("v2/region-north%2f1/host/h1/workload/")
		if nodes, err := Nodes(t.Context(), b.store); err != nil || len(nodes) != 2 || nodes[0].Alive || nodes[1].Alive { // one in each region
			t.Errorf("it reports no more, and is taken for alive: %+v, %v", nodes, err)
		}
		b.r.Freeze(true)
		s.Endpoints = true
		b.r.Configure(s)
		pass(time.Minute)
		b.want("v2/region-north%2f1/host/h1/workload/")
		b.r.Freeze(false)
		pass(3 * time.Second)
		b.want("v2/region-north%2f1/host/h1/workload/", `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
	})
}

func TestAStoreThatFailsIsTriedAgain(t *testing.T) {
	run(t, func(b *bench) {
		var calls atomic.Int64
		b.store.Fail(func(memstore.Op) error { calls.Add(1); return errors.New("full") })
		b.set(wep("web"), Endpoint{Status: Up})
		b.r.Complete()
		pass(10 * time.Minute)
		if n := calls.Load(); n < 20 || n > 40 {
			t.Errorf("%d calls in 10 minutes, want about 25", n)
		}
		b.store.Fail(nil)
		pass(40 * time.Second)
		b.want(workloads, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
	})
}

func TestWhatCouldNotBeWrittenIsOnceTheStoreAnswers(t *testing.T) {
	run(t, func(b *bench) {
		b.store.Fail(func(memstore.Op) error { return errors.New("away") })
		b.set(wep("web"), Endpoint{Status: Up})
		b.r.Complete()
		pass(10*time.Minute + 5*time.Second) // it would be tried again 26 s later
		b.store.Fail(nil)
		b.r.Answers()
		pass(settings.Delay + time.Second)
		b.want(workloads, `k8s/prod%2fweb/endpoint/eth0 {"status":"up"}`)
	})
}

func TestAReportHoldsUntilItSays(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"one whose key would be gone", `{"time":"2026-01-01T00:00:00Z"}`, true},
		{"one that holds", `{"expires":"2026-01-02T03:04:06Z"}`, true},
		{"one that is over, by a clock that may be wrong", `{"expires":"2026-01-02T03:03:36Z"}`, true},
		{"one that is over by any clock", `{"expires":"2026-01-02T03:03:35Z"}`, false},
		{"one of a clock that is ahead", `{"expires":"2027-01-01T00:00:00Z"}`, true},
		{"nonsense, which nobody may act upon", `{"expires":"soon"}`, true},
		{"no JSON", `x`, true},
	} {
		if got := Alive([]byte(tt.value), now); got != tt.want {
			t.Errorf("%s: alive %v, want %v", tt.name, got, tt.want)
		}
	}
}
