package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

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

// handle returns the handle of an attachment's addresses; upstream's plugin uses the same.
func handle(r wire.Ref) string { return r.Network + "." + r.ContainerID }

// about returns the attributes of an address: its owner, and since when.
func about(node string, r wire.Request, now time.Time) map[string]string {
	out := map[string]string{
		api.AttributeNode: node, api.AttributeTimestamp: now.UTC().Format(time.RFC3339), attributeInterface: r.Ifname,
	}
	if r.MAC != "" {
		out[attributeMAC] = r.MAC
	}
	if r.Pod != nil {
		out[api.AttributeNamespace], out[api.AttributePod] = r.Pod.Namespace, r.Pod.Name
	}
	return out
}

// endpoint returns the WorkloadEndpoint for a request.
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
		// The pod's service account is known only to Kubernetes. None is the closed choice: what is allowed to an account is not allowed to it.
		namespace = r.Pod.Namespace
		w.Spec.Orchestrator, w.Spec.Pod = orchestratorKubernetes, r.Pod.Name
		w.Spec.Profiles = []string{"kns." + namespace}
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
		return w, nil // only identifies the endpoint
	}
	return w, api.Validate(w).Err()
}

// stored reads the endpoint from the datastore.
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

// write writes an endpoint to the datastore; old is the handle of the endpoint that it replaces.
func (s *Server) write(ctx context.Context, r wire.Request, w *api.WorkloadEndpoint, kv api.Update) (now api.Update, old string, err error) {
	for range 5 {
		now, err = s.cfg.Store.Create(ctx, kv)
		if errors.Is(err, datastore.ErrExists) {
			next := kv
			if next.Revision, old, err = s.known(ctx, r, w); err != nil {
				return now, "", err
			}
			now, err = s.cfg.Store.Update(ctx, next)
		}
		if err == nil {
			return now, old, nil
		}
		if !errors.Is(err, datastore.ErrExists) && !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrNotFound) {
			return now, "", err
		}
	}
	return now, "", fmt.Errorf("WorkloadEndpoint %s/%s changes all the time; who else writes it?", w.Metadata.Namespace, w.Metadata.Name)
}

func encode(r api.Resource) (kv api.Update, err error) {
	api.Default(r)
	if kv.Key, err = api.Key(r); err == nil {
		kv.Value, err = api.EncodeStored(r)
	}
	return kv, err
}

// profiles returns the profiles of a request's endpoint, except those of Kubernetes.
func (s *Server) profiles(ctx context.Context, r wire.Request) ([]api.Update, error) {
	if r.Pod != nil || r.NoProfile {
		return nil, nil
	}
	p, err := s.profile(ctx, r.Network)
	return []api.Update{p}, err
}

// profile creates the profile of a network, if it does not exist: its members reach each other and everything else, and
// nothing else reaches them.
func (s *Server) profile(ctx context.Context, network string) (api.Update, error) {
	p := &api.Profile{Object: api.Object{
		TypeMeta: api.TypeMeta{Kind: api.KindProfile, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: network},
	}}
	p.Spec.LabelsToApply = map[string]string{network: ""}
	p.Spec.Ingress = []api.Rule{{Action: api.Allow, Source: api.EntityRule{Selector: "has(" + network + ")"}}}
	p.Spec.Egress = []api.Rule{{Action: api.Allow}}
	if err := api.Validate(p).Err(); err != nil {
		return api.Update{}, err
	}
	kv, err := encode(p)
	if err != nil {
		return api.Update{}, err
	}
	if u, err := s.cfg.Store.Get(ctx, kv.Key); err == nil {
		return u, nil
	}
	if err := s.know(ctx, kv.Key); err != nil {
		return api.Update{}, err
	}
	u, err := s.cfg.Store.Create(ctx, kv)
	if errors.Is(err, datastore.ErrExists) {
		return s.cfg.Store.Get(ctx, kv.Key)
	}
	return u, err
}

// remove deletes an endpoint that is still its container's, and passes the result to calc.
func (s *Server) remove(ctx context.Context, w *api.WorkloadEndpoint) error {
	for range 5 {
		have, u, err := s.stored(ctx, w)
		switch {
		case u.Value == nil: // deleted, or unknown: what was Pending must not stay
			key, _ := api.Key(w) // stored has made it
			if errors.Is(err, datastore.ErrNotFound) {
				err = nil
			}
			return errors.Join(err, s.cfg.Kernel.Overlay(ctx, []api.Update{{Key: key}}))
		case err != nil:
			return err
		case have.Spec.ContainerID != w.Spec.ContainerID || !inNetwork(have, network(w)) || w.Spec.MAC != "" && have.Spec.MAC != w.Spec.MAC:
			// It is that of a newer container of the same pod, of another network, or of another call.
			return s.cfg.Kernel.Overlay(ctx, []api.Update{u})
		}
		if err = s.know(ctx, u.Key); err == nil {
			err = s.cfg.Store.Delete(ctx, u.Key, u.Revision)
		}
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
