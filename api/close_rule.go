package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// closeRules closes each rule of a list by itself: an Allow, Pass or Log with a
// condition that is not understood matches nothing, a Deny loses the condition
// and so denies more. An action that nobody knows is a Deny.
func (d *decoder) closeRules(l ruleList) {
	found := d.takeRuleFindings(l.path)
	for i := range *l.rules {
		rule := &(*l.rules)[i]
		path := fmt.Sprintf("%s[%d]", l.path, i)
		for _, e := range []*EntityRule{&rule.Source, &rule.Destination} {
			if e.Services != nil && e.Services.Namespace == "" {
				e.Services.Namespace = d.Ref.Namespace
			}
		}
		problems := found[path]
		if problems == nil {
			problems = map[string]string{}
		}
		for field, reason := range checkRule(rule) {
			problems[field] = reason
		}
		if reason := placeOfHTTP(d.Resource, l.path); rule.HTTP != nil && reason != "" {
			problems["http"] = reason
		}
		action, known := rule.Action, slices.Contains([]Action{Allow, Deny, Log, Pass}, rule.Action)
		if _, unreadable := problems["action"]; !known && !unreadable {
			problems["action"] = fmt.Sprintf("is %q: want Allow, Deny, Log or Pass", action)
		}
		if len(problems) == 0 {
			d.reportDeadNets(path, rule)
			continue
		}
		become := "the rule matches nothing"
		if !known || action == Deny {
			become = "the rule denies without it"
			widen(rule, problems)
		} else {
			*rule = Rule{Action: action, Metadata: rule.Metadata, Void: true}
		}
		for _, field := range slices.Sorted(maps.Keys(problems)) {
			d.problem(strings.TrimSuffix(path+"."+field, "."), problems[field]+"; "+become)
		}
	}
}

// reportDeadNets says what is without effect in a rule that is understood.
func (d *decoder) reportDeadNets(path string, r *Rule) {
	dead := deadNets(r)
	for _, field := range slices.Sorted(maps.Keys(dead)) {
		d.problem(path+"."+field, dead[field])
	}
}

// takeRuleFindings moves the findings inside rules out of d.found, by rule and
// condition. What a rule's metadata holds has no effect on packets, our own annotation apart.
func (d *decoder) takeRuleFindings(list string) map[string]map[string]string {
	byRule := map[string]map[string]string{}
	rest := d.found[:0:0]
	for _, f := range d.found {
		inList, ok := strings.CutPrefix(f.path, list+"[")
		index, _, closed := strings.Cut(inList, "]")
		if !ok || !closed {
			rest = append(rest, f)
			continue
		}
		inRule := strings.TrimPrefix(strings.TrimPrefix(f.path, list+"["+index+"]"), ".")
		condition := conditionOf(inRule)
		switch {
		case inRule == rejectField:
			condition = rejectField
		case condition == "metadata":
			continue
		}
		path := list + "[" + index + "]"
		if byRule[path] == nil {
			byRule[path] = map[string]string{}
		}
		byRule[path][condition] = f.reason
	}
	d.found = rest
	return byRule
}

// conditionOf turns a path inside a rule into the condition that it belongs to:
// source.nets[2] is part of source.nets.
func conditionOf(field string) string {
	parts := strings.SplitN(field, ".", 3)
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], "[")
	}
	if len(parts) > 1 && (parts[0] == "source" || parts[0] == "destination") {
		return parts[0] + "." + parts[1]
	}
	return parts[0]
}

// widen makes a rule a Deny that has lost the conditions that cannot be read, and
// those that mean nothing without them.
func widen(r *Rule, problems map[string]string) {
	r.Action = Deny
	for len(problems) > 0 {
		for field := range problems {
			drop(r, field)
		}
		problems = checkRule(r) // ports mean nothing without their protocol, and so on
	}
}

func drop(r *Rule, field string) {
	switch field {
	case "ipVersion":
		r.IPVersion = nil
	case "protocol": // and the ports, which without it would be those of the protocols that have ports, and this one may have been another
		r.Protocol = nil
		for _, e := range []*EntityRule{&r.Source, &r.Destination} {
			e.Ports, e.NotPorts = nil, nil
		}
	case "notProtocol":
		r.NotProtocol = nil
	case "icmp":
		r.ICMP = nil
	case "notICMP":
		r.NotICMP = nil
	case "http":
		r.HTTP = nil
	case rejectField:
		if r.Metadata != nil {
			r.Metadata = &RuleMetadata{Annotations: maps.Clone(r.Metadata.Annotations)}
			delete(r.Metadata.Annotations, AnnotationReject)
		}
	case "source":
		r.Source = EntityRule{}
	case "destination":
		r.Destination = EntityRule{}
	}
	if name, ok := strings.CutPrefix(field, "source."); ok {
		r.Source.drop(name)
	}
	if name, ok := strings.CutPrefix(field, "destination."); ok {
		r.Destination.drop(name)
	}
}

func (e *EntityRule) drop(field string) {
	switch field {
	case "nets":
		e.Nets = nil
	case "notNets":
		e.NotNets = nil
	case "selector":
		e.Selector = ""
	case "notSelector":
		e.NotSelector = ""
	case "namespaceSelector":
		e.NamespaceSelector = ""
	case "serviceAccounts":
		e.ServiceAccounts = nil
	case "services":
		e.Services = nil
	case "ports":
		e.Ports = nil
	case "notPorts":
		e.NotPorts = nil
	}
}

// checkRule returns the conditions of a rule that mean nothing, each with the
// reason. It writes addresses as prefixes, and takes away conditions that are
// empty.
func checkRule(r *Rule) map[string]string {
	problems := map[string]string{}
	if v := r.IPVersion; v != nil && *v != 4 && *v != 6 {
		problems["ipVersion"] = fmt.Sprintf("is %d: want 4 or 6", *v)
	}
	if r.Protocol != nil {
		if _, ok := r.Protocol.Number(); !ok {
			problems["protocol"] = fmt.Sprintf("is %s: unknown", r.Protocol)
		}
	}
	if r.NotProtocol != nil {
		if _, ok := r.NotProtocol.Number(); !ok {
			problems["notProtocol"] = fmt.Sprintf("is %s: unknown", r.NotProtocol)
		}
	}
	if reason := checkHTTP(r); reason != "" {
		problems["http"] = reason
	}
	for _, i := range []struct {
		field string
		icmp  **ICMPFields
	}{{"icmp", &r.ICMP}, {"notICMP", &r.NotICMP}} {
		if reason := checkICMP(*i.icmp, r.Protocol); reason != "" {
			problems[i.field] = reason
		} else if *i.icmp != nil && (*i.icmp).Type == nil {
			*i.icmp = nil
		}
	}
	if reason := checkReject(r); reason != "" {
		problems[rejectField] = reason
	}
	checkEntity(&r.Source, r.Protocol, "source.", problems)
	checkEntity(&r.Destination, r.Protocol, "destination.", problems)
	return problems
}

func checkEntity(e *EntityRule, p *Protocol, path string, problems map[string]string) {
	check := func(field, reason string) {
		if reason != "" {
			problems[path+field] = reason
		}
	}
	check("nets", checkNets(e.Nets))
	check("notNets", checkNets(e.NotNets))
	check("selector", checkSelector(e.Selector, false))
	check("notSelector", checkSelector(e.NotSelector, false))
	check("namespaceSelector", checkSelector(e.NamespaceSelector, true))
	if e.ServiceAccounts != nil {
		check("serviceAccounts", checkSelector(e.ServiceAccounts.Selector, false))
	}
	if e.Services != nil {
		check("services", checkServices(e, path == "destination."))
	}
	for field, n := range map[string]int{"ports": len(e.Ports), "notPorts": len(e.NotPorts)} {
		if n > MaxPorts {
			check(field, fmt.Sprintf("has %d ports: at most %d are read", n, MaxPorts))
		}
	}
	check("ports", checkPorts(e.Ports, p))
	check("notPorts", checkPorts(e.NotPorts, p))
}

// checkServices says what is wrong in a service match. Which side may have one is for validation: a source means the
// addresses of the service's endpoints, a destination these with their ports.
func checkServices(e *EntityRule, destination bool) string {
	switch {
	case e.Services.Name == "":
		return "has no name"
	case e.Services.Namespace == "":
		return "has no namespace: a global policy has none to take it from"
	case len(e.Nets)+len(e.NotNets) > 0, e.Selector+e.NotSelector+e.NamespaceSelector != "", e.ServiceAccounts != nil:
		return "cannot stand beside nets, selectors or serviceAccounts"
	case destination && len(e.Ports)+len(e.NotPorts) > 0:
		return "cannot stand beside ports: the service says which"
	}
	return ""
}

// checkNets says what is wrong in a rule's nets, and gives plain addresses the
// length of a prefix. The list is replaced, since others may hold it.
func checkNets(nets []string) string {
	for i, s := range nets {
		p, reason := prefixOf(s)
		if reason == "" && p != p.Masked() {
			reason = fmt.Sprintf("%s has bits beyond its length: want %s", s, p.Masked())
		}
		if reason != "" {
			return reason
		}
		nets[i] = p.String()
	}
	return ""
}
