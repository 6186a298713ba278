package agent

import (
	"context"
	"errors"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// frozen is why nothing may be given back to the datastore, see [attach.Config]. Before all of it was received the datastore itself is asked: a
// container that goes while an agent starts is not to come between those who move it.
func (r *reporter) frozen(store datastore.Store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r.mu.Lock()
		synced, ready := r.synced, r.ready
		r.mu.Unlock()
		if synced {
			return ready.Why(), nil
		}
		u, err := resources.FindStored(ctx, store, resources.ClusterInfo)
		if errors.Is(err, datastore.ErrNotFound) {
			return ready.Why(), nil
		}
		if err != nil {
			return "", err
		}
		st, err := api.Admit(u)
		if info, ok := st.Resource.(*api.ClusterInformation); ok && err == nil {
			ready = ready.After(info)
		}
		return ready.Why(), nil
	}
}
