package crds

import (
	"maps"
	"reflect"

	"github.com/twillnet/twill/api"
)

// limitsOf is what a schema says of the types of package api beyond their fields: what [api.Validate] refuses, as far as a schema can
// say it, and what [api.Default] fills in, where it is the same for all objects. TestTheAPIServerJudgesAsAPIDoes holds both equal; what
// cannot be said is listed there and in docs/kubernetes.md.
//
// What is cheap comes first: words, expressions and bounds cost nothing, while the API server refuses a definition whose rules in CEL could
// cost too much. So lists are bound only where package api bounds them, and what would be a rule for each prefix or port is an expression.
// Rules name no function that Kubernetes 1.31 lacks.
var limitsOf = all(policyLimits, networkLimits, bgpLimits, settingLimits)

type limits = map[reflect.Type]func(node)

func all(parts ...limits) limits {
	out := limits{}
	for _, p := range parts {
		maps.Copy(out, p)
	}
	return out
}

// policyLimits are those of policies, tiers and their rules.
var policyLimits = limits{
	reflect.TypeFor[api.Protocol](): func(n node) {
		n.within(1, 255).like(`TCP|UDP|ICMP|ICMPv6|SCTP|UDPLite|0*` + group(from1(255)))
	},
	reflect.TypeFor[api.Port](): func(n node) { n.within(1, 65535).like(portRange + `|` + portName).longest(128) },
	reflect.TypeFor[api.ICMPFields](): func(n node) {
		n.field("type").within(0, 254)
		n.field("code").within(0, 255)
		n.must("!has(self.code) || has(self.type)", "has a code without a type")
	},
	reflect.TypeFor[api.ServiceMatch](): func(n node) { n.require("name").field("name")["minLength"] = 1 },
	reflect.TypeFor[api.ServiceAccountMatch](): func(n node) {
		n.field("selector").longest(longestSelector)
		n.field("names").items().like(dnsName).longest(longestName)
	},
	reflect.TypeFor[api.EntityRule](): limitEntity,
	reflect.TypeFor[api.Rule]():       limitRule,

	reflect.TypeFor[api.NetworkPolicySpec]():       func(n node) { limitPolicy(n) },
	reflect.TypeFor[api.GlobalNetworkPolicySpec](): limitGlobalPolicy,
	reflect.TypeFor[api.StagedNetworkPolicySpec](): limitStaged, reflect.TypeFor[api.StagedGlobalNetworkPolicySpec](): limitStaged,
	reflect.TypeFor[api.NetworkPolicy]():             nameOf("knp.default.", "ossg.default."),
	reflect.TypeFor[api.StagedNetworkPolicy]():       nameOf("knp.default.", "ossg.default."),
	reflect.TypeFor[api.GlobalNetworkPolicy]():       nameOf("kcnp.", "kanp.adminnetworkpolicy.", "kbanp.baselineadminnetworkpolicy."),
	reflect.TypeFor[api.StagedGlobalNetworkPolicy](): nameOf("kcnp.", "kanp.adminnetworkpolicy.", "kbanp.baselineadminnetworkpolicy."),
	reflect.TypeFor[api.Tier]():                      limitTier,
	reflect.TypeFor[api.TierSpec]():                  func(n node) { n.field("defaultAction").one(string(api.Deny), string(api.Pass)) },
	reflect.TypeFor[api.StagedKubernetesNetworkPolicySpec](): func(n node) {
		n.field("stagedAction").perhaps(stagedActions...).unless("Set")
		directions(n.field("policyTypes"))
	},
	reflect.TypeFor[api.LabelSelector](): func(n node) { n.field("matchLabels").values().like(labelValue).longest(longestLabel) },
	reflect.TypeFor[api.LabelRequirement](): func(n node) {
		n.require("key", "operator").field("operator").one("In", "NotIn", "Exists", "DoesNotExist")
		n.field("values").items().like(labelValue).longest(longestLabel)
		n.must("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)", "goes with the operators In and NotIn, and only with them", "values")
	},
	reflect.TypeFor[api.KubePort](): func(n node) {
		n.field("protocol").one("TCP", "UDP", "SCTP")
		n.field("port").like(portNumber + `|` + portName)
		n.must("!has(self.endPort) || has(self.port) && self.endPort >= self.port", "needs a numeric port that is not above it", "endPort")
	},
	reflect.TypeFor[api.KubePeer](): func(n node) {
		const selects = "(has(self.podSelector) || has(self.namespaceSelector))"
		n.must("has(self.ipBlock) || "+selects, "is empty: want podSelector, namespaceSelector or ipBlock")
		n.must("!has(self.ipBlock) || !"+selects, "cannot stand beside selectors: use a peer of its own", "ipBlock")
	},
	reflect.TypeFor[api.KubeIPBlock](): func(n node) {
		n.require("cidr").field("cidr").prefix()
		n.field("except").items().prefix()
	},
}

// Limits of package api's that are upstream's, too.
const (
	longestSelector = 1024
	mostRules       = 1024
	mostNets        = 256
	mostPorts       = 50
)

var (
	stagedActions = []string{"Set", "Delete", "Learn", "Ignore"}
	sides         = []string{"source", "destination"}
)

func limitEntity(n node) {
	n.each(func(f node) { f.longest(longestSelector) }, "selector", "notSelector", "namespaceSelector")
	n.each(func(f node) { f.most(mostPorts) }, "ports", "notPorts")
	n.field("nets").most(mostNets).items().prefix()
	n.field("notNets").most(mostNets).items().prefix().like(`.*[^0]|.*[^/]0`) // none that is everything
	n.must("!has(self.services) || !("+given("selector", "''")+" || "+given("notSelector", "''")+" || "+given("namespaceSelector", "''")+" || has(self.serviceAccounts) || "+
		listed("nets")+" || "+listed("notNets")+")", "cannot stand beside nets, selectors or serviceAccounts: use a rule of its own", "services")
}

func limitRule(n node) {
	n.require("action").field("action").one(string(api.Allow), string(api.Deny), string(api.Log), string(api.Pass))
	n.field("ipVersion")["enum"] = []any{4, 6}
	for _, f := range []string{"icmp", "notICMP"} {
		n.must("!has(self."+f+") || "+protocolIs(1, 58), "needs protocol ICMP or ICMPv6", f)
	}
	n.must("!has(self.ipVersion) || self.ipVersion == 4 || !"+protocolIs(1), "is of IPv4, but the rule has ipVersion 6", "protocol")
	n.must("!has(self.ipVersion) || self.ipVersion == 6 || !"+protocolIs(58), "is of IPv6, but the rule has ipVersion 4", "protocol")
	for _, side := range sides {
		for _, ports := range []string{"ports", "notPorts"} {
			at := side + "." + ports
			n.must("!"+listed(at)+" || "+protocolIs(6, 17, 132)+" || !has(self.protocol) && self."+at+".all(p, type(p) == string)",
				"needs protocol TCP, UDP or SCTP: set the rule's protocol", side, ports)
		}
	}
	const annotation = "self.metadata.annotations['" + api.AnnotationReject + "']"
	const none = "!has(self.metadata) || !has(self.metadata.annotations) || !('" + api.AnnotationReject + "' in self.metadata.annotations) || "
	n.must(none+annotation+" in ['true', 'false']", api.AnnotationReject+`: want "true" or "false"`, "metadata", "annotations")
	n.must(none+annotation+" != 'true' || self.action == 'Deny'", api.AnnotationReject+": is for rules with action Deny", "metadata", "annotations")
}

// directions are a list of Ingress and Egress.
func directions(n node) { n.distinct().items().one(string(api.Ingress), string(api.Egress)) }

func limitPolicy(n node) {
	n.field("tier").like(group(dnsLabel) + "?").longest(longestLabel).unless(api.TierDefault)
	n.each(func(f node) { f.longest(longestSelector) }, "selector", "serviceAccountSelector")
	directions(n.field("types"))
	n.field("performanceHints").distinct().items().one(api.AssumeNeededOnEveryNode)
	n.each(func(f node) { f.most(mostRules) }, "ingress", "egress")
	const elsewhere = "belongs to the destination of egress rules or the source of ingress rules"
	n.field("ingress").items().must("!has(self.destination) || !has(self.destination.services)", elsewhere, "destination", "services")
	egress := n.field("egress").items()
	egress.must("!has(self.source) || !has(self.source.services)", elsewhere, "source", "services")
	egress.must("!has(self.destination) || !has(self.destination.services) || !("+listed("destination.ports")+" || "+listed("destination.notPorts")+")",
		"cannot stand beside ports: the service says which", "destination", "services")
}

func limitGlobalPolicy(n node) {
	limitPolicy(n)
	n.field("namespaceSelector").longest(longestSelector)
	for list, side := range map[string]string{"ingress": "source", "egress": "destination"} {
		n.field(list).items().must("!has(self."+side+") || !has(self."+side+".services) || "+given(side+".services.namespace", "''"),
			"is missing: a global policy has no namespace to take it from", side, "services", "namespace")
	}
	on := func(f string) string { return present(f, "self."+f) }
	n.must("!("+on("doNotTrack")+" && "+on("preDNAT")+")", "and doNotTrack cannot both be true: choose one", "preDNAT")
	n.must("!("+on("doNotTrack")+" || "+on("preDNAT")+") || "+on("applyOnForward"), "must be true with doNotTrack or preDNAT: such policies see forwarded packets too", "applyOnForward")
	n.must("!"+on("preDNAT")+" || !"+listed("egress"), "must be empty with preDNAT: only what comes in is judged before DNAT", "egress")
	n.must("!"+on("preDNAT")+" || !"+present("types", "'Egress' in self.types"), "must not have Egress with preDNAT: only what comes in is judged before DNAT", "types")
}

func limitStaged(n node) {
	n.field("stagedAction").perhaps(stagedActions...).unless("Set")
	n.must("!"+present("stagedAction", "self.stagedAction == 'Delete'")+" || !("+given("selector", "''")+" || "+listed("types")+" || "+listed("ingress")+" || "+listed("egress")+")",
		"is Delete: then the policy has neither selector, types nor rules", "stagedAction")
}

// nameOf limits the names of policies: one dot, but for those that are made of others' policies.
func nameOf(foreign ...string) func(node) {
	rule := "size(self.metadata.name.split('.')) <= 2"
	for _, begin := range foreign {
		rule += " || self.metadata.name.startsWith('" + begin + "')"
	}
	return func(n node) { n.mustStay(rule, "metadata.name: want at most one dot") }
}

// only is that there is one object of a kind.
func only(name string) func(node) {
	return func(n node) {
		n.mustStay("self.metadata.name == '"+name+"'", "metadata.name: there is only one, with the name "+name)
	}
}
