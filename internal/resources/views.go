package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// views is a store that shows as resources what etcd holds below keys of its
// own: the configuration of address management, which can be changed, and
// affinities, which cannot.
type views struct{ datastore.Store }

// viewsTxn is views on a store with transactions, which know nothing of views.
type viewsTxn struct {
	views
	txn datastore.Transactional
}

func WithViews(s datastore.Store) datastore.Store {
	if t, ok := s.(datastore.Transactional); ok {
		return viewsTxn{views{s}, t}
	}
	return views{s}
}

// WithoutViews is the store below WithViews, for who reads and writes what is stored as it is.
func WithoutViews(s datastore.Store) datastore.Store {
	for {
		switch v := s.(type) {
		case views:
			return v.Store
		case viewsTxn:
			return v.Store
		case interface{ Unwrap() datastore.Store }:
			s = v.Unwrap()
		default:
			return s
		}
	}
}

// Unwrap is the store that has an order, if there is one.
func (v views) Unwrap() datastore.Store { return v.Store }

// Transact is part of datastore.Transactional.
func (v viewsTxn) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	return v.txn.Transact(ctx, t)
}

var (
	configurations   = api.KeyPrefix(api.KindIPAMConfiguration, "")
	TheConfiguration = configurations + api.IPAMConfigurationName
	affinities       = api.KeyPrefix(api.KindBlockAffinity, "")
)

// view is a stored value as a resource; false if it is not one of those shown under prefix.
func view(prefix string, u api.Update) (api.Update, bool) {
	var r api.Resource
	out := api.Update{Revision: u.Revision}
	if prefix == configurations {
		out.Key = TheConfiguration
		if u.Key != api.IPAMConfigKey || u.Value == nil {
			return out, u.Key == api.IPAMConfigKey
		}
		c, err := api.DecodeIPAMConfig(u)
		if err != nil {
			out.Value = u.Value // whoever reads it finds that it cannot be read
			return out, true
		}
		r = c.Resource()
	} else {
		a, ok := api.AffinityResource(u)
		if !ok {
			return out, false
		}
		out.Key = affinities + a.Metadata.Name
		if u.Value == nil {
			return out, true
		}
		r = a
	}
	out.Value, _ = api.EncodeStored(r) // it was just made
	return out, true
}

// viewedIn is where the values of a view are.
func viewedIn(prefix string) string {
	switch prefix {
	case configurations:
		return api.IPAMConfigKey
	case affinities:
		return api.IPAMPrefix
	}
	return ""
}

// List is part of datastore.Store.
func (v views) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	from := viewedIn(prefix)
	if from == "" {
		return v.Store.List(ctx, prefix)
	}
	snap, err := v.Store.List(ctx, from)
	out := datastore.Snapshot{Position: snap.Position}
	for _, u := range snap.Items {
		if shown, ok := view(prefix, u); ok {
			out.Items = append(out.Items, shown)
		}
	}
	return out, err
}

// Get is part of datastore.Store.
func (v views) Get(ctx context.Context, key string) (api.Update, error) {
	ref, ok := api.ParseKey(key)
	prefix := api.KeyPrefix(ref.Kind, "")
	if !ok || viewedIn(prefix) == "" {
		return v.Store.Get(ctx, key)
	}
	snap, err := v.List(ctx, prefix)
	if err != nil {
		return api.Update{}, err
	}
	for _, u := range snap.Items {
		if u.Key == key {
			return u, nil
		}
	}
	return api.Update{}, fmt.Errorf("get %s: %w", key, datastore.ErrNotFound)
}

// Watch is part of datastore.Store.
func (v views) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	from := viewedIn(prefix)
	if from == "" {
		return v.Store.Watch(ctx, prefix, after)
	}
	w, err := v.Store.Watch(ctx, from, after)
	if err != nil {
		return nil, err
	}
	return viewWatcher{w, prefix}, nil
}

type viewWatcher struct {
	datastore.Watcher
	prefix string
}

// Next is part of datastore.Watcher.
func (w viewWatcher) Next(ctx context.Context) (datastore.Changes, error) {
	got, err := w.Watcher.Next(ctx)
	out := datastore.Changes{Position: got.Position}
	for _, u := range got.Updates {
		if shown, ok := view(w.prefix, u); ok {
			out.Updates = append(out.Updates, shown)
		}
	}
	return out, err
}

// Create is part of datastore.Store.
func (v views) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := readOnly(kv.Key); err != nil {
		return api.Update{}, err
	}
	if kv.Key != TheConfiguration {
		return v.Store.Create(ctx, kv)
	}
	stored, err := configurationOf(kv, api.IPAMConfig{})
	if err == nil {
		stored, err = v.Store.Create(ctx, stored)
	}
	if err == nil {
		err = mirror(ctx, v.Store, stored)
	}
	return shownAs(stored, err)
}

// Update is part of datastore.Store.
func (v views) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := readOnly(kv.Key); err != nil {
		return api.Update{}, err
	}
	if kv.Key != TheConfiguration {
		return v.Store.Update(ctx, kv)
	}
	was, err := v.Store.Get(ctx, api.IPAMConfigKey)
	if err != nil {
		return api.Update{}, err
	}
	if !kv.Revision.IsZero() && kv.Revision != was.Revision {
		return api.Update{}, fmt.Errorf("update %s: %w", kv.Key, datastore.ErrConflict)
	}
	c, err := api.DecodeIPAMConfig(was)
	if err != nil {
		return api.Update{}, err
	}
	stored, err := configurationOf(kv, c)
	if stored.Revision = was.Revision; err == nil {
		stored, err = v.Store.Update(ctx, stored)
	}
	if err == nil {
		err = mirror(ctx, v.Store, stored)
	}
	return shownAs(stored, err)
}

// mirror makes the resource that calicoctl reads and writes in etcd say what the key says by which its address management, and
// ours, goes.
func mirror(ctx context.Context, s datastore.Store, stored api.Update) error {
	c, err := api.DecodeIPAMConfig(stored)
	if err != nil {
		return err
	}
	r := c.Resource()
	was, err := s.Get(ctx, TheConfiguration)
	if errors.Is(err, datastore.ErrNotFound) {
		_, err = CreateNew(ctx, s, r)
		return err
	}
	if err != nil {
		return err
	}
	_, err = mergeInto(ctx, s, was, r, "")
	return err
}

// Differing says how the resource that calicoctl wrote differs from the configuration that is in force; empty: it does not, or
// is not there. Nothing acts on that resource: upstream's IPAM goes by the key, too.
func Differing(ctx context.Context, s datastore.Store) string {
	snap, err := s.List(ctx, strings.TrimSuffix(configurations, "/")) // a view has the slash; this is what is stored
	c, err2 := ipam.ReadConfig(ctx, s)
	if err != nil || err2 != nil {
		return ""
	}
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if r, ok := st.Resource.(*api.IPAMConfiguration); err == nil && ok && u.Key == TheConfiguration && !sameAllocation(r.Spec, c.Resource().Spec) {
			return fmt.Sprintf("calicoctl wrote this resource, and no address management reads it, with strictAffinity %v, autoAllocateBlocks %v, maxBlocksPerHost %d; in force is strictAffinity %v, autoAllocateBlocks %v, maxBlocksPerHost %d; apply what is meant, and both will say it",
				r.Spec.StrictAffinity, r.Spec.AutoAllocateBlocks, r.Spec.MaxBlocksPerHost, c.StrictAffinity, c.AutoAllocateBlocks, c.MaxBlocksPerHost)
		}
	}
	return ""
}

// sameAllocation compares what both of upstream's forms have.
func sameAllocation(a, b api.IPAMConfigurationSpec) bool {
	return a.StrictAffinity == b.StrictAffinity && a.AutoAllocateBlocks == b.AutoAllocateBlocks && a.MaxBlocksPerHost == b.MaxBlocksPerHost
}

// Delete is part of datastore.Store.
func (v views) Delete(ctx context.Context, key string, revision api.Revision) error {
	if err := readOnly(key); err != nil {
		return err
	}
	if key != TheConfiguration {
		return v.Store.Delete(ctx, key, revision)
	}
	if err := v.Store.Delete(ctx, api.IPAMConfigKey, revision); err != nil {
		return err
	}
	if err := v.Store.Delete(ctx, key, api.Revision{}); !errors.Is(err, datastore.ErrNotFound) { // Kubernetes has one object of both
		return err
	}
	return nil
}

func readOnly(key string) error {
	if ref, ok := api.ParseKey(key); ok && ref.Kind == api.KindBlockAffinity {
		return errors.New("a BlockAffinity is a view of who has which block, and cannot be changed; twill ipam check --fix gives up blocks of nodes that are gone")
	}
	return nil
}

// configurationOf is what etcd holds for a resource; what another version wrote stays.
func configurationOf(kv api.Update, c api.IPAMConfig) (api.Update, error) {
	st, err := api.DecodeStored(kv)
	if err != nil {
		return api.Update{}, err
	}
	r, ok := st.Resource.(*api.IPAMConfiguration)
	if !ok {
		return api.Update{}, fmt.Errorf("%s: is no configuration", kv.Key)
	}
	if len(r.Metadata.Labels)+len(r.Metadata.Annotations) > 0 {
		return api.Update{}, errors.New("ipamconfiguration/default: etcd keeps no labels or annotations of it")
	}
	c.Set(r.Spec)
	value, err := json.Marshal(c)
	return api.Update{Key: api.IPAMConfigKey, Value: value}, err
}

func shownAs(stored api.Update, err error) (api.Update, error) {
	if err != nil {
		return api.Update{}, err
	}
	shown, _ := view(configurations, stored)
	return shown, nil
}
