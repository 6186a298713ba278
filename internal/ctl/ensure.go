package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// ensured is what a datastore needs so that upstream's tools work on it too: who
// the cluster is, and the tiers that we have anyway. What is there is left as it is.
func ensured() []api.Resource {
	ready := true
	info := api.New(api.KindClusterInformation).(*api.ClusterInformation)
	info.Metadata.Name = "default"
	info.Spec = api.ClusterInformationSpec{ClusterGUID: strings.ReplaceAll(uuid.NewString(), "-", ""), ClusterType: "twill", DatastoreReady: &ready}
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

// ensure writes what is missing. Nodes that do so at once do not disturb each other.
func ensure(ctx context.Context, store datastore.Store) error {
	for _, r := range ensured() {
		if _, err := createNew(ctx, store, r); err != nil && !errors.Is(err, datastore.ErrExists) {
			return fmt.Errorf("make the datastore ready for use: %w", err)
		}
	}
	return nil
}
