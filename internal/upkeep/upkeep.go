// Package upkeep writes automatic host endpoints: an agent those of its node, the controllers of a cluster those of nodes on which no agent runs.
//
// In: updates of nodes, host endpoints and controllers. Out: the host endpoints that package autohep wants for a node are created, changed and
// deleted; those of nodes that are another's to keep, and those without the label of automatic ones, never are.
//
// Each write names the revision that was observed, so that no change of others is lost. What cannot be written is tried again for
// ever. Nothing is written before the datastore is known whole, while it says that it is not ready, or while the
// configuration does not say what is wanted.
package upkeep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/autohep"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// Config of a Controller.
type Config struct {
	Node  string // whose host endpoints are kept; empty: those of all nodes that are Mine, by following Store
	Store datastore.Store
	Know  func(ctx context.Context, keys ...string) error // that of the syncer by which Update hears; nil: none
	// Wanted says which host endpoints there should be; the resource is nil if there is none. Nil: what the resource says.
	Wanted func(*api.KubeControllersConfiguration) api.AutoHostEndpoints
	// Mine is asked before anything is written for a node, which the datastore has, or has not: is it to be, and if not, after how long is it to be
	// asked again? Nil: it is.
	Mine func(ctx context.Context, node string, has bool) (mine bool, again time.Duration, err error)
	Turn func(node string, err error) // is called after each turn, with how it ended; nil: nobody asks
	Log  *slog.Logger
}

// Controller keeps the host endpoints of one node, or of several. Any goroutine may use it.
type Controller struct {
	cfg  Config
	loop *controller.Controller

	// What was observed, the loop's alone.
	held   bool // the configuration is there, and cannot be read, or has lost its status
	wanted api.AutoHostEndpoints
	stated bool                 // the configuration has a status that names variables
	nodes  map[string]*api.Node // by name
	hosts  map[string]hosts     // by the name of their node
	ofHost map[string]string    // the names of host endpoints' nodes, by key
}

// hosts are host endpoints of a node, by key.
type hosts map[string]host

// host is a host endpoint as it is stored.
type host struct {
	stored api.Update
	made   bool // automatically
}

// New returns a Controller, which writes nothing until Run.
func New(cfg Config) *Controller {
	if cfg.Wanted == nil {
		cfg.Wanted = asTheResourceSays
	}
	k := &Controller{cfg: cfg, nodes: map[string]*api.Node{}, hosts: map[string]hosts{}, ofHost: map[string]string{}}
	k.wanted = cfg.Wanted(nil)
	loop := controller.Config{
		Name: "automatic host endpoints", Log: cfg.Log, Know: cfg.Know, Observe: k.observe, Reconcile: k.turn,
		Prefixes: []string{
			api.KeyPrefix(api.KindHostEndpoint, ""), api.KeyPrefix(api.KindNode, "") + cfg.Node, api.KeyPrefix(api.KindKubeControllersConfiguration, ""),
		},
	}
	if cfg.Node == "" {
		loop.Store = cfg.Store
	}
	k.loop = controller.New(loop)
	return k
}

func asTheResourceSays(r *api.KubeControllersConfiguration) api.AutoHostEndpoints {
	if r == nil {
		return api.AutoHostEndpoints{}
	}
	return r.HostEndpoints()
}

// Update takes changes of the datastore; inSync once all existing keys were passed. It is not for who keeps all nodes.
func (k *Controller) Update(us []api.Update, inSync bool) { k.loop.Update(us, inSync) }

// Run writes until the context ends.
func (k *Controller) Run(ctx context.Context) error { return k.loop.Run(ctx) }

// Synced reports whether all existing keys were passed.
func (k *Controller) Synced() bool { return k.loop.Synced() }

// Again has all nodes looked at now.
func (k *Controller) Again() { k.loop.Enqueue(everyNode, 0) }

// everyNode is a key of the loop; no node can be called so.
const everyNode = "/"

// observe takes over a change, and returns the nodes that it concerns. One host endpoint may replace another, so all those of a node are one
// key. A value that is not JSON changes nothing.
func (k *Controller) observe(u api.Update) []string {
	ref, ok := api.ParseKey(u.Key)
	if !ok {
		return nil
	}
	var s api.Stored
	if u.Value != nil {
		var err error
		if s, err = api.Admit(u); err != nil {
			return nil
		}
	}
	switch ref.Kind {
	case api.KindNode:
		return k.observeNode(ref.Name, s)
	case api.KindHostEndpoint:
		h, _ := s.Resource.(*api.HostEndpoint)
		return k.observeHost(u, h)
	case api.KindKubeControllersConfiguration:
		if ref.Name == "default" {
			k.configure(s)
			return k.all()
		}
	}
	return nil
}

func (k *Controller) keeps(node string) bool { return k.cfg.Node == "" || k.cfg.Node == node }

func (k *Controller) observeNode(name string, s api.Stored) []string {
	if !k.keeps(name) {
		return nil
	}
	if n, ok := s.Resource.(*api.Node); ok {
		k.nodes[name] = n
	} else {
		delete(k.nodes, name)
	}
	return []string{name}
}

// configure takes over the configuration. One that had a status, and has none, was replaced as a whole: until the controllers have written it again,
// what their environment says is not known.
func (k *Controller) configure(s api.Stored) {
	r, there := s.Resource.(*api.KubeControllersConfiguration)
	if !there {
		k.held, k.stated, k.wanted = false, false, k.cfg.Wanted(nil)
		return
	}
	blank := r.Status.RunningConfig == nil && len(r.Status.EnvironmentVars) == 0
	lost := k.stated && blank && k.cfg.Node != ""
	if k.held = s.Closed != "" || lost; lost {
		k.cfg.Log.Warn("the KubeControllersConfiguration has lost its status, and so what the controllers' environment says of automatic host endpoints: they stay as they are until it has one")
		return
	}
	_, k.stated = r.Status.EnvironmentVars[api.EnvAutoHostEndpoints]
	k.wanted = k.cfg.Wanted(r)
}

// all are the names of all nodes that there are, and of those that have host endpoints.
func (k *Controller) all() []string {
	names := slices.Collect(maps.Keys(k.nodes))
	for name := range k.hosts {
		if k.nodes[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// observeHost takes over a host endpoint; nil: it is gone.
func (k *Controller) observeHost(u api.Update, h *api.HostEndpoint) (concerned []string) {
	if was, had := k.ofHost[u.Key]; had {
		k.forget(u.Key)
		concerned = append(concerned, was)
	}
	if h == nil || !k.keeps(h.Spec.Node) {
		return concerned
	}
	k.know(h.Spec.Node, host{stored: u, made: autohep.Made(h)})
	return append(concerned, h.Spec.Node)
}

func (k *Controller) know(node string, h host) {
	if k.hosts[node] == nil {
		k.hosts[node] = hosts{}
	}
	k.hosts[node][h.stored.Key] = h
	k.ofHost[h.stored.Key] = node
}

func (k *Controller) forget(key string) {
	node := k.ofHost[key]
	delete(k.ofHost, key)
	if delete(k.hosts[node], key); len(k.hosts[node]) == 0 {
		delete(k.hosts, node)
	}
}

// turn is one turn of the loop.
func (k *Controller) turn(ctx context.Context, key string) (again time.Time, err error) {
	if key == everyNode {
		for _, node := range k.all() {
			k.loop.Enqueue(node, 0)
		}
		return again, nil
	}
	again, err = k.reconcile(ctx, key)
	if k.cfg.Turn != nil {
		k.cfg.Turn(key, err)
	}
	return again, err
}

// reconcile writes what there is to write of a node.
func (k *Controller) reconcile(ctx context.Context, node string) (again time.Time, err error) {
	actions, err := k.plan(node)
	if len(actions) > 0 && k.cfg.Mine != nil {
		mine, later, merr := k.cfg.Mine(ctx, node, k.nodes[node] != nil)
		if merr != nil {
			return again, merr
		}
		if !mine {
			return time.Now().Add(later), nil
		}
	}
	failed := false
	for _, a := range actions {
		if a.endpoint == nil && failed {
			break // what is to go may still be all that protects the host
		}
		aerr := k.do(ctx, a)
		failed = failed || aerr != nil
		err = errors.Join(err, aerr)
	}
	if !failed {
		err = controller.Terminal(err) // of what is stored
	}
	return time.Time{}, err
}

// action is one write.
type action struct {
	seen     api.Update        // what is stored; without a value nothing is
	endpoint *api.HostEndpoint // what is wanted; nil: nothing
}

// plan says what there is to write. What is to go comes last: one host endpoint may take the place of another, and the host
// must not be open in between.
func (k *Controller) plan(node string) ([]action, error) {
	if k.held {
		return nil, nil
	}
	wanted, err := autohep.Wanted(k.nodes[node], k.wanted)
	byKey := map[string]*api.HostEndpoint{}
	for _, h := range wanted {
		key, kerr := api.Key(h)
		if kerr != nil {
			err = errors.Join(err, kerr)
			continue
		}
		byKey[key] = h
	}
	var out []action
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		is, there := k.hosts[node][key]
		if there && !is.made {
			err = errors.Join(err, fmt.Errorf("%s exists, without the label %s=%s: it is left as it is", key, api.LabelCreatedBy, api.CreatedByControllers))
			continue
		}
		if there && says(is.stored, byKey[key]) {
			continue
		}
		out = append(out, action{api.Update{Key: key, Value: is.stored.Value, Revision: is.stored.Revision}, byKey[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(k.hosts[node])) {
		if is := k.hosts[node][key]; is.made && byKey[key] == nil {
			out = append(out, action{seen: is.stored})
		}
	}
	return out, err
}

// says reports whether what is stored says what is wanted already.
func says(stored api.Update, h *api.HostEndpoint) bool {
	value, err := api.MergeRaw(stored.Value, h)
	if err != nil || bytes.Equal(value, stored.Value) {
		return err == nil
	}
	is, err1 := resources.Tree(stored.Value) // a store may keep the fields of an object in another order
	want, err2 := resources.Tree(value)
	return err1 == nil && err2 == nil && reflect.DeepEqual(is, want)
}

// do writes, and notes what is stored then: the watch delivers it, but perhaps after the next plan.
func (k *Controller) do(ctx context.Context, a action) error {
	if err := k.loop.Know(ctx, a.seen.Key); err != nil {
		return err
	}
	did := "deleted"
	if a.endpoint == nil {
		if err := resources.DeleteSeen(ctx, k.cfg.Store, a.seen); err != nil {
			return fmt.Errorf("delete %s: %w", a.seen.Key, err)
		}
		k.forget(a.seen.Key)
	} else {
		done, err := resources.Over(ctx, k.cfg.Store, a.seen, a.endpoint)
		if err != nil {
			return fmt.Errorf("write %s: %w", a.seen.Key, err)
		}
		did = done.What
		k.know(a.endpoint.Spec.Node, host{stored: done.Now, made: true})
	}
	k.cfg.Log.Info("automatic host endpoint", "did", did, "key", a.seen.Key)
	return nil
}
