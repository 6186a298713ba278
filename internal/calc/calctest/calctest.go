// Package calctest makes random worlds, for whoever must agree about them.
//
// In: a random source and a [Config]. Out: a [World], which is a store full of
// resources as [api.Update] values: its State, its next Step, and a [Query]
// about it that is likely to meet its rules. [Coverage] counts what decided, and
// [Expect] works out what a node should have.
//
// The resources are written as JSON, not by way of api's types, so that a world
// can hold what those types cannot say, and what only another program writes.
package calctest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"

	"github.com/twillnet/twill/api"
)

// Config is the size of a world. A zero value means the default.
type Config struct {
	Nodes      int  // hosts h1, h2, …; zero means 3
	Namespaces int  // ns1, ns2, …; zero means 3
	Workloads  int  // workload endpoints; zero means 9
	Policies   int  // namespaced ones, and as many global ones; zero means 7
	Blocks     int  // blocks of addresses of these nodes; zero means none
	Pools      int  // of addresses; zero means none
	Wrong      int  // of a hundred resources so many are wrong in some way; zero means 4, negative none
	Services   bool // prefixes of services are advertised, within what is outside; Pools have more of that
	Unlimited  bool // no workload limits packets or connections: who asks a kernel for verdicts sends more than any limit
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		v    *int
		zero int
	}{{&c.Nodes, 3}, {&c.Namespaces, 3}, {&c.Workloads, 9}, {&c.Policies, 7}, {&c.Wrong, 4}} {
		if *f.v == 0 {
			*f.v = f.zero
		}
	}
	return c
}

// Cluster is a store whose resources change at random. One goroutine may use it.
type Cluster struct {
	rng      *rand.Rand
	cfg      Config
	store    map[string]api.Update
	slots    []slot
	revision int64
	past     []api.Update // what the last changes have replaced
}

// slot is a place for one resource: its key, and how to make up its value.
type slot struct {
	key    string
	make   func() object
	chance float64 // that it is there when the world begins
}

type object = map[string]any

// Random makes a world.
func Random(rng *rand.Rand, cfg Config) *Cluster {
	w := &Cluster{rng: rng, cfg: cfg.withDefaults(), store: map[string]api.Update{}}
	w.slots = w.allSlots()
	for _, s := range w.slots {
		if w.maybe(s.chance) {
			w.put(s)
		}
	}
	return w
}

// State is all resources, sorted by key.
func (w *Cluster) State() []api.Update {
	var out []api.Update
	for _, k := range slices.Sorted(maps.Keys(w.store)) {
		out = append(out, w.store[k])
	}
	return out
}

// Step adds, changes or removes one resource; seldom it tears down several at
// once. It returns what a watcher of the store would see.
func (w *Cluster) Step() []api.Update {
	switch {
	case w.maybe(0.02):
		return w.Teardown(0.5)
	case w.maybe(0.3):
		if s := pick(w, w.slots); w.store[s.key].Key != "" {
			return []api.Update{w.gone(s.key)}
		}
	}
	return []api.Update{w.put(pick(w, w.slots))}
}

// Move takes a workload to another interface, or exchanges the addresses of two, so that for a while both have the same.
func (w *Cluster) Move() []api.Update {
	i, j := w.rng.IntN(w.cfg.Workloads), w.rng.IntN(w.cfg.Workloads)
	ki, a := w.stored(i)
	kj, b := w.stored(j)
	if a == nil || b == nil {
		return w.Step()
	}
	if w.maybe(0.5) {
		a["interfaceName"] = numbered("cali", w.rng.IntN(w.cfg.Workloads))
		return []api.Update{w.respec(ki, a)}
	}
	a["ipNetworks"], b["ipNetworks"] = b["ipNetworks"], a["ipNetworks"]
	return []api.Update{w.respec(ki, a), w.respec(kj, b)}
}

// MovePolicy gives a policy that is enforced another order or another tier, and leaves all else of it as it is.
func (w *Cluster) MovePolicy() []api.Update {
	k := w.enforced()
	if k == "" {
		return w.Step()
	}
	spec := w.specOf(k)
	if w.maybe(0.3) {
		spec["tier"] = pick(w, []string{"t1", "t2", "t3", "default", "default", "kube-admin"})
	} else {
		spec["order"] = w.rng.IntN(400) - 100
	}
	return []api.Update{w.respec(k, spec)}
}

// TurnPolicy makes allow of deny, and deny of allow, in the rules of a policy that is enforced, and leaves all else of it as it is:
// so which endpoints have the policy does not change.
func (w *Cluster) TurnPolicy() []api.Update {
	k := w.enforced()
	if k == "" {
		return w.Step()
	}
	spec := w.specOf(k)
	for _, direction := range []string{"ingress", "egress"} {
		rules, _ := spec[direction].([]any)
		for _, rule := range rules {
			if rule, ok := rule.(object); ok {
				switch rule["action"] {
				case "Allow":
					rule["action"] = "Deny"
				case "Deny":
					rule["action"] = "Allow"
				}
			}
		}
	}
	return []api.Update{w.respec(k, spec)}
}

// enforced is the key of any policy that is enforced and can be read; empty: there is none.
func (w *Cluster) enforced() string {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(w.store)) {
		if enforcedPolicy.MatchString(k) && w.specOf(k) != nil {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	return pick(w, keys)
}

var enforcedPolicy = regexp.MustCompile(`/(global)?networkpolicies/`)

// stored is a workload's key and what its spec is now; nil: it is not there, or cannot be read.
func (w *Cluster) stored(i int) (string, object) {
	p := w.place(i)
	k := key("workloadendpoints", p.namespace, p.resource)
	return k, w.specOf(k)
}

func (w *Cluster) specOf(key string) object {
	var o struct{ Spec object }
	if json.Unmarshal(w.store[key].Value, &o) != nil {
		return nil
	}
	return o.Spec
}

// respec puts another spec into a resource that is there.
func (w *Cluster) respec(key string, spec object) api.Update {
	var o object
	if err := json.Unmarshal(w.store[key].Value, &o); err != nil {
		panic(err) // stored has read it
	}
	o["spec"] = spec
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was JSON
	}
	return w.set(api.Update{Key: key, Value: b})
}

// Undo takes back the last change that was not undone yet.
func (w *Cluster) Undo() []api.Update {
	if len(w.past) == 0 {
		return w.Step()
	}
	last := w.past[len(w.past)-1]
	w.past = w.past[:len(w.past)-1]
	out := w.set(last)
	w.past = w.past[:len(w.past)-1]
	return []api.Update{out}
}

// Teardown removes that share of all resources, in any order; 1 leaves nothing.
func (w *Cluster) Teardown(share float64) []api.Update {
	var out []api.Update
	keys := slices.Sorted(maps.Keys(w.store))
	w.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, k := range keys {
		if w.maybe(share) {
			out = append(out, w.gone(k))
		}
	}
	return out
}

func (w *Cluster) put(s slot) api.Update {
	o := s.make()
	if w.cfg.Wrong > 0 && w.rng.IntN(100) < w.cfg.Wrong {
		w.spoil(o)
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // our own objects are always JSON
	}
	if w.cfg.Wrong > 0 && w.rng.IntN(400) < w.cfg.Wrong {
		b = b[:len(b)/2] // as if a writer had died; not JSON at all
	} else if w.cfg.Wrong > 0 && w.rng.IntN(100) < w.cfg.Wrong && speaksOfPolicy.MatchString(s.key) {
		b = []byte(pick(w, []string{`[]`, `null`, `17`, `{"spec":[]}`, `{"spec":"x"}`, `{"kind":"Pod"}`}))
	}
	return w.set(api.Update{Key: s.key, Value: b})
}

// speaksOfPolicy are the keys of kinds of which the last value that was one stays in force.
var speaksOfPolicy = regexp.MustCompile(`/(staged)?(global|kubernetes)?network(policies|sets)/|/(tiers|profiles)/`)

func (w *Cluster) gone(key string) api.Update { return w.set(api.Update{Key: key}) }

func (w *Cluster) set(u api.Update) api.Update {
	w.revision++
	u.Revision = api.RevisionOf(strconv.FormatInt(w.revision, 10))
	const remembered = 50
	if w.past = append(w.past, api.Update{Key: u.Key, Value: w.store[u.Key].Value}); len(w.past) > remembered {
		w.past = w.past[1:]
	}
	if u.Value == nil {
		delete(w.store, u.Key)
	} else {
		w.store[u.Key] = u
	}
	return u
}

func (w *Cluster) maybe(chance float64) bool { return w.rng.Float64() < chance }

func pick[T any](w *Cluster, from []T) T { return from[w.rng.IntN(len(from))] }

// some picks between one and most of from, without repetition.
func some[T any](w *Cluster, most int, from ...T) []T {
	var out []T
	for _, i := range w.rng.Perm(len(from))[:1+w.rng.IntN(most)] {
		out = append(out, from[i])
	}
	return out
}

// key is Calico's etcd path; namespace may be empty.
func key(plural, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return "/calico/resources/v3/projectcalico.org/" + plural + "/" + name
}

// resource is the envelope of all kinds.
func resource(kind, namespace, name string, labels, spec object) object {
	meta := object{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	return object{"kind": kind, "apiVersion": api.GroupVersion, "metadata": meta, "spec": spec}
}

func numbered(prefix string, n int) string { return fmt.Sprintf("%s%d", prefix, n) }
