package api

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Limits of policies and rules.
const (
	maxRules = 1024
	maxNets  = 256
	maxPorts = 50
)

func (v *validator) policy(p policyView) {
	v.check("spec.tier", badLabelName(*p.tier))
	v.selector("spec.selector", *p.selector, false)
	v.selector("spec.serviceAccountSelector", *p.serviceAccountSelector, false)
	if p.namespaceSelector != nil {
		v.selector("spec.namespaceSelector", *p.namespaceSelector, false)
	}
	var types []string
	for i, t := range *p.types {
		v.oneOf(fmt.Sprintf("spec.types[%d]", i), string(t), string(Ingress), string(Egress))
		types = append(types, string(t))
	}
	v.unique("spec.types", types)
	for i, h := range *p.hints {
		v.oneOf(fmt.Sprintf("spec.performanceHints[%d]", i), h, AssumeNeededOnEveryNode)
	}
	v.unique("spec.performanceHints", *p.hints)
	for _, l := range rulesOf(v.r) {
		v.rules(l)
	}
	if p.stagedAction != nil {
		v.staged(p)
	}
	if p.global != nil {
		v.hostPolicy(p.global)
	}
}

func (v *validator) staged(p policyView) {
	v.oneOf("spec.stagedAction", *p.stagedAction, stagedSet, stagedDelete, "Learn", "Ignore")
	if *p.stagedAction != stagedDelete {
		return
	}
	if *p.selector != "" || len(*p.types) > 0 || len(*p.ingress) > 0 || len(*p.egress) > 0 {
		v.fail("spec.stagedAction", "is Delete: then the policy has neither selector, types nor rules")
	}
}

// hostPolicy holds what belongs to host endpoints.
func (v *validator) hostPolicy(s *GlobalNetworkPolicySpec) {
	if s.DoNotTrack && s.PreDNAT {
		v.fail("spec.preDNAT", "and doNotTrack cannot both be true: choose one")
	}
	if (s.DoNotTrack || s.PreDNAT) && !s.ApplyOnForward {
		v.fail("spec.applyOnForward", "must be true with doNotTrack or preDNAT: such policies see forwarded packets too")
	}
	if s.PreDNAT && len(s.Egress) > 0 {
		v.fail("spec.egress", "must be empty with preDNAT: only what comes in is judged before DNAT")
	}
	if s.PreDNAT && slices.Contains(s.Types, Egress) {
		v.fail("spec.types", "must not have Egress with preDNAT: only what comes in is judged before DNAT")
	}
}

// labelAccountName is the label by which a service account's profile gives its name on.
const labelAccountName = ServiceAccountLabelPrefix + LabelName

func (v *validator) profile(r *Profile) {
	if r.Metadata.Name == ProfileDefaultAllow {
		v.builtinProfile(r)
	}
	labels := maps.Clone(r.Spec.LabelsToApply)
	if account, ok := labels[labelAccountName]; ok { // a name may be longer than the value of a label
		delete(labels, labelAccountName)
		v.check(join("spec.labelsToApply", labelAccountName), badName(account))
	}
	v.labels("spec.labelsToApply", labels)
	for _, l := range rulesOf(r) {
		v.rules(l)
		for i, rule := range *l.rules {
			if rule.Action == Pass {
				v.fail(fmt.Sprintf("%s[%d].action", l.path, i), "is Pass: nothing comes after profiles; want Allow, Deny or Log")
			}
		}
	}
}

// builtinProfile takes the built-in profile as it is read, and nothing else under its name: it is never stored.
func (v *validator) builtinProfile(r *Profile) {
	const fixed = "of a built-in profile cannot be changed: choose another metadata.name"
	if want := BuiltinProfile(); !reflect.DeepEqual(r.Spec, want.Spec) {
		v.fail("spec", fixed)
	}
	if len(r.Metadata.Labels) > 0 {
		v.fail("metadata.labels", fixed)
	}
	if len(r.Metadata.Annotations) > 0 {
		v.fail("metadata.annotations", fixed)
	}
}

func (v *validator) rules(l ruleList) {
	if n := len(*l.rules); n > maxRules {
		v.fail(l.path, fmt.Sprintf("has %d rules: at most %d are possible; split the policy", n, maxRules))
	}
	for i := range *l.rules {
		v.rule(fmt.Sprintf("%s[%d]", l.path, i), &(*l.rules)[i], l.path == "spec.egress")
	}
}

func (v *validator) rule(path string, r *Rule, egress bool) {
	v.oneOf(path+".action", string(r.Action), string(Allow), string(Deny), string(Log), string(Pass))
	if r.IPVersion != nil && *r.IPVersion != 4 && *r.IPVersion != 6 {
		v.fail(path+".ipVersion", fmt.Sprintf("is %d: want 4 or 6", *r.IPVersion))
	}
	v.protocol(path+".protocol", r.Protocol)
	v.protocol(path+".notProtocol", r.NotProtocol)
	v.check(path+".icmp", checkICMP(r.ICMP, r.Protocol))
	v.check(path+".notICMP", checkICMP(r.NotICMP, r.Protocol))
	v.family(path, r)
	v.entity(path+".source", &r.Source, r)
	v.entity(path+".destination", &r.Destination, r)
	v.services(path, r, egress)
	if r.HTTP != nil {
		v.http(path+".http", r, egress)
	}
	v.ruleAnnotations(path, r)
}

func (v *validator) ruleAnnotations(path string, r *Rule) {
	if r.Metadata == nil {
		return
	}
	v.annotations(path+".metadata.annotations", r.Metadata.Annotations)
	for _, key := range slices.Sorted(maps.Keys(r.Metadata.Annotations)) {
		at := join(path+".metadata.annotations", key)
		if strings.HasPrefix(key, AnnotationPrefix) && key != AnnotationReject {
			v.suggest(at, "is unknown: of Twill's own annotations rules have one", AnnotationReject)
		}
	}
	v.check(path+"."+rejectField, checkReject(r))
}

func (v *validator) protocol(path string, p *Protocol) {
	if p == nil {
		return
	}
	names := []string{"TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"}
	if _, ok := p.Number(); ok && (p.Name == "" || only(p.Name, digits) || slices.Contains(names, p.Name)) {
		return
	}
	v.suggest(path, fmt.Sprintf("is %s: want TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number from 1 to 255", p), nearest(p.Name, names))
}

// family refuses rules that say two different things about IPv4 and IPv6.
func (v *validator) family(path string, r *Rule) {
	family, because := 0, ""
	if r.IPVersion != nil {
		family, because = *r.IPVersion, fmt.Sprintf("ipVersion %d", *r.IPVersion)
	}
	if n, ok := numberOf(r.Protocol); ok && (n == protoICMP || n == protoICMPv6) {
		of := 4
		if n == protoICMPv6 {
			of = 6
		}
		if family != 0 && family != of {
			v.fail(path+".protocol", fmt.Sprintf("is %s, which is of IPv%d, but the rule has %s", r.Protocol, of, because))
			return
		}
		family, because = of, "protocol "+r.Protocol.String()
	}
	dead := deadNets(r)
	for _, l := range r.netLists() {
		reason := dead[l.field]
		for i, s := range l.nets {
			if p, bad := prefixOf(s); family != 0 && bad == "" && p.Addr().Is4() != (family == 4) {
				v.fail(fmt.Sprintf("%s.%s[%d]", path, l.field, i), fmt.Sprintf("%s is not of IPv%d, but the rule has %s", s, family, because))
				reason = ""
			}
		}
		v.check(path+"."+l.field, reason)
	}
}

func numberOf(p *Protocol) (uint8, bool) {
	if p == nil {
		return 0, false
	}
	return p.Number()
}

func (v *validator) entity(path string, e *EntityRule, r *Rule) {
	v.ruleNets(path+".nets", e.Nets)
	v.ruleNets(path+".notNets", e.NotNets)
	v.selector(path+".selector", e.Selector, false)
	v.selector(path+".notSelector", e.NotSelector, false)
	v.selector(path+".namespaceSelector", e.NamespaceSelector, true)
	if a := e.ServiceAccounts; a != nil {
		v.selector(path+".serviceAccounts.selector", a.Selector, false)
		for i, n := range a.Names {
			v.check(fmt.Sprintf("%s.serviceAccounts.names[%d]", path, i), badName(n))
		}
	}
	v.ports(path+".ports", e.Ports, r)
	v.ports(path+".notPorts", e.NotPorts, r)
}

// ruleNets holds the nets of rules, which must be masked; those of network sets need not.
func (v *validator) ruleNets(path string, nets []string) {
	if len(nets) > maxNets {
		v.fail(path, fmt.Sprintf("has %d prefixes: at most %d are possible; use a NetworkSet", len(nets), maxNets))
	}
	for i, s := range nets {
		p, reason := prefixOf(s)
		if reason == "" && p != p.Masked() {
			v.suggest(fmt.Sprintf("%s[%d]", path, i), s+" has bits beyond its length", p.Masked().String())
			continue
		}
		v.check(fmt.Sprintf("%s[%d]", path, i), reason)
	}
}

func (v *validator) nets(path string, nets []string) {
	for i, s := range nets {
		_, reason := prefixOf(s)
		v.check(fmt.Sprintf("%s[%d]", path, i), reason)
	}
}

func (v *validator) ports(path string, ports []Port, r *Rule) {
	if len(ports) == 0 {
		return
	}
	if len(ports) > maxPorts {
		v.fail(path, fmt.Sprintf("has %d ports: at most %d are possible; use ranges", len(ports), maxPorts))
	}
	if reason := checkPorts(ports, r.Protocol); reason != "" {
		v.fail(path, reason+": set the rule's protocol")
	}
	for i, p := range ports {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case p.Name != "":
			v.check(at, badPortName(p.Name))
		case p.Min == 0:
			v.fail(at, fmt.Sprintf("is %s: ports begin at 1", p))
		}
	}
}

func badPortName(s string) string {
	if len(s) > 128 || !only(s, word) {
		return fmt.Sprintf("is %q: want a number, a range such as 80:90, or a name of at most 128 letters, digits, dashes, dots and underscores", s)
	}
	return ""
}

// services names what cannot stand beside services.
func (v *validator) services(path string, r *Rule, egress bool) {
	for _, side := range []struct {
		path string
		e    *EntityRule
		own  bool // the side on which this direction may name services
	}{{path + ".source", &r.Source, !egress}, {path + ".destination", &r.Destination, egress}} {
		s := side.e.Services
		if s == nil {
			continue
		}
		p := side.path + ".services"
		switch e := side.e; {
		case !side.own:
			v.fail(p, "belongs to the destination of egress rules or the source of ingress rules")
		case s.Name == "":
			v.fail(p+".name", "is missing")
		case s.Namespace == "" && RefOf(v.r).Namespace == "":
			v.fail(p+".namespace", "is missing: a global policy has no namespace to take it from")
		case e.Selector != "" || e.NotSelector != "" || e.NamespaceSelector != "" || e.ServiceAccounts != nil || len(e.Nets) > 0 || len(e.NotNets) > 0:
			v.fail(p, "cannot stand beside nets, selectors or serviceAccounts: use a rule of its own")
		case egress && (len(e.Ports) > 0 || len(e.NotPorts) > 0):
			v.fail(p, "cannot stand beside ports: the service says which")
		}
	}
}

func (v *validator) http(path string, r *Rule, egress bool) {
	list := "spec.ingress"
	if egress {
		list = "spec.egress"
	}
	v.check(path, placeOfHTTP(v.r, list))
	v.check(path, checkHTTP(r))
}
