package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
)

const (
	orchestratorKubernetes = "k8s"
	orchestratorCNI        = "cni"
	defaultNamespace       = "default" // of endpoints outside Kubernetes
	annotationNetwork      = "twill.net/cni-network"
)

// handle is under which an attachment's addresses are; upstream makes the same.
func handle(r wire.Ref) string { return r.Network + "." + r.ContainerID }

// about is what is kept with an address, so that it can be told who has it.
func about(node string, r wire.Request) map[string]string {
	out := map[string]string{api.AttributeNode: node}
	if r.Pod != nil {
		out[api.AttributeNamespace], out[api.AttributePod] = r.Pod.Namespace, r.Pod.Name
	}
	return out
}

// endpoint is the WorkloadEndpoint of a request.
func (s *Server) endpoint(r wire.Request, addrs []netip.Addr) (*api.WorkloadEndpoint, error) {
	w := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{
		Orchestrator: orchestratorCNI, Node: s.cfg.Node, ContainerID: r.ContainerID, Endpoint: r.Ifname,
		InterfaceName: r.Link, MAC: r.MAC, Profiles: []string{r.Network},
	}}
	namespace, labels := defaultNamespace, maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if r.Pod != nil {
		const account = "default"
		namespace = r.Pod.Namespace
		w.Spec.Orchestrator, w.Spec.Pod, w.Spec.ServiceAccountName = orchestratorKubernetes, r.Pod.Name, account
		w.Spec.Profiles = []string{"kns." + namespace, "ksa." + namespace + "." + account}
		labels[api.LabelServiceAccount] = account
	}
	labels[api.LabelNamespace], labels[api.LabelOrchestrator] = namespace, w.Spec.Orchestrator
	for _, a := range addrs {
		w.Spec.IPNetworks = append(w.Spec.IPNetworks, netip.PrefixFrom(a, a.BitLen()).String())
	}
	name, err := api.WorkloadEndpointName(w.Spec)
	if err != nil {
		return nil, err
	}
	w.TypeMeta = api.TypeMeta{Kind: api.KindWorkloadEndpoint, APIVersion: api.GroupVersion}
	w.Metadata = api.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, Annotations: map[string]string{annotationNetwork: r.Network}}
	if r.Link == "" {
		return w, nil // it only says which one is meant
	}
	return w, api.Validate(w).Err()
}

// stored is what the datastore has under an endpoint's name.
func (s *Server) stored(ctx context.Context, w *api.WorkloadEndpoint) (*api.WorkloadEndpoint, api.Update, error) {
	key, err := api.Key(w)
	if err != nil {
		return nil, api.Update{}, err
	}
	u, err := s.cfg.Store.Get(ctx, key)
	if err != nil {
		return nil, u, err
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return nil, u, fmt.Errorf("%s: %w", key, err)
	}
	return st.Resource.(*api.WorkloadEndpoint), u, nil
}

// write puts an endpoint into the datastore, and the profile that it needs; old is the handle of whom it replaces.
func (s *Server) write(ctx context.Context, r wire.Request, w *api.WorkloadEndpoint) (us []api.Update, old string, err error) {
	if r.Pod == nil {
		if us, err = s.profile(ctx, r.Network); err != nil {
			return nil, "", err
		}
	}
	kv, err := encode(w)
	if err != nil {
		return nil, "", err
	}
	for range 5 {
		had, was, err := s.stored(ctx, w)
		var now api.Update
		switch {
		case errors.Is(err, datastore.ErrNotFound):
			now, err = s.cfg.Store.Create(ctx, kv)
		case was.Value == nil:
			return nil, "", err
		default: // also one that cannot be read
			if had != nil {
				old = handle(wire.Ref{Network: r.Network, ContainerID: had.Spec.ContainerID})
			}
			next := kv
			next.Revision = was.Revision
			now, err = s.cfg.Store.Update(ctx, next)
		}
		if err == nil {
			return append(us, now), old, nil
		}
		if !errors.Is(err, datastore.ErrExists) && !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrNotFound) {
			return nil, "", err
		}
	}
	return nil, "", fmt.Errorf("WorkloadEndpoint %s/%s changes all the time; who else writes it?", w.Metadata.Namespace, w.Metadata.Name)
}

func encode(r api.Resource) (kv api.Update, err error) {
	api.Default(r)
	if kv.Key, err = api.Key(r); err == nil {
		kv.Value, err = api.EncodeStored(r)
	}
	return kv, err
}

// profile makes the profile of a network, unless somebody has: its members reach each other and everything else, and
// nobody else reaches them.
func (s *Server) profile(ctx context.Context, network string) ([]api.Update, error) {
	p := &api.Profile{Object: api.Object{
		TypeMeta: api.TypeMeta{Kind: api.KindProfile, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: network},
	}}
	p.Spec.LabelsToApply = map[string]string{network: ""}
	p.Spec.Ingress = []api.Rule{{Action: api.Allow, Source: api.EntityRule{Selector: "has(" + network + ")"}}}
	p.Spec.Egress = []api.Rule{{Action: api.Allow}}
	if err := api.Validate(p).Err(); err != nil {
		return nil, err
	}
	kv, err := encode(p)
	if err != nil {
		return nil, err
	}
	if u, err := s.cfg.Store.Get(ctx, kv.Key); err == nil {
		return []api.Update{u}, nil
	}
	u, err := s.cfg.Store.Create(ctx, kv)
	switch {
	case errors.Is(err, datastore.ErrExists):
		u, err = s.cfg.Store.Get(ctx, kv.Key)
		return []api.Update{u}, err
	case err != nil:
		return nil, err
	}
	return []api.Update{u}, nil
}

// remove deletes an endpoint that is still its container's, and tells calc.
func (s *Server) remove(ctx context.Context, w *api.WorkloadEndpoint) error {
	for range 5 {
		have, u, err := s.stored(ctx, w)
		switch {
		case errors.Is(err, datastore.ErrNotFound):
			return nil
		case err != nil:
			return err
		case have.Spec.ContainerID != w.Spec.ContainerID:
			return nil // that of a newer container of the same pod
		}
		err = s.cfg.Store.Delete(ctx, u.Key, u.Revision)
		if errors.Is(err, datastore.ErrConflict) {
			continue
		}
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
		return s.cfg.Kernel.Overlay(ctx, []api.Update{{Key: u.Key, Revision: u.Revision}})
	}
	return fmt.Errorf("WorkloadEndpoint %s/%s changes all the time; who else writes it?", w.Metadata.Namespace, w.Metadata.Name)
}
