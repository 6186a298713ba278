package ipam

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// inSteps commits without transactions. Whatever happens between two steps, a
// block never has an allocation that its handle does not count, and an owner has
// a claim, if only a pending one, to each of its blocks:
//
//  0. endpoints that go are deleted;
//  1. claims are written as pending, and those to be given up as pendingDeletion;
//  2. handles that grow are written;
//  3. blocks are written; here it is decided who was first, and who was not takes the claim back;
//  4. handles that grew are looked at again: a release of the whole handle may have come between;
//  5. handles that shrink are written, claims are confirmed, or deleted.
func (a *Allocator) inSteps(ctx context.Context, changed []*doc) error {
	for _, e := range changed {
		if e.gone && e.block == nil && e.handle == nil && e.affinity == nil { // an endpoint is deleted before its address
			if err := a.write(ctx, e); err != nil {
				return err
			}
		}
		if e.affinity != nil {
			if err := a.announce(ctx, e); err != nil {
				return err
			}
		}
	}
	var grown, written []*doc
	for _, e := range changed {
		if e.handle == nil || !e.more {
			continue
		}
		if err := a.write(ctx, e); err != nil {
			return errors.Join(err, a.undo(ctx, err, grown, nil))
		}
		grown = append(grown, e)
	}
	for _, e := range changed {
		if e.block == nil {
			continue
		}
		if err := a.write(ctx, e); err != nil {
			return errors.Join(err, a.undo(ctx, err, grown, written), a.renounce(ctx, err, changed))
		}
		written = append(written, e)
	}
	for _, e := range grown {
		if err := a.uphold(ctx, e, written); err != nil {
			return err
		}
	}
	for _, e := range changed {
		if e.handle != nil && !e.more || e.affinity != nil {
			// The block is written, and that is what counts: what another writer does to its
			// handle now, or a failure here, leaves too much, never too little.
			err := a.write(ctx, e)
			if isConflict(err) && e.affinity != nil && !e.gone {
				err = a.upholdClaim(ctx, e.key)
			}
			if err != nil && !isConflict(err) {
				return err
			}
		}
	}
	return nil
}

// uphold makes a handle count at least what the blocks that were just written have.
func (a *Allocator) uphold(ctx context.Context, e *doc, blocks []*doc) error {
	for {
		d := a.newTxn()
		now, err := d.read(ctx, e.key)
		if err = errors.Join(err, now.fault()); err != nil || now.was.Revision == e.was.Revision {
			return err
		}
		if now.gone {
			now.handle, now.gone = &api.Handle{Block: map[string]int{}}, false
		}
		short := false
		id, _ := api.ParseHandleKey(e.key)
		for _, b := range blocks {
			cidr := b.block.CIDR.String()
			if n := len(of(b.block, id)); now.handle.Block[cidr] < n {
				now.handle.Block[cidr], short = n, true
			}
		}
		if !short {
			return nil
		}
		if err := a.write(ctx, now); !isConflict(err) {
			return err
		}
	}
}

// upholdClaim confirms an affinity that another writer has changed meanwhile, if the block is the owner's.
func (a *Allocator) upholdClaim(ctx context.Context, key string) error {
	own, p, _ := api.ParseAffinityKey(key)
	for {
		d := a.newTxn()
		block, err := d.block(ctx, p)
		if has, owned := Owner(block.blockNow()); err != nil || !owned || has != own {
			return err
		}
		if err := d.claim(ctx, own, p); err != nil {
			return err
		}
		changed := d.changed()
		if len(changed) == 0 {
			return nil
		}
		if err := a.write(ctx, changed[0]); !isConflict(err) {
			return err
		}
	}
}

// renounce deletes the claims that were announced for blocks which others were first to take.
func (a *Allocator) renounce(ctx context.Context, why error, changed []*doc) error {
	if !isConflict(why) {
		return nil // it is unknown whose the blocks are
	}
	for _, e := range changed {
		if e.affinity == nil || e.gone || e.before != nil {
			continue
		}
		own, p, _ := api.ParseAffinityKey(e.key)
		block, err := a.newTxn().block(ctx, p)
		if err != nil {
			return err
		}
		if has, owned := Owner(block.blockNow()); !owned || has == own {
			continue // the next attempt takes it, or another process of the owner did
		}
		if err := a.store.Delete(ctx, e.key, e.was.Revision); err != nil && !isConflict(err) {
			return err
		}
	}
	return nil
}

// announce writes an affinity as pending.
func (a *Allocator) announce(ctx context.Context, e *doc) error {
	state := api.AffinityPending
	if e.gone {
		state = api.AffinityPendingDeletion
	}
	value, err := json.Marshal(api.Affinity{State: state})
	if err != nil {
		return err
	}
	e.was, err = a.put(ctx, e.was, value)
	return err
}

// write writes one key of the transaction, if it is as it was read.
func (a *Allocator) write(ctx context.Context, e *doc) error {
	if e.gone {
		if err := a.store.Delete(ctx, e.key, e.was.Revision); err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
		e.was.Revision = api.Revision{}
		return nil
	}
	value, err := e.value()
	if err != nil {
		return err
	}
	e.was, err = a.put(ctx, e.was, value)
	return err
}

func (a *Allocator) put(ctx context.Context, was api.Update, value []byte) (api.Update, error) {
	kv := api.Update{Key: was.Key, Value: value, Revision: was.Revision}
	var now api.Update
	var err error
	if was.Revision.IsZero() {
		now, err = a.store.Create(ctx, kv)
	} else {
		now, err = a.store.Update(ctx, kv)
	}
	if err != nil {
		return was, err
	}
	return now, nil
}

// undo reverts what was written before a conflict.
// After any other error it is unknown what was written, and all is left: it is
// the caller's to release its handle.
func (a *Allocator) undo(ctx context.Context, why error, grown, written []*doc) error {
	if !isConflict(why) || len(grown) == 0 {
		return nil // a release is resumed, not reverted
	}
	for _, e := range append(written, grown...) {
		// If somebody has changed a block since, its allocations stay, and so must the handles: too
		// much is left, and goes with the handle.
		if err := a.restore(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// restore writes what a key held before.
func (a *Allocator) restore(ctx context.Context, e *doc) error {
	if e.before == nil {
		return a.store.Delete(ctx, e.key, e.was.Revision)
	}
	_, err := a.store.Update(ctx, api.Update{Key: e.key, Value: e.before, Revision: e.was.Revision})
	return err
}
