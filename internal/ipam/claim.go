package ipam

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
)

// minIdleAge is the age below which an empty block is not taken from its owner: the owner
// may have claimed it to use it now.
const minIdleAge = time.Minute

// free finds a block of a usable pool for the owner: one that does not exist yet,
// else one that is empty and has been its owner's for a while.
func (f *assignment) free(ctx context.Context) (*doc, error) {
	all, err := f.txn.blocks(ctx, familyOf(f.four))
	if err != nil {
		return nil, err
	}
	exists := map[netip.Prefix]*doc{}
	for _, e := range all {
		p, _ := api.ParseBlockKey(e.key)
		exists[p] = e
	}
	for _, p := range f.pools {
		if p.Why != "" {
			continue
		}
		if at, ok := f.gap(p, taken{exists, oddIn(p, all)}); ok {
			b := newBlock(at, f.owner, f.a.cfg.Now())
			if f.Windows {
				reserveForWindows(b)
			}
			return f.txn.create(b), nil
		}
	}
	for _, e := range all {
		if _, ok := f.pool(keyOf(e)); !ok || e.open().block == nil || e.dirty || !f.idle(e.block) {
			continue
		}
		if was, ok := e.block.Owner(); ok {
			if err := f.txn.unclaim(ctx, was, e.block.CIDR); err != nil {
				return nil, err
			}
		}
		own := f.owner.String()
		e.block.Affinity, e.block.ClaimTime = &own, stamp(f.a.cfg.Now())
		e.touch()
		return e, nil
	}
	return nil, nil
}

func keyOf(e *doc) netip.Prefix {
	p, _ := api.ParseBlockKey(e.key)
	return p
}

// idle reports whether a block may be taken from its owner.
func (f *assignment) idle(b *api.Block) bool {
	own, owned := b.Owner()
	if owned && (own == f.owner || own.Type != f.owner.Type) {
		return false
	}
	c := f.a.cooling(f.config)
	if _, free := c.count(b); !c.empty(b) || !slices.ContainsFunc(free, func(o int) bool { return f.isFree(b.Addr(o)) }) {
		return false
	}
	since, err := time.Parse(time.RFC3339, b.ClaimTime)
	return err != nil || f.a.cfg.Now().Sub(since) >= minIdleAge
}

// gap finds a block of the pool that does not exist. Each owner begins the search
// at a place of its own, so that hosts that start together do not conflict.
func (f *assignment) gap(p Pool, by taken) (netip.Prefix, bool) {
	first := nth(p, seed(f.owner.Name)%(uint64(1)<<min(p.size-p.CIDR.Bits(), 63)))
	at, wrapped := first, false
	for {
		last := at
		if !by.has(at) {
			r, reserved := f.reservedWhole(at)
			if !reserved && f.hasFree(at) {
				return at, true
			}
			if reserved {
				last = r // go on behind it, however large it is
			}
		}
		next := lastOf(last).Next()
		if !p.CIDR.Contains(next) {
			if wrapped {
				return netip.Prefix{}, false
			}
			wrapped, next = true, p.CIDR.Addr()
		}
		if at = netip.PrefixFrom(next, p.size); wrapped && next.Compare(first.Addr()) >= 0 {
			return netip.Prefix{}, false
		}
	}
}

// taken are the blocks that exist: those of the pool's size, and others, which a
// former pool of the same range left behind.
type taken struct {
	exists map[netip.Prefix]*doc
	odd    []netip.Prefix
}

func (t taken) has(block netip.Prefix) bool {
	_, is := t.exists[block]
	return is || slices.ContainsFunc(t.odd, block.Overlaps)
}

// oddIn are the blocks within a pool that are larger or smaller than its own.
func oddIn(p Pool, all []*doc) []netip.Prefix {
	var out []netip.Prefix
	for _, e := range all {
		if b := keyOf(e); b.Bits() != p.size && b.Overlaps(p.CIDR) {
			out = append(out, b)
		}
	}
	return out
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// reservedWhole finds the reservation that covers a whole block.
func (r *request) reservedWhole(block netip.Prefix) (netip.Prefix, bool) {
	for _, p := range r.reserved {
		if p.Bits() <= block.Bits() && p.Contains(block.Addr()) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// hasFree reports whether reservations leave something of a block.
func (r *request) hasFree(block netip.Prefix) bool {
	if !slices.ContainsFunc(r.reserved, block.Overlaps) {
		return true
	}
	for a := block.Addr(); block.Contains(a); a = a.Next() {
		if r.isFree(a) {
			return true
		}
	}
	return false
}

// nth returns a block of a pool by its place.
func nth(p Pool, i uint64) netip.Prefix {
	raw := p.CIDR.Addr().As16()
	hi, lo := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	shift := p.CIDR.Addr().BitLen() - p.size
	addLo := i << shift
	addHi := uint64(0)
	if shift >= 64 {
		addLo, addHi = 0, i<<(shift-64)
	} else if shift > 0 {
		addHi = i >> (64 - shift)
	}
	lo, carry := bits.Add64(lo, addLo, 0)
	hi, _ = bits.Add64(hi, addHi, carry)
	binary.BigEndian.PutUint64(raw[:8], hi)
	binary.BigEndian.PutUint64(raw[8:], lo)
	a := netip.AddrFrom16(raw)
	if p.CIDR.Addr().Is4() {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, p.size)
}

// seed hashes a name.
func seed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it cannot fail
	return h.Sum64()
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
