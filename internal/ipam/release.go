package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// Release names an allocation. Give handle and sequence where they are known:
// they keep a late release from freeing an address that was assigned again.
type Release struct {
	Addr     netip.Addr
	Handle   string  // empty: any
	Sequence *uint64 // nil: any
}

// ReusedError is the error of a release of an address that was assigned again.
type ReusedError struct {
	Addr     netip.Addr
	Handle   string // of the present allocation
	Sequence uint64
}

// Is makes it an ErrReused.
func (e *ReusedError) Is(target error) bool { return target == ErrReused }

func (e *ReusedError) Error() string {
	return fmt.Sprintf("%s %v: handle %s, sequence %d", e.Addr, ErrReused, e.Handle, e.Sequence)
}

// Release releases addresses and returns those that it freed; an address that
// is free already is no error. If one of a block was assigned again by
// now, none of that block is freed.
func (a *Allocator) Release(ctx context.Context, rs ...Release) ([]netip.Addr, error) {
	config, err := ReadConfig(ctx, a.store)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	pools, err := readAll[*api.IPPool](ctx, a.store, api.KindIPPool)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	m := &emptied{a, a.cooling(config), true, pools, map[string]nodeLabels{}}
	byBlock := map[netip.Prefix][]Release{}
	var order []netip.Prefix
	for _, r := range rs {
		b, ok, err := a.blockAmong(ctx, pools, r.Addr)
		if err != nil {
			return nil, fmt.Errorf("release %s: %w", r.Addr, err)
		}
		if !ok {
			continue // no block: not assigned
		}
		if byBlock[b] == nil {
			order = append(order, b)
		}
		byBlock[b] = append(byBlock[b], r)
	}
	var freed []netip.Addr
	var errs []error
	for _, p := range order {
		var got []netip.Addr
		err := a.change(ctx, fmt.Sprintf("release %s", list(byBlock[p])), func(d *txn) (err error) {
			got, err = m.releaseIn(ctx, d, p, byBlock[p])
			return err
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		freed = append(freed, got...)
	}
	return freed, errors.Join(errs...)
}

func list(rs []Release) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Addr.String())
	}
	return strings.Join(out, " ")
}

// blockOf finds the block that has an address: by its pool, or if there is none, among all.
func (a *Allocator) blockOf(ctx context.Context, addr netip.Addr) (netip.Prefix, bool, error) {
	pools, err := readAll[*api.IPPool](ctx, a.store, api.KindIPPool)
	if err != nil {
		return netip.Prefix{}, false, err
	}
	return a.blockAmong(ctx, pools, addr)
}

// blockAmong is blockOf, where pools are known.
func (a *Allocator) blockAmong(ctx context.Context, pools []*api.IPPool, addr netip.Addr) (netip.Prefix, bool, error) {
	for _, p := range pools {
		if pool, ok := poolOf(p); ok && pool.CIDR.Contains(addr) {
			block, err := addr.Prefix(pool.size)
			if _, gone := a.store.Get(ctx, api.BlockKey(block)); gone == nil {
				return block, err == nil, err
			}
		}
	}
	// The pool is gone, or has other blocks than it had.
	snap, err := a.store.List(ctx, api.BlocksPrefix(addr))
	if err != nil {
		return netip.Prefix{}, false, err
	}
	for _, u := range snap.Items {
		if p, ok := api.ParseBlockKey(u.Key); ok && p.Contains(addr) {
			return p, true, nil
		}
	}
	return netip.Prefix{}, false, nil
}

// releaseIn frees addresses of one block.
func (m *emptied) releaseIn(ctx context.Context, d *txn, p netip.Prefix, rs []Release) ([]netip.Addr, error) {
	e, err := d.block(ctx, p)
	if err = errors.Join(err, e.fault()); err != nil || e.gone {
		return nil, err
	}
	b := e.block
	byHandle := map[string]int{}
	var ords []int
	for _, r := range rs {
		ord, _ := b.Ordinal(r.Addr)
		attr := b.Attribute(ord)
		if attr == nil || coolingDown(attr) || slices.Contains(ords, ord) {
			continue
		}
		has := handleOf(attr)
		if r.Handle != "" && r.Handle != has || r.Sequence != nil && *r.Sequence != b.SequenceOf(ord) {
			return nil, &ReusedError{r.Addr, has, b.SequenceOf(ord)}
		}
		ords = append(ords, ord)
		byHandle[has]++
	}
	for _, handle := range slices.Sorted(maps.Keys(byHandle)) {
		if err := d.count(ctx, handle, p, -byHandle[handle]); err != nil {
			return nil, err
		}
	}
	freed := m.c.free(e, ords, m.c.begin())
	return freed, m.letGo(ctx, d, e)
}

// free frees ordinals of a block, at once or after they have rested. A block that nobody has a claim to goes with its last address.
func (c cooling) free(e *doc, ords []int, restSince string) []netip.Addr {
	if len(ords) == 0 {
		return nil
	}
	var out []netip.Addr
	for _, ord := range ords {
		out = append(out, e.block.Addr(ord))
	}
	e.touch()
	release(e.block, ords, restSince)
	if _, owned := e.block.Owner(); !owned && c.empty(e.block) {
		e.remove()
	}
	return out
}

// ReleaseByHandle releases all addresses of a handle, and returns them. A
// handle that does not exist has none, which is no error.
func (a *Allocator) ReleaseByHandle(ctx context.Context, handle string) ([]netip.Addr, error) {
	return a.ReleaseWhere(ctx, handle, func(netip.Addr, map[string]string) bool { return true })
}

// ReleaseWhere releases those addresses of a handle that which selects, by address and attributes.
func (a *Allocator) ReleaseWhere(ctx context.Context, handle string, which func(addr netip.Addr, attributes map[string]string) bool) ([]netip.Addr, error) {
	config, err := ReadConfig(ctx, a.store)
	if err != nil {
		return nil, fmt.Errorf("release handle %s: %w", handle, err)
	}
	c := a.cooling(config)
	m := &emptied{a: a, c: c, nodes: map[string]nodeLabels{}}
	var freed []netip.Addr
	err = a.change(ctx, "release handle "+handle, func(d *txn) error {
		freed = nil
		others, gone := false, map[netip.Prefix]int{} // whether some stay, and how many go
		h, err := d.read(ctx, api.HandleKey(handle))
		if err = errors.Join(err, h.fault()); err != nil || h.gone {
			return err
		}
		for _, text := range slices.Sorted(maps.Keys(h.handle.Block)) {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				continue // it counts addresses of a missing block
			}
			e, err := d.block(ctx, p)
			if err = errors.Join(err, e.fault()); err != nil {
				return err
			}
			if e.gone {
				continue
			}
			all := of(e.block, handle)
			mine := slices.DeleteFunc(slices.Clone(all), func(ord int) bool { return !which(e.block.Addr(ord), e.block.Attribute(ord).Owner) })
			others = others || len(mine) < len(all)
			gone[p] = len(mine)
			freed = append(freed, c.free(e, mine, c.begin())...)
			if err := m.letGo(ctx, d, e); err != nil {
				return err
			}
		}
		if !others {
			h.remove()
			return nil
		}
		for p, n := range gone {
			if err := d.count(ctx, handle, p, -n); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(freed, netip.Addr.Compare)
	return freed, err
}

// Addresses returns the addresses of a handle.
func (a *Allocator) Addresses(ctx context.Context, handle string) ([]netip.Addr, error) {
	leases, err := a.Leases(ctx, handle)
	var out []netip.Addr
	for _, l := range leases {
		out = append(out, l.Addr)
	}
	return out, err
}

// Leases returns the state of a handle's addresses, in order.
func (a *Allocator) Leases(ctx context.Context, handle string) ([]Lease, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d := a.newTxn()
	h, err := d.read(ctx, api.HandleKey(handle))
	if err = errors.Join(err, h.fault()); err != nil || h.gone {
		return nil, err
	}
	var out []Lease
	for _, text := range slices.Sorted(maps.Keys(h.handle.Block)) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		e, err := d.block(ctx, p)
		if err = errors.Join(err, e.fault()); err != nil {
			return nil, err
		}
		if e.gone {
			continue
		}
		for _, ord := range of(e.block, handle) {
			out = append(out, Lease{Addr: e.block.Addr(ord), Block: p.String(), Assigned: true, Handle: handle, Sequence: e.block.SequenceOf(ord), Owner: e.block.Attribute(ord).Owner, Alternate: e.block.Attribute(ord).Alternate})
		}
	}
	slices.SortFunc(out, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	return out, nil
}
