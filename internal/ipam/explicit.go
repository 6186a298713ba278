package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/api"
)

// IPArgs asks for one address.
type IPArgs struct {
	Addr       netip.Addr
	Node       string
	Handle     string
	Attributes map[string]string
	Use        string // empty: UseWorkload
}

// AssignedError is the error for an address that is assigned already.
type AssignedError struct {
	Addr   netip.Addr
	Handle string
}

// Is makes it an ErrAssigned.
func (e *AssignedError) Is(target error) bool { return target == ErrAssigned }

func (e *AssignedError) Error() string {
	return fmt.Sprintf("%v to handle %s", ErrAssigned, e.Handle)
}

// AssignIP assigns one given address. Reservations and the
// pool's selectors are not applied to explicit addresses. A block
// that does not exist becomes the node's.
func (a *Allocator) AssignIP(ctx context.Context, args IPArgs) (Address, error) {
	what := fmt.Sprintf("assign %s on %s", args.Addr, args.Node)
	if args.Use == "" {
		args.Use = UseWorkload
	}
	if err := checkNames(args.Node, args.Handle); err != nil {
		return Address{}, fmt.Errorf("%s: %w", what, err)
	}
	w, err := a.resources(ctx)
	if err != nil {
		return Address{}, fmt.Errorf("%s: %w", what, err)
	}
	pool, err := w.poolFor(args.Addr, args.Use)
	if err != nil {
		return Address{}, fmt.Errorf("%s: %w", what, err)
	}
	block, _ := args.Addr.Prefix(pool.size) // an address of the pool's family
	var out Address
	err = a.change(ctx, what, func(d *txn) error {
		out, err = w.takeThis(ctx, d, block, args)
		out.Pool = pool.Name
		return err
	})
	return out, err
}

// Adopt gives an address that is assigned to nobody to a handle, with attributes, whatever pools say, and reports whether it did. Nobody's is an
// allocation with neither handle nor attributes, as old versions of Calico made them for tunnels, or one of that handle which the handle
// does not know.
func (a *Allocator) Adopt(ctx context.Context, args IPArgs) (adopted bool, err error) {
	what := fmt.Sprintf("adopt %s on %s", args.Addr, args.Node)
	if err := checkNames(args.Node, args.Handle); err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	block, ok, err := a.blockOf(ctx, args.Addr)
	if err != nil || !ok {
		return false, err
	}
	err = a.change(ctx, what, func(d *txn) error {
		adopted = false
		e, err := d.block(ctx, block)
		if err = errors.Join(err, e.fault()); err != nil || e.gone {
			return err
		}
		ord, _ := e.block.Ordinal(args.Addr)
		attr := e.block.Attribute(ord)
		if attr == nil || coolingDown(attr) || handleOf(attr) != args.Handle && (handleOf(attr) != "" || len(attr.Owner) > 0) {
			return nil
		}
		h, err := d.read(ctx, api.HandleKey(args.Handle))
		if err = errors.Join(err, h.fault()); err != nil {
			return err
		}
		counted := 0
		if !h.gone {
			counted = h.handle.Block[block.String()]
		}
		release(e.block, []int{ord}, "")
		takeThis(e.block, ord, attribute(args.Handle, args.Attributes))
		e.touch()
		adopted = true
		return d.count(ctx, args.Handle, block, len(of(e.block, args.Handle))-counted)
	})
	return adopted, err
}

// poolFor finds the pool of an address, and says why it is of no use.
func (w *resources) poolFor(addr netip.Addr, use string) (Pool, error) {
	err := fmt.Errorf("%w: no IPPool contains it", ErrNoPool)
	var first Pool
	for _, p := range w.containing(addr) {
		pool, _ := poolOf(p)
		why := cmp.Or(w.yields(p), (requester{use: use, pools: []string{pool.Name}}).unsuitable(p, pool))
		if why == "" {
			return pool, nil
		}
		if first.Name == "" { // of pools that overlap one may be used
			first, err = pool, fmt.Errorf("%w: pool %s %s", ErrNoPool, pool.Name, why)
		}
	}
	return first, err
}

func (w *resources) takeThis(ctx context.Context, d *txn, block netip.Prefix, args IPArgs) (Address, error) {
	e, err := d.block(ctx, block)
	if err == nil && e.gone {
		e, err = d.insteadOf(ctx, e, args.Addr)
	}
	if err = errors.Join(err, e.fault()); err != nil {
		return Address{}, err
	}
	block = keyOf(e)
	owner := ownerOf(args.Node, args.Use)
	switch own, owned := Owner(e.block); {
	case e.gone:
		e = d.create(newBlock(block, owner, d.a.cfg.Now()))
		err = d.claim(ctx, owner, block)
	case own == owner:
		err = d.claim(ctx, owner, block)
	case w.config.StrictAffinity:
		if !owned {
			own.Name = "nobody"
		}
		return Address{}, fmt.Errorf("%w: block %s is %s's", ErrAffinity, block, own.Name)
	}
	if err != nil {
		return Address{}, err
	}
	b := e.block
	ord, _ := b.Ordinal(args.Addr)
	if coolingDown(b.Attribute(ord)) { // cool-down does not apply to explicit addresses
		release(b, []int{ord}, "")
		e.touch()
	}
	if attr := b.Attribute(ord); attr != nil {
		return Address{}, &AssignedError{args.Addr, handleOf(attr)}
	}
	takeThis(b, ord, attribute(args.Handle, args.Attributes))
	out := Address{Addr: args.Addr, Block: block, Sequence: b.SequenceOf(ord)}
	e.touch()
	return out, d.count(ctx, args.Handle, block, 1)
}

// insteadOf finds the block that has an address although it is not of its pool's
// size, as a former pool of the same range may have left it. A block that would
// overlap another is not made.
func (d *txn) insteadOf(ctx context.Context, absent *doc, addr netip.Addr) (*doc, error) {
	all, err := d.blocks(ctx, addr)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		switch b := keyOf(e); {
		case b.Contains(addr):
			return e.open(), nil
		case b.Overlaps(keyOf(absent)):
			return nil, fmt.Errorf("its block would be %s, which overlaps block %s of a former pool; release what is in that, or make its addresses' pool anew", keyOf(absent), b)
		}
	}
	return absent, nil
}

// Owner returns a block's owner; the zero Owner and false if it has none, or there is no block.
func Owner(b *api.Block) (api.Owner, bool) {
	if b == nil {
		return api.Owner{}, false
	}
	return b.Owner()
}
