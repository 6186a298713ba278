package agent

import (
	"context"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// frozen is whether nothing may be given back to the datastore, see [attach.Config]. Before all of it was received the datastore itself is asked: a
// container that goes while an agent starts is not to come between those who move it.
func (r *reporter) frozen(store datastore.Store) func(context.Context) (api.Readiness, error) {
	return func(ctx context.Context) (api.Readiness, error) {
		r.mu.Lock()
		synced, ready := r.synced, r.ready
		r.mu.Unlock()
		if synced {
			return ready, nil
		}
		return resources.Readiness(ctx, store, ready)
	}
}
