package get

import (
	"context"

	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// realised says of each policy that is shown on how many nodes it is in force, by key; nil: no policy is shown, or no node says anything.
func realised(ctx context.Context, s datastore.Store, all []show.Found) map[string]string {
	if !show.AnyEnforced(all) {
		return nil
	}
	is, err := resources.Realised(ctx, s)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for key, r := range is {
		out[key] = r.String()
	}
	return out
}
