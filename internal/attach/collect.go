package attach

import (
	"context"
	"errors"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
)

// Collect detaches a network's attachments on this node that are not among the valid ones. It touches
// only what the plugin made, and no container with a request under way.
func (s *Server) Collect(ctx context.Context, v wire.Valid) (struct{}, error) {
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
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if err != nil {
			continue // not written by us
		}
		w, ok := st.Resource.(*api.WorkloadEndpoint)
		if !ok || w.Spec.Node != s.cfg.Node || w.Metadata.Annotations[annotationNetwork] != v.Network || valid[w.Spec.ContainerID+" "+w.Spec.Endpoint] {
			continue
		}
		r := wire.Ref{Network: v.Network, ContainerID: w.Spec.ContainerID, Ifname: w.Spec.Endpoint}
		if w.Spec.Orchestrator == orchestratorKubernetes {
			r.Pod = &wire.Pod{Namespace: w.Metadata.Namespace, Name: w.Spec.Pod}
		}
		_, err = s.Detach(ctx, r)
		failed = append(failed, err)
	}
	prefix := v.Network + "."
	handles, err := s.cfg.Addresses.Handles(ctx, prefix)
	failed = append(failed, err)
	for _, h := range handles {
		container := strings.TrimPrefix(h, prefix)
		if containers[container] || s.attaching(container) {
			continue
		}
		failed = append(failed, s.cfg.Addresses.Release(ctx, h, nil))
	}
	return struct{}{}, errors.Join(failed...)
}

// attaching reports whether a request about a container is under way.
func (s *Server) attaching(container string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[container] > 0
}
