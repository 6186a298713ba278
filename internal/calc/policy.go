package calc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/intent"
)

// tierClosed is before all tiers: it holds policies that cannot be read, which
// deny everything in their namespace.
const tierClosed = "(closed)"

// policy is a policy that may apply to workloads.
type policy struct {
	key             string
	id              intent.PolicyID
	name            string // as the user gave it, for ties
	tier            string
	order           *float64
	namespace       string // of a NetworkPolicy
	sel, ns, sa     *selector.Selector
	ingress, egress bool
	rulesIn         []api.Rule
	rulesOut        []api.Rule
	closed          string
}

func (g *Graph) putPolicy(key string, s api.Stored) {
	g.removePolicy(key)
	p := policyOf(key, s)
	if p == nil {
		return
	}
	if s.Closed != "" && s.Ref.Kind == api.KindGlobalNetworkPolicy {
		g.closed[key] = true
		return
	}
	g.policies[key] = p
	g.dirtyPolicies[p] = true
	for lk, l := range g.locals {
		g.match(lk, l, p)
	}
}

func (g *Graph) removePolicy(key string) {
	delete(g.closed, key)
	p := g.policies[key]
	if p == nil {
		return
	}
	delete(g.policies, key)
	delete(g.dirtyPolicies, p)
	for lk, l := range g.locals {
		if l.policies[p] {
			delete(l.policies, p)
			g.dirtyLocals[lk] = true
		}
	}
}

// policyOf reads a policy; nil if it never applies to workloads.
func policyOf(key string, s api.Stored) *policy {
	p := &policy{key: key, id: idOf(key, s.Ref), name: s.Ref.Name, closed: s.Closed}
	var types []api.PolicyType
	var sa string
	switch r := s.Resource.(type) {
	case *api.NetworkPolicy:
		p.namespace, p.tier, p.order, types, sa = s.Ref.Namespace, r.Spec.Tier, r.Spec.Order, r.Spec.Types, r.Spec.ServiceAccountSelector
		p.sel, p.rulesIn, p.rulesOut = parse(orAll(r.Spec.Selector)), r.Spec.Ingress, r.Spec.Egress
	case *api.GlobalNetworkPolicy:
		if r.Spec.DoNotTrack || r.Spec.PreDNAT {
			return nil // these are for host endpoints
		}
		p.tier, p.order, types, sa = r.Spec.Tier, r.Spec.Order, r.Spec.Types, r.Spec.ServiceAccountSelector
		p.sel, p.rulesIn, p.rulesOut = parse(orAll(r.Spec.Selector)), r.Spec.Ingress, r.Spec.Egress
		if r.Spec.NamespaceSelector != "" {
			p.ns = namespaceSelector(r.Spec.NamespaceSelector)
		}
	}
	p.tier = cmp.Or(p.tier, api.TierDefault)
	if sa != "" {
		p.sa = parse(sa).Prefixed(api.ServiceAccountLabelPrefix)
	}
	p.ingress, p.egress = directions(types, p.rulesIn, p.rulesOut)
	if p.closed != "" {
		p.tier, p.order, p.sel, p.sa, p.ingress, p.egress = tierClosed, nil, parse("all()"), nil, true, true
	}
	return p
}

// idOf names a policy as its key does: two keys may have been given one name by
// the annotations that users and upstream's older versions write.
func idOf(key string, ref api.Ref) intent.PolicyID {
	return intent.PolicyID{Kind: ref.Kind, Namespace: ref.Namespace, Name: key[strings.LastIndexByte(key, '/')+1:]}
}

// directions: without types, those that have rules; without any rule, ingress.
func directions(types []api.PolicyType, in, out []api.Rule) (ingress, egress bool) {
	if len(types) > 0 {
		return slices.Contains(types, api.Ingress), slices.Contains(types, api.Egress)
	}
	return len(in) > 0 || len(out) == 0, len(out) > 0
}

func orAll(text string) string { return cmp.Or(text, "all()") }

// applies reports whether p applies to a workload of a namespace with these labels.
func (p *policy) applies(namespace string, labels labelView) bool {
	if p.namespace != "" && p.namespace != namespace {
		return false
	}
	return p.sel.MatchLabels(labels) && (p.ns == nil || p.ns.MatchLabels(labels)) && (p.sa == nil || p.sa.MatchLabels(labels))
}

// match notes whether p applies to a local endpoint.
func (g *Graph) match(key string, l *local, p *policy) {
	is := p.applies(l.namespace, g.labels.view(g.labels.items[key].vec))
	if is == l.policies[p] && !is {
		return
	}
	if is {
		l.policies[p] = true
	} else {
		delete(l.policies, p)
	}
	g.dirtyLocals[key] = true
}

// comparePolicies: lower order first, none last, ties by name/namespace/kind as one string.
func comparePolicies(a, b *policy) int {
	tie := func(p *policy) string { return p.name + "/" + p.id.Namespace + "/" + p.id.Kind }
	return cmp.Or(compareOrder(a.order, b.order), cmp.Compare(tie(a), tie(b)), cmp.Compare(a.key, b.key))
}

// denyAll is what stands in for what is missing or unreadable.
func denyAll(id intent.PolicyID, tier, why string) intent.Policy {
	deny := []intent.Rule{{Action: intent.Deny}}
	return intent.Policy{ID: id, Tier: tier, Ingress: deny, Egress: deny, Closed: why}
}

// intentOf makes the intent of a policy, and returns the sets that it uses.
func (g *Graph) intentOf(p *policy) (intent.Policy, []intent.SetID) {
	if p.closed != "" {
		return denyAll(p.id, p.tier, p.closed), nil
	}
	b := builder{g: g, namespace: p.namespace}
	out := intent.Policy{ID: p.id, Tier: p.tier}
	if p.ingress {
		out.Ingress = b.rules(p.rulesIn)
	}
	if p.egress {
		out.Egress = b.rules(p.rulesOut)
	}
	return out, b.used
}

// profile is the rules of a profile; its labels are the label index's.
type profile struct {
	ingress, egress []api.Rule
	closed          string
}

func profileID(name string) intent.PolicyID {
	return intent.PolicyID{Kind: api.KindProfile, Name: name}
}

// putProfile takes over a profile, or nil when it is gone.
func (g *Graph) putProfile(name string, r *api.Profile, closed string) {
	if r == nil {
		delete(g.profiles, name)
		g.labels.setParent(name, nil)
	} else {
		g.profiles[name] = &profile{ingress: r.Spec.Ingress, egress: r.Spec.Egress, closed: closed}
		g.labels.setParent(name, r.Spec.LabelsToApply)
	}
	g.dirtyProfiles[name] = true
	for key, l := range g.locals {
		if slices.Contains(l.profiles, name) {
			g.rematch(key, l)
		}
	}
}

func (g *Graph) profileIntent(name string) (intent.Policy, []intent.SetID) {
	p := g.profiles[name]
	id := profileID(name)
	switch {
	case p == nil && name == api.ProfileDefaultAllow:
		allow := []intent.Rule{{Action: intent.Allow}}
		return intent.Policy{ID: id, Ingress: allow, Egress: allow}, nil
	case p == nil:
		return denyAll(id, "", "profile "+name+" is missing"), nil
	case p.closed != "":
		return denyAll(id, "", p.closed), nil
	}
	b := builder{g: g}
	return intent.Policy{ID: id, Ingress: b.rules(p.ingress), Egress: b.rules(p.egress)}, b.used
}
