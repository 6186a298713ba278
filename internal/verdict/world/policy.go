package world

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// tierNames returns all tiers in order: known ones by (order, none last, name),
// then by name those that only policies name.
func (w *World) tierNames() []string {
	known := slices.SortedFunc(maps.Keys(w.tiers), func(a, b string) int {
		return cmp.Or(compareOrder(w.tiers[a].Order, w.tiers[b].Order), cmp.Compare(a, b))
	})
	unknown := map[string]bool{}
	for _, p := range w.policies {
		if _, ok := w.tiers[p.tier()]; !ok {
			unknown[p.tier()] = true
		}
	}
	return append(known, slices.Sorted(maps.Keys(unknown))...)
}

// endsInPass reports whether a tier's default action is Pass; it is Deny also for an unknown tier.
func (w *World) endsInPass(name string) bool {
	a := w.tiers[name].DefaultAction
	return a != nil && *a == api.Pass
}

// compareOrder compares orders: lower first, none last.
func compareOrder(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

func (p policy) tier() string {
	if p.spec.Tier == "" {
		return api.TierDefault
	}
	return p.spec.Tier
}

// at reports whether p is evaluated in a stage.
func (p policy) at(stage string) bool {
	switch {
	case p.spec.DoNotTrack:
		return stage == StageUntracked
	case p.spec.PreDNAT:
		return stage == StagePreDNAT
	case stage == StageForward:
		return p.spec.ApplyOnForward
	}
	return stage == StageWorkload || stage == StageHost
}

// applicable returns the policies of a tier that apply to e in a direction of a
// stage, in order: lower first, none last, ties by name/namespace/kind as one string.
func (w *World) applicable(tier string, e *endpoint, dir api.PolicyType, stage string) []policy {
	var out []policy
	for _, p := range w.policies {
		if p.tier() == tier && p.at(stage) && p.hasType(dir) && p.selects(e) {
			out = append(out, p)
		}
	}
	sortPolicies(out)
	return out
}

func sortPolicies(ps []policy) {
	slices.SortStableFunc(ps, func(a, b policy) int { // two keys may have one name; then the keys decide
		tie := func(p policy) string { return p.placed + "/" + p.ref.Namespace + "/" + p.ref.Kind }
		return cmp.Or(compareOrder(a.spec.Order, b.spec.Order), cmp.Compare(tie(a), tie(b)))
	})
}

// hasType reports whether p applies in a direction: without types, it does in the directions in which it has
// rules, and without any rule in ingress.
func (p policy) hasType(dir api.PolicyType) bool {
	if len(p.spec.Types) > 0 {
		return slices.Contains(p.spec.Types, dir)
	}
	if dir == api.Egress {
		return len(p.spec.Egress) > 0
	}
	return len(p.spec.Ingress) > 0 || len(p.spec.Egress) == 0
}

// selects reports whether p applies to e. A global policy with selectors for accounts or namespaces applies only to endpoints
// that have one, also if the selector is negative (decision 026).
func (p policy) selects(e *endpoint) bool {
	if p.ref.Namespace != "" && p.ref.Namespace != e.namespace {
		return false
	}
	if p.ref.Namespace == "" && p.spec.ServiceAccountSelector != "" && e.labels[api.LabelServiceAccount] == "" {
		return false
	}
	return matches(p.spec.Selector, "", e.labels) &&
		matches(p.spec.ServiceAccountSelector, api.ServiceAccountLabelPrefix, e.labels) &&
		(p.spec.NamespaceSelector == "" || e.namespace != "" && matches(p.spec.NamespaceSelector, api.NamespaceLabelPrefix, e.labels))
}

// matches evaluates selector text, each of its labels prefixed, for labels. Empty text
// matches anything. Text that DecodeStored accepted always parses.
func matches(text, prefix string, labels map[string]string) bool {
	s, err := selector.Parse(text)
	return err == nil && s.Prefixed(prefix).Match(labels)
}
