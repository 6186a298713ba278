// Package decommission deletes a node with what hangs on it, and a namespace with what is in it: see [LookNamespace].
//
// In: a store, and the name of a node, which need not exist: others may have
// deleted it, and left the rest. Out: [Holdings], what hangs on it, and which of
// that is a loss; and its deletion.
//
// The deletion goes from what uses to what is used, and the Node goes last:
// endpoints, then their addresses, so that no address is given out that an
// endpoint still has; then blocks with their affinities; resources that name the
// node; status. Whatever it dies between, the same call finds and deletes what
// is left, but for one thing: in a datastore without transactions a handle may
// go on counting an address that is free, and says of no node; that is
// `twill ipam check --fix`'s to mend.
package decommission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/autohep"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/status"
)

// Holdings are what hangs on a node.
type Holdings struct {
	Node   string
	Exists bool // there is a Node of that name
	// Alive: its agent confirmed that it lives, and that has not expired (90 s after its end, by default, and up to two minutes
	// where the datastore's keys do not expire: see status.Alive). It would write anew what is deleted, and workloads that run on
	// it would be without policy at others.
	Alive bool

	endpoints   []held // workloads'
	others      []held // resources that name it
	allocations []ipam.Allocation
	elsewhere   []netip.Addr
	blocks      []string
	status      []string // keys
	node        held
}

// held is a resource that hangs on the node.
type held struct {
	ref  api.Ref
	at   api.Update // as it was looked at
	made bool       // for the node, without anybody's asking
}

// naming are kinds whose resources name a node.
var naming = []string{api.KindWorkloadEndpoint, api.KindHostEndpoint, api.KindBGPPeer, api.KindCalicoNodeStatus, api.KindBGPConfiguration, api.KindFelixConfiguration}

// Look reads what hangs on a node. A value that cannot be read hangs on nothing, unless its key says so.
func Look(ctx context.Context, s datastore.Store, node string) (*Holdings, error) {
	h := &Holdings{Node: node}
	for _, kind := range naming {
		if err := h.resources(ctx, s, kind); err != nil {
			return nil, err
		}
	}
	key := api.KeyPrefix(api.KindNode, "") + node
	switch u, err := s.Get(ctx, key); {
	case err == nil:
		h.Exists, h.node = true, held{ref: api.Ref{Kind: api.KindNode, Name: node}, at: u}
	case !errors.Is(err, datastore.ErrNotFound):
		return nil, err
	}
	v, err := ipam.New(s, ipam.Config{}).ReadSurvey(ctx)
	if err != nil {
		return nil, err
	}
	h.allocations, h.blocks, h.elsewhere = v.OfNode(node), v.BlocksOfNode(node), v.UsedElsewhere(node)
	h.status, h.Alive, err = status.KeysOf(ctx, s, node)
	return h, err
}

func (h *Holdings) resources(ctx context.Context, s datastore.Store, kind string) error {
	snap, err := s.List(ctx, api.KeyPrefix(kind, ""))
	if err != nil {
		return err
	}
	for _, u := range snap.Sorted() {
		st, _ := api.DecodeStored(u)
		switch on, made := nodeOf(st.Resource, st.Ref); {
		case on != h.Node:
		case kind == api.KindWorkloadEndpoint:
			h.endpoints = append(h.endpoints, held{ref: st.Ref, at: u})
		default:
			h.others = append(h.others, held{ref: st.Ref, at: u, made: made})
		}
	}
	return nil
}

// nodeOf is the node that a resource hangs on, and whether it was made for it automatically.
func nodeOf(r api.Resource, ref api.Ref) (node string, made bool) {
	switch r := r.(type) {
	case *api.WorkloadEndpoint:
		return r.Spec.Node, false
	case *api.HostEndpoint:
		return r.Spec.Node, autohep.Made(r)
	case *api.BGPPeer:
		return r.Spec.Node, false
	case *api.CalicoNodeStatus:
		return r.Spec.Node, false
	case *api.BGPConfiguration, *api.FelixConfiguration:
		node, _ := strings.CutPrefix(ref.Name, "node.")
		if node == ref.Name {
			return "", false
		}
		return node, false
	}
	return "", false
}

// Empty: there is nothing to delete at all.
func (h *Holdings) Empty() bool {
	return !h.Exists && len(h.endpoints)+len(h.others)+len(h.allocations)+len(h.blocks)+len(h.status) == 0
}

// Loss is what somebody made, or uses, and would be lost. Automatic host endpoints, addresses of tunnels, blocks and status
// are the node's own, and not among it.
func (h *Holdings) Loss() (what []string, refs []api.Ref) {
	for _, list := range [][]held{h.endpoints, h.others} {
		for _, r := range list {
			if !r.made {
				refs = append(refs, r.ref)
			}
		}
	}
	for _, l := range h.allocations {
		if !l.IsTunnel() {
			what = append(what, "address "+l.Addr.String())
		}
	}
	return what, refs
}

// Endpoints are how many workloads' endpoints are on the node.
func (h *Holdings) Endpoints() int { return len(h.endpoints) }

// UsedElsewhere are addresses that were allocated for the node and that endpoints of others have. They are not deleted with it.
func (h *Holdings) UsedElsewhere() []netip.Addr { return h.elsewhere }

// HasAddresses reports whether it has addresses or blocks.
func (h *Holdings) HasAddresses() bool { return len(h.allocations)+len(h.blocks) > 0 }

// SpareUsers takes what users made for the node, and is no workload's, out of what Delete deletes, and returns it.
func (h *Holdings) SpareUsers() (spared []api.Ref) {
	h.others = slices.DeleteFunc(h.others, func(r held) bool {
		if !r.made {
			spared = append(spared, r.ref)
		}
		return !r.made
	})
	return spared
}

// SpareContainers takes addresses that are neither a pod's nor a tunnel's, and then the blocks, out of what Delete deletes, and returns the addresses.
// It does so if there is no Node and nobody has reported from there: it may be a host that lives, and never had a Node.
func (h *Holdings) SpareContainers() (spared []netip.Addr) {
	if h.Exists || len(h.status) > 0 {
		return nil
	}
	h.allocations = slices.DeleteFunc(h.allocations, func(l ipam.Allocation) bool {
		spare := !l.IsPods() && !l.IsTunnel()
		if spare {
			spared = append(spared, l.Addr)
		}
		return spare
	})
	if len(spared) > 0 {
		h.blocks = nil
	}
	return spared
}

// Claim decides, by a write of the Node as it is, that it is deleted as it was at a revision. [datastore.ErrConflict]: it has changed since, and
// nothing was deleted. What is written to it from then on goes with it, since what hangs on it goes first, and must not be lost for nothing.
func (h *Holdings) Claim(ctx context.Context, s datastore.Store, at api.Revision) error {
	if h.node.at.Revision != at {
		return datastore.ErrConflict
	}
	if _, err := s.Update(ctx, h.node.at); err != nil {
		return err
	}
	h.node.at.Revision = api.Revision{}
	return nil
}

// Done is called for each deleted object: a resource, or a description of an address or block.
type Done func(ref api.Ref, words string)

// Delete deletes the node and all that hangs on it, in the order that the package's comment gives. A resource that was changed
// since Look is an error: it may be another node's by now.
func (h *Holdings) Delete(ctx context.Context, s datastore.Store, done Done) error {
	if err := remove(ctx, s, h.endpoints, done); err != nil {
		return err
	}
	a := ipam.New(s, ipam.Config{})
	if err := release(ctx, a, h.allocations, done); err != nil {
		return err
	}
	if len(h.blocks) > 0 {
		if err := a.GiveUpBlocks(ctx, h.Node); err != nil {
			return err
		}
		for _, b := range h.blocks {
			done(api.Ref{}, "block "+b+" given up")
		}
	}
	if err := remove(ctx, s, h.others, done); err != nil {
		return err
	}
	for _, key := range h.status {
		if err := s.Delete(ctx, key, api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
	}
	if !h.Exists {
		return nil
	}
	return remove(ctx, s, []held{h.node}, done)
}

func release(ctx context.Context, a *ipam.Allocator, allocations []ipam.Allocation, done Done) error {
	for _, l := range allocations {
		freed, err := a.ReleaseAllocation(ctx, l)
		if err != nil {
			return err
		}
		if freed {
			done(api.Ref{}, "address "+l.Addr.String()+" released")
		}
	}
	return nil
}

func remove(ctx context.Context, s datastore.Store, list []held, done Done) error {
	for _, r := range list {
		switch err := s.Delete(ctx, r.at.Key, r.at.Revision); {
		case errors.Is(err, datastore.ErrNotFound): // somebody was first
		case errors.Is(err, datastore.ErrConflict):
			return fmt.Errorf("%s changed while it was about to be deleted; look again: %w", r.ref, err)
		case err != nil:
			return err
		default:
			done(r.ref, "")
		}
	}
	return nil
}
