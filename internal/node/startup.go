package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// Fill makes a datastore ready for use: who the cluster is, and of which type (CLUSTER_TYPE), tiers, and the pools that the
// environment names. What is there stays, so that any number of nodes may do so at once.
func Fill(log *slog.Logger) func(context.Context, datastore.Store) error {
	return func(ctx context.Context, store datastore.Store) error {
		left, err := resources.Ensure(ctx, store)
		err = errors.Join(err, addTypes(ctx, store, clusterTypes(), log), EnsurePools(ctx, store, Pools{}))
		return goOn(log, left, err)
	}
}

// goOn says what is not made, once all else is: what fails is tried again, and the log need not have it each time.
func goOn(log *slog.Logger, left []error, err error) error {
	if err != nil {
		return err
	}
	for _, e := range left {
		log.Warn("a default is not made, and agents do without it", "err", e)
	}
	return nil
}

// addTypes says of which type the cluster is. Who may not write it leaves it to those who may: a host's own role in etcd is one (docs/etcd.md).
func addTypes(ctx context.Context, store datastore.Store, types []string, log *slog.Logger) error {
	err := resources.AddClusterTypes(ctx, store, types)
	if errors.Is(err, datastore.ErrUnauthorized) {
		log.Warn("CLUSTER_TYPE is not added", "err", err)
		return nil
	}
	return err
}

// clusterTypes are what the environment says of the cluster.
func clusterTypes() (out []string) {
	for _, t := range strings.Split(os.Getenv("CLUSTER_TYPE"), ",") {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	return out
}

// Startup makes what upstream's node makes when it starts: what [Fill] makes, pools that nobody named, and resources with the settings in which upstream's
// node differs from its agent's defaults. What is there stays as it is, but that a FelixConfiguration is given fields which it has not.
type Startup struct {
	Node    string
	Pools   Pools // but for Subnets and Unasked, which follow
	PerNode bool  // the datastore is to have settings of this node, as upstream's etcd has and its Kubernetes has not
	// Datastore is what clusterType says of the datastore, after all else: kdd, where it is Kubernetes' API. Empty: nothing.
	Datastore string
	// Kubernetes reads what else knows of the cluster. Nil: nothing does.
	Kubernetes func(context.Context) (Kubernetes, error)
	Log        *slog.Logger
}

// Kubernetes is what the installer of a cluster left there.
type Kubernetes struct {
	Types   []string       // kubeadm, rancher
	Subnets []netip.Prefix // of pods
}

// Fill makes all of that.
func (s Startup) Fill(ctx context.Context, store datastore.Store) error {
	var k Kubernetes
	if s.Kubernetes != nil {
		var err error
		if k, err = s.Kubernetes(ctx); err != nil {
			return err
		}
	}
	pools := s.Pools
	pools.Unasked, pools.Subnets = true, k.Subnets
	err := EnsurePools(ctx, store, pools)
	if errors.Is(err, errNoneFree) || errors.Is(err, errRefused) { // it does not go away by itself
		s.Log.Error("no pool is made", "err", err)
		err = nil
	}
	left, ready := resources.Ensure(ctx, store)
	types := append(clusterTypes(), k.Types...)
	if s.Datastore != "" {
		types = append(types, s.Datastore)
	}
	err = errors.Join(ready, addTypes(ctx, store, types, s.Log), err)
	for _, ensure := range []func(context.Context, datastore.Store) error{s.settings, s.ownSettings, s.bgp, s.ipam} {
		switch e := ensure(ctx, store); {
		case errors.Is(e, datastore.ErrUnauthorized): // upstream's older manifests do not let a node write all of these
			left = append(left, e)
		default:
			err = errors.Join(err, e)
		}
	}
	return goOn(s.Log, left, err)
}

// ofNode is what upstream's node sets for all agents, where nobody has said it.
var ofNode = map[string]any{"reportingInterval": "0s", "logSeverityScreen": "Info"}

// settings makes the FelixConfiguration of all.
func (s Startup) settings(ctx context.Context, store datastore.Store) error {
	return s.felix(ctx, store, "default", ofNode)
}

// ownSettings lets workloads of this node reach it, as upstream's node does. If a FelixConfiguration of all or of some says what is to
// be, it is left at that: this one would have precedence, and open what an administrator closed.
func (s Startup) ownSettings(ctx context.Context, store datastore.Store) error {
	if !s.PerNode {
		return nil
	}
	snap, err := store.List(ctx, api.KeyPrefix(api.KindFelixConfiguration, ""))
	if err != nil {
		return err
	}
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		f, ok := st.Resource.(*api.FelixConfiguration)
		switch {
		case err != nil || !ok: // whatever it says
			return nil
		case !strings.HasPrefix(st.Ref.Name, "node.") && f.Spec.DefaultEndpointToHostAction != "":
			return nil
		}
	}
	return s.felix(ctx, store, "node."+s.Node, map[string]any{"defaultEndpointToHostAction": "Return"})
}

// felix makes a FelixConfiguration with some fields, or gives them to the one that is there, as far as it has them not.
func (s Startup) felix(ctx context.Context, store datastore.Store, name string, fields map[string]any) error {
	r := api.New(api.KindFelixConfiguration).(*api.FelixConfiguration)
	r.Metadata.Name = name
	key, err := api.Key(r)
	if err != nil {
		return err
	}
	if _, err := store.Get(ctx, key); errors.Is(err, datastore.ErrNotFound) {
		if _, err = resources.CreateNew(ctx, store, r); err != nil && !errors.Is(err, datastore.ErrExists) {
			return fmt.Errorf("make FelixConfiguration %s: %w", name, err)
		}
	} else if err != nil {
		return err
	}
	_, err = resources.Rewriting(ctx, store, resources.Rewrite{Ref: api.RefOf(r), Edit: func(doc any) (any, error) {
		spec := map[string]any{}
		is, _ := doc.(map[string]any)
		has, _ := is["spec"].(map[string]any)
		for field, value := range fields {
			if has[field] == nil {
				spec[field] = value
			}
		}
		return resources.MergePatch(doc, map[string]any{"spec": spec}), nil
	}})
	if err != nil {
		return fmt.Errorf("FelixConfiguration %s is not given %s: %w", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "), err)
	}
	return nil
}

func (s Startup) bgp(ctx context.Context, store datastore.Store) error {
	r := api.New(api.KindBGPConfiguration).(*api.BGPConfiguration)
	r.Metadata.Name = "default"
	return missing(ctx, store, r)
}

func (s Startup) ipam(ctx context.Context, store datastore.Store) error {
	c := api.DefaultIPAMConfig()
	c.MachinePersistence = api.PersistenceEnabled
	return missing(ctx, resources.WithViews(store), c.Resource())
}

func missing(ctx context.Context, store datastore.Store, r api.Resource) error {
	if _, err := resources.CreateMissing(ctx, store, r); err != nil {
		return fmt.Errorf("make %s %s: %w", r.Type().Kind, r.Meta().Name, err)
	}
	return nil
}
