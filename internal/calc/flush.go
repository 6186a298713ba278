package calc

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// sent is what the batches so far add up to, sets apart.
type sent struct {
	endpoints map[string]intent.Endpoint // by datastore key
	policies  map[intent.PolicyID]intent.Policy
	users     map[intent.PolicyID]int            // endpoints that refer to it
	sets      map[intent.PolicyID][]intent.SetID // that it uses
	routes    map[netip.Prefix]intent.Route
	host      *intent.HostSettings
	inSync    bool
}

func newSent() sent {
	return sent{endpoints: map[string]intent.Endpoint{}, policies: map[intent.PolicyID]intent.Policy{}, users: map[intent.PolicyID]int{},
		sets: map[intent.PolicyID][]intent.SetID{}, routes: map[netip.Prefix]intent.Route{}}
}

// Flush returns the smallest change since the last Flush.
func (g *Graph) Flush() intent.Batch {
	b := intent.Batch{InSync: g.inSync}
	touched := map[intent.PolicyID]bool{}
	goneEndpoints := g.flushEndpoints(&b, touched)
	goneRoutes := g.flushRoutes(&b)
	gonePolicies := g.flushPolicies(&b, touched)
	g.flushSets(&b)
	// In the order of a batch's fields: whoever removes begins at the end.
	b.Removed = slices.Concat(b.Removed, gonePolicies, goneEndpoints, goneRoutes)
	if h := g.host(); g.sent.host == nil || *g.sent.host != h {
		g.sent.host = &h
		copied := h
		b.Host = &copied
	}
	g.sent.inSync = g.inSync
	return b
}

// flushEndpoints makes dirty endpoints anew; touched collects policies whose users changed.
func (g *Graph) flushEndpoints(b *intent.Batch, touched map[intent.PolicyID]bool) (gone []intent.Key) {
	for _, key := range slices.Sorted(maps.Keys(g.dirtyLocals)) {
		old, had := g.sent.endpoints[key]
		if l := g.locals[key]; l != nil {
			e := g.endpoint(key, l)
			if had && reflect.DeepEqual(old, e) {
				continue
			}
			g.count(e, 1, touched)
			g.sent.endpoints[key] = e
			b.Endpoints = append(b.Endpoints, e)
		} else if had {
			delete(g.sent.endpoints, key)
			gone = append(gone, intent.Key{Kind: intent.KeyEndpoint, ID: old.ID.String()})
		}
		if had {
			g.count(old, -1, touched)
		}
	}
	return gone
}

// count counts an endpoint's references to policies up or down.
func (g *Graph) count(e intent.Endpoint, by int, touched map[intent.PolicyID]bool) {
	add := func(ids []intent.PolicyID) {
		for _, id := range ids {
			touched[id] = true
			if g.sent.users[id] += by; g.sent.users[id] == 0 {
				delete(g.sent.users, id)
			}
		}
	}
	for _, t := range e.Normal {
		add(t.Ingress)
		add(t.Egress)
	}
	add(e.Profiles)
}

// flushPolicies makes those anew that are used and changed, or used for the first time.
func (g *Graph) flushPolicies(b *intent.Batch, touched map[intent.PolicyID]bool) (gone []intent.Key) {
	byID := map[intent.PolicyID]*policy{}
	for p := range g.dirtyPolicies {
		byID[p.id] = p
	}
	for name := range g.dirtyProfiles {
		touched[profileID(name)] = true
	}
	for id := range byID {
		touched[id] = true
	}
	for _, l := range g.locals {
		for p := range l.policies {
			if touched[p.id] {
				byID[p.id] = p
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(touched), func(a, b intent.PolicyID) int { return cmp.Compare(a.String(), b.String()) }) {
		used := g.sent.sets[id]
		old, had := g.sent.policies[id]
		if g.sent.users[id] == 0 {
			if had {
				delete(g.sent.policies, id)
				gone = append(gone, intent.Key{Kind: intent.KeyPolicy, ID: id.String()})
			}
			delete(g.sent.sets, id)
		} else {
			now, sets := g.policyIntent(id, byID[id])
			g.sent.sets[id] = sets
			if !had || !reflect.DeepEqual(old, now) {
				g.sent.policies[id] = now
				b.Policies = append(b.Policies, now)
			}
		}
		for _, s := range used { // after the new ones are counted, so that what stays is not gone in between
			g.release(s)
		}
	}
	clear(g.dirtyPolicies)
	clear(g.dirtyProfiles)
	clear(g.dirtyLocals)
	return gone
}

func (g *Graph) policyIntent(id intent.PolicyID, p *policy) (intent.Policy, []intent.SetID) {
	if p == nil {
		return g.profileIntent(id.Name)
	}
	return g.intentOf(p)
}

// flushRoutes makes the routes to the addresses of endpoints that carry
// traffic; of two endpoints with one address, the one whose key is first has it.
func (g *Graph) flushRoutes(b *intent.Batch) (gone []intent.Key) {
	if len(g.dirtyLocals) == 0 {
		return nil
	}
	want := map[netip.Prefix]intent.Route{}
	for _, key := range slices.Sorted(maps.Keys(g.sent.endpoints)) {
		e := g.sent.endpoints[key]
		if e.Closed != "" {
			continue
		}
		for _, a := range e.Addrs {
			dst := netip.PrefixFrom(a, a.BitLen())
			if _, taken := want[dst]; !taken {
				want[dst] = intent.Route{Dst: dst, Kind: intent.RouteLink, Link: e.Link, MAC: e.MAC}
			}
		}
	}
	for _, dst := range sortedPrefixes(want) {
		if g.sent.routes[dst] != want[dst] {
			b.Routes = append(b.Routes, want[dst])
		}
	}
	for _, dst := range sortedPrefixes(g.sent.routes) {
		if _, ok := want[dst]; !ok {
			gone = append(gone, intent.Key{Kind: intent.KeyRoute, ID: dst.String()})
		}
	}
	g.sent.routes = want
	return gone
}

func sortedPrefixes(m map[netip.Prefix]intent.Route) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(m), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}

// State is the whole present answer, in a canonical order: what all batches add up to.
type State struct {
	IPSets    []intent.IPSet
	Policies  []intent.Policy
	Endpoints []intent.Endpoint
	Routes    []intent.Route
	Host      intent.HostSettings
}

// Intents returns the present answer, as of the last Flush.
func (g *Graph) Intents() State {
	var s State
	for _, id := range slices.Sorted(maps.Keys(g.sets.selections)) {
		s.IPSets = append(s.IPSets, g.sets.selections[id].whole())
	}
	for _, id := range slices.SortedFunc(maps.Keys(g.sent.policies), func(a, b intent.PolicyID) int { return cmp.Compare(a.String(), b.String()) }) {
		s.Policies = append(s.Policies, g.sent.policies[id])
	}
	for _, key := range slices.Sorted(maps.Keys(g.sent.endpoints)) {
		s.Endpoints = append(s.Endpoints, g.sent.endpoints[key])
	}
	for _, dst := range sortedPrefixes(g.sent.routes) {
		s.Routes = append(s.Routes, g.sent.routes[dst])
	}
	s.Host = g.host()
	return s
}
