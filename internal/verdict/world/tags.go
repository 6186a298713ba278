package world

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// Tags name everything that took part in the answer, for counting what random worlds
// cover: "action Log", "field source.nets", "tier pass", "profile Allow",
// "decided no profile". Hops after the one that denied do not count.
func (a Answer) Tags() []string {
	if len(a.Hops) == 0 {
		return []string{"decided " + a.Decided.Reason}
	}
	var out []string
	for _, h := range a.Hops {
		for _, t := range h.Tiers {
			out = append(append(out, "tier "+t.Outcome), t.tags...)
			for _, p := range t.Policies {
				out = append(out, p.tags...)
			}
		}
		for _, p := range h.Profiles {
			out = append(out, p.tags...)
			if p.Rule >= 0 {
				out = append(out, "profile "+p.Action)
			}
		}
		out = append(append(out, "decided "+h.Decided.Reason, "stage "+h.Stage), h.tags...)
		if !h.Allowed {
			break
		}
	}
	return out
}

// ruleTags returns those of a rule that matched. The conditions of a Log rule do
// not count: it decides nothing.
func ruleTags(r api.Rule) []string {
	out := []string{"action " + string(r.Action)}
	if r.Action == api.Log {
		return out
	}
	if r.Rejects() {
		out = append(out, "reject")
	}
	for _, f := range RuleFields(r) {
		out = append(out, "field "+f)
	}
	out = append(append(out, netTags(r)...), negativeTags(r)...)
	named := func(p api.Port) bool { return p.Name != "" }
	if slices.ContainsFunc(r.Source.Ports, named) {
		out = append(out, "field source.named ports")
	}
	if slices.ContainsFunc(r.Destination.Ports, named) {
		out = append(out, "field destination.named ports")
	}
	if r.Protocol == nil && (len(r.Source.Ports) > 0 || len(r.Destination.Ports) > 0) {
		out = append(out, "ports without a protocol")
	}
	if r.Protocol == nil && (len(r.Source.NotPorts) > 0 || len(r.Destination.NotPorts) > 0) {
		out = append(out, "notPorts without a protocol")
	}
	return out
}

// netTags returns the families of the nets of a rule that matched.
func netTags(r api.Rule) []string {
	var out []string
	for _, texts := range netLists(r) {
		var four, six bool
		for _, p := range readPrefixes(texts) {
			four, six = four || p.Addr().Is4(), six || p.Addr().Is6()
		}
		if four && six {
			out = append(out, "families both")
		}
	}
	for _, texts := range [][]string{r.Source.NotNets, r.Destination.NotNets} {
		if slices.ContainsFunc(readPrefixes(texts), func(p netip.Prefix) bool { return p.Bits() == 0 }) {
			out = append(out, "families not in everything of the other")
		}
	}
	return out
}

// familyTags returns those of a rule that would have matched, if nets did not restrict it to the other family: by nets,
// or only by negated ones.
func (w *World) familyTags(r api.Rule, p packet, in scope) []string {
	tag := "families passed over by notNets"
	without := r
	for _, texts := range []*[]string{&without.Source.Nets, &without.Source.NotNets, &without.Destination.Nets, &without.Destination.NotNets} {
		if !slices.ContainsFunc(readPrefixes(*texts), func(n netip.Prefix) bool { return n.Addr().Is4() == p.src.Is4() }) {
			if len(*texts) > 0 && (texts == &without.Source.Nets || texts == &without.Destination.Nets) {
				tag = "families passed over"
			}
			*texts = nil
		}
	}
	if ofFamily(r, p.src.Is4()) || !w.ruleMatches(without, p, in) {
		return nil
	}
	return []string{tag}
}

// negative reports whether a selector also matches without labels.
func negative(text string) bool { return text != "" && matches(text, "", nil) }

// negativeTags returns those of a rule with negative selectors for accounts or namespaces.
func negativeTags(r api.Rule) []string {
	var out []string
	for _, side := range []api.EntityRule{r.Source, r.Destination} {
		if side.ServiceAccounts != nil && negative(side.ServiceAccounts.Selector) {
			out = append(out, "negative serviceAccounts of a rule")
		}
		if s := side.NamespaceSelector; s != "" && s != "global()" && namespaceMatches(s, nil, false) {
			out = append(out, "negative namespaceSelector of a rule")
		}
	}
	return out
}

// tags returns those of a policy that applies.
func (p policy) tags() []string {
	var out []string
	if negative(p.spec.ServiceAccountSelector) {
		out = append(out, "negative serviceAccountSelector")
	}
	if negative(p.spec.NamespaceSelector) {
		out = append(out, "negative namespaceSelector")
	}
	return out
}

// placelessTags returns those of policies of a tier that would apply to an endpoint, if lacking the labels of an account or a namespace were enough.
func (w *World) placelessTags(tier string, e *endpoint, dir api.PolicyType, stage string) []string {
	var out []string
	for _, p := range w.policies {
		if p.tier() != tier || !p.at(stage) || !p.hasType(dir) || p.selects(e) || p.ref.Namespace != "" || !matches(p.spec.Selector, "", e.labels) {
			continue
		}
		account := p.spec.ServiceAccountSelector == "" || e.labels[api.LabelServiceAccount] != ""
		for tag, lacks := range map[string]bool{"no account, though its labels would match": !account, "no namespace, though its labels would match": account && e.namespace == ""} {
			if lacks && matches(p.spec.ServiceAccountSelector, api.ServiceAccountLabelPrefix, e.labels) && matches(p.spec.NamespaceSelector, api.NamespaceLabelPrefix, e.labels) {
				out = append(out, tag)
			}
		}
	}
	return out
}
