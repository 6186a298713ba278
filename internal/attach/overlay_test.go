package attach

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestWithoutAnOrderOlderWordsAreHeldBack lets a node and others write one key, while the node's watch lags, and ends anywhere: calc
// does not receive an older value after a newer one, unless it received a deletion, and in the end has the present one.
func TestWithoutAnOrderOlderWordsAreHeldBack(t *testing.T) {
	seedtest.Each(t, nil, 60, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { newLagging(t, seed).run() })
	})
}

// lagging is a key of a store without an order, and what calc has received of it.
type lagging struct {
	*testing.T
	rand    *rand.Rand
	store   *storetest.Poor
	overlay Overlay
	written int // values written so far: each is a higher number
	behind  []api.Update

	mu     sync.Mutex
	value  string // as calc knows it; empty: it is gone
	newest int    // the newest value that calc ever received
}

const lagKey = "/calico/k"

func newLagging(t *testing.T, seed uint64) *lagging {
	return &lagging{T: t, rand: rand.New(rand.NewPCG(seed, 0)), store: storetest.NewPoor(t)}
}

func (l *lagging) run() {
	ctx, cancel := context.WithCancel(l.Context())
	ended := make(chan error)
	go func() {
		ended <- l.overlay.Verify(ctx, l.store, func(_ context.Context, us []api.Update) error {
			l.receive(l.overlay.Current(us))
			return nil
		})
	}()
	for range 60 {
		switch l.rand.IntN(6) {
		case 0, 1:
			l.write(true)
		case 2:
			l.write(false)
		case 3:
			l.remove(l.rand.IntN(2) == 0)
		default:
			l.watch(1 + l.rand.IntN(2))
		}
		if l.rand.IntN(2) == 0 {
			synctest.Wait()
		}
	}
	l.watch(len(l.behind))
	synctest.Wait()
	want := ""
	if now, err := l.store.Get(ctx, lagKey); err == nil {
		want = string(now.Value)
	}
	if l.value != want {
		l.Errorf("calc has %q, and the store %q", l.value, want)
	}
	cancel()
	<-ended
}

// write makes another value, by this node's hand or another's.
func (l *lagging) write(ours bool) {
	l.written++
	kv := api.Update{Key: lagKey, Value: []byte(strconv.Itoa(l.written))}
	if ours && l.rand.IntN(2) == 0 { // as an endpoint that begins before the store has said yes
		l.overlay.Announce(lagKey, "cali1")
		l.receive(l.overlay.Current([]api.Update{{Key: lagKey, Value: kv.Value, Revision: Pending}}))
	}
	if was, err := l.store.Get(l.Context(), lagKey); err == nil {
		kv.Revision = was.Revision
		kv, _ = l.store.Update(l.Context(), kv)
	} else {
		kv, _ = l.store.Create(l.Context(), kv)
	}
	l.behind = append(l.behind, kv)
	if ours {
		if l.rand.IntN(4) == 0 {
			l.watch(len(l.behind)) // it is faster than the answer
		}
		l.overlay.Put([]api.Update{kv})
		l.receive(l.overlay.Current([]api.Update{kv}))
	}
}

func (l *lagging) remove(ours bool) {
	was, err := l.store.Get(l.Context(), lagKey)
	if err != nil || l.store.Delete(l.Context(), lagKey, was.Revision) != nil {
		return
	}
	l.behind = append(l.behind, api.Update{Key: lagKey, Revision: api.RevisionOf(fmt.Sprint("gone", l.written))})
	if ours {
		gone := api.Update{Key: lagKey, Revision: was.Revision}
		l.overlay.Put([]api.Update{gone})
		l.receive(l.overlay.Current([]api.Update{gone}))
	}
}

// watch brings some of what it is behind; of several changes the last counts.
func (l *lagging) watch(n int) {
	if n = min(n, len(l.behind)); n > 0 {
		last := l.behind[n-1]
		if last.Value == nil && l.rand.IntN(2) == 0 {
			last.Revision = api.Revision{} // as after a list, which has no revision of what it lacks
		}
		l.behind = l.behind[n:]
		l.receive(l.overlay.Filter([]api.Update{last}))
	}
}

func (l *lagging) receive(us []api.Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range us {
		l.value = string(u.Value)
		if u.Value == nil {
			l.newest = 0
		} else if n, err := strconv.Atoi(l.value); err == nil {
			if n < l.newest {
				l.Errorf("calc hears of value %d after %d", n, l.newest)
			}
			l.newest = n
		}
	}
}

// TestADoubtIsAskedAboutUntilTheStoreAnswers: while the store is away, what it said before is not taken for news.
func TestADoubtIsAskedAboutUntilTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewPoor(t)
		kv, _ := store.Create(t.Context(), api.Update{Key: lagKey, Value: []byte("theirs")})
		var o Overlay
		o.Put([]api.Update{{Key: lagKey, Value: []byte("ours"), Revision: api.RevisionOf("ours")}})
		store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
		received := make(chan []api.Update, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- o.Verify(ctx, store, func(_ context.Context, us []api.Update) error { received <- us; return nil })
		}()
		if got := o.Filter([]api.Update{kv}); len(got) > 0 {
			t.Errorf("%v passes", got)
		}
		synctest.Wait()
		store.Fail(nil)
		if got := <-received; len(got) != 1 || string(got[0].Value) != "theirs" {
			t.Errorf("received %v", got)
		}
		cancel()
		<-ended
	})
}

func TestOlderWordsDoNotUndoWhatWasJustWritten(t *testing.T) {
	at := func(key string, revision any, value string) api.Update {
		u := api.Update{Key: key, Revision: api.RevisionOf(fmt.Sprint(revision))}
		if value != "" {
			u.Value = []byte(value)
		}
		return u
	}
	for _, tt := range []struct {
		name      string
		put, then api.Update
		passes    bool
	}{
		{"an older deletion", at("k", 10, "v"), at("k", 9, ""), false},
		{"its own echo", at("k", 10, "v"), at("k", 10, "v"), true},
		{"a later change", at("k", 10, "v"), at("k", 11, "w"), true},
		{"a later deletion", at("k", 10, "v"), at("k", 11, ""), true},
		{"what was deleted, again", at("k", 10, ""), at("k", 10, "v"), false},
		{"the deletion itself", at("k", 10, ""), at("k", 11, ""), true},
		{"another key", at("k", 10, "v"), at("l", 1, "v"), true},
		{"anything, while it is being written", at("k", Pending, "v"), at("k", 10, "v"), false},
		{"anything, after it was forgotten", at("k", "", ""), at("k", 1, "v"), true},
	} {
		o := Overlay{Order: memstore.New()}
		o.Put([]api.Update{tt.put})
		if got := len(o.Filter([]api.Update{tt.then})) == 1; got != tt.passes {
			t.Errorf("%s: passes %v, want %v", tt.name, got, tt.passes)
		}
	}
	o := Overlay{Order: memstore.New()}
	o.Put([]api.Update{at("k", 10, "v")})
	o.Filter([]api.Update{at("k", 10, "v")})
	if len(o.Filter([]api.Update{at("k", 3, "v")})) != 1 {
		t.Error("once the datastore has caught up, its word counts, also after it was put back")
	}
}

func TestWhatWasHeldBackWhilePendingIsPassedOnce(t *testing.T) {
	for _, order := range []bool{true, false} {
		o := &Overlay{}
		if order {
			o.Order = memstore.New()
		}
		was, now := api.Update{Key: "k", Value: []byte("1"), Revision: api.RevisionOf("5")}, api.Update{Key: "k", Value: []byte("2"), Revision: api.RevisionOf("7")}
		o.Announce("k", "cali1")
		for _, u := range []api.Update{was, now} { // the watch is quicker than the answer to the write
			if got := o.Filter([]api.Update{u}); len(got) > 0 {
				t.Errorf("order %v: %s was passed while it was written", order, u.Value)
			}
		}
		o.Pass([]api.Update{now})
		if got := o.Current([]api.Update{now}); len(got) != 1 {
			t.Errorf("order %v: what was held back is lost", order)
		}
		if got := o.Filter([]api.Update{now}); len(got) != 1 {
			t.Errorf("order %v: our own write, once more, is held back", order)
		}
	}
}
