package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/ipam"
)

// ofDocker makes an endpoint one of Docker's, as upstream names it.
func ofDocker(w *api.WorkloadEndpoint, r wire.Request) {
	w.Spec.Orchestrator, w.Spec.Workload, w.Spec.Endpoint = orchestratorDocker, orchestratorDocker, r.ContainerID
	if r.Profile == "" {
		w.Spec.Profiles = nil
	}
}

// ifnameOf is the interface in the Ref of an endpoint's attachment.
func ifnameOf(w *api.WorkloadEndpoint) string {
	if w.Spec.Orchestrator == orchestratorDocker {
		return wire.FirstInterface
	}
	return w.Spec.Endpoint
}

// Pool refuses a prefix that is not that of a pool.
func (s *Server) Pool(ctx context.Context, q wire.Pool) (struct{}, error) {
	if err := s.ready(); err != nil {
		return struct{}{}, err
	}
	snap, err := s.cfg.Store.List(ctx, api.KeyPrefix(api.KindIPPool, ""))
	if err != nil {
		return struct{}{}, err
	}
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if err != nil {
			continue // it gives nobody an address
		}
		p, ok := st.Resource.(*api.IPPool)
		if !ok {
			continue
		}
		if cidr, err := netip.ParsePrefix(p.Spec.CIDR); err == nil && cidr.Masked() == q.CIDR.Masked() {
			return struct{}{}, nil // whether it gives this node addresses is said when one is asked for
		}
	}
	return struct{}{}, &wire.Refusal{Reason: fmt.Sprintf("no IPPool has the cidr %s: make one, or name that of another (twill get ippools)", q.CIDR)}
}

// Free releases addresses of Docker's on this node. Those that are not, or not any more, stay as they are: Docker asks again for what it did not
// see answered.
func (s *Server) Free(ctx context.Context, q wire.Addresses) (struct{}, error) {
	var failed []error
	for _, addr := range q.Addrs {
		failed = append(failed, s.free(ctx, q.Network, addr))
	}
	return struct{}{}, errors.Join(failed...)
}

func (s *Server) free(ctx context.Context, network string, addr netip.Addr) error {
	l, err := s.cfg.Addresses.QueryIP(ctx, addr)
	if err != nil || !l.Assigned {
		return err
	}
	if l.Owner[api.AttributeNote] != ipam.NoteDocker || l.Owner[api.AttributeNode] != s.cfg.Node || l.Owner[api.AttributeNetwork] != network {
		s.cfg.Log.Warn("Docker gave back an address that is not its own: it stays assigned", "address", addr, "handle", l.Handle)
		return nil
	}
	return s.cfg.Addresses.Free(ctx, []ipam.Lease{l})
}
