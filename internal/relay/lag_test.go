package relay

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/syncer"
)

// view is the store as one relay sees it: all that was written, but for the last writes if it lags.
type view struct {
	*memstore.Store
	seen int // writes
}

// views are a cluster whose relays may lag behind the store.
type views struct {
	*cluster
	writes []api.Update
	of     map[string]*view // by the relay's address
}

// inViews runs a test with a store and a view of it for each address. Values are numbers that only grow, so that a host that is given a smaller one,
// or none any more, was set back.
func inViews(t *testing.T, addresses []string, test func(v *views)) {
	t.Helper()
	inCluster(t, 0, func(c *cluster) {
		v := &views{cluster: c, of: map[string]*view{}}
		for _, a := range addresses {
			v.of[a] = &view{Store: memstore.New()}
		}
		c.took = func(h *host, u api.Update) {
			was, _ := strconv.Atoi(h.values[u.Key])
			if now, _ := strconv.Atoi(string(u.Value)); now < was {
				c.Errorf("%s had %d, and was set back to %q", u.Key, was, u.Value)
			}
		}
		test(v)
	})
}

func nodeKey(n int) string { return api.KeyPrefix(api.KindNode, "") + fmt.Sprint("n", n) }

// write is one to the store, which views have not seen yet.
func (v *views) write(n int) {
	v.Helper()
	u := api.Update{Key: nodeKey(n), Value: strconv.AppendInt(nil, int64(len(v.writes)+1), 10)}
	v.writes = append(v.writes, u)
	v.put(v.store, u)
}

func (v *views) put(s datastore.Store, u api.Update) {
	v.Helper()
	if err := datastore.Put(v.Context(), s, u); err != nil {
		v.Fatal(err)
	}
}

// sees has the views of relays come up to the store.
func (v *views) sees(addresses ...string) {
	v.Helper()
	for _, a := range addresses {
		for is := v.of[a]; is.seen < len(v.writes); is.seen++ {
			v.put(is, v.writes[is.seen])
		}
	}
}

func (v *views) begin(addresses ...string) {
	v.Helper()
	for _, a := range addresses {
		v.relayOf(v.of[a], a, Limits{})
	}
}

// kill ends a relay.
func (v *views) kill(address string) {
	v.mu.Lock()
	r := v.relays[address]
	delete(v.relays, address)
	v.mu.Unlock()
	if r != nil {
		r.end()
	}
}

// lose takes a relay's store away, so that it knows.
func (v *views) lose(address string, lost bool) {
	is := v.of[address]
	if !lost {
		is.Fail(nil)
		return
	}
	is.Fail(func(op memstore.Op) error {
		if op.Verb == "list" || op.Verb == "watch" || op.Verb == "next" {
			return datastore.ErrUnavailable
		}
		return nil
	})
	is.DropWatches(nil)
}

// wait lets time pass.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// equals wants a host to have what the store has, and to know that.
func (v *views) equals(what string, h *host) {
	v.Helper()
	snap, err := v.store.List(v.Context(), api.KeyPrefix(api.KindNode, ""))
	if err != nil {
		v.Fatal(err)
	}
	for _, kv := range snap.Items {
		if got := h.values[kv.Key]; got != string(kv.Value) {
			v.Errorf("%s: it has %q of %s, want %s", what, got, kv.Key, kv.Value)
		}
	}
	if h.last.Status != syncer.InSync {
		v.Errorf("%s: status %s", what, h.last.Status)
	}
}

// TestARelayThatLagsSetsNobodyBack: the relay of a host ends, and the only other one has not seen the last write, however long. What the host has stays,
// it says that it is not in sync, and it comes back to the first relay once that is there again, though the other one serves.
func TestARelayThatLagsSetsNobodyBack(t *testing.T) {
	for _, tt := range []struct {
		name          string
		lost, numbers bool
	}{
		{"it does not know that its datastore is away", false, true},
		{"it knows that its datastore is away", true, true},
		{"it knows that, and the datastore has no numbers", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inViews(t, []string{"one", "two"}, func(v *views) {
				if !tt.numbers {
					v.direct = struct{ datastore.Store }{v.store}
				}
				v.write(1)
				v.sees("one", "two")
				v.begin("one", "two")
				h := v.host("h1", "agent", "one", "two")
				defer h.end()
				wait(time.Minute)
				v.lose("two", tt.lost)
				v.write(1)
				v.sees("one")
				wait(time.Second)
				v.equals("by the first", h)
				v.kill("one")
				wait(10 * time.Minute)
				if h.values[nodeKey(1)] != "2" || h.last.Status == syncer.InSync || !h.last.InSync {
					v.Errorf("it has %v, status %s", h.values, h.last.Status)
				}
				v.begin("one")
				v.write(1)
				v.sees("one")
				wait(time.Minute)
				v.equals("by the first, which came back", h)
				v.lose("two", false)
				v.sees("two")
				v.kill("one")
				wait(time.Minute)
				v.equals("by the other, which lags no more", h)
			})
		})
	}
}

// TestAStoreThatWasPutBackIsTakenByAnotherRelay: a relay that is behind what a host has seen is right if the datastore itself is.
func TestAStoreThatWasPutBackIsTakenByAnotherRelay(t *testing.T) {
	inViews(t, []string{"one", "two"}, func(v *views) {
		v.write(1)
		v.sees("one", "two")
		v.begin("one", "two")
		h := v.host("h1", "agent", "one", "two")
		defer h.end()
		wait(time.Second)
		v.write(1)
		v.sees("one")
		wait(time.Second)
		v.equals("before", h)
		v.kill("one")
		h.took = func(*host, api.Update) {} // what it is given may be older now
		v.store.Rewind(v.of["two"].Store)
		wait(10 * time.Second)
		v.equals("after", h)
	})
}

// TestThreeRelaysAreRestartedWhileTheyLag, at random: each is killed, comes back, has not seen the last writes, or loses its datastore. No host is ever
// set back, and each has all in the end.
func TestThreeRelaysAreRestartedWhileTheyLag(t *testing.T) {
	all := []string{"one", "two", "three"}
	seedtest.Each(t, nil, 20, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		inViews(t, all, func(v *views) {
			for n := range 3 {
				v.write(n)
			}
			v.sees(all...)
			v.begin(all...)
			var hosts []*host
			for i := range 4 {
				order := []string{all[i%3], all[(i+1)%3], all[(i+2)%3]}
				h := v.host(fmt.Sprint("h", i), "agent", order...)
				defer h.end()
				hosts = append(hosts, h)
			}
			wait(time.Second)
			for range 60 {
				switch a := all[r.IntN(3)]; r.IntN(6) {
				case 0:
					v.kill(a)
				case 1:
					v.kill(a)
					v.begin(a)
				case 2:
					v.lose(a, r.IntN(2) == 0)
				case 3:
					v.sees(a)
				default:
					v.write(r.IntN(3))
				}
				wait(time.Duration(r.IntN(10_000)) * time.Millisecond)
			}
			for _, a := range all {
				v.lose(a, false)
				v.sees(a)
				v.kill(a)
				v.begin(a)
			}
			wait(2 * time.Minute)
			for i, h := range hosts {
				v.equals(fmt.Sprint("host ", i), h)
			}
		})
	})
}
