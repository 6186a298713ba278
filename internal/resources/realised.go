package resources

import (
	"context"
	"errors"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/status"
)

// Enforced are the kinds of policies of which each agent says which version is in force.
var Enforced = []string{api.KindNetworkPolicy, api.KindGlobalNetworkPolicy}

// ErrNobodySays is returned where no agent has ever said which policies are in force.
var ErrNobodySays = errors.New("no agent has said which policies are in force: does one run? See twill status")

// Realised says of all policies that are stored, by key, on which nodes they are in force in their present version. The nodes are asked after the policies are
// read: what became newer since counts as not in force.
func Realised(ctx context.Context, s datastore.Store) (map[string]status.Realised, error) {
	var policies []api.Update
	for _, kind := range Enforced {
		all, err := s.List(ctx, api.KeyPrefix(kind, ""))
		if err != nil {
			return nil, err
		}
		policies = append(policies, all.Items...)
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
