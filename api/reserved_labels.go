package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reserved are the labels by which a resource is selected, and what the system itself gives it of those that nobody may
// claim: they say in which namespace, of which service account and of which orchestrator it is, and rules of others trust them.
type reserved struct {
	path   string
	labels map[string]string
	// The only values that these labels may have here; empty: they may not be here at all.
	namespace, account, orchestrator string
	// inherits is whether labels that begin with pcns. or pcsa. may be here, for others to inherit: on profiles alone.
	inherits bool
}

// reservedOf gives what r's labels may say; false if nothing is selected by them.
//
// Upstream strips pcns. and pcsa. from workload endpoints, sets the service account's label from their spec (its
// workloadendpointprocessor.go) and the namespace's on NetworkSets (networksetprocessor.go), and its validator refuses the
// namespace's label on both kinds of sets. It leaves open what is closed here, too: these prefixes on sets and host endpoints,
// by which a tenant's set could join another namespace's selectors, and profiles that hand such labels on. Decision 016.
func reservedOf(r Resource) (reserved, bool) {
	s := reserved{path: "metadata.labels", labels: r.Meta().Labels}
	switch r := r.(type) {
	case *WorkloadEndpoint:
		s.namespace, s.account, s.orchestrator = r.Metadata.Namespace, r.Spec.ServiceAccountName, r.Spec.Orchestrator
	case *NetworkSet:
		s.namespace = r.Metadata.Namespace
	case *HostEndpoint, *GlobalNetworkSet:
	case *Profile:
		s.path, s.labels, s.inherits = "spec.labelsToApply", r.Spec.LabelsToApply, true
	default:
		return s, false
	}
	return s, true
}

// given is the value that a label may have; false if it is not reserved.
func (s reserved) given(key string) (string, bool) {
	switch key {
	case LabelNamespace:
		return s.namespace, true
	case LabelServiceAccount:
		return s.account, true
	case LabelOrchestrator:
		return s.orchestrator, true
	}
	return "", false
}

// claimed returns the labels that the resource must not have, each with the reason.
func (s reserved) claimed() map[string]string {
	var out map[string]string
	add := func(key, reason string) {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = reason
	}
	for key, value := range s.labels {
		given, is := s.given(key)
		switch {
		case !s.inherits && (strings.HasPrefix(key, NamespaceLabelPrefix) || strings.HasPrefix(key, ServiceAccountLabelPrefix)):
			add(key, "comes from the namespace's or the service account's profile alone")
		case is && given == "":
			add(key, "is given by the system alone, and not to this")
		case is && value != given:
			add(key, fmt.Sprintf("is %q, but is given by the system alone, and is %q here", clip(value), clip(given)))
		}
	}
	return out
}

// reservedLabels refuses what others would trust.
func (v *validator) reservedLabels() {
	s, ok := reservedOf(v.r)
	if !ok {
		return
	}
	claimed := s.claimed()
	for _, key := range slices.Sorted(maps.Keys(claimed)) {
		v.fail(join(s.path, key), claimed[key]+": remove it")
	}
}

// closeLabels takes away what a resource must not say of itself, or hand on.
func (d *decoder) closeLabels() {
	s, ok := reservedOf(d.Resource)
	if !ok {
		return
	}
	claimed := s.claimed()
	for _, key := range slices.Sorted(maps.Keys(claimed)) {
		delete(s.labels, key)
		d.problem(join(s.path, key), claimed[key]+"; ignored")
	}
}
