package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/resources"
)

// ErrFrozen means that nothing is made in a datastore that is locked, or may have been lost.
var ErrFrozen = errors.New("nothing is made in it")

// UnlessFrozen is fill, but [ErrFrozen] of a datastore that is locked, or that has nothing but Nodes while there are remains of a cluster on this host: agents
// and speakers that go on with these would take it for ready, and take them back. Nil: it is not lost. A host that was never in a cluster cannot know.
func UnlessFrozen(remains func() (bool, error), fill func(context.Context, datastore.Store) error) func(context.Context, datastore.Store) error {
	return func(ctx context.Context, store datastore.Store) error {
		is, err := readiness(ctx, store, remains)
		if err == nil && is.Frozen() {
			err = fmt.Errorf("%w: %s", ErrFrozen, is.Why())
		}
		if err != nil {
			return err
		}
		return fill(ctx, store)
	}
}

// readiness is by the rule by which agents and speakers stay as they are ([api.Blank]).
func readiness(ctx context.Context, store datastore.Store, remains func() (bool, error)) (api.Readiness, error) {
	if is, err := resources.Readiness(ctx, store, api.Blank); err != nil || is != api.Blank {
		return is, err
	}
	if remains == nil {
		return api.Unseen, nil
	}
	if has, err := remains(); err != nil || !has {
		return api.Unseen, err
	}
	for _, prefix := range []string{api.ResourcesPrefix, api.BlockPrefix} {
		snap, err := store.List(ctx, prefix)
		if err != nil {
			return api.Unseen, err
		}
		for _, u := range snap.Items {
			if ref, ok := api.ParseKey(u.Key); !ok || ref.Kind != api.KindNode {
				return api.Unseen, nil
			}
		}
	}
	return api.Gone, nil
}

// RoutesRemain reports whether an agent that ran before, ours or upstream's, left routes to workloads, of a protocol, in the kernel.
func RoutesRemain(protocol int) (bool, error) {
	h, err := rtnl.Open()
	if err != nil {
		return false, err
	}
	defer h.Close()
	routes, err := h.Routes(rtnl.RouteFilter{Protocol: protocol})
	return len(routes) > 0, err
}
