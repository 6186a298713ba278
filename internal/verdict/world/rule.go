package world

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// scope is the context of a rule.
type scope struct {
	namespace string // of a NetworkPolicy: its unqualified selectors match in this namespace only
}

// evaluate evaluates rules in order. Its decision is nil unless a rule allowed or denied.
func (w *World) evaluate(ref api.Ref, rules []api.Rule, p packet, in scope) (Policy, *Decision) {
	seen := Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Rule: -1}
	for i, r := range rules {
		if !w.ruleMatches(r, p, in) {
			seen.tags = append(seen.tags, w.familyTags(r, p, in)...)
			continue
		}
		seen.tags = append(seen.tags, ruleTags(r)...)
		if r.Action == api.Log {
			seen.Logged = append(seen.Logged, i)
			continue
		}
		seen.Rule, seen.Action, seen.Text = i, string(r.Action), RuleText(r)
		if r.Action == api.Pass {
			return seen, nil
		}
		d := &Decision{
			Policy: seen.ref(), RuleIndex: i, Action: seen.Action,
			Text: seen.Text, Fields: RuleFields(r),
		}
		if r.Rejects() {
			d.Reject = RejectSent
		}
		return seen, d
	}
	return seen, nil
}

// ruleMatches reports whether the packet meets all conditions of the rule.
func (w *World) ruleMatches(r api.Rule, p packet, in scope) bool {
	if r.Void {
		return false
	}
	if !ofFamily(r, p.src.Is4()) {
		return false
	}
	if r.Protocol != nil && !isProtocol(*r.Protocol, p.proto) {
		return false
	}
	if r.NotProtocol != nil && isProtocol(*r.NotProtocol, p.proto) {
		return false
	}
	// ICMP exists only in IPv4, ICMPv6 only in IPv6.
	if r.Protocol != nil && (p.proto == protoICMP && !p.src.Is4() || p.proto == protoICMPv6 && p.src.Is4()) {
		return false
	}
	if r.ICMP != nil && !icmpMatches(*r.ICMP, p) {
		return false
	}
	if r.NotICMP != nil && icmpMatches(*r.NotICMP, p) {
		return false
	}
	if r.HTTP != nil && (p.proto != protoTCP || !w.enforced(p.dst)) {
		return false
	}
	if s := r.Source.Services; s != nil && !w.serving(*s, p.src, nil) {
		return false
	}
	if s := r.Destination.Services; s != nil && !w.serving(*s, p.dst, &p) {
		return false
	}
	return w.sideMatches(r, r.Source, p, p.src, p.srcPort, in) && w.sideMatches(r, r.Destination, p, p.dst, p.dstPort, in)
}

// ofFamily reports whether a rule applies to IPv4 or else to IPv6. ipVersion restricts it, and so does each list of nets that is
// given, also a negated one: upstream leaves a rule out for the family of which such a list has none
// (FilterRuleToIPVersion in felix/rules/policy.go).
func ofFamily(r api.Rule, v4 bool) bool {
	if r.IPVersion != nil && (*r.IPVersion == 4) != v4 {
		return false
	}
	for _, texts := range netLists(r) {
		has := false
		for _, p := range readPrefixes(texts) {
			has = has || p.Addr().Is4() == v4
		}
		if len(texts) > 0 && !has {
			return false
		}
	}
	return true
}

func netLists(r api.Rule) [][]string {
	return [][]string{r.Source.Nets, r.Source.NotNets, r.Destination.Nets, r.Destination.NotNets}
}

// serving reports whether an address is one of those behind a service and, if a packet is given, its destination port
// one of the ports behind it.
func (w *World) serving(s api.ServiceMatch, addr netip.Addr, p *packet) bool {
	for _, slice := range w.serves {
		if slice.Metadata.Namespace != s.Namespace || slice.Service() != s.Name {
			continue
		}
		serves := p == nil || slices.ContainsFunc(slice.Ports, func(port api.SlicePort) bool {
			proto, number, ok := port.Number()
			return ok && proto == p.proto && number == p.dstPort
		})
		for _, e := range slice.Endpoints {
			if serves && slices.ContainsFunc(e.Addresses, func(text string) bool { a, err := netip.ParseAddr(text); return err == nil && a == addr }) {
				return true
			}
		}
	}
	return false
}

// Proxied returns the world in which the proxies of these workloads, namespace/resource, enforce what rules ask of requests; else nobody does.
func (w *World) Proxied(names ...string) *World {
	out := *w
	out.proxied = names
	return &out
}

// enforced reports whether an address is that of a workload whose proxy enforces what rules ask of requests. Elsewhere such rules match nothing.
func (w *World) enforced(a netip.Addr) bool {
	return slices.ContainsFunc(w.workloads, func(e *endpoint) bool {
		return e.closed == "" && slices.Contains(w.proxied, e.name) && slices.Contains(e.addrs, a)
	})
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
)

func isProtocol(p api.Protocol, number uint8) bool {
	n, ok := p.Number()
	return ok && n == number
}

func icmpMatches(f api.ICMPFields, p packet) bool {
	if p.proto != protoICMP && p.proto != protoICMPv6 {
		return false
	}
	return (f.Type == nil || *f.Type == int(p.icmpType)) && (f.Code == nil || *f.Code == int(p.icmpCode))
}

// sideMatches evaluates all conditions of one side on its address and port.
func (w *World) sideMatches(r api.Rule, side api.EntityRule, p packet, addr netip.Addr, port uint16, in scope) bool {
	if len(side.Nets) > 0 && !contains(readPrefixes(side.Nets), addr) {
		return false
	}
	if contains(readPrefixes(side.NotNets), addr) {
		return false
	}
	has := func(m selectable) bool { return contains(m.prefixes, addr) }
	not := func(labels map[string]string) bool { return matches(side.NotSelector, "", labels) }
	switch sel, given := selection(side, in); {
	case given && !w.anySelected(labelText(side), sel, has),
		!given && side.NotSelector != "" && w.anySelected(side.NotSelector, not, has):
		return false
	}
	if len(side.Ports) > 0 && !w.portMatches(r, side, side.Ports, p, addr, port, in) {
		return false
	}
	return !w.portMatches(r, side, side.NotPorts, p, addr, port, in)
}

// selection returns the conjunction of selector, namespaceSelector and serviceAccounts of a side, and of what is not
// its notSelector; false if the side says of labels nothing but a notSelector, which is then about addresses.
func selection(side api.EntityRule, in scope) (func(labels map[string]string) bool, bool) {
	accounts := side.ServiceAccounts
	if accounts != nil && len(accounts.Names) == 0 && accounts.Selector == "" {
		accounts = nil
	}
	given := side.Selector != "" || side.NamespaceSelector != "" || accounts != nil
	// In a NetworkPolicy, a selector without a namespaceSelector matches in its own
	// namespace only, also if it is only negated.
	own := in.namespace != "" && side.NamespaceSelector == "" && (given || side.NotSelector != "")
	return func(labels map[string]string) bool {
		namespace, namespaced := labels[api.LabelNamespace]
		if own && (!namespaced || namespace != in.namespace) {
			return false
		}
		if !matches(side.Selector, "", labels) || !namespaceMatches(side.NamespaceSelector, labels, namespaced) {
			return false
		}
		if side.NotSelector != "" && matches(side.NotSelector, "", labels) {
			return false
		}
		if accounts == nil {
			return true
		}
		name, has := labels[api.LabelServiceAccount]
		return (len(accounts.Names) == 0 || has && slices.Contains(accounts.Names, name)) &&
			matches(accounts.Selector, api.ServiceAccountLabelPrefix, labels)
	}, given || own
}

// labelText is what a side demands of labels without a prefix.
func labelText(side api.EntityRule) string {
	switch {
	case side.NotSelector == "":
		return side.Selector
	case side.Selector == "":
		return "!(" + side.NotSelector + ")"
	}
	return "(" + side.Selector + ") && !(" + side.NotSelector + ")"
}

// namespaceMatches evaluates a namespaceSelector: all() matches in any namespace, also where it is a part, global() outside of all.
func namespaceMatches(text string, labels map[string]string, namespaced bool) bool {
	if text == "" {
		return true
	}
	s, err := selector.Parse(text)
	if err != nil {
		return false
	}
	if s.IsGlobal() {
		return !namespaced
	}
	return s.Prefixed(api.NamespaceLabelPrefix).Within(api.LabelNamespace).Match(labels)
}

// anySelected reports whether an endpoint or a network set, on any node, has such
// labels and satisfies ok; or a node, if the text of the selector demands the label of nodes.
func (w *World) anySelected(text string, sel func(map[string]string) bool, ok func(selectable) bool) bool {
	if s, err := selector.Parse(text); err == nil && s.Demands(api.LabelNode) {
		return slices.ContainsFunc(w.peers, func(m selectable) bool { return sel(m.labels) && ok(m) })
	}
	for _, list := range [][]*endpoint{w.workloads, w.hosts} {
		for _, e := range list {
			if sel(e.labels) && ok(e.selectable) {
				return true
			}
		}
	}
	return slices.ContainsFunc(w.sets, func(m selectable) bool { return sel(m.labels) && ok(m) })
}

// portMatches reports whether port is one of ports: by number, or because addr
// belongs to an endpoint with a port of that name, for the rule's protocol or, if the rule has none, for the packet's.
func (w *World) portMatches(r api.Rule, side api.EntityRule, ports []api.Port, p packet, addr netip.Addr, port uint16, in scope) bool {
	sel, given := selection(side, in)
	text := labelText(side)
	if !given {
		sel, text = func(map[string]string) bool { return true }, ""
	}
	for _, want := range ports {
		if want.Name == "" {
			if want.Min <= port && port <= want.Max {
				return true
			}
			continue
		}
		named := func(m selectable) bool {
			return contains(m.prefixes, addr) && slices.ContainsFunc(m.ports, func(have api.EndpointPort) bool {
				n, _ := have.Protocol.Number()
				return have.Name == want.Name && have.Port == port && n == p.proto && (r.Protocol == nil || isProtocol(*r.Protocol, n))
			})
		}
		if w.anySelected(text, sel, named) {
			return true
		}
	}
	return false
}
