package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
)

// derives reports whether the datastore makes an endpoint of something else, such as a pod.
func (s *Server) derives(key string) bool {
	d, ok := s.cfg.Store.(datastore.Deriving)
	return ok && d.Derives(key)
}

// derived are the updates of an endpoint as the datastore made it, and of its profiles: the watch may not have brought those of a namespace or an
// account that is as new as the pod. If it has other networks than it was given, the Kernel gives it those.
func (s *Server) derived(ctx context.Context, r wire.Request, now api.Update, networks []string) ([]api.Update, error) {
	st, err := api.DecodeStored(now)
	if err != nil {
		return nil, err
	}
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if !ok {
		return nil, fmt.Errorf("%s: is no endpoint", now.Key)
	}
	if w.Spec.InterfaceName != r.Link {
		return nil, &wire.Refusal{Reason: fmt.Sprintf("the datastore says that the host's end of this link is %s, not %s", w.Spec.InterfaceName, r.Link)}
	}
	if slices.ContainsFunc(networks, func(n string) bool { return !slices.Contains(w.Spec.IPNetworks, n) }) {
		s.give(now.Key, Given{Container: r.ContainerID, Networks: networks, Instead: w.Spec.IPNetworks})
	}
	us := []api.Update{now}
	for _, profile := range w.Spec.Profiles {
		key, err := api.Ref{Kind: api.KindProfile, Name: profile}.Key()
		if err == nil {
			err = s.know(ctx, key)
		}
		if err != nil {
			return nil, err
		}
		u, err := s.cfg.Store.Get(ctx, key)
		if errors.Is(err, datastore.ErrNotFound) {
			continue // it is closed until there is one
		}
		if err != nil {
			return nil, err
		}
		us = append(us, u)
	}
	return us, nil
}
