// Package apitest has resources as users write them, each with the field at which it is wrong, if it is.
//
// Package api is tested by them, and so is who else judges resources: an API server by definitions that are made of package api. It knows
// nothing of package api itself.
package apitest

import (
	"slices"
	"strings"
)

// Case is a resource.
type Case struct {
	Name string // what is right in it, or wrong
	Kind string
	Meta string // its metadata: what stands within the braces, as YAML
	Spec string // its spec, as YAML; other parts may follow, each on a line of its own
	Want string // the path of an error that must be found; empty: it is right
}

// Document is the resource as YAML.
func (c Case) Document() string {
	return "apiVersion: projectcalico.org/v3\nkind: " + c.Kind + "\nmetadata: {" + c.Meta + "}\nspec: " + c.Spec
}

// All are all cases.
func All() []Case {
	return slices.Concat(Rules(), Policies(), Names(), Labels(), Others(), StagedKubernetes(), BGPConfigurations(), BGPPeers(), BGPFilters(), Controllers(), NodeStatuses())
}

// Rules of policies.
func Rules() (out []Case) {
	for _, c := range rules {
		out = append(out, Case{c.name, "NetworkPolicy", "name: a, namespace: b", "{ingress: [{" + c.rule + "}]}", below("spec.ingress[0]", c.want)})
	}
	return out
}

// Policies, and profiles.
func Policies() (out []Case) {
	for _, c := range policies {
		out = append(out, Case{c.name, c.kind, "name: a", c.spec, c.want})
	}
	return out
}

// Names are names of resources, and the rest of their metadata.
func Names() (out []Case) {
	for _, c := range names {
		out = append(out, Case{c.name, c.kind, c.meta, "{}", c.want})
	}
	return out
}

// Labels are labels that nobody may claim.
func Labels() (out []Case) {
	for _, c := range labels {
		out = append(out, Case{c.kind + " " + c.meta, c.kind, strings.TrimSuffix("name: x, "+c.meta, ", "), c.spec, c.want})
	}
	return out
}

// Others are resources that are no policies.
func Others() (out []Case) {
	for _, c := range others {
		out = append(out, Case{c.kind + " " + c.spec, c.kind, "name: " + c.name, c.spec, c.want})
	}
	return out
}

// StagedKubernetes are staged policies of Kubernetes.
func StagedKubernetes() (out []Case) {
	for _, c := range stagedKubernetes {
		out = append(out, Case{c.spec, "StagedKubernetesNetworkPolicy", "name: a, namespace: b", c.spec, c.want})
	}
	return out
}

// BGPConfigurations say how nodes speak BGP.
func BGPConfigurations() (out []Case) {
	for _, c := range bgpConfigurations {
		out = append(out, Case{c.name, "BGPConfiguration", "name: " + c.meta, c.spec, c.want})
	}
	return out
}

// BGPPeers are peers.
func BGPPeers() (out []Case) {
	for _, c := range bgpPeers {
		out = append(out, Case{c.name, "BGPPeer", "name: p", c.spec, c.want})
	}
	return out
}

// BGPFilters have a rule each, after another.
func BGPFilters() (out []Case) {
	for _, c := range bgpFilters {
		out = append(out, Case{c.name, "BGPFilter", "name: f", "{exportV4: [{action: Reject}, {" + c.rule + "}]}", below("spec.exportV4[1]", c.want)})
	}
	return out
}

// Controllers are settings of controllers.
func Controllers() (out []Case) {
	for _, c := range controllers {
		out = append(out, Case{c.name, "KubeControllersConfiguration", "name: default", c.spec, c.want})
	}
	return out
}

// NodeStatuses ask nodes how they are.
func NodeStatuses() (out []Case) {
	for _, c := range nodeStatuses {
		out = append(out, Case{c.name, "CalicoNodeStatus", "name: s", c.spec, c.want})
	}
	return out
}

// below is the path of an error within something; empty: there is none.
func below(path, want string) string {
	if want == "" {
		return ""
	}
	return path + "." + want
}

func many(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
