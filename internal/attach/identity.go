package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// How attachments are distinguished: by network, container and interface, of which all names are made (wire.Ref). Before anything is removed its
// owner is compared: an endpoint by container, network and the MAC that the plugin generated for this call, an address by its attributes.
// Older versions, and upstream's plugin, wrote fewer of these, and gave all interfaces of a container in a network one handle: what says
// nothing of its interface goes only where nothing else can have it.
const attributeMAC = "mac" // of the interface: a new one with each ADD

// selector selects addresses of a handle.
type selector func(addr netip.Addr, attributes map[string]string) bool

// all are those that each of some selectors selects.
func all(which ...selector) selector {
	return func(addr netip.Addr, attributes map[string]string) bool {
		return !slices.ContainsFunc(which, func(s selector) bool { return !s(addr, attributes) })
	}
}

// ofInterface selects those of an attachment's interface, or of a version that did not record it.
func ofInterface(r wire.Ref) selector {
	return func(_ netip.Addr, attributes map[string]string) bool {
		in, has := attributes[api.AttributeNetwork], attributes[api.AttributeInterface]
		return (in == "" || in == r.Network) && (has == "" || has == r.Ifname)
	}
}

// ofMAC selects those of one call of the plugin.
func ofMAC(mac string) selector {
	return func(_ netip.Addr, attributes map[string]string) bool { return attributes[attributeMAC] == mac }
}

// ofPod selects those that were a pod's on this node; all, if there is no pod. What a pod's object says of its last
// container is not enough to release addresses, since users can write that.
func (s *Server) ofPod(p *wire.Pod) selector {
	return func(_ netip.Addr, attributes map[string]string) bool {
		return p == nil || attributes[api.AttributeNode] == s.cfg.Node && attributes[api.AttributeNamespace] == p.Namespace && attributes[api.AttributePod] == p.Name
	}
}

// proven selects what is known to be an attachment's alone: of addresses that say nothing of their interface, those that its endpoint had, and of the
// container's first interface all, if no other one can have them. Others are endpoints of the same container or pod.
func proven(r wire.Ref, had []netip.Addr, others []*api.WorkloadEndpoint) selector {
	var taken []netip.Addr
	alone := true
	for _, w := range others {
		taken = append(taken, addrsOf(w)...)
		alone = alone && !(w.Spec.ContainerID == r.ContainerID && inNetwork(w, r.Network))
	}
	return func(addr netip.Addr, attributes map[string]string) bool {
		sure := attributes[api.AttributeInterface] != "" || slices.Contains(had, addr) || r.First() && alone
		return sure && !slices.Contains(taken, addr)
	}
}

// release releases the addresses of an attachment whose endpoint is gone, or of one that had none; had are those that the endpoint had.
func (s *Server) release(ctx context.Context, r wire.Ref, had []netip.Addr, which selector) error {
	others, err := s.endpoints(ctx, r)
	if err != nil {
		return err
	}
	which = all(which, ofInterface(r), proven(r, had, others))
	for _, handle := range r.Handles() {
		err = errors.Join(err, s.cfg.Addresses.Release(ctx, handle, which))
	}
	return err
}

// attachmentOf returns whose an address of a network is; false: nobody can say, or it is another network's whose name begins so. The interface is
// empty if it was not recorded.
func attachmentOf(network string, l ipam.Lease) (wire.Ref, bool) {
	rest, ok := strings.CutPrefix(l.Handle, network+".")
	in, r := l.Owner[api.AttributeNetwork], wire.Ref{Network: network, ContainerID: rest, Ifname: l.Owner[api.AttributeInterface]}
	if ok && in == "" { // an older version's, in which each dot may be the one between network and container
		return r, strings.Count(l.Handle, ".") == 1
	}
	if !r.First() {
		r.ContainerID = strings.TrimSuffix(rest, "."+r.Ifname)
	}
	return r, ok && in == network && r.Handle() == l.Handle
}

// network returns an endpoint's network; empty: not recorded.
func network(w *api.WorkloadEndpoint) string { return w.Metadata.Annotations[annotationNetwork] }

func inNetwork(w *api.WorkloadEndpoint, name string) bool {
	return network(w) == "" || network(w) == name
}

// addrsOf returns the addresses of an endpoint, which may be nil.
func addrsOf(w *api.WorkloadEndpoint) (out []netip.Addr) {
	if w == nil {
		return nil
	}
	for _, text := range w.Spec.IPNetworks {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}

// endpoints returns those of a container or pod on this node, for all interfaces.
func (s *Server) endpoints(ctx context.Context, r wire.Ref) (out []*api.WorkloadEndpoint, err error) {
	one, err := s.endpoint(wire.Request{Ref: r}, nil)
	if err != nil {
		return nil, err
	}
	of := one.Spec
	if !r.Docker { // whose endpoints have no other interfaces
		of.Endpoint = "x"
	}
	name, err := api.WorkloadEndpointName(of)
	if err != nil {
		return nil, err
	}
	prefix := api.KeyPrefix(api.KindWorkloadEndpoint, "") + one.Metadata.Namespace + "/" + strings.TrimSuffix(name, "x")
	snap, err := s.cfg.Store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if err != nil {
			continue // not written by us
		}
		// Others' names may begin so, too: a dash in a name is two.
		if w, ok := st.Resource.(*api.WorkloadEndpoint); ok && w.Spec.Pod == of.Pod && (of.Pod != "" || w.Spec.ContainerID == of.ContainerID) {
			out = append(out, w)
		}
	}
	return out, nil
}

// distinct returns the endpoints of the container's other interfaces, or refuses an attachment that could not be distinguished from them.
func (s *Server) distinct(ctx context.Context, r wire.Ref) (others []*api.WorkloadEndpoint, err error) {
	if err := s.holds(r); err != nil {
		return nil, err
	}
	have, err := s.endpoints(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, w := range have {
		switch {
		case w.Spec.ContainerID != r.ContainerID: // an earlier container of the pod
		case ifnameOf(w) != r.Ifname:
			others = append(others, w)
		case !inNetwork(w, r.Network):
			return nil, &wire.Refusal{Reason: fmt.Sprintf("container %s has the interface %s of network %s already (WorkloadEndpoint %s/%s)",
				r.ContainerID, w.Spec.Endpoint, network(w), w.Metadata.Namespace, w.Metadata.Name)}
		}
	}
	return others, nil
}

// holds refuses an interface of which the datastore could not keep an endpoint: where it makes one of a pod, that is the pod's only one.
func (s *Server) holds(r wire.Ref) error {
	w, err := s.endpoint(wire.Request{Ref: r}, nil)
	if err != nil {
		return err
	}
	key, err := api.Key(w)
	if err == nil && !r.First() && s.derives(key) {
		err = &wire.Refusal{Reason: fmt.Sprintf("with Kubernetes' API as the datastore a pod has one interface of ours, %s, and %s of network %s would have no endpoint: name another plugin in that network, or use etcd",
			wire.FirstInterface, r.Ifname, r.Network)}
	}
	return err
}

// clear removes what remains of earlier attachments under the same names, and returns the endpoints of the container's other interfaces.
func (s *Server) clear(ctx context.Context, r wire.Ref) ([]*api.WorkloadEndpoint, error) {
	if _, known := s.cfg.Store.(datastore.Deriving); r.Pod != nil && !known {
		s.accounts.Do(func() {
			s.cfg.Log.Warn("pods are attached without what their annotations ask for, which only Kubernetes knows; service account and labels they have where twill kube-controllers copies them into this datastore",
				"pod", r.Pod.Namespace+"/"+r.Pod.Name)
		})
	}
	if err := s.processNotesOf(ctx, r); err != nil {
		return nil, err
	}
	return s.distinct(ctx, r)
}

// note is a detachment that a plugin left while no agent ran.
type note struct {
	path string
	ref  wire.Ref
}

// notes reads the pending detachments. A note that cannot be read is returned as an error together with the others.
func (s *Server) notes() (out []note, err error) {
	files, err := os.ReadDir(s.cfg.Notes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	failed := []error{err}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") {
			continue // it is still being written
		}
		n := note{path: filepath.Join(s.cfg.Notes, f.Name())}
		data, err := os.ReadFile(n.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // processed meanwhile
		}
		if err == nil {
			err = json.Unmarshal(data, &n.ref)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", n.path, err))
			continue
		}
		out = append(out, n)
	}
	return out, errors.Join(failed...)
}

// processNotesOf processes the notes about an interface, of whichever network, before it is attached: afterwards a note would
// detach it. Its container is locked.
func (s *Server) processNotesOf(ctx context.Context, r wire.Ref) error {
	all, _ := s.notes() // processNotes reports what cannot be read
	for _, n := range all {
		if n.ref.ContainerID != r.ContainerID || n.ref.Ifname != r.Ifname {
			continue
		}
		if err := s.processNote(ctx, n); err != nil {
			return &wire.Refusal{Reason: fmt.Sprintf("what was left of container %s cannot be taken back: %v", r.ContainerID, err), Later: true}
		}
	}
	return nil
}

// processNote detaches what a note says, if it is still there. Its container is locked.
func (s *Server) processNote(ctx context.Context, n note) error {
	if _, err := os.Stat(n.path); errors.Is(err, fs.ErrNotExist) {
		return nil // superseded by an ADD
	}
	if err := s.detach(ctx, n.ref); err != nil {
		return err
	}
	s.cfg.Log.Info("detached a container that went while no agent ran", "container", n.ref.ContainerID, "interface", n.ref.Ifname, "network", n.ref.Network)
	return os.Remove(n.path)
}
