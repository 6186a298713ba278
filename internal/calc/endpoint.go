package calc

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// local is a workload endpoint of this node.
type local struct {
	namespace string
	id        intent.EndpointID
	label     string
	link, mac string
	addrs     []netip.Addr
	spoofable []netip.Prefix
	profiles  []string
	closed    string
	policies  map[*policy]bool
}

func (g *Graph) putWorkload(key string, s api.Stored, w *api.WorkloadEndpoint) {
	if len(w.Spec.IPNetworks) == 0 && s.Closed == "" {
		s.Closed = "it has no address"
	}
	g.labels.put(key, workloadItem(w))
	if w.Spec.Node != g.node {
		g.removeLocal(key)
		return
	}
	l := &local{
		namespace: w.Metadata.Namespace, id: intent.EndpointID{Kind: intent.Workload, Namespace: w.Metadata.Namespace, Name: w.Metadata.Name},
		label: w.Metadata.Namespace + "/" + first(w.Spec.Pod, w.Spec.Workload, w.Metadata.Name), link: w.Spec.InterfaceName, mac: w.Spec.MAC,
		spoofable: prefixes(w.Spec.AllowSpoofedSourcePrefixes), profiles: slices.Clone(w.Spec.Profiles), closed: s.Closed, policies: map[*policy]bool{},
	}
	for _, p := range prefixes(w.Spec.IPNetworks) {
		l.addrs = append(l.addrs, p.Addr())
	}
	if len(l.addrs) == 0 && l.closed == "" {
		l.closed = "none of its addresses can be read"
	}
	if old := g.locals[key]; old != nil {
		g.linkChanged(old.link)
	}
	g.locals[key] = l
	g.linkChanged(l.link)
	g.rematch(key, l)
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func (g *Graph) removeLocal(key string) {
	l := g.locals[key]
	if l == nil {
		return
	}
	delete(g.locals, key)
	g.dirtyLocals[key] = true
	g.linkChanged(l.link)
}

// linkChanged makes those dirty that want that interface: which of them lives may have changed.
func (g *Graph) linkChanged(link string) {
	for key, l := range g.locals {
		if l.link == link {
			g.dirtyLocals[key] = true
		}
	}
}

// rematch asks all policies about an endpoint.
func (g *Graph) rematch(key string, l *local) {
	for _, p := range g.policies {
		g.match(key, l, p)
	}
	g.dirtyLocals[key] = true
}

// ownerOf is the endpoint that has an interface: of several, the one whose key is first.
func (g *Graph) ownerOf(link string) string {
	owner := ""
	for key, l := range g.locals {
		if l.link == link && (owner == "" || key < owner) {
			owner = key
		}
	}
	return owner
}

// endpoint makes the intent of a local endpoint.
func (g *Graph) endpoint(key string, l *local) intent.Endpoint {
	e := intent.Endpoint{ID: l.id, Label: l.label, Link: l.link, MAC: l.mac, Addrs: l.addrs, Spoofable: l.spoofable, Closed: l.closed}
	switch owner := g.ownerOf(l.link); {
	case l.link == "":
		e.Closed = "it names no interface"
	case owner != key:
		e.Closed = "its interface " + l.link + " is that of " + g.locals[owner].label
		e.Link = "" // it must not close the owner's
	}
	for _, p := range l.profiles {
		e.Profiles = append(e.Profiles, profileID(p))
	}
	byTier := map[string][]*policy{}
	for p := range l.policies {
		byTier[p.tier] = append(byTier[p.tier], p)
	}
	// A policy that cannot be read comes before all tiers, even one of that name.
	names := slices.SortedFunc(maps.Keys(byTier), func(a, b string) int {
		if a == tierClosed || b == tierClosed {
			return b2i(b == tierClosed) - b2i(a == tierClosed)
		}
		return g.compareTiers(a, b)
	})
	for _, name := range names {
		e.Normal = append(e.Normal, g.tierOf(name, byTier[name]))
	}
	return e
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (g *Graph) tierOf(name string, ps []*policy) intent.Tier {
	slices.SortFunc(ps, comparePolicies)
	t := intent.Tier{Name: name}
	if g.tier(name).pass {
		t.Default = intent.Pass
	}
	for _, p := range ps {
		if p.ingress {
			t.Ingress = append(t.Ingress, p.id)
		}
		if p.egress {
			t.Egress = append(t.Egress, p.id)
		}
	}
	return t
}
