package relay

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/syncer"
)

const long = 3 * time.Minute // than anything waits

// inWorld runs a test in virtual time, with a relay that has all of a store with three keys.
func inWorld(t *testing.T, keep int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range w.atLeast() {
			w.write(fmt.Sprint("/x/always", i), "1")
		}
		w.restart(keep)
		synctest.Wait()
		test(w)
	})
}

func TestAClientThatWasCutGetsOnlyWhatItLacks(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		a := w.agent(ClientConfig{})
		a.takes(long)
		a.equals("at first")
		w.meter.of(&w.meter.sent, "snapshot")
		for i := range 5 {
			w.cut(nil)
			w.write("/x/k", fmt.Sprint(i))
			synctest.Wait() // two changes
			w.write("/x/k2", fmt.Sprint(i))
			a.takes(long)
			a.equals("after a cut")
		}
		if n, got := w.meter.of(&w.meter.sent, "snapshot"), a.count; n != 0 || got != 13 {
			w.Errorf("%d snapshots were sent, and the agent got %d updates; want none, and 3 and 10", n, got)
		}
	})
}

func TestAllIsEncodedOnce(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		var agents []*agent
		for range 20 {
			agents = append(agents, w.agent(ClientConfig{}))
		}
		for _, a := range agents {
			a.takes(time.Second)
		}
		w.write("/x/k", "2")
		for _, a := range agents {
			a.takes(time.Second)
			a.equals("after a change")
		}
		if s, d := w.meter.of(&w.meter.made, "snapshot"), w.meter.of(&w.meter.made, "delta"); s != 2 || d != 1 {
			w.Errorf("%d snapshots and %d deltas were made for 20 clients; want one of each prefix, and one", s, d)
		}
		if n := w.meter.of(&w.meter.sent, "delta"); n != 20 {
			w.Errorf("%d deltas were sent", n)
		}
	})
}

func TestWhoReadsAPartGetsThatAlone(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		w.parts = []string{"/x/always", "/x/k"}
		w.restart(1 << 20)
		all, part := w.agent(ClientConfig{}), w.reader(ClientConfig{}, "/x/always")
		for _, a := range []*agent{all, part} {
			a.takes(time.Second)
			a.equals("at first")
		}
		w.meter.of(&w.meter.sent, "delta")
		w.write("/x/k", "2")
		w.write("/y/k", "2")
		all.takes(time.Second)
		part.takes(time.Second)
		if n := w.meter.of(&w.meter.sent, "delta"); n != 2 || part.count != w.atLeast() {
			w.Errorf("%d changes were sent, and who reads a part had %d updates; want 2, for who reads all, and %d", n, part.count, w.atLeast())
		}
		w.write("/x/always1", "2")
		for _, a := range []*agent{all, part} {
			a.takes(time.Second)
			a.equals("after a change in the part")
		}
	})
}

// TestWhatTheRelayDoesNotFollowIsReadFromTheStore: it is of a version that knew less.
func TestWhatTheRelayDoesNotFollowIsReadFromTheStore(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		w.write("/y/k", "1") // what is empty is not counted
		a := w.reader(ClientConfig{}, "/x/always", "/y/")
		a.takes(long)
		a.equals("at first")
		w.write("/x/always1", "2")
		a.takes(long)
		a.equals("after a change")
		w.parts = []string{"/x/always"}
		w.restart(1 << 20)
		w.meter.of(&w.meter.sent, "snapshot")
		a.takes(long)
		a.equals("by a relay that follows it")
		if n := w.meter.of(&w.meter.sent, "snapshot"); n != 2 {
			w.Errorf("%d snapshots were sent, want one of each prefix", n)
		}
	})
}

func TestASlowClientHoldsUpNobodyAndCostsNothing(t *testing.T) {
	inWorld(t, 2000, func(w *world) {
		slow := w.agent(ClientConfig{})
		slow.takes(long)
		w.freeze(func() bool { return true })
		quick := w.agent(ClientConfig{})
		quick.takes(time.Second)
		for i := range 500 {
			w.write("/x/k", fmt.Sprint(i))
			quick.takes(time.Millisecond)
			if quick.has["/x/k"] != fmt.Sprint(i) {
				w.Fatalf("write %d is not there after a millisecond", i)
			}
		}
		w.mu.Lock()
		c := w.server.chains["/x/"]
		w.mu.Unlock()
		if c.size > 2000 || len(c.changes) > 100 {
			w.Errorf("the relay keeps %d changes, %d bytes, for who is slow", len(c.changes), c.size)
		}
		w.freeze(func() bool { return false })
		slow.takes(long)
		slow.equals("once it goes on")
		if w.meter.of(&w.meter.ended, "too far behind") == 0 {
			w.Error("nobody was shed")
		}
		if slow.count > 3+2 { // what it held, and the last
			w.Errorf("the slow agent was told of %d updates", slow.count)
		}
	})
}

func TestARelayWithoutAllServesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range w.atLeast() {
			w.write(fmt.Sprint("/x/always", i), "1")
		}
		w.store.Fail(func(op memstore.Op) error {
			if op.Key == "/y/" {
				return datastore.ErrUnavailable
			}
			return nil
		})
		w.restart(1 << 20)
		a := w.agent(ClientConfig{})
		a.takes(long)
		if w.server.NotReady() == nil || a.last.InSync {
			t.Errorf("not ready %q, the agent in sync %v", w.server.NotReady(), a.last.InSync)
		}
		w.store.Fail(nil)
		a.takes(long)
		a.equals("once it has")
		if why := w.server.NotReady(); why != nil {
			t.Errorf("it is not ready: %q", why)
		}
	})
}

func TestThatTheStoreIsAwayIsPassedOn(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		a := w.agent(ClientConfig{})
		a.takes(long)
		a.equals("at first")
		w.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
		w.store.DropWatches(nil)
		b := w.agent(ClientConfig{}) // begins meanwhile: it is given what the relay had
		a.takes(long)
		b.takes(long)
		for _, g := range []*agent{a, b} {
			if g.last.Status != syncer.WaitForDatastore || !g.last.InSync || len(g.has) != w.atLeast() {
				w.Errorf("status %v, in sync %v, %d keys", g.last.Status, g.last.InSync, len(g.has))
			}
		}
		w.store.Fail(nil)
		w.write("/y/k", "1")
		a.takes(long)
		a.equals("once it is back")
	})
}

func TestWithoutARelayTheStoreIsAskedIfThatIsAllowed(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		waits, goes := w.agent(ClientConfig{}), w.agent(ClientConfig{Fallback: 30 * time.Second})
		waits.takes(long)
		goes.takes(long)
		w.kill()
		w.write("/x/k", "2")
		waits.takes(long)
		goes.takes(long)
		goes.equals("one that may ask the store")
		if _, has := waits.has["/x/k"]; has || len(waits.has) != w.atLeast() || waits.last.Status != syncer.WaitForDatastore {
			w.Errorf("one that must wait has %v, status %v", waits.has, waits.last.Status)
		}
		w.restart(1 << 20)
		w.write("/x/k", "3")
		waits.takes(long)
		goes.takes(long)
		for _, a := range []*agent{waits, goes} {
			a.equals("once there is a relay again")
		}
		w.meter.of(&w.meter.sent, "delta")
		w.write("/x/k", "4")
		waits.takes(long)
		goes.takes(long)
		if n := w.meter.of(&w.meter.sent, "delta"); n != 2 {
			w.Errorf("%d of 2 agents got a change by the relay", n)
		}
	})
}

func TestAClientIsSentAwayWithinTheSpread(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		for range 30 {
			w.agent(ClientConfig{}).takes(time.Second)
		}
		w.server.Drain(10 * time.Second)
		<-time.After(5 * time.Second)
		synctest.Wait()
		half := w.meter.of(&w.meter.ended, "drained")
		<-time.After(5 * time.Second)
		synctest.Wait()
		// Who comes back is told the same, so there are more than the 60 streams of 30 clients. Not one in a few: that has no chance of failing by accident.
		if rest := w.meter.of(&w.meter.ended, "drained"); half == 0 || rest == 0 || half+rest < 60 {
			w.Errorf("%d went in the first half of the time, %d in the second", half, rest)
		}
	})
}

func TestWhichPositionComesFirst(t *testing.T) {
	c := newClient(memstore.New(), ClientConfig{}, nil, nil)
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"one/1/9", "one/2/9", true},
		{"one/2/9", "one/1/9", false},
		{"one/9/1", "two/1/2", true}, // another relay: where the store was
		{"one/1/2", "two/9/1", false},
		{"one/9/", "two/1/2", false}, // not known
		{"direct/0/1", "direct/0/2", true},
		{"one/5/7", "direct/0/8", true},
		{"9", "one/10/10", false},
		{"one/5", "one/x/10", false},
	} {
		if got := c.Behind(datastore.PositionOf(tt.a), datastore.PositionOf(tt.b)); got != tt.want {
			t.Errorf("%s behind %s: %v", tt.a, tt.b, got)
		}
	}
}

func TestWatchRefusesWhatNoRelayGave(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		c := newClient(w.store, ClientConfig{}, w.open, nil)
		snap, err := c.List(w.Context(), "/x/")
		if err != nil || len(snap.Items) != w.atLeast() {
			w.Fatalf("%v, %v", snap, err)
		}
		at, _ := placeOf(snap.Position)
		for _, text := range []string{"", "7", "a/b", "/1/2", "other/0/1", positionOf(at.epoch, at.number+1, "").String()} {
			if _, err := c.Watch(w.Context(), "/x/", datastore.PositionOf(text)); !errors.Is(err, datastore.ErrCompacted) {
				w.Errorf("watch from %q: %v", text, err)
			}
		}
	})
}
