package ipam

import (
	"context"
	"errors"
	"maps"
	"net/netip"

	"github.com/twillnet/twill/api"
)

// Repaired is the result of the repair of one finding.
type Repaired struct {
	Finding
	Err error // nil: repaired; ErrReused and conflicts: changed since the survey, to be checked again
}

// Repair repairs the findings with a Fix, each by itself, and only if nothing that the
// finding follows from has changed since.
func (a *Allocator) Repair(ctx context.Context, fs []Finding) []Repaired {
	var out []Repaired
	ours := map[string]api.Revision{} // what keys were changed to by repairs before
	for _, f := range fs {
		if f.fix == nil {
			continue
		}
		out = append(out, Repaired{f, a.repair(ctx, f, ours)})
	}
	return out
}

// errStale: a key that the finding follows from has changed.
var errStale = errors.New("changed since it was looked at; check again")

// IsStale reports whether a repair was not made since something had changed after the survey.
func IsStale(err error) bool { return errors.Is(err, errStale) }

func (a *Allocator) repair(ctx context.Context, f Finding, ours map[string]api.Revision) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	config, err := ReadConfig(ctx, a.store)
	if err != nil {
		return err
	}
	d := a.newTxn()
	for key, revision := range f.seen {
		e, err := d.read(ctx, key)
		if err != nil {
			return err
		}
		if now, repaired := ours[key]; repaired {
			revision = now
		}
		if e.was.Revision != revision {
			return errStale
		}
		e.guard = true
	}
	if err := f.fix(&repair{ctx, d, a.cooling(config)}); err != nil {
		return err
	}
	changed := d.changed()
	if err := a.commit(ctx, d); err != nil {
		if isConflict(err) {
			return errStale
		}
		return err
	}
	// What this repair wrote is no reason not to make the next one.
	for _, e := range changed {
		ours[e.key] = e.was.Revision
	}
	return nil
}

// Both are the findings of the second survey that were there at the first, with
// nothing changed between: what was merely under way is not among them.
func Both(before, after []Finding) []Finding {
	was := map[string]bool{}
	for _, f := range before {
		was[f.id()] = true
	}
	var out []Finding
	for _, f := range after {
		if was[f.id()] {
			out = append(out, f)
		}
	}
	return out
}

// repair is the state of one repair.
type repair struct {
	ctx     context.Context
	txn     *txn
	cooling // which addresses rest now
}

func (m *repair) block(p netip.Prefix) (*doc, error) {
	e, err := m.txn.block(m.ctx, p)
	if err = errors.Join(err, e.fault()); err == nil && e.gone {
		err = errStale
	}
	return e, err
}

func (m *repair) freeAddress(addr netip.Addr, block netip.Prefix, handle string, sequence uint64) error {
	e, err := m.block(block)
	if err != nil {
		return err
	}
	ord, _ := e.block.Ordinal(addr)
	if attr := e.block.Attribute(ord); attr == nil || handleOf(attr) != handle || e.block.SequenceOf(ord) != sequence {
		return errStale
	}
	m.free(e, []int{ord}, "") // without a handle
	return m.txn.count(m.ctx, handle, block, -1)
}

func (m *repair) freeList(p netip.Prefix) error {
	e, err := m.block(p)
	if err != nil {
		return err
	}
	var list []int
	seen := map[int]bool{}
	for _, ord := range e.block.Unallocated {
		if ord >= 0 && ord < e.block.Size() && e.block.Allocations[ord] == nil && !seen[ord] {
			list = append(list, ord)
			seen[ord] = true
		}
	}
	for ord, at := range e.block.Allocations {
		if at == nil && !seen[ord] {
			list = append(list, ord)
		}
	}
	e.block.Unallocated = list
	e.touch()
	return nil
}

func (m *repair) dropBlock(p netip.Prefix) error {
	e, err := m.block(p)
	if err != nil {
		return err
	}
	own, owned := e.block.Owner()
	e.remove()
	if owned {
		return m.txn.unclaim(m.ctx, own, p)
	}
	return nil
}

// recount sets a handle to what blocks have, less what repairs before this one freed.
func (m *repair) recount(id string, have map[string]int) error {
	e, err := m.txn.read(m.ctx, api.HandleKey(id))
	if err = errors.Join(err, e.fault()); err != nil {
		return err
	}
	now := map[string]int{}
	for text := range have {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		b, err := m.txn.block(m.ctx, p)
		if err = errors.Join(err, b.fault()); err != nil {
			return err
		}
		if b.gone {
			continue
		}
		if n := len(of(b.block, id)); n > 0 {
			now[text] = n
		}
	}
	if e.handle == nil {
		e.handle = &api.Handle{Block: map[string]int{}}
	}
	if !e.gone && maps.Equal(e.handle.Block, now) && len(now) > 0 {
		return nil
	}
	e.handle.Block, e.dirty, e.gone = now, true, len(now) == 0
	return nil
}

func (m *repair) dropClaim(own api.Owner, p netip.Prefix) error {
	return m.txn.unclaim(m.ctx, own, p)
}

func (m *repair) confirm(own api.Owner, p netip.Prefix) error { return m.txn.claim(m.ctx, own, p) }

func (m *repair) giveUp(own api.Owner, p netip.Prefix) error {
	e, err := m.block(p)
	if err != nil {
		return err
	}
	if e.block.Affinity = nil; m.empty(e.block) {
		e.remove()
	} else {
		e.touch()
	}
	return m.txn.unclaim(m.ctx, own, p)
}
