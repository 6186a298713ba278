package attach

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
)

// PodCIDRs returns the prefixes that Kubernetes gave to this node for its pods, for another IPAM plugin.
func (s *Server) PodCIDRs(ctx context.Context, _ wire.Ref) (out wire.PodCIDRs, err error) {
	if err := s.ready(); err != nil {
		return out, err
	}
	key, err := api.Ref{Kind: api.KindNode, Name: s.cfg.Node}.Key()
	if err != nil {
		return out, err
	}
	u, err := s.cfg.Store.Get(ctx, key)
	if err != nil {
		return out, fmt.Errorf("the prefixes of node %s: %w", s.cfg.Node, err)
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return out, fmt.Errorf("the prefixes of node %s: %w", s.cfg.Node, err)
	}
	n, ok := st.Resource.(*api.Node)
	if !ok || len(n.Status.PodCIDRs) == 0 {
		return out, &wire.Refusal{Reason: fmt.Sprintf("node %s has no prefix of its own for pods (spec.podCIDRs), which the network's configuration asks for by usePodCidr: have kube-controller-manager give it one (--allocate-node-cidrs)", s.cfg.Node), Later: true}
	}
	for _, text := range n.Status.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		into := &out.V6
		if p.Addr().Is4() {
			into = &out.V4
		}
		if err != nil || into.IsValid() {
			return out, &wire.Refusal{Reason: fmt.Sprintf("node %s has %q in spec.podCIDRs: want at most one prefix of each family", s.cfg.Node, n.Status.PodCIDRs)}
		}
		*into = p.Masked()
	}
	return out, nil
}
