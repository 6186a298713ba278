package resources

import (
	"context"
	"errors"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/status"
)

// PolicyKinds are the kinds of policies of which each agent says which version is in force: that it decides, or of a staged one, that it is judged.
var PolicyKinds = []string{
	api.KindNetworkPolicy, api.KindGlobalNetworkPolicy, api.KindStagedNetworkPolicy, api.KindStagedGlobalNetworkPolicy, api.KindStagedKubernetesNetworkPolicy,
}

// PolicyPrefixes are those of their keys.
func PolicyPrefixes() (out []string) {
	for _, kind := range PolicyKinds {
		out = append(out, api.KeyPrefix(kind, ""))
	}
	return out
}

// ErrNobodySays is returned where no agent has ever said which policies are in force.
var ErrNobodySays = errors.New("no agent has said which policies are in force: does one run? See twill status")

// Realised says of all policies that are stored, by key, on which nodes they are in force in their present version. The nodes are asked after the policies are
// read: what became newer since counts as not in force.
func Realised(ctx context.Context, s datastore.Store) (map[string]status.Realised, error) {
	var policies []status.Version
	for _, prefix := range PolicyPrefixes() {
		all, err := s.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		policies = append(policies, status.VersionsOf(all.Items)...)
	}
	nodes, err := status.Nodes(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Summary != nil {
			return status.RealisedOn(nodes, policies), nil
		}
	}
	return nil, ErrNobodySays
}
