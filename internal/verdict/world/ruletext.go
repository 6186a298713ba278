package world

import (
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
)

// condition is one condition of a rule.
type condition struct {
	field string // as in YAML
	value string
}

// RuleFields returns the names of a rule's conditions, in a fixed order.
func RuleFields(r api.Rule) []string {
	var out []string
	for _, c := range conditions(r) {
		out = append(out, c.field)
	}
	return out
}

// RuleText is a rule in one line: its action, and its conditions.
func RuleText(r api.Rule) string {
	parts := []string{string(r.Action)}
	if r.Rejects() {
		parts[0] += " and reject"
	}
	for _, c := range conditions(r) {
		parts = append(parts, c.field+" "+c.value)
	}
	return strings.Join(parts, ", ")
}

func conditions(r api.Rule) []condition {
	var out []condition
	add := func(given bool, field, value string) {
		if given {
			out = append(out, condition{field, value})
		}
	}
	if r.IPVersion != nil {
		add(true, "ipVersion", fmt.Sprint(*r.IPVersion))
	}
	if r.Protocol != nil {
		add(true, "protocol", r.Protocol.String())
	}
	if r.NotProtocol != nil {
		add(true, "notProtocol", r.NotProtocol.String())
	}
	add(r.ICMP != nil, "icmp", icmpText(r.ICMP))
	add(r.NotICMP != nil, "notICMP", icmpText(r.NotICMP))
	for _, s := range []struct {
		name string
		side api.EntityRule
	}{{"source", r.Source}, {"destination", r.Destination}} {
		e := s.side
		add(len(e.Nets) > 0, s.name+".nets", list(e.Nets))
		add(len(e.NotNets) > 0, s.name+".notNets", list(e.NotNets))
		add(e.Selector != "", s.name+".selector", e.Selector)
		add(e.NotSelector != "", s.name+".notSelector", e.NotSelector)
		add(e.NamespaceSelector != "", s.name+".namespaceSelector", e.NamespaceSelector)
		add(e.ServiceAccounts != nil, s.name+".serviceAccounts", accountsText(e.ServiceAccounts))
		if e.Services != nil {
			add(true, s.name+".services", e.Services.Namespace+"/"+e.Services.Name)
		}
		add(len(e.Ports) > 0, s.name+".ports", list(e.Ports))
		add(len(e.NotPorts) > 0, s.name+".notPorts", list(e.NotPorts))
	}
	if r.HTTP != nil {
		add(true, "http", httpText(r.HTTP))
	}
	return out
}

// httpText is what a rule asks of requests.
func httpText(h *api.HTTPMatch) string {
	var parts []string
	if len(h.Methods) > 0 {
		parts = append(parts, "methods "+list(h.Methods))
	}
	for _, p := range h.Paths {
		if p.Exact != "" {
			parts = append(parts, "path "+p.Exact)
		} else {
			parts = append(parts, "path "+p.Prefix+"*")
		}
	}
	return strings.Join(append(parts, "(asked by the workload's proxy)"), " ")
}

func list[T any](values []T) string {
	var out []string
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return "[" + strings.Join(out, " ") + "]"
}

func icmpText(f *api.ICMPFields) string {
	switch {
	case f == nil || f.Type == nil:
		return "any"
	case f.Code == nil:
		return fmt.Sprintf("type %d", *f.Type)
	}
	return fmt.Sprintf("type %d code %d", *f.Type, *f.Code)
}

func accountsText(a *api.ServiceAccountMatch) string {
	switch {
	case a == nil:
		return ""
	case a.Selector == "":
		return list(a.Names)
	case len(a.Names) == 0:
		return a.Selector
	}
	return list(a.Names) + " and " + a.Selector
}
