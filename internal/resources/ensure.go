package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Ensured is what a datastore needs so that upstream's tools work on it too: who
// the cluster is, and the tiers that we have anyway. What is there is left as it is.
func Ensured() []api.Resource {
	info, ready := NewCluster(), true
	info.Spec = api.ClusterInformationSpec{ClusterGUID: newGUID(), ClusterType: "twill", DatastoreReady: &ready}
	out := []api.Resource{info}
	for _, t := range []struct {
		name   string
		order  float64
		action api.Action
	}{{api.TierKubeAdmin, 1000, api.Pass}, {api.TierDefault, 1000000, api.Deny}, {api.TierKubeBaseline, 10000000, api.Pass}} {
		tier := api.New(api.KindTier).(*api.Tier)
		tier.Metadata.Name = t.name
		tier.Spec = api.TierSpec{Order: &t.order, DefaultAction: &t.action}
		out = append(out, tier)
	}
	return out
}

// Ensure writes what is missing. Nodes that do so at once do not disturb each other. Where nothing is missing, nothing is tried: etcd
// refuses the attempt to who may not write these, though it would change nothing. What the datastore can do without comes back as
// left, each with why it is not there: tiers, which agents have anyway, where they may not be read or written, or where a cluster of an older version has no such kind.
func Ensure(ctx context.Context, store datastore.Store) (left []error, err error) {
	for _, r := range Ensured() {
		_, e := CreateMissing(ctx, store, r)
		switch {
		case e == nil:
		case r.Type().Kind == api.KindTier && !Passes(e) && ctx.Err() == nil:
			left = append(left, fmt.Errorf("Tier %s: %w", r.Meta().Name, e))
		default:
			return left, notReady(e)
		}
	}
	return left, nil
}

// Passes reports whether an error of a store goes away by itself, so that the same is to be tried again.
func Passes(err error) bool {
	for _, kind := range []error{datastore.ErrExists, datastore.ErrConflict, datastore.ErrCompacted, datastore.ErrUnavailable, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func notReady(err error) error { return fmt.Errorf("make the datastore ready for use: %w", err) }

func ensure(ctx context.Context, store datastore.Store, rs []api.Resource) error {
	for _, r := range rs {
		if _, err := CreateMissing(ctx, store, r); err != nil {
			return notReady(err)
		}
	}
	return nil
}

// EnsureReady writes a ClusterInformation that says that the datastore is ready, if there is none: who rebuilt a datastore that was lost
// says so, since until then agents that knew one leave everything as it is.
func EnsureReady(ctx context.Context, store datastore.Store) error {
	return ensure(ctx, store, Ensured()[:1])
}

// NewCluster is a ClusterInformation that says nothing yet.
func NewCluster() *api.ClusterInformation {
	info := api.New(api.KindClusterInformation).(*api.ClusterInformation)
	info.Metadata.Name = ClusterInfo.Name
	return info
}

func newGUID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

// EnsureWith comes with any write of a user's: upstream's agent waits for ever for a ClusterInformation, and for its
// datastoreReady, whoever fills the datastore. That it cannot be made is no fault of the write: as with upstream's tools, a user
// may be allowed to write some kinds only.
func EnsureWith(ctx context.Context, s datastore.Store, log *slog.Logger) {
	ensureWith(ctx, s, Ensured(), log)
}

// EnsureBare is EnsureWith under calicoctl's name: the cluster is of no type until a node says which.
func EnsureBare(ctx context.Context, s datastore.Store, log *slog.Logger) {
	rs := Ensured()
	for _, r := range rs {
		if info, ok := r.(*api.ClusterInformation); ok {
			info.Spec.ClusterType = ""
		}
	}
	ensureWith(ctx, s, rs, log)
}

func ensureWith(ctx context.Context, s datastore.Store, rs []api.Resource, log *slog.Logger) {
	u, err := FindStored(ctx, s, ClusterInfo)
	switch info, ok := decoded(u).(*api.ClusterInformation); {
	case errors.Is(err, datastore.ErrNotFound):
		err = ensure(ctx, s, rs)
	case err == nil && ok && (info.Spec.ClusterGUID == "" || info.Spec.DatastoreReady == nil):
		_, err = Rewriting(ctx, s, Rewrite{ClusterInfo, "", withDefaults(info)})
	}
	if err != nil {
		log.Debug("make what upstream's agents wait for", "err", err)
	}
}

// decoded is the resource of a stored value; nil if it cannot be read.
func decoded(u api.Update) api.Resource {
	st, err := api.DecodeStored(u)
	if err != nil {
		return nil
	}
	return st.Resource
}

// withDefaults fills in what upstream's tools fill in.
func withDefaults(info *api.ClusterInformation) func(any) (any, error) {
	spec := map[string]any{}
	if info.Spec.ClusterGUID == "" {
		spec["clusterGUID"] = newGUID()
	}
	if info.Spec.DatastoreReady == nil {
		spec["datastoreReady"] = true
	}
	return func(doc any) (any, error) { return MergePatch(doc, map[string]any{"spec": spec}), nil }
}

// ClusterInfo is the one ClusterInformation that counts.
var ClusterInfo = api.Ref{Kind: api.KindClusterInformation, Name: "default"}

// Readiness is what a datastore says of itself now, by its own ClusterInformation default, to somebody who saw before of it so far.
func Readiness(ctx context.Context, s datastore.Store, before api.Readiness) (api.Readiness, error) {
	u, err := FindStored(ctx, s, ClusterInfo)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return before.After(nil), nil
	case err != nil:
		return before, err
	}
	return before.AfterUpdate(u), nil
}

// AddClusterTypes adds to what ClusterInformation says of the cluster, in its list with commas, as upstream's nodes do. What is there stays.
func AddClusterTypes(ctx context.Context, s datastore.Store, types []string) error {
	if len(types) == 0 {
		return nil
	}
	_, err := Rewriting(ctx, s, Rewrite{ClusterInfo, "", func(doc any) (any, error) {
		is, _ := doc.(map[string]any)
		spec, _ := is["spec"].(map[string]any)
		text, _ := spec["clusterType"].(string)
		all := strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
		for _, t := range types {
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
		return MergePatch(doc, map[string]any{"spec": map[string]any{"clusterType": strings.Join(all, ",")}}), nil
	}})
	if err != nil {
		return fmt.Errorf("say of which type the cluster is: %w", err)
	}
	return nil
}
