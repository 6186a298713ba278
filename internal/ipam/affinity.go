package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// BlockArgs asks for a block with a free address, before an address is needed.
type BlockArgs struct {
	Node  string
	Six   bool
	Use   string   // empty: UseWorkload
	Pools []string // names or CIDRs of the family; empty: those that fit
}

// EnsureBlock returns a block of the node with an address left, and claims one if it has none.
func (a *Allocator) EnsureBlock(ctx context.Context, args BlockArgs) (netip.Prefix, error) {
	what := "claim a block for " + args.Node
	r, err := a.request(ctx, AutoArgs{Node: args.Node, Handle: "-", Use: args.Use, Pools4: args.Pools, Pools6: args.Pools})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s: %w", what, err)
	}
	var out netip.Prefix
	err = a.change(ctx, what, func(d *txn) error {
		pools, err := r.poolsOf(!args.Six)
		if err != nil {
			return err
		}
		f := &assignment{request: r, txn: d, four: !args.Six, pools: pools}
		out, err = f.room(ctx)
		return err
	})
	return out, err
}

// room finds a block of the owner with a free address, or claims one.
func (f *assignment) room(ctx context.Context) (netip.Prefix, error) {
	if err := f.own(ctx); err != nil { // takes nothing, since left is zero
		return netip.Prefix{}, err
	}
	c := f.a.cooling(f.config)
	for _, e := range f.txn.order {
		if own, _ := Owner(e.block); e.gone || own != f.owner {
			continue
		}
		_, ok := f.pool(e.block.CIDR)
		_, free := c.count(e.block) // those that have rested are free, too
		for _, ord := range free {
			if ok && ord >= 0 && ord < e.block.Size() && f.isFree(e.block.Addr(ord)) {
				return e.block.CIDR, f.txn.claim(ctx, f.owner, e.block.CIDR)
			}
		}
	}
	f.left = 1
	if err := f.claimOne(ctx); err != nil {
		return netip.Prefix{}, err
	}
	if f.claimed != nil {
		return f.claimed.block.CIDR, nil
	}
	for i, p := range f.pools {
		if p.Why == "" {
			f.pools[i].Why = f.whyNot(ctx, p)
		}
	}
	return netip.Prefix{}, &NoAddressError{Node: f.Node, Want: 1, Four: f.four, Pools: f.pools}
}

// ReleaseHostAffinities gives up all blocks of a node, as ReleaseAffinities does those within a prefix.
func (a *Allocator) ReleaseHostAffinities(ctx context.Context, node string, mustBeEmpty bool) error {
	_, err := a.ReleaseAffinities(ctx, node, netip.Prefix{}, mustBeEmpty)
	return err
}

// ReleaseAffinities gives up the blocks of a node that are within a prefix, or with the zero prefix all, and returns which. Empty ones are deleted;
// the others stay, without affinity, until their last address is released. If they must be empty, those that are not stay the node's, and the
// error, an ErrInUse, has each. A block that is larger than the prefix is not within it.
func (a *Allocator) ReleaseAffinities(ctx context.Context, node string, within netip.Prefix, mustBeEmpty bool) (given []netip.Prefix, err error) {
	if err := checkNames(node, "-"); err != nil {
		return nil, err
	}
	owner := ownerOf(node, UseWorkload)
	var blocks []netip.Prefix
	for _, four := range []bool{true, false} {
		of, err := a.newTxn().claims(ctx, owner, four)
		if err != nil {
			return nil, fmt.Errorf("release blocks of %s: %w", node, err)
		}
		blocks = append(blocks, of...)
	}
	var kept []error
	for _, p := range blocks {
		if within.IsValid() && (p.Bits() < within.Bits() || !within.Contains(p.Addr())) {
			continue
		}
		switch err := a.ReleaseAffinity(ctx, owner, p, mustBeEmpty); {
		case errors.Is(err, ErrInUse):
			kept = append(kept, err)
		case err != nil:
			return given, errors.Join(append(kept, err)...)
		default:
			given = append(given, p)
		}
	}
	return given, errors.Join(kept...)
}

// ReleaseAffinity gives up one block of an owner.
func (a *Allocator) ReleaseAffinity(ctx context.Context, owner api.Owner, p netip.Prefix, mustBeEmpty bool) error {
	what := fmt.Sprintf("release block %s of %s", p, owner.Name)
	config, err := ReadConfig(ctx, a.store)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	c := a.cooling(config)
	return a.change(ctx, what, func(d *txn) error {
		e, err := d.block(ctx, p)
		if err = errors.Join(err, e.fault()); err != nil {
			return err
		}
		if own, ok := Owner(e.block); ok && own == owner && !e.gone {
			switch {
			case c.empty(e.block):
				e.remove()
			case mustBeEmpty:
				return c.inUse(e.block)
			default:
				e.block.Affinity = nil
				e.touch()
			}
		}
		return d.unclaim(ctx, owner, p)
	})
}

// RetirePool disables a pool and gives up its blocks, before it is deleted: empty
// ones go at once, the others with their last address. It returns how many
// addresses of it are in use. [datastore.ErrConflict]: the pool is not at this revision (the zero value is any), and nothing was changed.
func (a *Allocator) RetirePool(ctx context.Context, key string, at api.Revision, disable func(stored []byte) ([]byte, error)) (int, error) {
	u, err := a.store.Get(ctx, key)
	if err == nil && !at.IsZero() && u.Revision != at {
		err = datastore.ErrConflict
	}
	if err != nil {
		return 0, err
	}
	st, _ := api.DecodeStored(u) // an unreadable pool has no blocks
	r, ok := st.Resource.(*api.IPPool)
	if !ok {
		return 0, nil
	}
	pool, ok := poolOf(r)
	if !ok {
		return 0, nil
	}
	if u.Value, err = disable(u.Value); err == nil {
		_, err = a.store.Update(ctx, u) // else a node could claim a block that was just given up
	}
	if err != nil {
		return 0, err
	}
	inUse, _, err := a.RetireBlocks(ctx, pool.CIDR)
	return inUse, err
}

// RetireBlocks gives up the blocks in a range, of which nothing new is assigned: empty ones go at once, the others with their last address.
// It returns how many addresses are in use, and how many blocks are left. Addresses of nodes' tunnels do not count, nor do blocks with nothing
// else: a node keeps the end of its tunnel until the pool is gone.
func (a *Allocator) RetireBlocks(ctx context.Context, cidr netip.Prefix) (inUse, left int, err error) {
	config, err := ReadConfig(ctx, a.store)
	if err != nil {
		return 0, 0, err
	}
	all, err := a.newTxn().blocks(ctx, cidr.Addr())
	if err != nil {
		return 0, 0, err
	}
	c := a.cooling(config)
	for _, e := range all {
		if !cidr.Contains(keyOf(e).Addr()) {
			continue
		}
		if e.open().block == nil { // nobody knows what it has
			left++
			continue
		}
		n, cold := c.exceptTunnels(e.block)
		if inUse += n; n+cold > 0 {
			left++
		}
		if err := a.retire(ctx, e.block, c); err != nil {
			return inUse, left, err
		}
	}
	return inUse, left, nil
}

// retire gives up one block, if it is somebody's, or deletes one that is nobody's and empty.
func (a *Allocator) retire(ctx context.Context, b *api.Block, c cooling) error {
	if own, owned := b.Owner(); owned {
		return a.ReleaseAffinity(ctx, own, b.CIDR, false)
	}
	if !c.empty(b) {
		return nil
	}
	return a.change(ctx, "delete block "+b.CIDR.String(), func(d *txn) error {
		e, err := d.block(ctx, b.CIDR)
		if err = errors.Join(err, e.fault()); err != nil || e.gone {
			return err
		}
		if _, owned := e.block.Owner(); !owned && c.empty(e.block) {
			e.remove()
		}
		return nil
	})
}
