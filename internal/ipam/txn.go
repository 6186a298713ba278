package ipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// txn holds keys as they were read, and as they are to be written.
type txn struct {
	a      *Allocator
	docs   map[string]*doc
	order  []*doc
	lists  map[string]bool // prefixes that were listed
	first  bool            // the first attempt of a change
	cached bool            // nothing is read: blocks and affinities are taken from the cache, and handles are new
	extra  *ExtraOps

	givenUp int // blocks, see mostGivenUp
}

// doc is one key: a block, a handle, an affinity, or another resource.
type doc struct {
	key      string
	was      api.Update // its revision is zero if the key does not exist
	before   []byte     // the value that was read; nil if there was none
	bad      error      // why before could not be decoded
	block    *api.Block
	handle   *api.Handle
	affinity *api.Affinity
	dirty    bool
	closed   bool // not decoded yet, see open
	guard    bool // its revision is a precondition, even if it is not written
	gone     bool // to be deleted, or does not exist
	more     bool // of a handle: its count grew
}

func (a *Allocator) newTxn() *txn { return &txn{a: a, docs: map[string]*doc{}} }

func (d *txn) doc(key string) (*doc, bool) {
	e, ok := d.docs[key]
	if !ok {
		e = &doc{key: key, was: api.Update{Key: key}, gone: true}
		d.docs[key] = e
		d.order = append(d.order, e)
	}
	return e, ok
}

// read brings a key into the transaction.
func (d *txn) read(ctx context.Context, key string) (*doc, error) {
	e, ok := d.doc(key)
	if ok {
		return e.open(), nil
	}
	if d.cached {
		return d.fromCache(e)
	}
	u, err := d.a.store.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return e, nil
	}
	if err != nil {
		delete(d.docs, key)
		return nil, err
	}
	if kept := d.a.kept[key]; kept != nil && kept.was.Revision == u.Revision {
		delete(d.a.kept, key) // the transaction owns it now
		*e = *kept
	} else {
		e.decode(u)
	}
	return e, nil
}

// fromCache returns a key as the last change left it; a handle is taken not to exist.
func (d *txn) fromCache(e *doc) (*doc, error) {
	if kept, ok := d.a.kept[e.key]; ok {
		delete(d.a.kept, e.key)
		*e = *kept
		e.guard = true
		return e, nil
	}
	if _, ok := api.ParseHandleKey(e.key); ok {
		return e, nil
	}
	return nil, fmt.Errorf("%s: %w", e.key, errAgain)
}

// mostKept bounds the cache: blocks and affinities of one node, of which it needs two at a time.
const mostKept = 64

// keep caches what a transaction wrote.
func (a *Allocator) keep(d *txn) {
	if a.cfg.Reuse == 0 {
		return
	}
	if len(a.kept) > mostKept {
		clear(a.kept)
	}
	a.keptUntil = a.cfg.Now().Add(a.cfg.Reuse)
	for _, e := range d.order {
		delete(a.kept, e.key)
		if p, ok := api.ParseBlockKey(e.key); ok && e.gone {
			delete(a.full, p)
		}
		if e.gone || e.closed || e.bad != nil || e.handle != nil {
			continue
		}
		e.dirty, e.guard = false, false
		a.kept[e.key] = e
		if e.block != nil {
			a.remember(e.block)
		}
	}
}

// open decodes a value that was listed: of a thousand blocks mostly one is needed.
func (e *doc) open() *doc {
	if e.closed {
		e.closed = false
		e.decode(e.was)
	}
	return e
}

func (e *doc) decode(u api.Update) {
	e.was, e.before, e.gone = u, u.Value, false
	if strings.HasPrefix(u.Key, api.ResourcesPrefix) {
		return // other resources are only deleted, see freeOrphan
	}
	if _, ok := api.ParseBlockKey(u.Key); ok {
		e.block, e.bad = api.DecodeBlock(u)
	} else if _, ok := api.ParseHandleKey(u.Key); ok {
		e.handle, e.bad = api.DecodeHandle(u)
	} else {
		e.affinity, e.bad = api.DecodeAffinity(u)
	}
}

func (d *txn) block(ctx context.Context, p netip.Prefix) (*doc, error) {
	return d.read(ctx, api.BlockKey(p))
}

// claims returns the blocks of a family to which an owner has an affinity, in any state.
func (d *txn) claims(ctx context.Context, o api.Owner, four bool) ([]netip.Prefix, error) {
	prefix := api.AffinitiesPrefix(o)
	if err := d.list(ctx, prefix); err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, e := range d.order {
		if own, p, ok := api.ParseAffinityKey(e.key); ok && own == o && p.Addr().Is4() == four && !e.gone {
			out = append(out, p)
		}
	}
	return out, nil
}

// list reads all keys with a prefix into the transaction, not decoded.
func (d *txn) list(ctx context.Context, prefix string) error {
	if d.lists[prefix] {
		return nil
	}
	snap, err := d.a.store.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, u := range snap.Sorted() {
		e, known := d.doc(u.Key)
		switch {
		case !known:
			e.was, e.gone, e.closed = u, false, true
		case e.was.Revision != u.Revision:
			return fmt.Errorf("%s: %w", u.Key, errAgain)
		}
	}
	if d.lists == nil {
		d.lists = map[string]bool{}
	}
	d.lists[prefix] = true
	return nil
}

// blocks reads all blocks of a family, not decoded; open sets bad for those that cannot be decoded.
func (d *txn) blocks(ctx context.Context, of netip.Addr) ([]*doc, error) {
	prefix := api.BlocksPrefix(of)
	if err := d.list(ctx, prefix); err != nil {
		return nil, err
	}
	var out []*doc
	for _, e := range d.order {
		if p, ok := api.ParseBlockKey(e.key); ok && !e.gone && p.Addr().BitLen() == of.BitLen() {
			out = append(out, e)
		}
	}
	return out, nil
}

// create adds a new block, which must not exist.
func (d *txn) create(b *api.Block) *doc {
	e, _ := d.doc(api.BlockKey(b.CIDR))
	e.block, e.dirty, e.gone = b, true, false
	return e
}

// touch marks a block as changed.
func (e *doc) touch() {
	if !e.dirty {
		e.dirty = true
		e.block.Sequence++
	}
}

// remove marks a key as to be deleted.
func (e *doc) remove() { e.dirty, e.gone = true, true }

// claim makes an owner's affinity to a block confirmed.
func (d *txn) claim(ctx context.Context, o api.Owner, p netip.Prefix) error {
	e, err := d.read(ctx, api.AffinityKey(o, p))
	if err != nil {
		return err
	}
	if e.bad != nil {
		e.affinity = nil // unreadable, and the owner's by its key
	}
	if e.gone || e.affinity == nil || e.affinity.State != api.AffinityConfirmed {
		if e.affinity == nil {
			e.affinity = &api.Affinity{}
		}
		e.affinity.State, e.dirty, e.gone = api.AffinityConfirmed, true, false
	}
	return nil
}

// unclaim removes an owner's affinity to a block.
func (d *txn) unclaim(ctx context.Context, o api.Owner, p netip.Prefix) error {
	e, err := d.read(ctx, api.AffinityKey(o, p))
	if err == nil && !e.gone {
		e.remove()
	}
	return err
}

// count changes a handle's count of addresses of a block. It counts down to
// zero at most: a handle that counts too few must not keep an address from release.
func (d *txn) count(ctx context.Context, handle string, p netip.Prefix, by int) error {
	if handle == "" {
		return nil
	}
	e, err := d.read(ctx, api.HandleKey(handle))
	if err = errors.Join(err, e.fault()); err != nil {
		return err
	}
	if e.gone {
		if by < 0 {
			return nil
		}
		e.handle, e.gone = &api.Handle{Block: map[string]int{}}, false
	}
	e.dirty, e.more = true, e.more || by > 0
	n := e.handle.Block[p.String()] + by
	if e.handle.Block[p.String()] = n; n <= 0 {
		delete(e.handle.Block, p.String())
	}
	if len(e.handle.Block) == 0 {
		e.remove()
	}
	return nil
}

// fault returns why a key could not be decoded.
func (e *doc) fault() error {
	if e == nil {
		return nil
	}
	return e.bad
}

// blockNow returns the block; nil if there is none.
func (e *doc) blockNow() *api.Block {
	if e == nil || e.gone {
		return nil
	}
	return e.block
}

// value encodes what is to be stored.
func (e *doc) value() ([]byte, error) {
	switch {
	case e.block != nil:
		return json.Marshal(e.block)
	case e.handle != nil:
		return json.Marshal(e.handle)
	}
	return json.Marshal(e.affinity)
}

// changed returns the keys that are to be written or deleted.
func (d *txn) changed() []*doc {
	var out []*doc
	for _, e := range d.order {
		if e.dirty && !(e.gone && e.was.Revision.IsZero()) {
			out = append(out, e)
		}
	}
	return out
}

// commit writes the transaction.
func (a *Allocator) commit(ctx context.Context, d *txn) error {
	changed := d.changed()
	if len(changed) == 0 {
		return nil
	}
	if a.txn == nil {
		return a.inSteps(ctx, changed)
	}
	t := datastore.Txn{If: map[string]api.Revision{}}
	if d.extra != nil {
		t.If[d.extra.kv.Key] = d.extra.kv.Revision
		t.Put = append(t.Put, d.extra.kv)
	}
	for _, e := range d.order {
		if e.guard {
			t.If[e.key] = e.was.Revision
		}
	}
	for _, e := range changed {
		t.If[e.key] = e.was.Revision
		if e.gone {
			t.Delete = append(t.Delete, e.key)
			continue
		}
		value, err := e.value()
		if err != nil {
			return err
		}
		t.Put = append(t.Put, api.Update{Key: e.key, Value: value})
	}
	revision, err := a.txn.Transact(ctx, t)
	if err != nil && !isConflict(err) {
		if was, done := a.isDone(ctx, t); done {
			revision, err = was, nil
		}
	}
	for _, e := range changed {
		if e.was.Revision = revision; e.gone {
			e.was.Revision = api.Revision{}
		}
	}
	if err == nil {
		a.keep(d)
		d.extra.written(revision)
	}
	return err
}

// isDone reads back whether a transaction without an answer was committed, and its revision.
func (a *Allocator) isDone(ctx context.Context, t datastore.Txn) (revision api.Revision, done bool) {
	for _, kv := range t.Put {
		is, err := a.store.Get(ctx, kv.Key)
		if err != nil || !bytes.Equal(is.Value, kv.Value) {
			return revision, false
		}
		revision = is.Revision
	}
	for _, key := range t.Delete {
		if _, err := a.store.Get(ctx, key); !errors.Is(err, datastore.ErrNotFound) {
			return revision, false
		}
	}
	return revision, true
}
