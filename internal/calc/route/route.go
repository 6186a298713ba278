// Package route makes the routes that this node owns.
//
// In: what each local endpoint wants routed to it, and the node's own blocks of
// addresses, whose rest leads nowhere. Out: routes that are new, changed or gone,
// for a batch.
package route

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Table holds what is wanted. Use New.
type Table struct {
	owners map[string][]netip.Prefix     // what an owner wants, by its key
	claims map[netip.Prefix][]claim      // sorted by kind and owner; the first has it
	sent   map[netip.Prefix]intent.Route // what batches so far add up to
	dirty  map[netip.Prefix]struct{}     // where sent may differ from the claims
}

type claim struct {
	owner string
	route intent.Route
}

// New returns an empty table.
func New() *Table {
	return &Table{owners: map[string][]netip.Prefix{}, claims: map[netip.Prefix][]claim{}, sent: map[netip.Prefix]intent.Route{}, dirty: map[netip.Prefix]struct{}{}}
}

// Set replaces what an owner wants, each destination once. Of several owners of
// one destination the one whose key is first has it; but an endpoint's address is
// the endpoint's, though its block has no other.
func (t *Table) Set(owner string, routes []intent.Route) {
	for _, dst := range t.owners[owner] {
		rest := slices.DeleteFunc(t.claims[dst], func(c claim) bool { return c.owner == owner })
		t.dirty[dst] = struct{}{}
		if t.claims[dst] = rest; len(rest) == 0 {
			delete(t.claims, dst)
		}
	}
	if len(routes) == 0 {
		delete(t.owners, owner)
		return
	}
	wants := make([]netip.Prefix, len(routes))
	for i, r := range routes {
		wants[i] = r.Dst
		cs := t.claims[r.Dst]
		at, _ := slices.BinarySearchFunc(cs, claim{owner, r}, func(a, b claim) int {
			return cmp.Or(cmp.Compare(a.route.Kind, b.route.Kind), cmp.Compare(a.owner, b.owner))
		})
		t.claims[r.Dst] = slices.Insert(cs, at, claim{owner, r})
		t.dirty[r.Dst] = struct{}{}
	}
	t.owners[owner] = wants
}

// Flush puts into a batch what is new or changed, and returns what is gone.
func (t *Table) Flush(b *intent.Batch) (gone []intent.Key) {
	for _, dst := range slices.SortedFunc(maps.Keys(t.dirty), comparePrefixes) {
		was, had := t.sent[dst]
		if cs := t.claims[dst]; len(cs) > 0 {
			if !had || was != cs[0].route {
				t.sent[dst] = cs[0].route
				b.Routes = append(b.Routes, cs[0].route)
			}
		} else if had {
			delete(t.sent, dst)
			gone = append(gone, intent.RouteID{Prefix: dst})
		}
	}
	clear(t.dirty)
	return gone
}

// Sent returns all routes as of the last flush, sorted.
func (t *Table) Sent() []intent.Route {
	var out []intent.Route
	for _, dst := range slices.SortedFunc(maps.Keys(t.sent), comparePrefixes) {
		out = append(out, t.sent[dst])
	}
	return out
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
