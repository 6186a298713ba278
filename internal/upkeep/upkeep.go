// Package upkeep writes what a node itself keeps in the datastore: its automatic host endpoints.
//
// In: updates of nodes, host endpoints and controllers, from the agent's syncer. Out: the host endpoints that
// package autohep wants for this node are created, changed and deleted; those of other nodes, and those without the label
// of automatic ones, never are.
//
// Each write names the revision that was observed, so that no change of others is lost. What cannot be written is tried again for
// ever. Nothing is written before the datastore is known whole, while it says that it is not ready, or while the
// configuration does not say what is wanted.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	Node  string
	Store datastore.Store
	Know  func(ctx context.Context, keys ...string) error // that of the syncer by which Update hears; nil: none
	Log   *slog.Logger
}

// Controller keeps the host endpoints of one node. Any goroutine may use it.
type Controller struct {
	cfg  Config
	loop *controller.Controller

	// What was observed, the loop's alone.
	held   bool // the configuration is there, and cannot be read
	wanted api.AutoHostEndpoints
	node   *api.Node
	hosts  map[string]host // host endpoints of this node, by key
}

// host is a host endpoint as it is stored.
type host struct {
	stored api.Update
	made   bool // automatically
}

// New returns a Controller, which writes nothing until Run.
func New(cfg Config) *Controller {
	k := &Controller{cfg: cfg, hosts: map[string]host{}}
	k.loop = controller.New(controller.Config{
		Name: "automatic host endpoints", Log: cfg.Log, Know: cfg.Know, Observe: k.observe, Reconcile: k.reconcile,
		Prefixes: []string{
			api.KeyPrefix(api.KindHostEndpoint, ""), api.KeyPrefix(api.KindNode, "") + cfg.Node, api.KeyPrefix(api.KindKubeControllersConfiguration, ""),
		},
	})
	return k
}

// Update takes changes of the datastore; inSync once all existing keys were passed.
func (k *Controller) Update(us []api.Update, inSync bool) { k.loop.Update(us, inSync) }

// Run writes until the context ends.
func (k *Controller) Run(ctx context.Context) error { return k.loop.Run(ctx) }

// observe takes over a change. One host endpoint may replace another, so all those of the node are one key: the node's name.
func (k *Controller) observe(u api.Update) []string {
	if !k.update(u) {
		return nil
	}
	return []string{k.cfg.Node}
}

// update reports whether a change concerns this node's host endpoints. A value that is not JSON changes nothing.
func (k *Controller) update(u api.Update) bool {
	ref, ok := api.ParseKey(u.Key)
	if !ok {
		return false
	}
	switch {
	case ref.Kind == api.KindHostEndpoint:
	case ref.Kind == api.KindNode && ref.Name == k.cfg.Node:
	case ref.Kind == api.KindKubeControllersConfiguration && ref.Name == "default":
	default:
		return false
	}
	var s api.Stored
	if u.Value != nil {
		var err error
		if s, err = api.Admit(u); err != nil {
			return false
		}
	}
	switch r := s.Resource.(type) {
	case *api.Node:
		k.node = r
	case *api.KubeControllersConfiguration:
		k.held, k.wanted = s.Closed != "", r.HostEndpoints()
	case *api.HostEndpoint:
		return k.host(u, r)
	default:
		k.gone(u.Key, ref.Kind)
	}
	return true
}

func (k *Controller) gone(key, kind string) {
	switch kind {
	case api.KindNode:
		k.node = nil
	case api.KindKubeControllersConfiguration:
		k.held, k.wanted = false, api.AutoHostEndpoints{}
	default:
		delete(k.hosts, key)
	}
}

func (k *Controller) host(u api.Update, h *api.HostEndpoint) bool {
	if h.Spec.Node != k.cfg.Node {
		_, had := k.hosts[u.Key]
		delete(k.hosts, u.Key)
		return had
	}
	k.hosts[u.Key] = host{stored: u, made: autohep.Made(h)}
	return true
}

// reconcile writes what there is to write.
func (k *Controller) reconcile(ctx context.Context, _ string) (again time.Time, err error) {
	actions, err := k.plan()
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
func (k *Controller) plan() ([]action, error) {
	if k.held {
		return nil, nil
	}
	wanted, err := autohep.Wanted(k.node, k.wanted)
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
		is, there := k.hosts[key]
		if there && !is.made {
			err = errors.Join(err, fmt.Errorf("%s exists, without the label %s=%s: it is left as it is", key, api.LabelCreatedBy, api.CreatedByControllers))
			continue
		}
		out = append(out, action{api.Update{Key: key, Value: is.stored.Value, Revision: is.stored.Revision}, byKey[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(k.hosts)) {
		if is := k.hosts[key]; is.made && byKey[key] == nil {
			out = append(out, action{seen: is.stored})
		}
	}
	return out, err
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
		delete(k.hosts, a.seen.Key)
	} else {
		done, err := resources.Over(ctx, k.cfg.Store, a.seen, a.endpoint)
		if err != nil {
			return fmt.Errorf("write %s: %w", a.seen.Key, err)
		}
		did = done.What
		k.hosts[a.seen.Key] = host{stored: done.Now, made: true}
	}
	if did != "unchanged" {
		k.cfg.Log.Info("automatic host endpoint", "did", did, "key", a.seen.Key)
	}
	return nil
}
