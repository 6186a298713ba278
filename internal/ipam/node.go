package ipam

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/api"
)

// OfNode returns the allocations that are deleted with a node: those made for it, and those that only endpoints on it use. An address of a
// virtual machine is not: the machine may start on another node.
func (v *Survey) OfNode(node string) []Allocation {
	return slices.DeleteFunc(v.of(api.AttributeNode, node, func(u user) bool { return u.node != node }), Allocation.isMachines)
}

// OfNamespace returns the allocations that are deleted with a namespace: those made for it, and those that only endpoints in it use.
func (v *Survey) OfNamespace(name string) []Allocation {
	return v.of(api.AttributeNamespace, name, func(u user) bool { return u.ref.Namespace != name })
}

// of returns the allocations that an attribute says are for somebody, or that endpoints use, unless one is elsewhere.
func (v *Survey) of(attribute, name string, elsewhere func(user) bool) []Allocation {
	var out []Allocation
	for _, b := range v.Blocks {
		for _, l := range Allocations(b) {
			us := v.users[l.Addr]
			if coolingDown(l.Attr) || handleOf(l.Attr) == windows || slices.ContainsFunc(us, elsewhere) {
				continue
			}
			if l.Attr.Owner[attribute] == name || len(us) > 0 {
				out = append(out, l)
			}
		}
	}
	return out
}

// IsTunnel reports whether an allocation is the address of a tunnel of its node. Those of services have a type, too.
func (l Allocation) IsTunnel() bool {
	return l.Attr.Owner[api.AttributeType] != "" && l.Attr.Owner[api.AttributeService] == ""
}

// IsPods reports whether an allocation says of which pod of Kubernetes' it is. One that does not may be of a container that Kubernetes never had.
func (l Allocation) IsPods() bool {
	return l.Attr.Owner[api.AttributePod] != "" && l.Attr.Owner[api.AttributeNamespace] != ""
}

// tunnelTypes are the types of allocations that are of tunnels.
var tunnelTypes = []string{"ipipTunnelAddress", "vxlanTunnelAddress", "vxlanV6TunnelAddress", "wireguardTunnelAddress", "wireguardV6TunnelAddress"}

// tunnelOf is the address of a node's tunnel; false if nothing is known of the node or the type.
func tunnelOf(n *api.Node, typ string) (string, bool) {
	if n == nil {
		return "", false
	}
	s := n.Spec
	bgp, wg := s.BGP, s.Wireguard
	if bgp == nil {
		bgp = &api.NodeBGPSpec{}
	}
	if wg == nil {
		wg = &api.NodeWireguardSpec{}
	}
	by := map[string]string{
		"ipipTunnelAddress": bgp.IPv4IPIPTunnelAddr, "vxlanTunnelAddress": s.IPv4VXLANTunnelAddr, "vxlanV6TunnelAddress": s.IPv6VXLANTunnelAddr,
		"wireguardTunnelAddress": wg.InterfaceIPv4Address, "wireguardV6TunnelAddress": wg.InterfaceIPv6Address,
	}
	has, known := by[typ]
	return has, known
}

// BlocksOfNode returns the blocks with an affinity to a node, by either key.
func (v *Survey) BlocksOfNode(node string) []string {
	own := ownerOf(node, UseWorkload)
	var out []string
	for _, b := range v.Blocks {
		if has, ok := b.Owner(); ok && has == own {
			out = append(out, b.CIDR.String())
		}
	}
	for _, key := range v.sortedKeys(api.AffinitiesPrefix(own)) {
		if claimant, p, ok := api.ParseAffinityKey(key); ok && claimant == own && !slices.Contains(out, p.String()) {
			out = append(out, p.String())
		}
	}
	return out
}

// ReleaseAllocation frees one allocation if it is unchanged since the survey. One that is free, or reassigned by
// now, is no error, and is not freed.
func (a *Allocator) ReleaseAllocation(ctx context.Context, l Allocation) (freed bool, err error) {
	sequence := l.Block.SequenceOf(l.ord)
	got, err := a.Release(ctx, Release{Addr: l.Addr, Handle: handleOf(l.Attr), Sequence: &sequence})
	if errors.Is(err, ErrReused) {
		return false, nil
	}
	return len(got) > 0, err
}

// GiveUpBlocks is ReleaseHostAffinities for a node that is deleted: it includes blocks whose affinity names the node without an affinity key.
func (a *Allocator) GiveUpBlocks(ctx context.Context, node string) error {
	if err := a.ReleaseHostAffinities(ctx, node, false); err != nil {
		return err
	}
	v, err := a.ReadSurvey(ctx)
	if err != nil {
		return fmt.Errorf("give up blocks of %s: %w", node, err)
	}
	own := ownerOf(node, UseWorkload)
	for _, b := range v.Blocks {
		if has, ok := b.Owner(); ok && has == own {
			if err := a.ReleaseAffinity(ctx, own, b.CIDR, false); err != nil {
				return err
			}
		}
	}
	return nil
}
