package ipam

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/api"
)

// OfNode are the allocations that go with a node: those that were made for it, and those that endpoints on it alone have.
func (v *Survey) OfNode(node string) []Allocation {
	elsewhere := func(u user) bool { return u.node != node }
	var out []Allocation
	for _, b := range v.Blocks {
		for _, l := range Allocations(b) {
			us := v.users[l.Addr]
			if resting(l.Attr) || handleOf(l.Attr) == windows || slices.ContainsFunc(us, elsewhere) {
				continue
			}
			if l.Attr.Owner[api.AttributeNode] == node || len(us) > 0 {
				out = append(out, l)
			}
		}
	}
	return out
}

// IsTunnel: an allocation is the address of a tunnel of its node, and not a workload's.
func (l Allocation) IsTunnel() bool { return l.Attr.Owner[api.AttributeType] != "" }

// BlocksOfNode are the prefixes that a node has a claim to, or that say that they are its.
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

// ReleaseAllocation frees one allocation if it is still the one that was looked at. One that is free, or somebody else's by
// now, is no error, and is not freed.
func (a *Allocator) ReleaseAllocation(ctx context.Context, l Allocation) (freed bool, err error) {
	sequence := l.Block.SequenceOf(l.ord)
	got, err := a.Release(ctx, Release{Addr: l.Addr, Handle: handleOf(l.Attr), Sequence: &sequence})
	if errors.Is(err, ErrReused) {
		return false, nil
	}
	return len(got) > 0, err
}

// GiveUpBlocks is ReleaseHostAffinities for a node that is deleted: blocks that call it their owner without a claim of its go, too.
func (a *Allocator) GiveUpBlocks(ctx context.Context, node string) error {
	if err := a.ReleaseHostAffinities(ctx, node, false); err != nil {
		return err
	}
	v, err := a.Look(ctx)
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
