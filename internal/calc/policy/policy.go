// Package policy reads policies, profiles and tiers, and puts them in order.
//
// In: resources as stored, and IP sets on demand. Out: which selector a policy's
// endpoints match, the tiers of an endpoint in order, and rules as intents.
package policy

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/translate"
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
	// Replaced: a staged policy would take its place, or take it away.
	Replaced bool
	// Everywhere: every node is to have it ready, whether its endpoints need it or not.
	Everywhere bool
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
	untracked       bool // these two are for host endpoints alone
	preDNAT         bool
	forward         bool // also for what hosts forward
	staged          bool // it is never enforced
	deletes         bool // if it were, it would only take away the policy of its name
}

// Of reads a policy, staged or not. It is nil if it must not apply to anything, because it is global or staged and cannot
// be read.
func Of(s api.Stored) *Policy {
	// The id is that of the key: two keys may have been given one name, by the
	// annotations that upstream's older versions write.
	p := &Policy{ID: intent.PolicyID{Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Key[strings.LastIndexByte(s.Key, '/')+1:]}, closed: s.Closed}
	spec, action := specOf(s.Resource)
	p.place = place{
		tier: cmp.Or(spec.Tier, api.TierDefault), last: spec.Order == nil, tie: s.Ref.Name + "/" + s.Ref.Namespace + "/" + s.Ref.Kind,
		untracked: spec.DoNotTrack, preDNAT: spec.PreDNAT, forward: spec.ApplyOnForward,
		staged: p.ID.Staged(), deletes: action == "Delete",
	}
	if p.place.staged && (p.closed != "" || action != "" && action != "Set" && action != "Delete") {
		return nil
	}
	if spec.Order != nil {
		p.place.order = *spec.Order
	}
	p.Everywhere = slices.Contains(spec.PerformanceHints, api.AssumeNeededOnEveryNode)
	p.place.ingress, p.place.egress = directions(spec.Types, spec.Ingress, spec.Egress)
	p.ingress, p.egress = slices.Clone(spec.Ingress), slices.Clone(spec.Egress) // the decoder leaves room for more
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
		if spec.NamespaceSelector != "" {
			p.Selector = selector.And(p.Selector, selector.And(parse("has("+api.LabelNamespace+")"), namespaceSelector(spec.NamespaceSelector)))
		}
		if spec.ServiceAccountSelector != "" {
			if p.ID.Namespace == "" { // what has no account is not of an account without a label (decision 026)
				p.Selector = selector.And(p.Selector, parse("has("+api.LabelServiceAccount+")"))
			}
			p.Selector = selector.And(p.Selector, parse(spec.ServiceAccountSelector).Prefixed(api.ServiceAccountLabelPrefix))
		}
		if p.place.deletes {
			p.Selector = parse(nothing)
		}
	}
	p.place.selector = p.Selector.String()
	return p
}

// specOf is what all kinds of policy say, and the action of a staged one.
func specOf(r api.Resource) (api.GlobalNetworkPolicySpec, string) {
	switch r := r.(type) {
	case *api.NetworkPolicy:
		return global(r.Spec), ""
	case *api.StagedNetworkPolicy:
		return global(r.Spec.NetworkPolicySpec), r.Spec.StagedAction
	case *api.GlobalNetworkPolicy:
		return r.Spec, ""
	case *api.StagedGlobalNetworkPolicy:
		return r.Spec.GlobalNetworkPolicySpec, r.Spec.StagedAction
	}
	return api.GlobalNetworkPolicySpec{}, ""
}

func global(s api.NetworkPolicySpec) api.GlobalNetworkPolicySpec {
	return api.GlobalNetworkPolicySpec{
		Tier: s.Tier, Order: s.Order, Ingress: s.Ingress, Egress: s.Egress,
		Selector: s.Selector, Types: s.Types, ServiceAccountSelector: s.ServiceAccountSelector,
		PerformanceHints: s.PerformanceHints,
	}
}

// Counterpart names the enforced policy whose place a staged one would take; that of one that is not staged has no kind.
func Counterpart(id intent.PolicyID) intent.PolicyID {
	switch id.Kind {
	case api.KindStagedNetworkPolicy:
		id.Kind = api.KindNetworkPolicy
	case api.KindStagedGlobalNetworkPolicy:
		id.Kind = api.KindGlobalNetworkPolicy
	case api.KindStagedKubernetesNetworkPolicy:
		id.Kind, id.Name = api.KindNetworkPolicy, translate.PolicyPrefix+id.Name
	default:
		return intent.PolicyID{}
	}
	return id
}

// StagedFor names the staged policies that would take the place of an enforced one.
func StagedFor(id intent.PolicyID) (out []intent.PolicyID) {
	of := func(kind, name string) {
		out = append(out, intent.PolicyID{Kind: kind, Namespace: id.Namespace, Name: name})
	}
	switch id.Kind {
	case api.KindGlobalNetworkPolicy:
		of(api.KindStagedGlobalNetworkPolicy, id.Name)
	case api.KindNetworkPolicy:
		of(api.KindStagedNetworkPolicy, id.Name)
		if name, ok := strings.CutPrefix(id.Name, translate.PolicyPrefix); ok {
			of(api.KindStagedKubernetesNetworkPolicy, name)
		}
	}
	return out
}

// Replaces reports whether p, a staged policy, would take the place of q: it has the name by which it was found, and is
// in the same tier.
func (p *Policy) Replaces(q *Policy) bool { return p.place.staged && p.place.tier == q.place.tier }

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

// Equal reports whether the intents of p and q are equal.
func (p *Policy) Equal(q *Policy) bool {
	return p == q || p.ID == q.ID && p.closed == q.closed && p.place.tier == q.place.tier && p.place.ingress == q.place.ingress &&
		p.place.egress == q.place.egress && reflect.DeepEqual(p.ingress, q.ingress) && reflect.DeepEqual(p.egress, q.egress)
}

// ProfileID names a profile's intent.
func ProfileID(name string) intent.PolicyID {
	return intent.PolicyID{Kind: api.KindProfile, Name: name}
}

// OfProfile reads the rules of a profile, as a policy without place. Nil is that
// of a profile which is not in the store: it denies, unless it is built in.
func OfProfile(name string, r *api.Profile, closed string) *Policy {
	p := &Policy{ID: ProfileID(name), closed: closed, place: place{ingress: true, egress: true}}
	switch {
	case r != nil:
		p.ingress, p.egress = slices.Clone(r.Spec.Ingress), slices.Clone(r.Spec.Egress)
	case name == api.ProfileDefaultAllow:
		p.ingress, p.egress = []api.Rule{{Action: api.Allow}}, []api.Rule{{Action: api.Allow}}
	default:
		p.closed = "profile " + name + " is missing"
	}
	return p
}
