package calctest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// expectedPolicy is a policy that is enforced, of either kind.
type expectedPolicy struct {
	id, namespace, tie string
	closed             bool
	spec               api.GlobalNetworkPolicySpec
}

func policyOf(s api.Stored) expectedPolicy {
	p := expectedPolicy{namespace: s.Ref.Namespace, closed: s.Closed != "", tie: s.Ref.Name + "/" + s.Ref.Namespace + "/" + s.Ref.Kind}
	name := s.Key[strings.LastIndex(s.Key, "/")+1:]
	switch r := s.Resource.(type) {
	case *api.NetworkPolicy:
		p.id = "NetworkPolicy/" + s.Ref.Namespace + "/" + name
		p.spec = api.GlobalNetworkPolicySpec{
			Tier: r.Spec.Tier, Order: r.Spec.Order, Ingress: r.Spec.Ingress, Egress: r.Spec.Egress, Selector: r.Spec.Selector, Types: r.Spec.Types,
			ServiceAccountSelector: r.Spec.ServiceAccountSelector,
		}
	case *api.GlobalNetworkPolicy:
		p.id, p.spec = "GlobalNetworkPolicy/"+name, r.Spec
	}
	if p.spec.Tier == "" {
		p.spec.Tier = "default"
	}
	return p
}

// applies: to an endpoint in a stage. One that cannot be read denies all of its namespace; a global one applies to nothing.
func (p expectedPolicy) applies(l expectedLocal, stage string) bool {
	namespace := l.labels[api.LabelNamespace]
	if p.closed {
		return p.namespace != "" && p.namespace == namespace && stage == "normal"
	}
	asked := map[string]bool{
		"untracked": p.spec.DoNotTrack, "pre-DNAT": p.spec.PreDNAT && !p.spec.DoNotTrack, "normal": !p.spec.DoNotTrack && !p.spec.PreDNAT,
		"forward": p.spec.ApplyOnForward && !p.spec.DoNotTrack && !p.spec.PreDNAT,
	}[stage]
	if !asked || p.namespace != "" && p.namespace != namespace || !selects(p.spec.Selector, l.labels) {
		return false
	}
	if p.spec.NamespaceSelector != "" && (namespace == "" || !selects(p.spec.NamespaceSelector, under("pcns.", l.labels))) {
		return false
	}
	if p.spec.ServiceAccountSelector != "" && p.namespace == "" && l.labels[api.LabelServiceAccount] == "" {
		return false
	}
	return p.spec.ServiceAccountSelector == "" || selects(p.spec.ServiceAccountSelector, under("pcsa.", l.labels))
}

// directions: those of its types; without, those that it has rules of, and ingress if it has none.
func (p expectedPolicy) directions() (in, out bool) {
	if p.closed {
		return true, true
	}
	if len(p.spec.Types) > 0 {
		return slices.Contains(p.spec.Types, api.Ingress), slices.Contains(p.spec.Types, api.Egress)
	}
	return len(p.spec.Ingress) > 0 || len(p.spec.Egress) == 0, len(p.spec.Egress) > 0
}

// rank is where a tier is: those that are known by order and name, then those without order, then unknown ones.
func (x *expected) rank(tier string) (class int, order float64, pass bool) {
	switch tier {
	case "kube-admin":
		return 0, 1000, true
	case "default":
		return 0, 1_000_000, false
	case "kube-baseline":
		return 0, 10_000_000, true
	}
	t, known := x.tiers[tier]
	if !known {
		return 2, 0, false
	}
	pass = t.DefaultAction != nil && *t.DefaultAction == api.Pass
	if t.Order == nil {
		return 1, 0, pass
	}
	return 0, *t.Order, pass
}

func (x *expected) compare(a, b expectedPolicy) int {
	if a.closed != b.closed {
		if a.closed {
			return -1
		}
		return 1
	}
	if a.closed {
		return cmp.Compare(a.tie, b.tie)
	}
	if a.spec.Tier != b.spec.Tier {
		ac, ao, _ := x.rank(a.spec.Tier)
		bc, bo, _ := x.rank(b.spec.Tier)
		return cmp.Or(cmp.Compare(ac, bc), cmp.Compare(ao, bo), cmp.Compare(a.spec.Tier, b.spec.Tier))
	}
	if ao, bo := a.spec.Order, b.spec.Order; ao != nil && bo != nil {
		return cmp.Or(cmp.Compare(*ao, *bo), cmp.Compare(a.tie, b.tie))
	} else if (ao == nil) != (bo == nil) {
		if bo == nil {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.tie, b.tie)
}

// localLines are an endpoint and the policies of each of its stages in order; used is completed by what they are.
func (x *expected) localLines(l expectedLocal, used map[string]bool) []string {
	if !l.host && (x.owned(l) || !strings.HasPrefix(l.link, "cali")) {
		l.closed, l.link = true, ""
	}
	if l.host && l.closed {
		return []string{fmt.Sprintf("%s at %q closed true", l.id, l.link)}
	}
	out := []string{fmt.Sprintf("%s at %q closed %v", l.id, l.link, l.closed), fmt.Sprintf("%s profiles %q", l.id, l.profiles)}
	out = append(append(out, x.floatingLines(l)...), limitLines(l)...)
	for _, name := range l.profiles {
		used["Profile/"+name] = true
	}
	stages := []string{"normal"}
	if l.host {
		stages = []string{"untracked", "pre-DNAT", "normal", "forward"}
	}
	for _, stage := range stages {
		var apply []expectedPolicy
		for _, p := range x.policies {
			if p.applies(l, stage) {
				apply = append(apply, p)
			}
		}
		slices.SortFunc(apply, x.compare)
		for _, d := range []string{"Ingress", "Egress"} {
			line := l.id + " " + stage + " " + d
			for _, p := range apply {
				used[p.id] = true
				in, out := p.directions()
				if d == "Ingress" && !in || d == "Egress" && !out {
					continue
				}
				tier, pass := "(closed)", false
				if !p.closed {
					tier = p.spec.Tier
					_, _, pass = x.rank(tier)
				}
				line += fmt.Sprintf(" %s(pass %v):%s", tier, pass, p.id)
			}
			out = append(out, line)
		}
	}
	return out
}

// ruleLines are the rules of a policy or profile, each with the members of its sets.
func (x *expected) ruleLines(id string) []string {
	var in, out []api.Rule
	var namespace string
	if name, profile := strings.CutPrefix(id, "Profile/"); profile {
		p, known := x.profiles[name]
		switch {
		case known && !x.closedProfiles[name]:
			in, out = p.Spec.Ingress, p.Spec.Egress
		case !known && name == api.ProfileDefaultAllow:
			return []string{id + " Ingress 0 Allow", id + " Egress 0 Allow"}
		default:
			return []string{id + " closed"}
		}
	}
	for _, p := range x.policies {
		switch {
		case p.id != id:
			continue
		case p.closed:
			return []string{id + " closed"}
		}
		namespace = p.namespace
		hasIn, hasOut := p.directions()
		if hasIn {
			in = p.spec.Ingress
		}
		if hasOut {
			out = p.spec.Egress
		}
	}
	var lines []string
	for d, rules := range map[string][]api.Rule{"Ingress": in, "Egress": out} {
		for i, r := range rules {
			lines = append(lines, fmt.Sprintf("%s %s %d %s", id, d, i, x.rule(r, namespace)))
		}
	}
	return lines
}

// rule is a rule's action and the members of its sets.
func (x *expected) rule(r api.Rule, namespace string) string {
	both := r.IPVersion != nil && r.Protocol != nil && (*r.IPVersion == 6 && number(r.Protocol) == 1 || *r.IPVersion == 4 && number(r.Protocol) == 58)
	if r.Void || both { // no packet has both
		return string(r.Action) + " void"
	}
	if r.HTTP != nil {
		r.Protocol = &api.Protocol{Num: 6}
	}
	text := string(r.Action)
	for _, side := range []struct {
		name string
		e    api.EntityRule
	}{{"source", r.Source}, {"destination", r.Destination}} {
		e := side.e
		add := func(what string, members []string) {
			slices.Sort(members)
			text += fmt.Sprintf(" %s %s %v", side.name, what, slices.Compact(members))
		}
		known := ofKnown(e, namespace)
		if known {
			add("in", x.members(labelText(e, namespace), func(s source) bool { return x.named(e, namespace, s) }))
		}
		if r.HTTP != nil && side.name == "destination" {
			add("in", x.proxiedAddresses())
		}
		if e.Services != nil && side.name == "source" {
			add("service", x.service(*e.Services, false))
		}
		if e.NotSelector != "" && !known {
			add("not in", x.members(e.NotSelector, func(s source) bool { return selects(e.NotSelector, s.labels) }))
		}
		if slices.ContainsFunc(e.Ports, func(p api.Port) bool { return p.Name != "" }) {
			add("ports", x.ports(r, e, e.Ports, namespace))
		}
		if e.Services != nil && side.name == "destination" {
			add("service", x.service(*e.Services, true))
		}
		if slices.ContainsFunc(e.NotPorts, func(p api.Port) bool { return p.Name != "" }) {
			add("not ports", x.ports(r, e, e.NotPorts, namespace))
		}
	}
	return text
}

// proxiedAddresses are those of local workloads whose proxies enforce HTTP.
func (x *expected) proxiedAddresses() (out []string) {
	for _, l := range x.locals {
		if l.host || l.closed || !slices.Contains(x.proxied, l.id) || x.owned(l) || !strings.HasPrefix(l.link, "cali") {
			continue
		}
		for _, n := range l.nets {
			out = append(out, n.String())
		}
	}
	return out
}

// owned reports whether another workload has a workload's interface: a newer one, or one as old whose key is smaller.
func (x *expected) owned(l expectedLocal) bool {
	return slices.ContainsFunc(x.locals, func(o expectedLocal) bool {
		return !o.host && o.link == l.link && (o.created > l.created || o.created == l.created && o.key < l.key)
	})
}

func number(p *api.Protocol) uint8 {
	if p == nil {
		return 0
	}
	n, _ := p.Number()
	return n
}

// named reports whether a side of a rule means a source by its labels. In a namespace's policy a side that says anything of
// labels and nothing of namespaces means that namespace.
func (x *expected) named(e api.EntityRule, namespace string, s source) bool {
	of := s.labels[api.LabelNamespace]
	says := e.Selector != "" || e.NotSelector != "" || e.ServiceAccounts != nil
	switch ns := e.NamespaceSelector; {
	case ns == "" && says && namespace != "" && of != namespace,
		ns == "global()" && of != "",
		ns != "" && ns != "global()" && !selects(strings.ReplaceAll(ns, "all()", "has(somewhere)"), somewhere(of, under("pcns.", s.labels))):
		return false
	}
	if e.Selector != "" && !selects(e.Selector, s.labels) || e.NotSelector != "" && ofKnown(e, namespace) && selects(e.NotSelector, s.labels) {
		return false
	}
	if a := e.ServiceAccounts; a != nil {
		if len(a.Names) > 0 && !slices.Contains(a.Names, s.labels[api.LabelServiceAccount]) {
			return false
		}
		return a.Selector == "" || selects(a.Selector, under("pcsa.", s.labels))
	}
	return true
}

// somewhere adds to a namespace's labels one by which what is in a namespace is known.
func somewhere(namespace string, labels map[string]string) map[string]string {
	if namespace != "" {
		labels["somewhere"] = ""
	}
	return labels
}

// ofKnown reports whether a side means only addresses of endpoints and sets: by anything but a notSelector or, in a namespace's policy, by that, too.
func ofKnown(e api.EntityRule, namespace string) bool {
	return e.Selector != "" || e.NamespaceSelector != "" || e.ServiceAccounts != nil || e.NotSelector != "" && namespace != ""
}

// labelText is what a side demands of labels, but for the prefixed ones.
func labelText(e api.EntityRule, namespace string) string {
	var parts []string
	if e.Selector != "" {
		parts = append(parts, "("+e.Selector+")")
	}
	if e.NotSelector != "" && ofKnown(e, namespace) {
		parts = append(parts, "!("+e.NotSelector+")")
	}
	return strings.Join(parts, " && ")
}

// meant are those that a selector is asked about: nodes if it demands their label, else endpoints and network sets.
func (x *expected) meant(text string) (out []source) {
	if s, err := selector.Parse(text); err != nil || !s.Demands(api.LabelNode) {
		return x.sources
	}
	for name, n := range x.nodes {
		labels := map[string]string{}
		maps.Copy(labels, n.Metadata.Labels)
		labels[api.LabelNode] = name
		out = append(out, source{labels: labels, nets: addressesOf(n)})
	}
	return out
}

func (x *expected) members(text string, in func(source) bool) (out []string) {
	for _, s := range x.meant(text) {
		if in(s) {
			for _, n := range s.nets {
				out = append(out, n.String())
			}
		}
	}
	return out
}

func (x *expected) ports(r api.Rule, e api.EntityRule, ports []api.Port, namespace string) (out []string) {
	for _, s := range x.meant(labelText(e, namespace)) {
		if !x.named(e, namespace, s) {
			continue
		}
		for _, p := range s.ports {
			n, known := p.Protocol.Number()
			meant := slices.ContainsFunc(ports, func(q api.Port) bool { return q.Name == p.Name && p.Name != "" })
			if !known || !meant || r.Protocol != nil && number(r.Protocol) != n {
				continue
			}
			for _, net := range s.nets {
				if net.IsSingleIP() {
					out = append(out, fmt.Sprintf("%s:%d:%d", net, n, p.Port))
				}
			}
		}
	}
	return out
}

// service are the endpoints of a service, of a destination with each port.
func (x *expected) service(m api.ServiceMatch, ports bool) (out []string) {
	for _, s := range x.slices {
		if s.Metadata.Namespace != m.Namespace || s.Metadata.Labels["kubernetes.io/service-name"] != m.Name {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				a, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				net := netip.PrefixFrom(a, a.BitLen())
				if !ports {
					out = append(out, net.String())
					continue
				}
				for _, p := range s.Ports {
					if proto := number(p.Protocol); p.Port != nil {
						out = append(out, fmt.Sprintf("%s:%d:%d", net, cmp.Or(proto, 6), *p.Port))
					}
				}
			}
		}
	}
	return out
}
