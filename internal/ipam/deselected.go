package ipam

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// A node keeps empty blocks, to use them again. It cannot use those of a pool that no longer selects it, and others could.

// mostGivenUp is how many such blocks one transaction gives up: etcd refuses one of more than 128 operations, and what it was begun for is among them.
const mostGivenUp = 8

// deselected reports whether a block's pool would be used, but for its nodeSelector, which does not match a node's labels. A pool that is
// disabled says nothing of nodes, nor does a selector that cannot be read.
func deselected(pools []*api.IPPool, block netip.Prefix, labels map[string]string) (yes bool) {
	for _, p := range pools {
		pool, ok := poolOf(p)
		if !ok || !pool.CIDR.Contains(block.Addr()) || p.Spec.Disabled || p.Metadata.DeletionTimestamp != "" {
			continue
		}
		if p.Spec.NodeSelector == "" {
			return false
		}
		sel, err := selector.Parse(p.Spec.NodeSelector)
		if err != nil || sel.Match(labels) {
			return false
		}
		yes = true
	}
	return yes
}

// giveUpDeselected gives up empty blocks of the node in pools that no longer select it.
func (f *assignment) giveUpDeselected(ctx context.Context) error {
	if f.owner.Type != api.OwnerHost || !f.requester.nodeKnown {
		return nil
	}
	blocks, err := f.txn.claims(ctx, f.owner, f.four)
	if err != nil {
		return err
	}
	for _, p := range blocks {
		if _, usable := f.pool(p); usable || !deselected(f.resources.pools, p, f.requester.nodeLabels) {
			continue
		}
		e, err := f.txn.block(ctx, p)
		if err != nil {
			return err
		}
		if own, owned := Owner(e.blockNow()); owned && own == f.owner && f.a.cooling(f.config).empty(e.block) {
			if err := f.txn.giveUp(ctx, own, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// emptied gives up blocks that a release left empty. It reads pools, and each node, once at most.
type emptied struct {
	a     *Allocator
	c     cooling
	read  bool // pools are read
	pools []*api.IPPool
	nodes map[string]nodeLabels
}

// nodeLabels are those of a node; unknown: it is not there, or they cannot be read.
type nodeLabels struct {
	labels map[string]string
	known  bool
}

// letGo gives up a block of which addresses were released, if it is empty and its pool no longer selects its node. If that cannot be found out,
// the node keeps it.
func (m *emptied) letGo(ctx context.Context, d *txn, e *doc) (err error) {
	own, owned := Owner(e.blockNow())
	if !owned || own.Type != api.OwnerHost || !m.c.empty(e.block) {
		return nil
	}
	if !m.read {
		if m.pools, err = readAll[*api.IPPool](ctx, m.a.store, api.KindIPPool); err != nil {
			return nil
		}
		m.read = true
	}
	n, known := m.nodes[own.Name]
	if !known {
		n.labels, n.known = m.a.labelsOf(ctx, own.Name)
		m.nodes[own.Name] = n
	}
	if !n.known || !deselected(m.pools, e.block.CIDR, n.labels) {
		return nil
	}
	return d.giveUp(ctx, own, e)
}

// giveUp deletes an empty block and its owner's affinity to it, if the transaction has room for that.
func (d *txn) giveUp(ctx context.Context, own api.Owner, e *doc) error {
	if d.givenUp == mostGivenUp {
		return nil
	}
	d.givenUp++
	e.remove()
	return d.unclaim(ctx, own, e.block.CIDR)
}

// labelsOf returns the labels of a node; false: it is not there, or they cannot be read.
func (a *Allocator) labelsOf(ctx context.Context, node string) (map[string]string, bool) {
	st, err := readOne(ctx, a.store, api.Ref{Kind: api.KindNode, Name: node})
	if err != nil || st.NoObject || st.Resource == nil || slices.ContainsFunc(st.Problems, func(p api.Problem) bool { return strings.HasPrefix(p.Field, "metadata") }) {
		return nil, false
	}
	return st.Resource.Meta().Labels, true
}
