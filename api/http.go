package api

import (
	"fmt"
	"slices"
	"strings"
)

// maxHTTP is how many methods, and how many paths, a rule may have.
const maxHTTP = 20

// checkHTTP says what is wrong in what a rule asks of requests; empty: nothing, or it asks nothing.
func checkHTTP(r *Rule) string {
	if r.HTTP == nil {
		return ""
	}
	if r.Action != Allow {
		return "is possible only in Allow rules"
	}
	if n, ok := numberOf(r.Protocol); ok && n != 6 {
		return "needs protocol TCP, or none"
	}
	if len(r.HTTP.Methods) > maxHTTP || len(r.HTTP.Paths) > maxHTTP {
		return fmt.Sprintf("has more than %d methods or paths", maxHTTP)
	}
	for i, m := range r.HTTP.Methods {
		if m == "" {
			return fmt.Sprintf("has methods[%d] that is empty", i)
		}
		if slices.Contains(r.HTTP.Methods[:i], m) {
			return fmt.Sprintf("has methods[%d] that is there twice", i)
		}
	}
	for i, p := range r.HTTP.Paths {
		if (p.Exact == "") == (p.Prefix == "") {
			return fmt.Sprintf("has paths[%d] that is not one of exact and prefix", i)
		}
		if !strings.HasPrefix(p.Exact+p.Prefix, "/") {
			return fmt.Sprintf("has paths[%d] that does not begin with /, as the paths of all requests do (RFC 9112 section 3.2.1)", i)
		}
		if strings.ContainsAny(p.Exact+p.Prefix, "?# \t\r\n") {
			return fmt.Sprintf("has paths[%d] that no request has: what follows ? or # is no part of a path, and a space ends it (RFC 3986 section 3.3)", i)
		}
	}
	return ""
}

// placeOfHTTP says why rules of a list cannot ask of requests; empty: they can. Who enforces it is the proxy of the workload that receives them: none
// restrains its own workload, nor stands before what a host forwards.
func placeOfHTTP(r Resource, list string) string {
	if list == "spec.egress" {
		return "is possible only in ingress rules: the proxy of the workload that receives requests enforces it"
	}
	if p, ok := policyOf(r); ok && p.global != nil && (p.global.ApplyOnForward || p.global.DoNotTrack || p.global.PreDNAT) {
		return "is not possible with applyOnForward, doNotTrack or preDNAT: no proxy enforces what hosts forward"
	}
	return ""
}

// ofHTTP is what is said of rules that ask of requests.
const ofHTTP = "allows nothing where no proxy of the workload reads policy from the agent: see policySyncPathPrefix and docs/policy-sync.md"

// Conditional are the fields of a resource that are honoured only where something else does its part, each with the reason.
func Conditional(r Resource) (out FieldErrors) {
	if c, ok := r.(*BGPConfiguration); ok {
		return ofNoUse(&c.Spec)
	}
	for _, l := range rulesOf(r) {
		for i := range *l.rules {
			if (*l.rules)[i].HTTP != nil {
				out = append(out, &FieldError{Path: fmt.Sprintf("%s[%d].http", l.path, i), Reason: ofHTTP})
			}
		}
	}
	return out
}

// ofNoUse is what a BGPConfiguration says of what it does not have.
func ofNoUse(s *BGPConfigurationSpec) (out FieldErrors) {
	mesh := s.NodeToNodeMeshEnabled == nil || *s.NodeToNodeMeshEnabled
	for _, f := range []struct {
		path, reason string
		is           bool
	}{
		{"spec.nodeMeshPassword", "has no effect while nodeToNodeMeshEnabled is false", !mesh && s.NodeMeshPassword != nil},
		{"spec.nodeMeshMaxRestartTime", "has no effect while nodeToNodeMeshEnabled is false", !mesh && s.NodeMeshMaxRestartTime != ""},
		{"spec.communities", "have no effect without prefixAdvertisements that name them", len(s.Communities) > 0 && len(s.PrefixAdvertisements) == 0},
	} {
		if f.is {
			out = append(out, &FieldError{Path: f.path, Reason: f.reason})
		}
	}
	return out
}
