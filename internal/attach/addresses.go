package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// NewAddresses returns the Addresses of the datastore's pools, for one node.
func NewAddresses(s datastore.Store, node string) Addresses {
	return &addresses{Allocator: ipam.New(s, ipam.Config{Reuse: time.Second}), node: node}
}

type addresses struct {
	*ipam.Allocator
	node string
	last []ipam.Finding // of the last Sweep
}

// grace is the age below which an address is not reported as a leak: its endpoint may not be written yet.
const grace = 15 * time.Minute

func (a *addresses) Sweep(ctx context.Context, now time.Time) (freed []netip.Addr, err error) {
	all, err := a.ReadSurvey(ctx)
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all.Check(ipam.CheckOptions{Now: now, Grace: grace}), func(f ipam.Finding) bool { return f.Fix == "" || !f.IsContainerOf(a.node) })
	both := ipam.Both(a.last, found)
	a.last = found
	for _, r := range a.Repair(ctx, both) {
		if r.Err == nil {
			freed = append(freed, r.Address)
		} else {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.Address, r.Err))
		}
	}
	return freed, err
}

func (a *addresses) Assign(ctx context.Context, g AddressRequest) ([]netip.Addr, error) {
	want := g.Want
	var out []netip.Addr
	if len(want.Addrs) > 0 {
		for _, addr := range want.Addrs {
			got, err := a.AssignIP(ctx, ipam.IPArgs{Addr: addr, Node: a.node, Handle: g.Handle, Attributes: g.About})
			if err != nil {
				return nil, err
			}
			out = append(out, got.Addr)
		}
		return out, nil
	}
	args := ipam.AutoArgs{
		Node: a.node, Handle: g.Handle, Attributes: g.About, Namespace: g.About[api.AttributeNamespace],
		Pools4: want.Pools4, Pools6: want.Pools6, ExtraOps: g.ExtraOps, Avoid: g.Avoid,
	}
	if want.V4 {
		args.Num4 = 1
	}
	if want.V6 {
		args.Num6 = 1
	}
	got, err := a.Allocator.Assign(ctx, args)
	return plain(got), err
}

func plain(all []ipam.Address) (out []netip.Addr) {
	for _, a := range all {
		out = append(out, a.Addr)
	}
	return out
}

func (a *addresses) Release(ctx context.Context, handle string, which func(netip.Addr, map[string]string) bool) error {
	_, err := a.ReleaseWhere(ctx, handle, which)
	return err
}

func (a *addresses) Free(ctx context.Context, leases []ipam.Lease) error {
	var all []ipam.Release
	for _, l := range leases {
		all = append(all, ipam.Release{Addr: l.Addr, Handle: l.Handle, Sequence: &l.Sequence})
	}
	_, err := a.Allocator.Release(ctx, all...)
	return err
}

func (a *addresses) OfNetwork(ctx context.Context, network string) ([]ipam.Lease, error) {
	return a.ofNode(ctx, func(l ipam.Allocation) bool {
		_, machines := l.Machine()
		return !machines && l.Attr.Owner[api.AttributeNote] != ipam.NoteDocker && strings.HasPrefix(ipam.HandleOf(l), network+".")
	})
}

func (a *addresses) OfDocker(ctx context.Context) ([]ipam.Lease, error) {
	return a.ofNode(ctx, func(l ipam.Allocation) bool { return l.Attr.Owner[api.AttributeNote] == ipam.NoteDocker })
}

// ofNode returns this node's addresses in use that which selects.
func (a *addresses) ofNode(ctx context.Context, which func(ipam.Allocation) bool) (out []ipam.Lease, err error) {
	all, err := a.ReadSurvey(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range all.Blocks {
		for _, l := range ipam.Allocations(b) {
			if l.InUse() && l.Attr.Owner[api.AttributeNode] == a.node && which(l) {
				out = append(out, ipam.Lease{Addr: l.Addr, Handle: ipam.HandleOf(l), Sequence: l.Sequence(), Owner: l.Attr.Owner})
			}
		}
	}
	return out, nil
}
