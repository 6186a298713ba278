package kubemirror_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/kubemirror"
	"github.com/twillnet/twill/internal/seedtest"
)

// walk is a random history of two stores.
type walk struct {
	*bench
	rand *rand.Rand

	mu  sync.Mutex
	had map[string]time.Time // since when Kubernetes has had each key
	own atomic.Bool          // the walk itself deletes
}

// names are all keys of Kubernetes in a walk, and pods those of endpoints.
func names() (out []string) {
	for _, ns := range []string{"a", "shop"} {
		out = append(out, "profiles/kns."+ns, "profiles/ksa."+ns+".default", "networkpolicies/"+ns+"/knp.default.x", "networkpolicies/"+ns+"/knp.default.y")
	}
	return append(out, "globalnetworkpolicies/kcnp.x", "globalnetworkpolicies/kanp.adminnetworkpolicy.x")
}

var pods = []string{"p", "q-0"}

func keyOf(word string) string { key, _, _ := strings.Cut(word, "="); return key }

func (w *walk) pod(name string) string {
	return labelledWep(name, "eth0", fmt.Sprintf(`{"n":"%d"}`, w.rand.IntN(9)), podSays)
}

// change does something to Kubernetes or, as others do, to what is kept.
func (w *walk) change() {
	names := names()
	key := names[w.rand.IntN(len(names))]
	pod := pods[w.rand.IntN(len(pods))]
	value := fmt.Sprintf("=%d", w.rand.IntN(4))
	switch w.rand.IntN(9) {
	case 0, 1:
		w.kube(key + value)
	case 2:
		w.kubeGone(key)
	case 3:
		w.kube(w.pod(pod))
	case 4:
		w.kubeGone(keyOf(wep(pod, "")))
	case 5:
		w.try(datastore.Put(w.Context(), w.to.Store, update(key+value)))
	case 6:
		w.foreign(key)
	case 7:
		w.try(datastore.Put(w.Context(), w.to.Store, update(wep(pod, plugins))))
	case 8:
		w.foreign(keyOf(wep(pod, "")))
	}
}

// foreign deletes what is kept.
func (w *walk) foreign(key string) {
	w.own.Store(true)
	defer w.own.Store(false)
	w.try(w.to.Store.Delete(w.Context(), api.ResourcesPrefix+key, api.Revision{}))
}

func update(word string) api.Update {
	key, value, _ := strings.Cut(word, "=")
	return api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}
}

// try ignores that something is gone, or that the store is away: then nothing changes.
func (w *walk) try(error) {}

func (w *walk) kube(word string) {
	u := update(word)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := datastore.Put(w.Context(), w.from.Store, u); err == nil && w.had[u.Key].IsZero() {
		w.had[u.Key] = time.Now()
	}
}

func (w *walk) kubeGone(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.from.Store.Delete(w.Context(), api.ResourcesPrefix+key, api.Revision{}) == nil {
		delete(w.had, api.ResourcesPrefix+key)
	}
}

// fault does something to a store for a while.
func (w *walk) fault() {
	one, limit := w.from, 7
	if w.rand.IntN(2) == 0 {
		one, limit = w.to, 4 // nobody's lists are believed but Kubernetes'
	}
	r := rand.New(rand.NewPCG(w.rand.Uint64(), 1))
	var mu sync.Mutex
	switch w.rand.IntN(limit) {
	case 0:
		one.DropWatches(nil)
	case 1:
		one.DropWatches(datastore.ErrCompacted)
	case 2, 3:
		w.failing(one, func(memstore.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if r.IntN(3) == 0 {
				return datastore.ErrUnavailable
			}
			return nil
		})
	case 4, 5:
		one.set(&one.empty, true)
		one.DropWatches(datastore.ErrCompacted)
	case 6:
		one.set(&one.none, true)
	}
}

// failing makes a store fail, and looks at what is deleted: nothing that Kubernetes has had for a while.
func (w *walk) failing(s *faulty, fail func(memstore.Op) error) {
	s.Fail(func(op memstore.Op) error {
		if s == w.to && op.Verb == "delete" && !w.own.Load() {
			w.mu.Lock()
			since, has := w.had[op.Key]
			w.mu.Unlock()
			if has && time.Since(since) > time.Second {
				w.Errorf("%s is deleted, and Kubernetes has it", op.Key)
			}
		}
		return fail(op)
	})
}

func (w *walk) healed() {
	none := func(memstore.Op) error { return nil }
	for _, s := range []*faulty{w.from, w.to} {
		heal(s)
		w.failing(s, none)
	}
}

func TestWhateverHappensItEndsAsKubernetesSays(t *testing.T) {
	for range 20 {
		random := seedtest.Rand(t)
		run(t, kubemirror.Config{}, nil, nil, func(b *bench) {
			w := &walk{bench: b, rand: random, had: map[string]time.Time{}}
			w.healed()
			for range 300 {
				switch w.rand.IntN(12) {
				case 0:
					w.fault()
				case 1:
					w.healed()
				case 2, 3:
					<-time.After(time.Duration(w.rand.IntN(5000)) * time.Millisecond)
				default:
					w.change()
				}
			}
			w.healed()
			w.compare()
		})
		if t.Failed() {
			return
		}
	}
}

// compare is at the end: first with an endpoint for each pod, and then without any, since they hold what they need.
func (w *walk) compare() {
	w.Helper()
	for _, key := range names() { // so that nothing is held
		w.kube(key + "=1")
	}
	var want []string
	for _, name := range pods {
		w.kube(w.pod(name))
		put(w.T, w.to, wep(name, plugins))
		u, err := w.from.Get(w.Context(), update(wep(name, "")).Key)
		if err != nil {
			w.Fatal(err)
		}
		_, labels, _ := strings.Cut(string(u.Value), `"labels":`)
		labels, _, _ = strings.Cut(labels, "}")
		want = append(want, labelledWep(name, "eth0", labels+"}", kept))
	}
	for _, key := range names() {
		want = append(want, key+"=1")
	}
	<-time.After(10 * time.Minute)
	w.holds("with endpoints", both(want)...)
	want = nil
	for i, key := range names() {
		if i%2 == 0 {
			w.kubeGone(key)
		} else {
			want = append(want, key+"=1")
		}
	}
	for _, name := range pods {
		w.foreign(keyOf(wep(name, "")))
	}
	want = both(want)
	slices.Sort(want)
	<-time.After(10 * time.Minute)
	w.holds("without", want...)
}
