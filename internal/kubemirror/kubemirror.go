// Package kubemirror keeps what Kubernetes says in another datastore, for clusters whose datastore is etcd.
//
// In: the views of Kubernetes' own objects, by a store that was opened with Views of [datastore.Config], and all that the other datastore holds
// under the same names. Out: that holds NetworkPolicies of Kubernetes (knp.default.), its cluster-wide policies (kcnp., kanp., kbanp.), a
// profile for each namespace (kns.) and service account (ksa.); and the endpoints of pods, which the CNI plugin writes,
// have the labels, account, profiles and ports of their pods.
//
// Kubernetes is the master for those names, and nothing else is touched. What is missing is written, what differs is put right, what
// Kubernetes no longer has is deleted; a datastore that was lost is rebuilt. What holds:
//   - Nothing is written before both were read whole. While Kubernetes is away, or cannot be read, what it said last holds.
//   - A list without an object does not prove that it is gone: before a deletion, Kubernetes is asked for that object, and for a namespace that every
//     cluster has. Where it does not serve a kind (any more), what was made of its objects stays.
//   - A namespace's profile, which allows what no policy speaks of, is made after its policies. It goes, as a
//     service account's does, once no endpoint names it; and of a namespace that is gone, nothing goes before its last endpoint. So
//     no endpoint loses a label by which it is denied something, or a policy, before it is gone itself.
//   - An endpoint is written only as it was seen, with what its pod says after that, and only if the pod does not name another
//     container. It is never made, deleted, or given other addresses here.
package kubemirror

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/syncer"
)

// The controllers, as upstream's ENABLED_CONTROLLERS names them.
const (
	Policies        = "policy"
	Namespaces      = "namespace"
	ServiceAccounts = "serviceaccount"
	Endpoints       = "workloadendpoint"
)

// Names are those of all controllers.
func Names() []string { return []string{Policies, Namespaces, ServiceAccounts, Endpoints} }

// Config of a Mirror.
type Config struct {
	From datastore.Store // Kubernetes, opened with Views of datastore.Config
	To   datastore.Store // what is kept up with it
	// Controllers are those that run, of Names, others mean nothing here; nil: all. What one that does not run made stays as it is.
	Controllers []string
	// Resync is how often To is listed anew, though it is watched: upstream's RECONCILER_PERIOD. Zero means 5m.
	Resync time.Duration
	Turn   func(key string, err error) // is called after each turn, with how it ended; nil: nobody asks
	Log    *slog.Logger                // nil: silent
}

// Mirror keeps To as From says.
type Mirror struct {
	cfg  Config
	on   map[string]bool
	loop *controller.Controller
	kube *syncer.Syncer // of From

	unread atomic.Int32 // stores that were not read whole yet

	// What was observed, the loop's alone.
	want      map[string][]byte     // what Kubernetes says, by key
	have      map[string]api.Update // what To holds under mirrored names
	endpoints map[string]endpoint   // of To, of hosts too
	ofPod     map[string]keys       // endpoints, by the key of their pod
	users     map[string]int        // endpoints, by the profiles that they name, and by in(namespace)
	behind    map[string]int        // policies that are not as wanted, by namespace
	waiting   map[string]keys       // keys that wait for something else, by the namespace whose changes may end that
	wrote     map[string]written
	down      time.Time // Kubernetes does not answer: it is not asked again before
}

type keys map[string]bool

// written is what was written last under a key, and when.
type written struct {
	value []byte
	at    time.Time
}

// New returns a Mirror, which reads and writes nothing until Run.
func New(cfg Config) *Mirror {
	cfg.Resync = cmp.Or(cfg.Resync, 5*time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Turn == nil {
		cfg.Turn = func(string, error) {}
	}
	m := &Mirror{
		cfg: cfg, on: map[string]bool{}, want: map[string][]byte{}, have: map[string]api.Update{}, endpoints: map[string]endpoint{}, ofPod: map[string]keys{},
		users: map[string]int{}, behind: map[string]int{}, waiting: map[string]keys{}, wrote: map[string]written{},
	}
	for _, name := range Names() {
		m.on[name] = cfg.Controllers == nil || slices.Contains(cfg.Controllers, name)
	}
	m.loop = controller.New(controller.Config{
		Name: "keep what Kubernetes says", Log: cfg.Log, Observe: m.observe, Reconcile: m.turn, Prefixes: []string{api.ResourcesPrefix, kubernetes},
	})
	return m
}

// kubernetes begins the keys of what From says, in the loop: To has the same ones.
const kubernetes = "kubernetes:"

// prefixes are those of what is read of Kubernetes. Profiles always are: what is of a namespace that is gone stays until its endpoints are.
func (m *Mirror) prefixes() []string {
	out := []string{api.KeyPrefix(api.KindProfile, "")}
	if m.on[Policies] {
		out = append(out, api.KeyPrefix(api.KindNetworkPolicy, ""), api.KeyPrefix(api.KindGlobalNetworkPolicy, ""))
	}
	if m.on[Endpoints] {
		out = append(out, api.KeyPrefix(api.KindWorkloadEndpoint, ""))
	}
	return out
}

// Run keeps To as From says until the context ends. Call it once.
func (m *Mirror) Run(ctx context.Context) error {
	if !slices.Contains(slices.Collect(maps.Values(m.on)), true) {
		m.unmark(ctx)
		return ctx.Err()
	}
	m.loop.Enqueue(theMark, 0)
	m.unread.Store(2)
	m.kube = syncer.New(m.cfg.From, syncer.Config{Prefixes: m.prefixes(), Logger: m.cfg.Log.With("of", "kubernetes")})
	var following sync.WaitGroup // until the context ends, as the loop
	following.Go(func() { m.follow(ctx, m.kube, keys{}, kubernetes, m.readWhole) })
	following.Go(func() { m.followTo(ctx) })
	defer following.Wait()
	return m.loop.Run(ctx)
}

// readWhole notes that one of the stores was; the loop begins with the second.
func (m *Mirror) readWhole() {
	if m.unread.Add(-1) == 0 {
		m.loop.Update(nil, true)
	}
}

// followTo follows To, and from time to time begins again, so that nothing which a watch may have missed stays unseen. All resources are
// one prefix, so that the policies which a datastore has lost are known when its profiles are.
func (m *Mirror) followTo(ctx context.Context) {
	known, first := keys{}, true
	for ctx.Err() == nil {
		turn, end := context.WithCancel(ctx)
		m.follow(turn, syncer.New(m.cfg.To, syncer.Config{Prefixes: []string{api.ResourcesPrefix}, Logger: m.cfg.Log}), known, "", func() {
			time.AfterFunc(m.cfg.Resync, end)
			if first {
				first = false
				m.readWhole()
			}
		})
		end()
	}
}

// follow passes to the loop what a syncer delivers, under keys that begin with as, until the context ends. known are the keys that were
// passed; those that are no longer there once all was read are passed as gone. Then whole is called.
func (m *Mirror) follow(ctx context.Context, source *syncer.Syncer, known keys, as string, whole func()) {
	go func() { _ = source.Run(ctx) }() // it ends with the context alone, and then closes its batches
	left := maps.Clone(known)
	for b := range source.Batches() {
		us := make([]api.Update, len(b.Updates)) // the syncer reads its own once more
		for i, u := range b.Updates {
			delete(left, u.Key)
			if u.Value == nil {
				delete(known, u.Key)
			} else {
				known[u.Key] = true
			}
			us[i] = u
			us[i].Key = as + u.Key
		}
		m.loop.Update(us, false)
		if !b.InSync || left == nil {
			continue
		}
		gone := make([]api.Update, 0, len(left))
		for key := range left {
			delete(known, key)
			gone = append(gone, api.Update{Key: as + key})
		}
		left = nil
		m.loop.Update(gone, false)
		whole()
	}
}
