// Package upkeep writes what a node itself keeps in the datastore: its automatic host endpoints.
//
// In: what the datastore says of nodes, host endpoints and controllers, as the agent hears it. Out: the host endpoints that
// package autohep wants for this node are created, changed and deleted; those of other nodes, and those without the label
// of automatic ones, never are.
//
// Each write is for the revision that was heard of, so that nobody else's is lost. What cannot be written is tried again for
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
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/autohep"
	"github.com/twillnet/twill/internal/datastore"
)

const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// Config of a Keeper.
type Config struct {
	Node  string
	Store datastore.Store
	Log   *slog.Logger
}

// Keeper keeps the host endpoints of one node. Any goroutine may use it.
type Keeper struct {
	cfg  Config
	wake chan struct{}

	mu     sync.Mutex
	synced bool
	frozen bool // the datastore says that it is not ready
	held   bool // the configuration is there, and cannot be read
	wanted api.AutoHostEndpoints
	node   *api.Node
	hosts  map[string]host // host endpoints of this node, by key

	told string // what the log last said is wrong; Run's alone
}

// host is a host endpoint as it is stored.
type host struct {
	stored api.Update
	made   bool // automatically
}

// New returns a Keeper, which writes nothing until Run.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), hosts: map[string]host{}}
}

// Update takes in changes of the datastore; inSync once all that exists is in.
func (k *Keeper) Update(us []api.Update, inSync bool) {
	k.mu.Lock()
	changed := inSync && !k.synced
	k.synced = k.synced || inSync
	for _, u := range us {
		changed = k.update(u) || changed
	}
	k.mu.Unlock()
	k.rouse(changed)
}

func (k *Keeper) rouse(changed bool) {
	if !changed {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// update reports whether a change concerns this node's host endpoints. A value that is not JSON changes nothing.
func (k *Keeper) update(u api.Update) bool {
	ref, ok := api.ParseKey(u.Key)
	if !ok {
		return false
	}
	switch {
	case ref.Kind == api.KindHostEndpoint:
	case ref.Kind == api.KindNode && ref.Name == k.cfg.Node:
	case (ref.Kind == api.KindKubeControllersConfiguration || ref.Kind == api.KindClusterInformation) && ref.Name == "default":
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
	case *api.ClusterInformation:
		k.frozen = r.Spec.DatastoreReady != nil && !*r.Spec.DatastoreReady
	case *api.HostEndpoint:
		return k.host(u, r)
	default:
		k.gone(u.Key, ref.Kind)
	}
	return true
}

func (k *Keeper) gone(key, kind string) {
	switch kind {
	case api.KindNode:
		k.node = nil
	case api.KindKubeControllersConfiguration:
		k.held, k.wanted = false, api.AutoHostEndpoints{}
	case api.KindClusterInformation:
		k.frozen = false
	default:
		delete(k.hosts, key)
	}
}

func (k *Keeper) host(u api.Update, h *api.HostEndpoint) bool {
	if h.Spec.Node != k.cfg.Node {
		_, had := k.hosts[u.Key]
		delete(k.hosts, u.Key)
		return had
	}
	k.hosts[u.Key] = host{stored: u, made: autohep.Made(h)}
	return true
}

// Run writes until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	wait := minRetry
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.wake:
		case <-retry.C:
		}
		actions, err := k.plan()
		failed := false
		for _, a := range actions {
			if a.what == "delete" && failed {
				break // what is to go may still be all that protects the host
			}
			aerr := k.do(ctx, a)
			failed = failed || aerr != nil
			err = errors.Join(err, aerr)
		}
		k.tell(err)
		if !failed {
			retry.Stop()
			wait = minRetry
			continue
		}
		retry.Reset(wait)
		wait = min(2*wait, maxRetry)
	}
}

// tell logs what is wrong once, and again when it has changed.
func (k *Keeper) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.told {
		k.cfg.Log.Warn("automatic host endpoints", "err", err)
	}
	k.told = text
}

// action is one write.
type action struct {
	what     string     // create, update, delete
	kv       api.Update // Value is nil to delete; Revision is the one that it is for
	endpoint *api.HostEndpoint
}

// plan says what there is to write. What is to go comes last: one host endpoint may take the place of another, and the host
// must not be open in between.
func (k *Keeper) plan() ([]action, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.synced || k.frozen || k.held {
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
		if !there {
			out = append(out, action{what: "create", kv: api.Update{Key: key}, endpoint: byKey[key]})
			continue
		}
		if !is.made {
			err = errors.Join(err, fmt.Errorf("%s exists, without the label %s=%s: it is left as it is", key, api.LabelCreatedBy, api.CreatedByControllers))
			continue
		}
		value, merr := api.MergeRaw(is.stored.Value, byKey[key])
		if merr == nil && !bytes.Equal(value, is.stored.Value) {
			out = append(out, action{what: "update", kv: api.Update{Key: key, Value: value, Revision: is.stored.Revision}})
		}
		err = errors.Join(err, merr)
	}
	for _, key := range slices.Sorted(maps.Keys(k.hosts)) {
		if is := k.hosts[key]; is.made && byKey[key] == nil {
			out = append(out, action{what: "delete", kv: api.Update{Key: key, Revision: is.stored.Revision}})
		}
	}
	return out, err
}

// do writes, and takes note of what is stored then: it will be heard of, but perhaps after the next plan.
func (k *Keeper) do(ctx context.Context, a action) error {
	now, err := k.write(ctx, a)
	if err != nil {
		return fmt.Errorf("%s %s: %w", a.what, a.kv.Key, err)
	}
	k.cfg.Log.Info("automatic host endpoint", "did", a.what, "key", a.kv.Key)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch is := k.hosts[a.kv.Key]; {
	case a.what == "delete" && is.stored.Revision == a.kv.Revision:
		delete(k.hosts, a.kv.Key)
	case a.what != "delete" && is.stored.Revision == a.kv.Revision: // else it was heard of, or somebody wrote since
		k.hosts[a.kv.Key] = host{stored: now, made: true}
	}
	return nil
}

func (k *Keeper) write(ctx context.Context, a action) (api.Update, error) {
	switch a.what {
	case "delete":
		err := k.cfg.Store.Delete(ctx, a.kv.Key, a.kv.Revision)
		if errors.Is(err, datastore.ErrNotFound) {
			err = nil
		}
		return api.Update{}, err
	case "update":
		return k.cfg.Store.Update(ctx, a.kv)
	}
	api.Prepare(a.endpoint, uuid.NewString(), time.Now().UTC().Format(time.RFC3339))
	value, err := api.EncodeStored(a.endpoint)
	if err != nil {
		return api.Update{}, err
	}
	a.kv.Value = value
	return k.cfg.Store.Create(ctx, a.kv)
}
