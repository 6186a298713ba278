package ipam

import (
	"context"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// Lease is the state of one address.
type Lease struct {
	Addr       netip.Addr        `json:"address"`
	Pool       string            `json:"pool,omitempty"`
	Reserved   bool              `json:"reserved,omitempty"`
	Block      string            `json:"block,omitempty"` // empty: there is none yet
	Affinity   string            `json:"affinity,omitempty"`
	Assigned   bool              `json:"assigned"`
	Handle     string            `json:"handle,omitempty"`
	Sequence   uint64            `json:"sequence,omitempty"`
	Owner      map[string]string `json:"owner,omitempty"`
	Alternate  map[string]string `json:"alternate,omitempty"`
	ReleasedAt string            `json:"releasedAt,omitempty"` // the start of its cool-down; empty: none
}

// QueryIP returns the state of an address.
func (a *Allocator) QueryIP(ctx context.Context, addr netip.Addr) (Lease, error) {
	out := Lease{Addr: addr}
	w, err := a.resources(ctx)
	if err != nil {
		return out, err
	}
	if ps := w.holding(addr); len(ps) > 0 {
		out.Pool = ps[0].Metadata.Name
	}
	out.Reserved = slices.ContainsFunc(w.reserved, func(p netip.Prefix) bool { return p.Contains(addr) })
	p, ok, err := a.blockOf(ctx, addr)
	if err != nil || !ok {
		return out, err
	}
	u, err := a.store.Get(ctx, api.BlockKey(p))
	if err != nil {
		return out, err
	}
	b, err := api.DecodeBlock(u)
	if err != nil {
		return out, err
	}
	out.Block = p.String()
	if own, ok := b.Owner(); ok {
		out.Affinity = own.String()
	}
	ord, _ := b.Ordinal(addr)
	if attr := b.Attribute(ord); attr != nil {
		if _, over := a.cooling(w.config).over(attr); over {
			return out, nil
		}
		out.Assigned, out.ReleasedAt = !coolingDown(attr), attr.ReleasedAt
		out.Handle, out.Sequence, out.Owner, out.Alternate = handleOf(attr), b.SequenceOf(ord), attr.Owner, attr.Alternate
	}
	return out, nil
}
