package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
)

// Claimant is an endpoint of this node that has an address.
type Claimant struct {
	Endpoint intent.EndpointID
	Link     string
	There    bool // the host has the interface
}

// checkFree refuses addresses that another endpoint of this node has: routes lead to one of them alone (decision 110). One without an interface that nobody
// attached here does not count: who may write a pod's annotations could keep others from their addresses.
func (s *Server) checkFree(ctx context.Context, w *api.WorkloadEndpoint, addrs []netip.Addr) error {
	if s.cfg.Claimants == nil {
		return nil
	}
	own := idOf(w)
	for _, addr := range addrs {
		for _, c := range s.cfg.Claimants(addr) {
			if c.Endpoint == own {
				continue
			}
			counts, err := s.counts(ctx, c, addr)
			if err != nil {
				return err
			}
			if counts {
				return &wire.Refusal{Reason: fmt.Sprintf("%s is that of WorkloadEndpoint %s/%s on this node, at interface %s: ask for another address, or detach that one", addr, c.Endpoint.Namespace, c.Endpoint.Name, c.Link)}
			}
		}
	}
	return nil
}

// claimed says of which addresses another endpoint of this node has the interface, whatever address management knows of them: the next that is free is
// assigned in the place of such a one.
func (s *Server) claimed(r wire.Request) func(netip.Addr) bool {
	w, err := s.endpoint(r, nil)
	if err != nil || s.cfg.Claimants == nil {
		return nil
	}
	own := idOf(w)
	return func(addr netip.Addr) bool {
		return slices.ContainsFunc(s.cfg.Claimants(addr), func(c Claimant) bool { return c.There && c.Endpoint != own })
	}
}

// counts reports whether a claimant keeps an address: its interface is there, or it was attached here and still has the address.
func (s *Server) counts(ctx context.Context, c Claimant, addr netip.Addr) (bool, error) {
	key, err := api.Ref{Kind: api.KindWorkloadEndpoint, Namespace: c.Endpoint.Namespace, Name: c.Endpoint.Name}.Key()
	if err != nil || c.There || s.derives(key) {
		return c.There, nil //nolint:nilerr // a name that the datastore cannot have was attached by nobody
	}
	have, err := s.stored(ctx, &api.WorkloadEndpoint{Object: api.Object{
		TypeMeta: api.TypeMeta{Kind: api.KindWorkloadEndpoint, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Namespace: c.Endpoint.Namespace, Name: c.Endpoint.Name},
	}})
	if errors.Is(err, datastore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	attached := network(have) != "" && have.Spec.ContainerID != "" && have.Spec.Node == s.cfg.Node
	return attached && slices.Contains(addrsOf(have), addr), nil
}
