package ipam

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/status"
)

// life is what agents' reports say of nodes that have endpoints, addresses or blocks, and no Node.
type life struct {
	reported map[string]bool
	status   map[string][][]byte // by node, which confirm that its agent lives, as long as they hold
}

func (l life) alive(node string, now time.Time) bool {
	return slices.ContainsFunc(l.status[node], func(value []byte) bool { return status.Alive(value, now) })
}

// readLife reads it, if there is such a node.
func (v *Survey) readLife(ctx context.Context, s datastore.Store) error {
	missing := func(node string) bool { return v.nodes[node] == nil }
	some := slices.ContainsFunc(v.Hosts(), missing)
	for _, us := range v.users {
		some = some || slices.ContainsFunc(us, func(u user) bool { return missing(u.node) })
	}
	if !some {
		return nil
	}
	prefix := api.Root + "felix/v2/"
	snap, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	v.life = life{map[string]bool{}, map[string][][]byte{}}
	for _, u := range snap.Items {
		if parts := strings.Split(strings.TrimPrefix(u.Key, prefix), "/"); len(parts) == 4 && parts[1] == "host" {
			node, _ := url.PathUnescape(parts[2])
			v.life.reported[node] = true
			if parts[3] == "status" {
				v.life.status[node] = append(v.life.status[node], u.Value)
			}
		}
	}
	return nil
}

// absent: there are Nodes, this one is not among them, and no agent of its name lives. What it had vouches for nothing.
func (c *checking) absent(node string) bool {
	return node != "" && len(c.nodes) > 0 && c.nodes[node] == nil && !c.life.alive(node, c.Now)
}

// dead: it is absent, and had an agent, whose last report has expired. A node without a Node may be one where nobody wrote it,
// and without reports one where they are turned off: of these nothing is known.
func (c *checking) dead(node string) bool { return c.absent(node) && c.life.reported[node] }

// lost reports whether a host is certainly gone: it has no Node, its agent does not live, and no endpoint is there, nor an address of which nothing
// proves that it is leaked; or its last report has expired.
func (c *checking) lost(own api.Owner) bool {
	if own.Type != api.OwnerHost || !c.absent(own.Name) || c.doubtful[own.Name] {
		return false
	}
	if c.dead(own.Name) && !c.young[own.Name] {
		return true
	}
	for _, us := range c.users {
		if slices.ContainsFunc(us, func(u user) bool { return u.node == own.Name }) {
			return false
		}
	}
	return true
}

// orphans reports the address of endpoints whose nodes are absent; false: another endpoint has it, or none.
func (c *checking) orphans(l Allocation, handle string) bool {
	us := c.users[l.Addr]
	if l.isMachines() || len(us) == 0 || slices.ContainsFunc(us, func(u user) bool { return !c.absent(u.node) }) {
		return false
	}
	f := Finding{
		Kind: FoundLeak, Address: l.Addr, Block: l.Block.CIDR.String(), Handle: handle, Sequence: l.Block.SequenceOf(l.ord), Owner: describe(l.Attr.Owner),
		Problem: "is the address of an endpoint on a node that is gone", Proof: fmt.Sprintf("%s has it, and node %s does not exist", us[0].ref, us[0].node), node: us[0].node,
	}
	switch age, known := c.age(l.Attr); {
	case !slices.ContainsFunc(us, func(u user) bool { return !c.dead(u.node) }):
		f.Proof += ", and its last report has expired"
		if known && age < c.Grace {
			c.young[us[0].node] = true
			f.Kept = fmt.Sprintf("it is %s old, and its node may be on its way (--grace %s)", max(age, 0).Truncate(time.Second), c.Grace)
			break
		}
		f.Fix = "delete the endpoint, and free it"
		f.fix = func(m *repair) error { return m.freeOrphan(l, handle, us) }
	default:
		f.Kept = fmt.Sprintf("nothing says whether that host lives: `twill delete node %s --cascade` deletes what is left of it", us[0].node)
	}
	c.add(f, api.BlockKey(l.Block.CIDR), api.HandleKey(handle))
	if f.fix != nil {
		seen := c.found[len(c.found)-1].seen
		for _, u := range us {
			seen[u.key] = u.revision
		}
	}
	return true
}

// freeOrphan deletes endpoints together with an address that they alone have. Another of their addresses may have taken them away before.
func (m *repair) freeOrphan(l Allocation, handle string, us []user) error {
	for _, u := range us {
		e, err := m.txn.read(m.ctx, u.key)
		if err != nil {
			return err
		}
		if !e.gone {
			e.remove()
		}
	}
	return m.freeAddress(l.Addr, l.Block.CIDR, handle, l.Block.SequenceOf(l.ord))
}
