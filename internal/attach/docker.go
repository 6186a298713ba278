package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// ofDocker makes an endpoint one of Docker's, as upstream names it.
func ofDocker(w *api.WorkloadEndpoint, r wire.Request) {
	w.Spec.Orchestrator, w.Spec.Workload, w.Spec.Endpoint = orchestratorDocker, orchestratorDocker, r.ContainerID
	if r.Profile == "" {
		w.Spec.Profiles = nil
	}
}

// upstreamNamespace is that of endpoints of Docker's that upstream's plugin made, unless it was given another (CALICO_LIBNETWORK_NAMESPACE). They have no
// container's ID; of which endpoint of Docker's they are is in their name.
const upstreamNamespace = "libnetwork"

// removeUpstreams removes what upstream's plugin made of an endpoint of Docker's. Its addresses stay assigned: whose they are is not on record.
func (s *Server) removeUpstreams(ctx context.Context, w *api.WorkloadEndpoint) error {
	there := *w
	there.Metadata.Namespace = upstreamNamespace
	_, err := s.remove(ctx, &there)
	return err
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
	if _, err := s.giveBack(ctx, nil); err != nil {
		return struct{}{}, err // what Docker does not have any more is collected
	}
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

// Label gives an attached container labels, in place of those that it had. What no label can be is left out, and said.
func (s *Server) Label(ctx context.Context, q wire.Labels) (out wire.Labelled, err error) {
	if err := s.ready(); err != nil {
		return out, err
	}
	done, err := s.lock(ctx, q.Ref)
	if err != nil {
		return out, err
	}
	defer done()
	one, err := s.endpoint(wire.Request{Ref: q.Ref}, nil)
	if err != nil {
		return out, err
	}
	key, err := api.Key(one)
	if err != nil {
		return out, err
	}
	for range labelTries {
		if out.Wrong, err = s.label(ctx, key, q); !errors.Is(err, datastore.ErrConflict) {
			break
		}
	}
	return out, err
}

const labelTries = 5

func (s *Server) label(ctx context.Context, key string, q wire.Labels) (wrong []string, err error) {
	u, err := s.cfg.Store.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return nil, nil // it was detached
	}
	if err != nil {
		return nil, err
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if !ok || w.Spec.ContainerID != q.Ref.ContainerID {
		return nil, fmt.Errorf("%s is another container's", key)
	}
	labels := map[string]string{api.LabelNamespace: w.Metadata.Namespace, api.LabelOrchestrator: w.Spec.Orchestrator}
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		if _, ours := labels[name]; ours {
			wrong = append(wrong, name+" is not a container's to say")
			continue
		}
		w.Metadata.Labels = map[string]string{name: q.Labels[name]}
		if err := api.Validate(w).Err(); err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		labels[name] = q.Labels[name]
	}
	w.Metadata.Labels = labels
	_, err = resources.Over(ctx, s.cfg.Store, u, w)
	return wrong, err
}

// collects reports whether an endpoint is one of those among which the valid ones are.
func collects(v wire.Valid, w *api.WorkloadEndpoint) bool {
	if !v.Docker {
		return network(w) == v.Network
	}
	return w.Spec.Orchestrator == orchestratorDocker && network(w) != "" && old(w.Metadata.CreationTimestamp, v.Age)
}

// old reports whether what has a time of RFC 3339 is of that age.
func old(text string, age time.Duration) bool {
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && time.Since(at) >= age
}

// collectDockers frees addresses of Docker's on this node that no endpoint has, and Docker neither.
func (s *Server) collectDockers(ctx context.Context, v wire.Valid) error {
	leases, err := s.cfg.Addresses.OfDocker(ctx)
	if err != nil {
		return err
	}
	snap, err := s.cfg.Store.List(ctx, api.KeyPrefix(api.KindWorkloadEndpoint, "")+defaultNamespace+"/")
	if err != nil {
		return err
	}
	used := slices.Clone(v.Addrs)
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if err != nil {
			return fmt.Errorf("%s: %w", u.Key, err) // which may have any address
		}
		if w, ok := st.Resource.(*api.WorkloadEndpoint); ok {
			used = append(used, addrsOf(w)...)
		}
	}
	leases = slices.DeleteFunc(leases, func(l ipam.Lease) bool {
		return slices.Contains(used, l.Addr) || !old(l.Owner[api.AttributeTimestamp], v.Age)
	})
	if len(leases) > 0 {
		s.cfg.Log.Info("freed addresses that Docker does not have any more", "addresses", leases)
	}
	return s.cfg.Addresses.Free(ctx, leases)
}
