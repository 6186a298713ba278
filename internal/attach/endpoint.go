package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/resources"
)

const (
	orchestratorKubernetes = "k8s"
	orchestratorCNI        = "cni"
	defaultNamespace       = "default"    // of endpoints outside Kubernetes
	orchestratorDocker     = "libnetwork" // upstream's name, also of each workload
	annotationNetwork      = "twill.net/cni-network"
)

// about returns the attributes of an address: its owner, and since when.
func about(node string, r wire.Request, now time.Time) map[string]string {
	out := map[string]string{
		api.AttributeNode: node, api.AttributeTimestamp: now.UTC().Format(time.RFC3339),
		api.AttributeNetwork: r.Network, api.AttributeInterface: r.Ifname,
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
	if r.Profile != "" {
		w.Spec.Profiles = []string{r.Profile}
	}
	if r.Docker {
		ofDocker(w, r)
	}
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

// idOf is how the rest of the agent calls an endpoint.
func idOf(w *api.WorkloadEndpoint) intent.EndpointID {
	return intent.EndpointID{Kind: intent.Workload, Namespace: w.Metadata.Namespace, Name: w.Metadata.Name}
}

// stored reads the endpoint from the datastore.
func (s *Server) stored(ctx context.Context, w *api.WorkloadEndpoint) (*api.WorkloadEndpoint, error) {
	key, err := api.Key(w)
	if err != nil {
		return nil, err
	}
	u, err := s.cfg.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return st.Resource.(*api.WorkloadEndpoint), nil
}

// write writes an endpoint to the datastore; old is the attachment whose endpoint it replaces.
func (s *Server) write(ctx context.Context, r wire.Request, kv api.Update) (now api.Update, old *former, err error) {
	now, err = resources.Overwrite(ctx, s.cfg.Store, kv, func(was api.Update) error { old = formerOf(r, was); return nil })
	return now, old, err
}

// former is an attachment whose endpoint is replaced, and the addresses that this had.
type former struct {
	wire.Ref
	addrs []netip.Addr
}

// formerOf returns that of an endpoint; nil if the endpoint cannot be read.
func formerOf(r wire.Request, was api.Update) *former {
	st, err := api.DecodeStored(was)
	if had, ok := st.Resource.(*api.WorkloadEndpoint); err == nil && ok {
		return &former{wire.Ref{Network: cmp.Or(network(had), r.Network), ContainerID: had.Spec.ContainerID, Ifname: r.Ifname, Pod: r.Pod}, addrsOf(had)}
	}
	return nil
}

func encode(r api.Resource) (api.Update, error) {
	api.Default(r)
	return resources.Stored(r)
}

// profiles returns the profiles of a request's endpoint, except those of Kubernetes.
func (s *Server) profiles(ctx context.Context, r wire.Request) ([]api.Update, error) {
	if r.Pod != nil || r.NoProfile || r.Docker && r.Profile == "" {
		return nil, nil
	}
	p, err := s.profile(ctx, cmp.Or(r.Profile, r.Network))
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
	api.Default(p)
	key, err := api.Key(p)
	if err == nil {
		err = s.know(ctx, key)
	}
	if err != nil {
		return api.Update{}, err
	}
	return resources.CreateMissing(ctx, s.cfg.Store, p)
}

// remove deletes an endpoint that is still its container's, passes the result to calc, and returns what it deleted; nil: nothing.
func (s *Server) remove(ctx context.Context, w *api.WorkloadEndpoint) (had *api.WorkloadEndpoint, err error) {
	key, err := api.Key(w)
	if err == nil {
		err = s.know(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	was, deleted, err := resources.DeleteIf(ctx, s.cfg.Store, key, func(u api.Update) (bool, error) {
		st, err := api.DecodeStored(u)
		if err != nil {
			return false, fmt.Errorf("%s: %w", key, err)
		}
		have, ok := st.Resource.(*api.WorkloadEndpoint)
		had = have
		// Else it is that of a newer container of the same pod, of another network, or of another call. A store that derives endpoints keeps no
		// MAC: there another call has other addresses.
		call := w.Spec.MAC == "" || have.Spec.MAC == w.Spec.MAC || s.derives(key) && slices.Equal(have.Spec.IPNetworks, w.Spec.IPNetworks)
		owner := have.Spec.ContainerID == w.Spec.ContainerID || have.Spec.ContainerID == "" && w.Spec.Orchestrator == orchestratorDocker
		return ok && owner && inNetwork(have, network(w)) && call, nil
	})
	switch {
	case was.Value == nil: // deleted, or unknown: what was Pending must not stay
		return nil, errors.Join(err, s.cfg.Kernel.Overlay(ctx, []api.Update{{Key: key}}))
	case err != nil:
		return nil, err
	case deleted:
		was.Value = nil
	default:
		had = nil
	}
	return had, s.cfg.Kernel.Overlay(ctx, []api.Update{was})
}
