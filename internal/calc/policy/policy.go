// Package policy reads policies, profiles and tiers, and puts them in order.
//
// In: resources as stored, and IP sets on demand. Out: which selector a policy's
// endpoints match, the tiers of an endpoint in order, and rules as intents.
package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/intent"
)

// TierClosed holds policies that cannot be read. It is before all tiers, and
// those policies deny everything in their namespace.
const TierClosed = "(closed)"

// Policy is a policy that may apply to workloads.
type Policy struct {
	ID       intent.PolicyID
	Selector *selector.Selector // of the endpoints, all told
	place    place
	closed   string
	ingress  []api.Rule
	egress   []api.Rule
	ranked   int // in Order
}

// place is what decides where a policy stands and whom it concerns.
type place struct {
	selector        string // canonical text
	tier            string
	closed          bool
	order           float64
	last            bool   // it has no order
	tie             string // name/namespace/kind
	ingress, egress bool
}

// Of reads a policy. It is nil if it never applies to workloads, or must not
// apply to anything because it is global and cannot be read.
func Of(s api.Stored) *Policy {
	// The id is that of the key: two keys may have been given one name, by the
	// annotations that upstream's older versions write.
	p := &Policy{ID: intent.PolicyID{Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Key[strings.LastIndexByte(s.Key, '/')+1:]}, closed: s.Closed}
	var spec api.NetworkPolicySpec
	var namespaces string
	switch r := s.Resource.(type) {
	case *api.NetworkPolicy:
		spec = r.Spec
	case *api.GlobalNetworkPolicy:
		if r.Spec.DoNotTrack || r.Spec.PreDNAT { // these are for host endpoints
			return nil
		}
		spec = api.NetworkPolicySpec{Tier: r.Spec.Tier, Order: r.Spec.Order, Ingress: r.Spec.Ingress, Egress: r.Spec.Egress,
			Selector: r.Spec.Selector, Types: r.Spec.Types, ServiceAccountSelector: r.Spec.ServiceAccountSelector}
		namespaces = r.Spec.NamespaceSelector
	}
	p.place = place{tier: cmp.Or(spec.Tier, api.TierDefault), last: spec.Order == nil, tie: s.Ref.Name + "/" + s.Ref.Namespace + "/" + s.Ref.Kind}
	if spec.Order != nil {
		p.place.order = *spec.Order
	}
	p.place.ingress, p.place.egress = directions(spec.Types, spec.Ingress, spec.Egress)
	p.ingress, p.egress = spec.Ingress, spec.Egress
	inNamespace := parse("")
	if s.Ref.Namespace != "" {
		inNamespace = oneOf(api.LabelNamespace, []string{s.Ref.Namespace})
	}
	if p.closed != "" {
		if s.Ref.Namespace == "" {
			return nil
		}
		p.place = place{tier: TierClosed, closed: true, last: true, tie: p.place.tie, ingress: true, egress: true}
		p.Selector, p.ingress, p.egress = inNamespace, nil, nil
	} else {
		p.Selector = selector.And(parse(spec.Selector), inNamespace)
		if namespaces != "" {
			p.Selector = selector.And(p.Selector, namespaceSelector(namespaces))
		}
		if spec.ServiceAccountSelector != "" {
			p.Selector = selector.And(p.Selector, parse(spec.ServiceAccountSelector).Prefixed(api.ServiceAccountLabelPrefix))
		}
	}
	p.place.selector = p.Selector.String()
	return p
}

// directions: without types, those that have rules; without any rule, ingress.
func directions(types []api.PolicyType, in, out []api.Rule) (ingress, egress bool) {
	if len(types) > 0 {
		return slices.Contains(types, api.Ingress), slices.Contains(types, api.Egress)
	}
	return len(in) > 0 || len(out) == 0, len(out) > 0
}

// SameEndpoints reports whether p concerns those endpoints that q concerns.
func (p *Policy) SameEndpoints(q *Policy) bool { return p.place.selector == q.place.selector }

// SamePlace reports whether p stands where q stands, so that only their rules may differ.
func (p *Policy) SamePlace(q *Policy) bool { return p.place == q.place }

// Tier names the tier that p is in.
func (p *Policy) Tier() string { return p.place.tier }

// Intent makes the intent of a policy, and returns the sets that it uses.
func (p *Policy) Intent(sets Sets) (intent.Policy, []intent.SetID) {
	if p.closed != "" {
		return denyAll(p.ID, TierClosed, p.closed), nil
	}
	c := converter{sets: sets, namespace: p.ID.Namespace}
	out := intent.Policy{ID: p.ID, Tier: p.place.tier}
	if p.place.ingress {
		out.Ingress = c.rules(p.ingress)
	}
	if p.place.egress {
		out.Egress = c.rules(p.egress)
	}
	return out, c.used
}

// denyAll is what stands in for what is missing or unreadable.
func denyAll(id intent.PolicyID, tier, why string) intent.Policy {
	deny := []intent.Rule{{Action: intent.Deny}}
	return intent.Policy{ID: id, Tier: tier, Ingress: deny, Egress: deny, Closed: why}
}

// Profile is the rules of a profile. Its labels are no concern of this package.
type Profile struct {
	ingress, egress []api.Rule
	closed          string
}

// ProfileOf reads a profile.
func ProfileOf(r *api.Profile, closed string) *Profile {
	return &Profile{ingress: r.Spec.Ingress, egress: r.Spec.Egress, closed: closed}
}

// ProfileID names a profile's intent.
func ProfileID(name string) intent.PolicyID {
	return intent.PolicyID{Kind: api.KindProfile, Name: name}
}

// Intent makes the intent of a profile, which is nil if there is none in the
// store, and returns the sets that it uses.
func (p *Profile) Intent(name string, sets Sets) (intent.Policy, []intent.SetID) {
	id := ProfileID(name)
	switch {
	case p == nil && name == api.ProfileDefaultAllow:
		allow := []intent.Rule{{Action: intent.Allow}}
		return intent.Policy{ID: id, Ingress: allow, Egress: allow}, nil
	case p == nil:
		return denyAll(id, "", "profile "+name+" is missing"), nil
	case p.closed != "":
		return denyAll(id, "", p.closed), nil
	}
	c := converter{sets: sets}
	return intent.Policy{ID: id, Ingress: c.rules(p.ingress), Egress: c.rules(p.egress)}, c.used
}
