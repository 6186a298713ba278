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
	owners map[string]owned              // by key
	claims map[netip.Prefix][]claim      // in the order in which they would have it
	sent   map[netip.Prefix]intent.Route // what batches so far add up to
	dirty  map[netip.Prefix]struct{}     // where sent may differ from the claims
}

// Owner is what decides, besides its key, which of several that want one route has it.
type Owner struct {
	Created  string            // creationTimestamp of its resource; empty: unknown
	Endpoint intent.EndpointID // of a RouteLink
	Shared   []netip.Addr      // those of its addresses that others may have in its place
}

// Equal reports whether two owners are the same.
func (o Owner) Equal(x Owner) bool {
	return o.Created == x.Created && o.Endpoint == x.Endpoint && slices.Equal(o.Shared, x.Shared)
}

// owned is an owner and what it wants.
type owned struct {
	Owner
	dsts []netip.Prefix
}

type claim struct {
	owner   string
	created string
	shared  bool
	route   intent.Route
	of      intent.EndpointID
}

// compare puts an endpoint before a block, who has an address of its own before those that share it, the older before the newer, so that one that comes
// later takes nothing away, and the smaller key before the other. One without a time is newer than all that have one.
func (a claim) compare(b claim) int {
	return cmp.Or(cmp.Compare(a.route.Kind, b.route.Kind), second(a.shared, b.shared), second(a.created == "", b.created == ""), cmp.Compare(a.created, b.created), cmp.Compare(a.owner, b.owner))
}

// second puts what is so after what is not.
func second(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// New returns an empty table.
func New() *Table {
	return &Table{owners: map[string]owned{}, claims: map[netip.Prefix][]claim{}, sent: map[netip.Prefix]intent.Route{}, dirty: map[netip.Prefix]struct{}{}}
}

// Owner returns an owner that wants routes, as it was set; the zero value: there is none.
func (t *Table) Owner(key string) Owner { return t.owners[key].Owner }

// Set replaces what an owner wants, each destination once. Of several owners of
// one destination the first has it, see compare; of several endpoints the route
// names all, since which of them can have it is for the dataplane to say: its
// interface may be absent.
func (t *Table) Set(key string, o Owner, routes []intent.Route) {
	for _, dst := range t.owners[key].dsts {
		rest := slices.DeleteFunc(t.claims[dst], func(c claim) bool { return c.owner == key })
		t.dirty[dst] = struct{}{}
		if t.claims[dst] = rest; len(rest) == 0 {
			delete(t.claims, dst)
		}
	}
	if len(routes) == 0 {
		delete(t.owners, key)
		return
	}
	wants := make([]netip.Prefix, len(routes))
	for i, r := range routes {
		wants[i] = r.Dst
		cs := t.claims[r.Dst]
		c := claim{owner: key, created: o.Created, shared: slices.Contains(o.Shared, r.Dst.Addr()), route: r, of: o.Endpoint}
		at, _ := slices.BinarySearchFunc(cs, c, claim.compare)
		t.claims[r.Dst] = slices.Insert(cs, at, c)
		t.dirty[r.Dst] = struct{}{}
	}
	t.owners[key] = owned{o, wants}
}

// Flush puts into a batch what is new or changed, and returns what is gone.
func (t *Table) Flush(b *intent.Batch) (gone []intent.Key) {
	for _, dst := range slices.SortedFunc(maps.Keys(t.dirty), comparePrefixes) {
		was, had := t.sent[dst]
		if cs := t.claims[dst]; len(cs) > 0 {
			if now := routeOf(cs); !had || !was.Equal(now) {
				t.sent[dst] = now
				b.Routes = append(b.Routes, now)
			}
		} else if had {
			delete(t.sent, dst)
			gone = append(gone, intent.RouteID{Prefix: dst})
		}
	}
	clear(t.dirty)
	return gone
}

// routeOf is the route of those that want a destination.
func routeOf(cs []claim) intent.Route {
	r := cs[0].route
	if r.Kind != intent.RouteLink || len(cs) == 1 || cs[1].route.Kind != intent.RouteLink {
		return r
	}
	for _, c := range cs {
		if c.route.Kind == intent.RouteLink {
			r.Claims = append(r.Claims, intent.Claim{Endpoint: c.of, Link: c.route.Link, MAC: c.route.MAC, Move: c.route.Move, Shared: c.shared})
		}
	}
	return r
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
