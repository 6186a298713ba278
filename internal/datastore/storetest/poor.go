package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/seedtest"
)

// Poor is a store that has what Kubernetes' API server offers, and nothing else
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions):
//
//   - a revision is a random text, other at each write, to be compared for
//     equality only;
//   - each kind of keys is a collection, listed and watched by itself. A list of
//     several kinds is of as many moments, and a watch of them brings the changes of
//     each in order, and those of two in any order;
//   - lists come in any order, and the same place has another position each time;
//   - watches end at random, and their next position may be forgotten by then;
//   - there are no transactions, keys do not expire, nothing compares two revisions.
//
// Any goroutine may use it.
type Poor struct {
	// Between is called, if it is not nil, within a list of several kinds, after
	// each: others may write then.
	Between func()
	// Forgets: a watch that ends at random may also find that its history is
	// gone, and must list anew.
	Forgets bool

	mu      sync.Mutex
	rand    *rand.Rand
	kinds   map[string]*collection
	places  map[string]place // by the text of a position
	changed chan struct{}    // closed, and replaced, at each change
	fail    func(memstore.Op) error
	steady  bool
	drops   int
	dropErr error
	writes  int64
}

// collection is the keys of one kind.
type collection struct {
	items  map[string]api.Update
	events []api.Update
	first  int // events before this one are forgotten
}

// place is how much of each kind's events somebody has.
type place map[string]int

// NewPoor returns an empty store, whose random choices are the test's.
func NewPoor(t testing.TB) *Poor {
	return &Poor{rand: seedtest.Rand(t), kinds: map[string]*collection{}, places: map[string]place{}, changed: make(chan struct{})}
}

// Fail makes each call ask f first, and fail with the error that it returns. Nil
// ends that.
func (s *Poor) Fail(f func(memstore.Op) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Revision counts the changes, from 1 as memstore does.
func (s *Poor) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes + 1
}

// Forget forgets all history: a watch from before is ErrCompacted.
func (s *Poor) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.kinds {
		c.first = len(c.events)
	}
	s.wake()
}

// DropWatches ends every watch that runs with err; nil stands for ErrUnavailable.
func (s *Poor) DropWatches(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = fmt.Errorf("watch dropped: %w", datastore.ErrUnavailable)
	}
	s.drops++
	s.dropErr = err
	s.wake()
}

// depth is how many segments of a key make its kind.
var depth = []struct {
	prefix   string
	segments int
}{
	{api.ResourcesPrefix, 5},              // /calico/resources/v3/projectcalico.org/PLURAL
	{api.Root + "ipam/v2/assignment/", 6}, // …/ipv4/block
	{api.Root + "ipam/v2/handle/", 4},     //
	{api.Root + "ipam/v2/host/", 4},       // affinities, of all hosts
	{api.Root + "ipam/v2/virtual/", 4},    //
	{api.Root + "felix/", 3},              // statuses; of other keys, the directory is the kind
}

func kindOf(key string) string {
	for _, d := range depth {
		if strings.HasPrefix(key, d.prefix) {
			parts := strings.SplitAfterN(key, "/", d.segments+2)
			return strings.Join(parts[:min(len(parts), d.segments+1)], "")
		}
	}
	return path.Dir(key) + "/"
}

// collection is the one of a key, made if there is none.
func (s *Poor) collection(key string) *collection {
	kind := kindOf(key)
	c := s.kinds[kind]
	if c == nil {
		c = &collection{items: map[string]api.Update{}}
		s.kinds[kind] = c
	}
	return c
}

// kindsUnder are those that may have keys under a prefix, in any order.
func (s *Poor) kindsUnder(prefix string) []string {
	kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(s.kinds)), func(kind string) bool {
		return !strings.HasPrefix(kind, prefix) && !strings.HasPrefix(prefix, kind)
	})
	s.rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds
}

func (s *Poor) text() string { return fmt.Sprintf("%x", s.rand.Uint64()) }

// position writes down a place under a text of its own.
func (s *Poor) position(p place) datastore.Position {
	text := s.text()
	s.places[text] = maps.Clone(p)
	return datastore.PositionOf(text)
}

func (s *Poor) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// admit says whether a call may go on.
func (s *Poor) admit(ctx context.Context, verb, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail == nil {
		return nil
	}
	if err := fail(memstore.Op{Verb: verb, Key: key}); err != nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	return nil
}

// Get returns the present value of a key, or ErrNotFound.
func (s *Poor) Get(ctx context.Context, key string) (api.Update, error) {
	if err := s.admit(ctx, "get", key); err != nil {
		return api.Update{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kv, ok := s.collection(key).items[key]
	if !ok {
		return api.Update{}, fmt.Errorf("get %s: %w", key, datastore.ErrNotFound)
	}
	return copyOf(kv), nil
}

// List returns all keys under prefix, kind by kind.
func (s *Poor) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	if err := s.admit(ctx, "list", prefix); err != nil {
		return datastore.Snapshot{}, err
	}
	var snap datastore.Snapshot
	at := place{}
	s.mu.Lock()
	kinds := s.kindsUnder(prefix)
	s.mu.Unlock()
	for i, kind := range kinds {
		if i > 0 {
			runtime.Gosched()
			if s.Between != nil {
				s.Between()
			}
		}
		s.mu.Lock()
		c := s.kinds[kind]
		at[kind] = len(c.events)
		for _, key := range slices.Sorted(maps.Keys(c.items)) {
			if strings.HasPrefix(key, prefix) {
				snap.Items = append(snap.Items, copyOf(c.items[key]))
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rand.Shuffle(len(snap.Items), func(i, j int) { snap.Items[i], snap.Items[j] = snap.Items[j], snap.Items[i] })
	snap.Position = s.position(at)
	return snap, nil
}

// Create writes a new key, or returns ErrExists.
func (s *Poor) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := s.admit(ctx, "create", kv.Key); err != nil {
		return api.Update{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.collection(kv.Key).items[kv.Key]; ok {
		return api.Update{}, fmt.Errorf("create %s: %w", kv.Key, datastore.ErrExists)
	}
	return s.put(kv), nil
}

// Update replaces an existing key, if it still has the revision given.
func (s *Poor) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := s.admit(ctx, "update", kv.Key); err != nil {
		return api.Update{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(kv.Key, kv.Revision); err != nil {
		return api.Update{}, fmt.Errorf("update %s: %w", kv.Key, err)
	}
	return s.put(kv), nil
}

// Delete removes a key, if it still has the revision given.
func (s *Poor) Delete(ctx context.Context, key string, revision api.Revision) error {
	if err := s.admit(ctx, "delete", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(key, revision); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	c := s.collection(key)
	delete(c.items, key)
	s.event(c, api.Update{Key: key})
	return nil
}

func (s *Poor) check(key string, revision api.Revision) error {
	switch kv, ok := s.collection(key).items[key]; {
	case !ok:
		return datastore.ErrNotFound
	case !revision.IsZero() && kv.Revision != revision:
		return fmt.Errorf("%w: revision is %s, not %s", datastore.ErrConflict, kv.Revision, revision)
	}
	return nil
}

func (s *Poor) put(kv api.Update) api.Update {
	kv = copyOf(kv)
	if kv.Value == nil {
		kv.Value = []byte{} // nil would say that it is gone
	}
	c := s.collection(kv.Key)
	c.items[kv.Key] = s.event(c, kv)
	return copyOf(c.items[kv.Key])
}

// event makes a change known, under a revision of its own.
func (s *Poor) event(c *collection, kv api.Update) api.Update {
	kv.Revision = api.RevisionOf(s.text())
	c.events = append(c.events, kv)
	s.writes++
	s.wake()
	return kv
}

func copyOf(kv api.Update) api.Update {
	kv.Value = slices.Clone(kv.Value)
	return kv
}
