package world

import (
	"maps"
	"slices"

	"github.com/twillnet/twill/api"
)

// Tiers returns all tiers in the order of evaluation, each with its
// policies in order. Outcome is the default action of a tier.
func (w *World) Tiers() []Tier {
	var out []Tier
	for _, name := range w.tierNames() {
		ps := slices.DeleteFunc(slices.Clone(w.policies), func(p policy) bool { return p.tier() != name })
		sortPolicies(ps)
		out = append(out, w.described(name, ps))
	}
	return out
}

// Ladder returns what is evaluated for packets of a workload (namespace/name of its WorkloadEndpoint)
// in a direction: the tiers that have a policy for it, as in [World.Tiers].
// First are policies of its namespace that cannot be read; after the last tier
// come the endpoint's profiles.
func (w *World) Ladder(endpoint string, dir api.PolicyType) []Tier {
	var out []Tier
	e := w.endpoint(endpoint)
	if e == nil {
		return nil
	}
	for _, c := range w.closed {
		if c.ref.Namespace == e.namespace {
			t := w.described(closedTier, []policy{c})
			t.Outcome = OutcomeDeny
			out = append(out, t)
		}
	}
	for _, name := range w.tierNames() {
		if ps := w.applicable(name, e, dir, StageWorkload); len(ps) > 0 {
			out = append(out, w.described(name, ps))
		}
	}
	return out
}

func (w *World) described(name string, ps []policy) Tier {
	t := Tier{Name: name, Outcome: OutcomeEndDeny}
	if w.endsInPass(name) {
		t.Outcome = OutcomeEndPass
	}
	for _, p := range ps {
		t.Policies = append(t.Policies, Policy{Kind: p.ref.Kind, Namespace: p.ref.Namespace, Name: p.ref.Name, Rule: -1})
	}
	return t
}

// Selected returns the workloads to which a policy applies.
func (w *World) Selected(ref api.Ref) []Party {
	var out []Party
	for _, p := range w.policies {
		if p.ref != ref {
			continue
		}
		for _, e := range w.workloads {
			if p.selects(e) {
				out = append(out, workloadParty(e, e.label))
			}
		}
	}
	return out
}

// Labels returns those of a workload, including inherited ones, as selectors see them.
func (w *World) Labels(endpoint string) map[string]string {
	e := w.endpoint(endpoint)
	if e == nil {
		return nil
	}
	return maps.Clone(e.labels)
}
