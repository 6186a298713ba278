package calc

import (
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/policy"
	"github.com/twillnet/twill/internal/intent"
)

func profileID(name string) intent.PolicyID { return policy.ProfileID(name) }

// profileChanged follows a profile's rules and labels; without labels or when it is gone, labels is nil.
func (g *Graph) profileChanged(name string, labels map[string]string) {
	g.dirtyPolicies[profileID(name)] = true
	g.sources.SetParent(name, labels)
	g.here.SetParent(name, labels)
}

func (g *Graph) putPolicy(key string, s api.Stored) {
	delete(g.closed, key)
	if s.Closed != "" && s.Ref.Kind == api.KindGlobalNetworkPolicy {
		g.closed[key] = true
	}
	p := policy.Of(s)
	if p == nil {
		ref, _ := api.ParseKey(key)
		g.removePolicy(intent.PolicyID{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		return
	}
	old := g.policies[p.ID]
	g.dirtyPolicies[p.ID] = true
	switch {
	case old == nil:
		g.addPolicy(p)
	case !old.SameEndpoints(p):
		g.removePolicy(p.ID)
		g.addPolicy(p)
	case !old.SamePlace(p):
		g.order.Remove(old.Policy)
		g.order.Add(p)
		old.Policy = p
		g.reordered(old)
	default: // only rules have changed: no endpoint has
		g.order.Replace(old.Policy, p)
		old.Policy = p
	}
}

func (g *Graph) addPolicy(p *policy.Policy) {
	g.order.Add(p)
	a := &active{Policy: p, id: g.here.Add(p.Selector)}
	g.policies[p.ID], g.applied[a.id] = a, a
}

func (g *Graph) removePolicy(id intent.PolicyID) {
	a := g.policies[id]
	if a == nil {
		return
	}
	g.dirtyPolicies[id] = true
	g.order.Remove(a.Policy)
	g.here.Drop(a.id)
	delete(g.policies, id)
	delete(g.applied, a.id)
	clear(g.stacks) // the ID may be given to another
}

// reordered makes those endpoints dirty to which a policy applies.
func (g *Graph) reordered(a *active) {
	clear(g.stacks)
	g.here.Selected(a.id, func(l hereItem) { g.dirtyLocals[l.Value.key] = true })
}

// setTier makes all endpoints dirty that have a policy of that tier.
func (g *Graph) setTier(name string, r *api.Tier) {
	if !g.order.SetTier(name, r) {
		return
	}
	clear(g.stacks)
	for key, e := range g.sent.endpoints {
		if slices.ContainsFunc(e.Normal, func(t intent.Tier) bool { return t.Name == name }) {
			g.dirtyLocals[key] = true
		}
	}
}

// setting is what a FelixConfiguration says that we honour.
type setting struct {
	toHost intent.ToHost
	given  bool
}

func (g *Graph) putSetting(name string, s setting) {
	if name == "default" || name == "node."+g.node {
		g.settings[name] = s
	}
}

func (g *Graph) host() intent.HostSettings {
	for _, name := range []string{"node." + g.node, "default"} {
		if s := g.settings[name]; s.given {
			return intent.HostSettings{EndpointToHost: s.toHost}
		}
	}
	return intent.HostSettings{}
}

var toHost = map[string]intent.ToHost{"Drop": intent.ToHostDrop, "Return": intent.ToHostReturn, "Accept": intent.ToHostAccept}

// settingOf reads what is given; a value that is not understood counts as not given.
func settingOf(f *api.FelixConfiguration) setting {
	v, ok := toHost[f.Spec.DefaultEndpointToHostAction]
	return setting{toHost: v, given: ok}
}
