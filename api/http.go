package api

import "fmt"

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
	}
	for i, p := range r.HTTP.Paths {
		if (p.Exact == "") == (p.Prefix == "") {
			return fmt.Sprintf("has paths[%d] that is not one of exact and prefix", i)
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
	for _, l := range rulesOf(r) {
		for i := range *l.rules {
			if (*l.rules)[i].HTTP != nil {
				out = append(out, &FieldError{Path: fmt.Sprintf("%s[%d].http", l.path, i), Reason: ofHTTP})
			}
		}
	}
	return out
}
