package attach

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
)

// Collect detaches a network's attachments on this node that are not among the valid ones. It touches
// only what the plugin made, and no container with a request under way. Of Docker's it takes those of all networks, and addresses.
func (s *Server) Collect(ctx context.Context, v wire.Valid) (struct{}, error) {
	if _, err := s.giveBack(ctx, nil); err != nil {
		return struct{}{}, err
	}
	valid, containers := map[string]bool{}, map[string]bool{}
	for _, r := range v.Refs {
		valid[r.ContainerID+" "+r.Ifname] = true
		containers[r.ContainerID] = true
	}
	snap, err := s.cfg.Store.List(ctx, api.ResourcesPrefix+"workloadendpoints/")
	if err != nil {
		return struct{}{}, err
	}
	var failed []error
	var stay []netip.Addr
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if err != nil {
			continue // not written by us
		}
		w, ok := st.Resource.(*api.WorkloadEndpoint)
		if !ok || w.Spec.Node != s.cfg.Node || !collects(v, w) || valid[w.Spec.ContainerID+" "+ifnameOf(w)] {
			continue
		}
		r := wire.Ref{Network: network(w), ContainerID: w.Spec.ContainerID, Ifname: ifnameOf(w), Docker: w.Spec.Orchestrator == orchestratorDocker}
		if w.Spec.Orchestrator == orchestratorKubernetes {
			r.Pod = &wire.Pod{Namespace: w.Metadata.Namespace, Name: w.Spec.Pod}
		}
		if _, err = s.Detach(ctx, r); err != nil {
			failed, stay = append(failed, err), append(stay, addrsOf(w)...)
		}
	}
	if v.Docker {
		return struct{}{}, errors.Join(append(failed, s.collectDockers(ctx, v))...)
	}
	failed = append(failed, s.collectAddresses(ctx, v.Network, stay, func(r wire.Ref) bool {
		return r.Ifname == "" && containers[r.ContainerID] || valid[r.ContainerID+" "+r.Ifname] || s.attaching(r.ContainerID)
	}))
	return struct{}{}, errors.Join(failed...)
}

// collectAddresses releases addresses of a network on this node but for those that stay, and those of attachments that are kept.
func (s *Server) collectAddresses(ctx context.Context, network string, stay []netip.Addr, kept func(wire.Ref) bool) error {
	leases, err := s.cfg.Addresses.OfNetwork(ctx, network)
	if err != nil {
		return err
	}
	was := map[string]map[netip.Addr]map[string]string{} // attributes by handle and address
	for _, l := range leases {
		r, known := attachmentOf(network, l)
		if !known || kept(r) || slices.Contains(stay, l.Addr) {
			continue
		}
		if was[l.Handle] == nil {
			was[l.Handle] = map[netip.Addr]map[string]string{}
		}
		was[l.Handle][l.Addr] = l.Owner
	}
	var failed []error
	for _, handle := range slices.Sorted(maps.Keys(was)) {
		failed = append(failed, s.cfg.Addresses.Release(ctx, handle, func(addr netip.Addr, attributes map[string]string) bool {
			had, there := was[handle][addr]
			return there && maps.Equal(had, attributes) // else it was given out again
		}))
	}
	return errors.Join(failed...)
}

// attaching reports whether a request about a container is under way.
func (s *Server) attaching(container string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[container] > 0
}
