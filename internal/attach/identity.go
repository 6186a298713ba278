package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
)

// How attachments are distinguished. A handle has no interface's name in it, since upstream's has none; an endpoint's name has no
// network; and the host's link has neither. So a container has one interface of ours at most, and a second one is refused by
// name. Before anything is removed its owner is compared: an endpoint by container, network and the MAC that the plugin
// generated for this call, an address by the attributes below.
const (
	attributeInterface = "interface" // the container's interface that the address is for
	attributeMAC       = "mac"       // of that interface: a new one with each ADD
)

// ofInterface returns a filter of allocations by their attributes: those of the interface, or of a version that did not record it.
func ofInterface(ifname string) func(map[string]string) bool {
	return func(attributes map[string]string) bool {
		has := attributes[attributeInterface]
		return has == "" || has == ifname
	}
}

// ofMAC returns a filter of allocations: those of one call of the plugin.
func ofMAC(mac string) func(map[string]string) bool {
	return func(attributes map[string]string) bool { return attributes[attributeMAC] == mac }
}

// ofPod returns a filter of allocations: those that were a pod's on this node; of all, if there is no pod. What a pod's object says of its last
// container is not enough to release addresses, since users can write that.
func (s *Server) ofPod(p *wire.Pod) func(map[string]string) bool {
	if p == nil {
		return nil
	}
	return func(attributes map[string]string) bool {
		return attributes[api.AttributeNode] == s.cfg.Node && attributes[api.AttributeNamespace] == p.Namespace && attributes[api.AttributePod] == p.Name
	}
}

// network returns an endpoint's network; empty: not recorded.
func network(w *api.WorkloadEndpoint) string { return w.Metadata.Annotations[annotationNetwork] }

func inNetwork(w *api.WorkloadEndpoint, name string) bool {
	return network(w) == "" || network(w) == name
}

// endpoints returns those of a container or pod on this node, for all interfaces.
func (s *Server) endpoints(ctx context.Context, r wire.Ref) (out []*api.WorkloadEndpoint, err error) {
	one, err := s.endpoint(wire.Request{Ref: r}, nil)
	if err != nil {
		return nil, err
	}
	one.Spec.Endpoint = "x"
	name, err := api.WorkloadEndpointName(one.Spec)
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
		if w, ok := st.Resource.(*api.WorkloadEndpoint); ok {
			out = append(out, w)
		}
	}
	return out, nil
}

// checkDistinct refuses an attachment that could not be distinguished from another one of the container.
func (s *Server) checkDistinct(ctx context.Context, r wire.Ref) error {
	all, err := s.endpoints(ctx, r)
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.Spec.ContainerID == r.ContainerID && (w.Spec.Endpoint != r.Ifname || !inNetwork(w, r.Network)) {
			return &wire.Refusal{Reason: fmt.Sprintf("container %s has the interface %s of network %s already (WorkloadEndpoint %s/%s); this version gives a container one interface",
				r.ContainerID, w.Spec.Endpoint, network(w), w.Metadata.Namespace, w.Metadata.Name)}
		}
	}
	return nil
}

// clear removes what remains of earlier attachments under the same names.
func (s *Server) clear(ctx context.Context, r wire.Ref) error {
	if _, known := s.cfg.Store.(datastore.Deriving); r.Pod != nil && !known {
		s.accounts.Do(func() {
			s.cfg.Log.Warn("pods are attached without service account, labels and what annotations ask for, which only Kubernetes knows; policies that name those do not find them",
				"pod", r.Pod.Namespace+"/"+r.Pod.Name)
		})
	}
	if err := s.checkDistinct(ctx, r); err != nil {
		return err
	}
	return s.processNoteOf(ctx, r)
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

// processNoteOf processes the note about an attachment before another of the same name is made: afterwards the note would
// detach that one. Its container is locked.
func (s *Server) processNoteOf(ctx context.Context, r wire.Ref) error {
	all, _ := s.notes() // processNotes reports what cannot be read
	for _, n := range all {
		if n.ref.Network != r.Network || n.ref.ContainerID != r.ContainerID || n.ref.Ifname != r.Ifname {
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
	s.cfg.Log.Info("detached a container that went while no agent ran", "container", n.ref.ContainerID, "network", n.ref.Network)
	return os.Remove(n.path)
}
