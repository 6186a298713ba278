package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// mostBlocks is the default number of blocks of a family that a host may have.
const mostBlocks = 20

// AutoArgs asks for any free addresses.
type AutoArgs struct {
	Node       string
	Handle     string            // the owner of the addresses; releases them all
	Attributes map[string]string // kept with each address, see api.AttributePod and others
	Num4, Num6 int
	Use        string    // empty: UseWorkload
	Namespace  string    // of the workload, for namespaceSelectors
	Pools4     []string  // names or CIDRs of IPv4 pools; empty: those that fit
	Pools6     []string  // the same of IPv6
	Windows    bool      // new blocks reserve the addresses that Windows needs, and none is borrowed
	ExtraOps   *ExtraOps // nil: nothing
	// Avoid reports whether an address is not to be assigned, though nothing has it here; nil: none.
	Avoid func(netip.Addr) bool
}

// ExtraOps is one more key that is written in the transaction that assigns addresses, if the store has transactions.
type ExtraOps struct {
	// Make is called with addresses that are free, before they are assigned, and again if another took them meanwhile. The
	// revision in its result is the one that the key must have; zero: it must not exist.
	Make func(context.Context, []Address) (api.Update, error)
	// Written is the key as written; its revision is zero if nothing was.
	Written api.Update

	kv api.Update
}

func (b *ExtraOps) written(revision api.Revision) {
	if b != nil {
		b.Written = b.kv
		b.Written.Revision = revision
	}
}

func (g AutoArgs) String() string {
	var what []string
	if g.Num4 > 0 || g.Num6 == 0 {
		what = append(what, count(g.Num4, "IPv4 address"))
	}
	if g.Num6 > 0 {
		what = append(what, count(g.Num6, "IPv6 address"))
	}
	return fmt.Sprintf("assign %s on %s", strings.Join(what, " and "), g.Node)
}

// request is AutoArgs with what was read to serve it.
type request struct {
	AutoArgs
	*resources
	old       bool // the resources were read a little while ago, see Config.Reuse
	a         *Allocator
	owner     api.Owner
	requester requester
	attr      api.BlockAttribute
}

// Assign assigns all addresses that are asked for, or none. After an error other
// than ErrNoAddress, such as datastore.ErrUnavailable, it is unknown which of
// the two: release the handle.
func (a *Allocator) Assign(ctx context.Context, args AutoArgs) ([]Address, error) {
	r, err := a.request(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args, err)
	}
	out, err := r.assign(ctx, args)
	if (errors.Is(err, ErrNoAddress) || errors.Is(err, ErrUnknownPool)) && r.old { // a pool may have been added since
		a.forget(ctx, r.resources)
		return a.Assign(ctx, args)
	}
	return out, err
}

func (r *request) assign(ctx context.Context, args AutoArgs) (out []Address, err error) {
	err = r.a.change(ctx, args.String(), func(d *txn) error {
		out, d.cached = nil, d.first && r.a.cfg.Now().Before(r.a.keptUntil)
		d.extra = r.ExtraOps
		for _, f := range []struct {
			four bool
			n    int
		}{{true, args.Num4}, {false, args.Num6}} {
			if f.n == 0 {
				continue
			}
			got, err := r.fill(ctx, d, f.four, f.n)
			if err != nil {
				return err
			}
			out = append(out, got...)
		}
		if r.ExtraOps == nil || r.a.txn == nil {
			return nil
		}
		r.ExtraOps.kv, err = r.ExtraOps.Make(ctx, out)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// request reads the resources that decide which pools may be used.
func (a *Allocator) request(ctx context.Context, args AutoArgs) (*request, error) {
	if args.Use == "" {
		args.Use = UseWorkload
	}
	if err := checkNames(args.Node, args.Handle); err != nil {
		return nil, err
	}
	w, old, err := a.reused(ctx)
	if err != nil {
		return nil, err
	}
	r := &request{AutoArgs: args, resources: w, old: old, a: a, owner: ownerOf(args.Node, args.Use), attr: attribute(args.Handle, args.Attributes)}
	r.requester = requester{node: args.Node, use: args.Use, namespace: args.Namespace}
	node, err := w.labelled(ctx, a.store, api.Ref{Kind: api.KindNode, Name: args.Node})
	if err != nil {
		return nil, err
	}
	if node != nil {
		r.requester.nodeKnown, r.requester.nodeLabels = true, node.Meta().Labels
	}
	if args.Namespace != "" {
		r.requester.namespaceLabels, err = w.namespaceLabels(ctx, a.store, args.Namespace)
	}
	return r, err
}

// poolsOf returns the pools of a family, as choose does. Each that is asked for must be there: a name that is misspelt is no wish for less.
func (r *request) poolsOf(four bool) ([]Pool, error) {
	k := r.requester
	k.pools = r.Pools6
	if four {
		k.pools = r.Pools4
	}
	out := r.choose(four, k)
	for _, name := range k.pools {
		if !slices.ContainsFunc(out, func(p Pool) bool { return p.is(name) }) {
			return nil, fmt.Errorf("%.100q %w of IPv%s", name, ErrUnknownPool, map[bool]string{true: "4", false: "6"}[four])
		}
	}
	return out, nil
}

// namespaceLabels returns the namespace's labels, as its profile has them.
func (w *resources) namespaceLabels(ctx context.Context, s datastore.Store, namespace string) (map[string]string, error) {
	out := map[string]string{api.LabelName: namespace}
	profile, err := w.labelled(ctx, s, api.Ref{Kind: api.KindProfile, Name: "kns." + namespace})
	if p, ok := profile.(*api.Profile); ok {
		for k, v := range p.Spec.LabelsToApply {
			if name, ok := strings.CutPrefix(k, api.NamespaceLabelPrefix); ok {
				out[name] = v
			}
		}
	}
	return out, err
}

// checkNames refuses names that cannot be part of a key.
func checkNames(node, handle string) error {
	switch {
	case node == "" || strings.Contains(node, "/"):
		return fmt.Errorf("node %q: want a name without /", node)
	case handle == "":
		return errors.New("no handle: it names the owner of the addresses")
	case strings.ContainsAny(handle, "/\r"):
		return fmt.Errorf("handle %q: must not contain /", handle)
	}
	return nil
}

func attribute(handle string, attrs map[string]string) api.BlockAttribute {
	return api.BlockAttribute{Handle: &handle, Owner: attrs}
}

// fill finds n addresses of a family: in the node's blocks, then in new
// ones, then in those of other nodes.
func (r *request) fill(ctx context.Context, d *txn, four bool, n int) ([]Address, error) {
	pools, err := r.poolsOf(four)
	if err != nil {
		return nil, err
	}
	f := &assignment{request: r, txn: d, four: four, left: n, pools: pools}
	if slices.ContainsFunc(pools, func(p Pool) bool { return p.Why == "" }) {
		if d.cached {
			return f.again(ctx)
		}
		for _, step := range []func(context.Context) error{f.own, f.claimNew, f.ownFull, f.borrow} {
			if err := step(ctx); err != nil {
				return nil, err
			}
			if f.left == 0 {
				return f.got, nil
			}
		}
	}
	for i := range pools {
		if pools[i].Why == "" {
			pools[i].Why = f.whyNot(ctx, pools[i])
		}
	}
	return nil, &NoAddressError{Node: r.Node, Want: n, Four: four, Pools: pools}
}

// assignment is the search for addresses of one family.
type assignment struct {
	*request
	txn     *txn
	four    bool
	left    int
	pools   []Pool
	got     []Address
	owned   int            // the node's blocks in pools that may be used
	full    []netip.Prefix // of these, those that were full when they were read last
	limit   string         // why no further block was claimed
	claimed *doc           // the last one
}

// pool finds the usable pool of a block.
func (f *assignment) pool(block netip.Prefix) (Pool, bool) {
	for _, p := range f.pools {
		if p.Why == "" && p.size == block.Bits() && p.CIDR.Contains(block.Addr()) {
			return p, true
		}
	}
	return Pool{}, false
}

func (r *request) isFree(a netip.Addr) bool {
	return (r.Avoid == nil || !r.Avoid(a)) && !slices.ContainsFunc(r.reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// remember notes whether a block is full, counting addresses that cool down as free.
func (a *Allocator) remember(b *api.Block) {
	rests := slices.ContainsFunc(b.Attributes, func(attr api.BlockAttribute) bool { return coolingDown(&attr) })
	if len(b.Unallocated) > 0 || rests {
		delete(a.full, b.CIDR)
	} else if a.cfg.Reuse > 0 {
		a.full[b.CIDR] = true
	}
}

// takeFrom allocates addresses of a block, as many as are still wanted.
func (f *assignment) takeFrom(ctx context.Context, e *doc, p Pool) error {
	b := e.block
	if f.a.cooling(f.config).freeCooledDown(b) {
		e.touch()
	}
	ords := take(b, f.left, f.attr, f.isFree)
	if len(ords) == 0 {
		return nil
	}
	for _, ord := range ords {
		f.got = append(f.got, Address{b.Addr(ord), b.CIDR, p.Name, b.SequenceOf(ord)})
	}
	f.left -= len(ords)
	if own, ok := b.Owner(); ok && own == f.owner {
		f.a.roomy[f.roomyKey()] = b.CIDR
	}
	e.touch()
	return f.txn.count(ctx, f.Handle, b.CIDR, len(ords))
}

// again takes from the block that had free addresses last time, without reading the store.
func (f *assignment) again(ctx context.Context) ([]Address, error) {
	p, known := f.a.roomy[f.roomyKey()]
	pool, usable := f.pool(p)
	if !known || !usable {
		return nil, errAgain
	}
	e, err := f.txn.block(ctx, p)
	if err != nil {
		return nil, err
	}
	if own, ok := Owner(e.blockNow()); !ok || own != f.owner {
		return nil, errAgain
	}
	if err := f.takeFrom(ctx, e, pool); err != nil {
		return nil, err
	}
	if f.left > 0 {
		return nil, errAgain
	}
	return f.got, f.txn.claim(ctx, f.owner, p)
}

// own takes from the node's blocks.
func (f *assignment) own(ctx context.Context) error {
	blocks, err := f.txn.claims(ctx, f.owner, f.four)
	if err != nil {
		return err
	}
	// A node may have many blocks, of which most are full.
	hint := f.a.roomy[f.roomyKey()]
	slices.SortStableFunc(blocks, func(a, b netip.Prefix) int {
		switch hint {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	if f.left > 0 {
		f.full = slices.DeleteFunc(slices.Clone(blocks), func(p netip.Prefix) bool { return !f.a.full[p] })
		blocks = slices.DeleteFunc(blocks, func(p netip.Prefix) bool { return f.a.full[p] })
		for _, p := range f.full {
			f.count(p)
		}
	}
	return f.from(ctx, blocks)
}

// ownFull takes from the node's blocks that were full when read last: addresses may have been released since.
func (f *assignment) ownFull(ctx context.Context) error { return f.from(ctx, f.full) }

// from takes from blocks to which the node has an affinity.
func (f *assignment) from(ctx context.Context, blocks []netip.Prefix) error {
	for _, p := range blocks {
		if f.left == 0 && len(f.got) > 0 {
			return nil // the number of blocks matters only to claimNew
		}
		e, err := f.txn.block(ctx, p)
		if err != nil {
			return err
		}
		if e.block == nil || e.gone {
			continue
		}
		if own, ok := e.block.Owner(); !ok || own != f.owner {
			continue // a pending or stale affinity; the block's own affinity decides
		}
		f.count(p)
		pool, ok := f.pool(p)
		if !ok || f.left == 0 {
			continue
		}
		before := f.left
		if err := f.takeFrom(ctx, e, pool); err != nil {
			return err
		}
		f.a.remember(e.block)
		if f.left < before {
			if err := f.txn.claim(ctx, f.owner, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// count counts a block of the node's towards the most that it may have. Those of other pools do not count: a node that has all of a pool
// which was disabled, to move to another, would never get one of that.
func (f *assignment) count(block netip.Prefix) {
	if _, usable := f.pool(block); usable {
		f.owned++
	}
}

func (f *assignment) roomyKey() string { return fmt.Sprintf("%s %v", f.owner, f.four) }

// claimNew takes from new blocks.
func (f *assignment) claimNew(ctx context.Context) error {
	for f.left > 0 {
		if err := f.claimOne(ctx); err != nil || f.claimed == nil {
			return err
		}
		pool, _ := f.pool(f.claimed.block.CIDR)
		if err := f.takeFrom(ctx, f.claimed, pool); err != nil {
			return err
		}
	}
	return nil
}

// claimOne claims a block for the owner, if it may have another and there is one.
func (f *assignment) claimOne(ctx context.Context) (err error) {
	f.claimed = nil
	most := cmp.Or(max(f.config.MaxBlocksPerHost, 0), mostBlocks)
	switch {
	case !f.config.AutoAllocateBlocks:
		f.limit = "hosts may not claim blocks by themselves (autoAllocateBlocks is false)"
		return nil
	case f.owner.Type == api.OwnerHost && f.owned >= most:
		f.limit = fmt.Sprintf("%s has %s already, which is the most it may have (maxBlocksPerHost)", f.owner.Name, count(f.owned, "block"))
		return nil
	}
	if f.claimed, err = f.free(ctx); err != nil || f.claimed == nil {
		return err
	}
	f.owned++
	if err := f.giveUpDeselected(ctx); err != nil {
		return err
	}
	return f.txn.claim(ctx, f.owner, f.claimed.block.CIDR)
}

// borrow takes from blocks of other nodes.
func (f *assignment) borrow(ctx context.Context) error {
	if f.config.StrictAffinity || f.Windows {
		return nil
	}
	all, err := f.txn.blocks(ctx, familyOf(f.four))
	if err != nil {
		return err
	}
	// Hosts begin at different blocks.
	if n := len(all); n > 0 {
		at := int(seed(f.owner.Name) % uint64(n))
		all = append(slices.Clone(all[at:]), all[:at]...)
	}
	for _, e := range all {
		if f.left == 0 || e.open().block == nil {
			continue
		}
		if own, ok := e.block.Owner(); ok && own.Type != f.owner.Type {
			continue // hosts do not borrow from load balancers, nor the other way round
		}
		if pool, ok := f.pool(e.block.CIDR); ok {
			if err := f.takeFrom(ctx, e, pool); err != nil {
				return err
			}
		}
	}
	return nil
}

func familyOf(four bool) netip.Addr {
	if four {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// whyNot says why a pool that may be used had too little.
func (f *assignment) whyNot(ctx context.Context, p Pool) string {
	all, err := f.txn.blocks(ctx, familyOf(f.four))
	if err != nil {
		return fmt.Sprintf("is not known well enough: %v", err)
	}
	c := f.a.cooling(f.config)
	blocks, inUse, cold, elsewhere, bad := 0, 0, 0, 0, 0
	for _, e := range all {
		key, _ := api.ParseBlockKey(e.key)
		if !p.CIDR.Contains(key.Addr()) {
			continue
		}
		blocks++
		if e.open().block == nil {
			bad++
			continue
		}
		inUse += used(e.block)
		rest, free := c.count(e.block)
		cold += rest
		if own, ok := e.block.Owner(); ok && own != f.owner {
			elsewhere += len(free)
		}
	}
	parts := []string{fmt.Sprintf("has too few left: %d in use in %s", inUse, count(blocks, "block"))}
	add := func(n int, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add(cold, "%d cooling down")
	add(elsewhere, "%d free in blocks of others")
	add(bad, "%d blocks cannot be read")
	if n := len(f.reserved); n > 0 {
		parts = append(parts, count(n, "range")+" reserved")
	}
	if f.limit != "" {
		parts = append(parts, f.limit)
	}
	if elsewhere > 0 && f.config.StrictAffinity {
		parts = append(parts, "strictAffinity forbids borrowing")
	}
	return strings.Join(parts, ", ")
}
