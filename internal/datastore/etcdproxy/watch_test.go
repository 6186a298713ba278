package etcdproxy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/outagetest"
	"github.com/twillnet/twill/internal/seedtest"
)

// watchesOfMembers is how many watches all members of this process serve, by their own counter.
func watchesOfMembers(t testing.TB) int {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcd_debugging_mvcc_watcher_total" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("etcd has no counter of watches")
	return 0
}

func number(t testing.TB, of fmt.Stringer) int64 {
	t.Helper()
	n, err := strconv.ParseInt(of.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func put(t testing.TB, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	r, err := c.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// next returns the updates of a watch up to one of that revision.
func next(t testing.TB, w datastore.Watcher, upTo int64) (got []api.Update) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		c, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after %d updates: %v", len(got), err)
		}
		got = append(got, c.Updates...)
		if n := len(got); n > 0 && number(t, got[n-1].Revision) >= upTo {
			return got
		}
	}
}

// TestAHundredEqualWatchesAreOne: by the member's own counter, also where they begin at different revisions; and each receives all.
func TestAHundredEqualWatchesAreOne(t *testing.T) {
	m := startMember(t, member.Config{})
	c := etcd(t, clientv3.Config{Endpoints: m.Endpoints()})
	p := startProxy(t, etcdproxy.Config{Store: to(m.Endpoints()...)})
	first := put(t, c, "/calico/a", "0")
	var stores []*etcdstore.Store
	for range 10 {
		stores = append(stores, open(t, to(p.endpoint)))
	}
	before := watchesOfMembers(t)
	var watches []datastore.Watcher
	last := first
	for i := range 100 {
		w, err := stores[i%10].Watch(t.Context(), "/calico/", datastore.PositionOf(fmt.Sprint(first+int64(i/10)-1)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		watches = append(watches, w)
		if i%10 == 9 {
			last = put(t, c, "/calico/a", fmt.Sprint(i))
		}
	}
	for i, w := range watches {
		if got, want := len(next(t, w, last)), int(last-first)+1-i/10; got != want {
			t.Errorf("watch %d: %d updates, want %d", i, got, want)
		}
	}
	await(t, "the watches to become one", func() bool { _, up := p.Watches(); return up == 1 })
	await(t, "the member to count one", func() bool { return watchesOfMembers(t)-before == 1 })
	if clients, _ := p.Watches(); clients != 100 {
		t.Errorf("the proxy counts %d watches of clients", clients)
	}
	for _, w := range watches {
		w.Close()
	}
	await(t, "the last watch to go", func() bool { return watchesOfMembers(t) == before })
}

// TestDifferentWatchesAreNotMixed: other keys, other filters, other prefixes of one another.
func TestDifferentWatchesAreNotMixed(t *testing.T) {
	m := startMember(t, member.Config{})
	p := startProxy(t, etcdproxy.Config{Store: to(m.Endpoints()...)})
	c := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
	ctx := clientv3.WithRequireLeader(t.Context())
	all := c.Watch(ctx, "/a", clientv3.WithPrefix(), clientv3.WithRev(1))
	one := c.Watch(ctx, "/a/x", clientv3.WithRev(1))
	prev := c.Watch(ctx, "/a", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV())
	deletes := c.Watch(ctx, "/a", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithFilterPut())
	put(t, c, "/a/x", "1")
	put(t, c, "/a/y", "1")
	put(t, c, "/a/x", "2")
	if _, err := c.Delete(t.Context(), "/a/x"); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		ch   clientv3.WatchChan
		want string
	}{
		"all": {all, "PUT /a/x 1 | PUT /a/y 1 | PUT /a/x 2 | DELETE /a/x "}, "one": {one, "PUT /a/x 1 | PUT /a/x 2 | DELETE /a/x "},
		"prev": {prev, "PUT /a/x 1 | PUT /a/y 1 | PUT /a/x 2 was 1 | DELETE /a/x  was 2"}, "deletes": {deletes, "DELETE /a/x "},
	} {
		got := ""
		for deadline := time.After(patience); len(got) < len(tt.want); {
			select {
			case r := <-tt.ch:
				for _, e := range r.Events {
					if got != "" {
						got += " | "
					}
					got += fmt.Sprintf("%s %s %s", e.Type, e.Kv.Key, e.Kv.Value)
					if e.PrevKv != nil {
						got += " was " + string(e.PrevKv.Value)
					}
				}
			case <-deadline:
				t.Fatalf("%s: got %q", name, got)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestAQuietWatchFollowsTheStore: a position comes only of a member, and comes although nothing of the watch changes; of a hundred
// that ask, too.
func TestAQuietWatchFollowsTheStore(t *testing.T) {
	m := startMember(t, member.Config{})
	c := etcd(t, clientv3.Config{Endpoints: m.Endpoints()})
	p := startProxy(t, etcdproxy.Config{Store: to(m.Endpoints()...)})
	s := open(t, datastore.Config{Endpoints: []string{p.endpoint}, Progress: 400 * time.Millisecond})
	var parts sync.WaitGroup
	for range 20 {
		w, err := s.Watch(t.Context(), "/quiet/", datastore.PositionOf("1"))
		if err != nil {
			t.Fatal(err)
		}
		loud := put(t, c, "/loud/a", "1")
		parts.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			defer func() { w.Close() }()
			for seen := int64(1); seen < loud; {
				c, err := w.Next(ctx)
				if errors.Is(err, datastore.ErrUnavailable) && ctx.Err() == nil { // a machine that is busy for several periods
					w.Close()
					var again datastore.Watcher
					if again, err = s.Watch(ctx, "/quiet/", datastore.PositionOf(fmt.Sprint(seen))); err == nil {
						w = again
						continue
					}
				}
				if err != nil || len(c.Updates) > 0 {
					t.Errorf("got %v, error %v", c, err)
					return
				}
				seen = number(t, c.Position)
			}
		})
	}
	parts.Wait()
}

// TestEachWatchReceivesEachChangeOnce: watches that begin anywhere in the history, and come and go, while keys change, and the
// connections to the member are cut.
func TestEachWatchReceivesEachChangeOnce(t *testing.T) {
	r := seedtest.Rand(t)
	m := startMember(t, member.Config{Retention: -1})
	c := etcd(t, clientv3.Config{Endpoints: m.Endpoints()})
	fault, err := outagetest.Listen(m.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer fault.Close()
	p := startProxy(t, etcdproxy.Config{Store: to(fault.Endpoint())})
	begin := put(t, c, "/k/0", "0")
	const changes = 6000 // more than a feed keeps, and than a member sends at once
	end := begin + changes
	watch := func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		at, err := c.Get(t.Context(), "/none")
		if err != nil {
			t.Error(err)
			return
		}
		from := begin + r.Int64N(max(1, at.Header.Revision-begin))
		near := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
		upTo := min(end, from+1+r.Int64N(changes))
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(t.Context()), 3*patience)
		defer cancel()
		want := from
		for resp := range near.Watch(ctx, "/k/", clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithFragment()) {
			if resp.Err() != nil {
				t.Errorf("from %d to %d, at %d: %v", from, upTo, want, resp.Err())
				return
			}
			for _, e := range resp.Events {
				if e.Kv.ModRevision != want {
					t.Errorf("from %d to %d: revision %d, want %d", from, upTo, e.Kv.ModRevision, want)
					return
				}
				want++
			}
			if want > upTo {
				return
			}
		}
		t.Errorf("from %d to %d: ended at %d", from, upTo, want)
	}
	var watches sync.WaitGroup
	cuts := 0
	for i := range changes {
		put(t, c, fmt.Sprintf("/k/%d", r.IntN(50)), fmt.Sprint(i))
		switch r.IntN(changes / 20) {
		case 0: // resets all connections, then lets new ones through
			fault.Set(outagetest.Fault{Cut: true})
			fault.Set(outagetest.Fault{})
			cuts++
		case 1: // or each in the middle of an answer, until the next fault
			fault.Set(outagetest.Fault{After: 1 + r.IntN(200_000)})
		}
		if r.IntN(changes/60) == 0 {
			seed := r.Uint64()
			watches.Go(func() { watch(seed) })
		}
	}
	fault.Set(outagetest.Fault{})
	watches.Wait()
	clients, up := p.Watches()
	t.Logf("at the end %d watches of clients, %d upstream; connections were cut %d times, and %d in the middle of an answer", clients, up, cuts, fault.Dropped())
	if cuts == 0 {
		t.Error("no connection was cut: the test shows less than it says")
	}
}
