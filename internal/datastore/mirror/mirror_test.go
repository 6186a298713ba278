package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/mirror"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/syncer"
)

// completed is a store whose masters say that it is complete.
func completed(t *testing.T, s datastore.Store, masters ...string) {
	t.Helper()
	for _, name := range masters {
		m, err := mirror.Begin(t.Context(), s, name, false)
		if err == nil {
			err = mirror.Complete(t.Context(), s, name, m.Generation)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestACompleteMirrorIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) datastore.Store {
		s := memstore.New()
		completed(t, s, "neutron", "operator")
		return mirror.Of(s, []string{"neutron", "operator"})
	})
}

func TestWhatIsNotCompleteIsAway(t *testing.T) {
	ctx := t.Context()
	const key = "/calico/resources/v3/projectcalico.org/tiers/a"
	for _, c := range []struct {
		name string
		to   func(*memstore.Store)
		want string
	}{
		{"nobody has written", func(*memstore.Store) {}, "mirror of neutron, which has not written anything"},
		{"one of two is missing", func(s *memstore.Store) { completed(t, s, "neutron") }, "mirror of operator, which has not written anything"},
		{"one is rebuilt", func(s *memstore.Store) {
			completed(t, s, "neutron", "operator")
			must(mirror.Begin(ctx, s, "operator", true))
		}, "mirror of operator, which rebuilds it since 2"},
		{"a mark says nothing", func(s *memstore.Store) {
			completed(t, s, "neutron", "operator")
			must(s.Update(ctx, api.Update{Key: mirror.Prefix + "neutron", Value: []byte(`{"complete": true}`)}))
		}, "mirror of neutron, which rebuilds it since 0001"},
		{"a mark cannot be read", func(s *memstore.Store) {
			completed(t, s, "neutron", "operator")
			must(s.Update(ctx, api.Update{Key: mirror.Prefix + "neutron", Value: []byte(`{"complete": "yes", "generation": "x"}`)}))
		}, "mirror of neutron, which rebuilds it since 0001"},
	} {
		s := memstore.New()
		c.to(s)
		m := mirror.Of(s, []string{"operator", "neutron"})
		before := must(s.List(ctx, ""))
		for verb, do := range map[string]func() error{
			"get":      func() error { _, err := m.Get(ctx, key); return err },
			"list":     func() error { _, err := m.List(ctx, api.ResourcesPrefix); return err },
			"list one": func() error { _, err := m.List(ctx, key); return err },
			"watch":    func() error { _, err := m.Watch(ctx, api.ResourcesPrefix, before.Position); return err },
			"create":   func() error { _, err := m.Create(ctx, api.Update{Key: key}); return err },
			"update":   func() error { _, err := m.Update(ctx, api.Update{Key: key}); return err },
			"delete":   func() error { return m.Delete(ctx, key, api.Revision{}) },
			"put":      func() error { return m.PutFor(ctx, api.Update{Key: key}, time.Minute) },
			"transact": func() error { _, err := m.Transact(ctx, datastore.Txn{Put: []api.Update{{Key: key}}}); return err },
		} {
			if err := do(); !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: got %v, want it to be unavailable: %s", c.name, verb, err, c.want)
			}
		}
		if after := must(s.List(ctx, "")); len(after.Items) != len(before.Items) || after.Position != before.Position {
			t.Errorf("%s: something was written", c.name)
		}
	}
}

func TestOnlyWhatWasBegunIsCompleted(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	first := must(mirror.Begin(ctx, s, "neutron", false))
	if second := must(mirror.Begin(ctx, s, "neutron", false)); second.Generation != first.Generation {
		t.Errorf("two rebuild at once: the second does not join the first, but is %s", second.Generation)
	}
	s.Rewind(memstore.New())
	if err := mirror.Complete(ctx, s, "neutron", first.Generation); !errors.Is(err, mirror.ErrSuperseded) {
		t.Errorf("it was emptied meanwhile: got %v", err)
	}
	third := must(mirror.Begin(ctx, s, "neutron", false))
	if err := mirror.Complete(ctx, s, "neutron", first.Generation); !errors.Is(err, mirror.ErrSuperseded) {
		t.Errorf("a rebuild of before it was emptied ends: got %v", err)
	}
	for range 2 {
		if err := mirror.Complete(ctx, s, "neutron", third.Generation); err != nil {
			t.Error(err)
		}
	}
	if m := must(mirror.Begin(ctx, s, "neutron", false)); !m.Complete || m.Generation != third.Generation {
		t.Errorf("it is complete, and nobody wants it again: got %+v", m)
	}
	if m := must(mirror.Begin(ctx, s, "neutron", true)); m.Complete || m.Generation == third.Generation {
		t.Errorf("it is to be rebuilt: got %+v", m)
	}
	for _, name := range []string{"", "a/b", "A", "a,b", "-a", strings.Repeat("a", 254)} {
		if _, err := mirror.Begin(ctx, s, name, false); err == nil || !strings.Contains(err.Error(), "want lower-case letters") {
			t.Errorf("master %q: got %v", name, err)
		}
	}
}

func TestNamesOfMastersAreRead(t *testing.T) {
	if got, err := mirror.Masters(" neutron , operator"); err != nil || !slices.Equal(got, []string{"neutron", "operator"}) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := mirror.Masters(" "); err != nil || got != nil {
		t.Errorf("none: got %q, %v", got, err)
	}
	for _, list := range []string{"neutron,,operator", "Neutron", "a b", ","} {
		if got, err := mirror.Masters(list); err == nil {
			t.Errorf("%q: got %q", list, got)
		}
	}
}

// TestABackupIsNotTaken: a datastore that is put back to an older state of the same generation would be taken for complete.
func TestABackupIsNotTaken(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	completed(t, s, "neutron")
	must(s.Create(ctx, api.Update{Key: api.ResourcesPrefix + "tiers/a", Value: []byte("1")}))
	backup := memstore.New()
	backup.Rewind(s)
	must(s.Create(ctx, api.Update{Key: api.ResourcesPrefix + "tiers/b", Value: []byte("1")}))
	m := mirror.Of(s, []string{"neutron"})
	for _, prefix := range []string{api.ResourcesPrefix, api.ResourcesPrefix + "tiers/"} {
		must(m.List(ctx, prefix))
	}
	s.Rewind(backup)
	for _, prefix := range []string{api.ResourcesPrefix, api.ResourcesPrefix + "tiers/"} {
		if got, err := m.List(ctx, prefix); !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "older state") {
			t.Errorf("%s: got %v, %v", prefix, got, err)
		}
	}
	must(mirror.Begin(ctx, s, "neutron", true))
	completed(t, s, "neutron")
	for _, prefix := range []string{api.ResourcesPrefix, api.ResourcesPrefix + "tiers/"} {
		if got := must(m.List(ctx, prefix)); len(got.Items) != 1 {
			t.Errorf("%s was completed anew: got %v", prefix, got)
		}
	}
}

// TestAListThatARebuildOvertakesIsRefused: what is read in the middle of a rebuild, whose end is there when the marks are read once more.
func TestAListThatARebuildOvertakesIsRefused(t *testing.T) {
	const prefix, key = api.ResourcesPrefix + "tiers/", api.ResourcesPrefix + "tiers/a"
	for verb, read := range map[string]func(context.Context, *mirror.Store) error{
		"list": func(ctx context.Context, m *mirror.Store) error { _, err := m.List(ctx, prefix); return err },
		"get":  func(ctx context.Context, m *mirror.Store) error { _, err := m.Get(ctx, key); return err },
	} {
		ctx, s := t.Context(), memstore.New()
		completed(t, s, "neutron")
		must(s.Create(ctx, api.Update{Key: key, Value: []byte("1")}))
		reads := 0
		s.Fail(func(op memstore.Op) error {
			switch {
			case op.Verb == verb && op.Key != mirror.Prefix && strings.HasPrefix(op.Key, prefix):
				reads++
				s.Fail(nil)
				must(mirror.Begin(ctx, s, "neutron", true))
				must(0, s.Delete(ctx, key, api.Revision{}))
				s.Fail(func(memstore.Op) error {
					s.Fail(nil)
					must(s.Create(ctx, api.Update{Key: key, Value: []byte("1")}))
					completed(t, s, "neutron")
					return nil
				})
			}
			return nil
		})
		m := mirror.Of(s, []string{"neutron"})
		if err := read(ctx, m); reads != 1 || !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "rebuilt meanwhile") {
			t.Errorf("%s (%d reads in the middle): got %v", verb, reads, err)
		}
		if err := read(ctx, m); err != nil {
			t.Errorf("%s, again: %v", verb, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestOnlyCompleteStatesAreSeen has masters write, lose and rebuild a datastore at random, and die in the middle. Whoever follows it sees no state but
// those that it had while all masters said that it was complete, and in the end the last.
func TestOnlyCompleteStatesAreSeen(t *testing.T) {
	for _, prefix := range []string{api.ResourcesPrefix, api.ResourcesPrefix + "tiers/"} {
		views := 0
		for range 60 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seedtest.Rand(t), prefix)
				w.run()
				views += w.views
			})
		}
		if views < 300 {
			t.Errorf("%s: %d states were seen: the test shows little", prefix, views)
		}
	}
}

// world is a datastore, its masters, and somebody who follows a prefix of it.
type world struct {
	*testing.T
	r       *rand.Rand
	prefix  string
	store   *memstore.Store
	masters []string
	truth   map[string]map[string]string // of each master: values by key
	rebuild map[string]string            // the generation that a master rebuilds
	allowed map[string]bool              // states that may be seen
	seen    map[string]string
	inSync  bool
	views   int // states that were seen
}

func newWorld(t *testing.T, r *rand.Rand, prefix string) *world {
	w := &world{
		T: t, r: r, prefix: prefix, store: memstore.New(), masters: []string{"neutron", "operator"}, truth: map[string]map[string]string{},
		rebuild: map[string]string{}, allowed: map[string]bool{}, seen: map[string]string{},
	}
	for _, m := range w.masters {
		w.truth[m] = map[string]string{}
	}
	return w
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	s := syncer.New(mirror.Of(w.store, w.masters), syncer.Config{Prefixes: []string{w.prefix}})
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for range 150 {
		w.step()
		w.note()
		if w.r.IntN(3) == 0 {
			w.drain(s)
		}
		if w.r.IntN(4) == 0 {
			<-time.After(time.Duration(w.r.IntN(3000)) * time.Millisecond) // virtual
		}
	}
	for _, m := range w.masters {
		w.begin(m)
		w.write(m, len(w.truth[m]))
		w.complete(m)
		w.note()
	}
	<-time.After(time.Minute)
	w.drain(s)
	if want := w.state(); !w.inSync || !maps.Equal(w.seen, want) {
		w.Errorf("in the end (in sync: %v): got %v, want %v", w.inSync, w.seen, want)
	}
	cancel()
	<-ended
}

// step is one thing that happens.
func (w *world) step() {
	m := w.masters[w.r.IntN(len(w.masters))]
	switch w.r.IntN(14) {
	case 0:
		w.lose()
	case 1:
		w.store.Rewind(memstore.New())
	case 2:
		mark, err := mirror.Begin(w.Context(), w.store, m, true)
		if err != nil {
			w.Fatal(err)
		}
		w.rebuild[m] = mark.Generation
	case 3, 4:
		w.begin(m)
	case 5, 6:
		w.write(m, 1+w.r.IntN(2)) // and dies
	case 7, 8, 9:
		w.begin(m)
		w.write(m, len(w.truth[m]))
		w.complete(m)
	case 10:
		w.store.DropWatches(nil)
	case 11:
		w.store.Forget(w.store.Revision())
	default:
		w.change(m)
	}
}

// lose empties the datastore at once.
func (w *world) lose() {
	var t datastore.Txn
	for _, u := range must(w.store.List(w.Context(), "")).Items {
		t.Delete = append(t.Delete, u.Key)
	}
	must(w.store.Transact(w.Context(), t))
}

func (w *world) begin(m string) {
	mark, err := mirror.Begin(w.Context(), w.store, m, false)
	if err != nil {
		w.Fatal(err)
	}
	w.rebuild[m] = mark.Generation
}

// complete says it, if all of the master's truth is there: a master that is right about that is what the test takes for granted.
func (w *world) complete(m string) {
	err := mirror.Complete(w.Context(), w.store, m, w.rebuild[m])
	if err != nil && !errors.Is(err, mirror.ErrSuperseded) {
		w.Fatal(err)
	}
}

// write brings some of a master's truth into the datastore; of all of it, also what is too much goes.
func (w *world) write(m string, n int) {
	for i, key := range slices.Sorted(maps.Keys(w.truth[m])) {
		if i == n {
			return
		}
		if err := datastore.Put(w.Context(), w.store, api.Update{Key: key, Value: []byte(w.truth[m][key])}); err != nil {
			w.Fatal(err)
		}
	}
	for _, u := range must(w.store.List(w.Context(), w.of(m))).Items {
		if _, ok := w.truth[m][u.Key]; !ok {
			must(0, w.store.Delete(w.Context(), u.Key, api.Revision{}))
		}
	}
}

// of begins the keys of a master.
func (w *world) of(m string) string { return api.ResourcesPrefix + "tiers/" + m + "-" }

// change changes a master's truth, and if that is complete the datastore, too.
func (w *world) change(m string) {
	key, value := fmt.Sprint(w.of(m), w.r.IntN(5)), fmt.Sprint(w.r.IntN(1000))
	complete := must(mirror.Marks(w.Context(), w.store))[m].Complete
	if w.r.IntN(4) == 0 {
		delete(w.truth[m], key)
		if complete {
			_ = w.store.Delete(w.Context(), key, api.Revision{}) // which there may not be
		}
		return
	}
	w.truth[m][key] = value
	if complete {
		must(0, datastore.Put(w.Context(), w.store, api.Update{Key: key, Value: []byte(value)}))
	}
}

// state is what the datastore holds of the prefix.
func (w *world) state() map[string]string {
	out := map[string]string{}
	for _, u := range must(w.store.List(w.Context(), w.prefix)).Items {
		if !strings.HasPrefix(u.Key, mirror.Prefix) {
			out[u.Key] = string(u.Value)
		}
	}
	return out
}

// note allows the present state to be seen, if it is complete.
func (w *world) note() {
	marks := must(mirror.Marks(w.Context(), w.store))
	for _, m := range w.masters {
		if !marks[m].Complete {
			return
		}
	}
	w.allowed[fmt.Sprint(w.state())] = true
}

func (w *world) drain(s *syncer.Syncer) {
	for {
		synctest.Wait()
		select {
		case b := <-s.Batches():
			for _, u := range b.Updates {
				if delete(w.seen, u.Key); u.Value != nil {
					w.seen[u.Key] = string(u.Value)
				}
			}
			if w.inSync = b.InSync; !w.inSync {
				continue
			}
			w.views++
			if now := fmt.Sprint(w.seen); !w.allowed[now] {
				w.Errorf("a state that was never complete is seen: %s", now)
			}
		default:
			return
		}
	}
}
