package upstreamtest

import "fmt"

// Policies, profiles and sets of upstream's, see Author.

var (
	portless  = either(pick("UDPLite"), from(100, 255))
	withPorts = pick("TCP", "UDP", "SCTP")
	port      = either(from(1, 65535), pick("80", "8000:8010", "http", "my-port_1.a"))
	namespace = either(selector, pick("global()", "!all()"))
)

func icmp(a *Author) any {
	o := Object{"type": number(a.IntN(255))}
	if a.IntN(2) == 0 {
		o["code"] = number(a.IntN(256))
	}
	return o
}

// side is a source or destination of a rule, with nets of one family.
func side(nets gen, ports bool) gen {
	fields := []field{
		opt("nets", some(1, 3, nets)), opt("notNets", some(0, 2, nets)), opt("selector", selector), opt("notSelector", selector),
		opt("namespaceSelector", namespace),
		opt("serviceAccounts", obj(opt("names", some(0, 2, name)), opt("selector", selector))),
	}
	if ports {
		fields = append(fields, opt("ports", some(1, 3, port)), opt("notPorts", some(0, 2, port)))
	}
	return obj(fields...)
}

// rule is a rule; services can be on its far side alone.
func rule(far string, actions ...string) gen {
	return func(a *Author) any {
		r := Object{"action": actions[a.IntN(len(actions))]}
		nets, six := gen(prefix4), a.IntN(2) == 0
		if six {
			nets = prefix6
		}
		ports := false
		switch a.IntN(5) {
		case 0:
			r["protocol"], ports = withPorts(a), true
		case 1:
			r["protocol"] = map[bool]string{false: "ICMP", true: "ICMPv6"}[six]
			r["icmp"], r["notICMP"] = icmp(a), icmp(a)
		case 2:
			r["notProtocol"] = either(withPorts, from(100, 255))(a)
		case 3:
			r["protocol"] = portless(a)
		}
		if a.IntN(3) == 0 {
			r["ipVersion"] = number(map[bool]int{false: 4, true: 6}[six])
		}
		for _, s := range []string{"source", "destination"} {
			if a.IntN(2) == 0 {
				r[s] = side(nets, ports)(a)
			}
		}
		if a.IntN(6) == 0 && r["action"] != "Log" {
			r[far] = Object{"services": obj(req("name", name), opt("namespace", pick("prod")))(a)}
		}
		if a.IntN(4) == 0 {
			r["metadata"] = Object{"annotations": annotations(a)}
		}
		return r
	}
}

// completeServices gives services a namespace in kinds that have none of their own.
func completeServices(_ *Author, o Object) {
	for _, list := range []string{"ingress", "egress"} {
		rules, _ := spec(o)[list].([]any)
		for _, r := range rules {
			for _, side := range []string{"source", "destination"} {
				if s, ok := r.(Object)[side].(Object); ok && s.has("services") {
					s["services"].(Object)["namespace"] = "prod"
				}
			}
		}
	}
}

var actions = []string{"Allow", "Deny", "Log", "Pass"}

func policyFields(more ...field) []field {
	return append([]field{
		opt("tier", pick("default", "sec")), opt("order", either(from(0, 1000), none, func(a *Author) any { return float64(a.IntN(100)) + 0.5 })),
		opt("selector", selector), opt("types", distinct(1, "Ingress", "Egress")),
		opt("ingress", some(0, 3, rule("source", actions...))), opt("egress", some(0, 3, rule("destination", actions...))),
		opt("serviceAccountSelector", selector), opt("performanceHints", distinct(0, "AssumeNeededOnEveryNode")),
	}, more...)
}

var globalFields = policyFields(opt("namespaceSelector", selector), opt("doNotTrack", yesno), opt("preDNAT", yesno), opt("applyOnForward", yesno))

// completePolicy removes fields that upstream refuses together with others.
func completePolicy(a *Author, o Object) {
	s := spec(o)
	if _, namespaced := o["metadata"].(Object)["namespace"]; !namespaced {
		completeServices(a, o)
	}
	if s["preDNAT"] == true {
		s.without("doNotTrack", "egress", "types")
	}
	if s["preDNAT"] == true || s["doNotTrack"] == true {
		s["applyOnForward"] = true
	}
	if s["stagedAction"] == "Delete" {
		action, tier := s["stagedAction"], s["tier"]
		o["spec"] = Object{"stagedAction": action}
		if tier != nil {
			spec(o)["tier"] = tier
		}
	}
}

var policyStatus = opt("status", either(none, obj(opt("conditions", conditions))))

var stagedAction = opt("stagedAction", pick("Set", "Delete"))

// labelSelector, peers and ports are those of Kubernetes' own policies.
var labelSelector = obj(opt("matchLabels", labels), opt("matchExpressions", some(0, 2, either(
	obj(req("key", pick("app", "Zone")), req("operator", pick("In", "NotIn")), req("values", some(1, 2, pick("a", "b")))),
	obj(req("key", pick("app", "Zone")), req("operator", pick("Exists", "DoesNotExist")))))))

var kubePeer = either(
	obj(req("podSelector", labelSelector)), obj(req("namespaceSelector", labelSelector), opt("podSelector", labelSelector)),
	obj(req("ipBlock", obj(req("cidr", pick("10.0.0.0/8")), opt("except", some(0, 2, pick("10.1.0.0/16", "10.2.3.0/24")))))))

var kubePort = either(obj(req("port", pick("http", "db-1")), opt("protocol", withPorts)),
	obj(req("port", from(1, 1000)), opt("endPort", from(1000, 2000)), opt("protocol", withPorts)), obj(opt("protocol", withPorts)))

var policyKinds = []Kind{
	{Name: "NetworkPolicy", Plural: "networkpolicies", Namespaced: true, body: []field{req("spec", obj(policyFields()...)), policyStatus}, complete: completePolicy},
	{Name: "GlobalNetworkPolicy", Plural: "globalnetworkpolicies", body: []field{req("spec", obj(globalFields...)), policyStatus}, complete: completePolicy},
	{Name: "StagedNetworkPolicy", Plural: "stagednetworkpolicies", Namespaced: true, body: []field{req("spec", obj(policyFields(stagedAction)...)), policyStatus}, complete: completePolicy},
	{Name: "StagedGlobalNetworkPolicy", Plural: "stagedglobalnetworkpolicies", body: []field{req("spec", obj(append(globalFields[:len(globalFields):len(globalFields)], stagedAction)...)), policyStatus}, complete: completePolicy},
	{Name: "StagedKubernetesNetworkPolicy", Plural: "stagedkubernetesnetworkpolicies", Namespaced: true, body: []field{req("spec", obj(
		opt("stagedAction", pick("Set")), req("podSelector", labelSelector), opt("policyTypes", distinct(1, "Ingress", "Egress")),
		opt("ingress", some(0, 2, obj(opt("from", some(0, 2, kubePeer)), opt("ports", some(0, 2, kubePort))))),
		opt("egress", some(0, 2, obj(opt("to", some(0, 2, kubePeer)), opt("ports", some(0, 2, kubePort))))))), policyStatus}},
	{
		Name: "Tier", Plural: "tiers", named: func(a *Author) any { return fmt.Sprintf("t-%d", a.fresh()) },
		body: []field{req("spec", obj(opt("order", either(from(0, 1000), none)), opt("defaultAction", pick("Deny", "Pass")))), opt("status", either(obj(opt("conditions", conditions)), none))},
	},
	{Name: "Profile", Plural: "profiles", complete: completeServices, named: func(a *Author) any {
		return fmt.Sprintf("%s%d", pick("kns.prod-", "ksa.prod.web-", "p-")(a), a.fresh())
	}, body: []field{opt("spec", obj(
		opt("ingress", some(0, 2, rule("source", "Allow", "Deny", "Log"))), opt("egress", some(0, 2, rule("destination", "Allow", "Deny", "Log"))),
		opt("labelsToApply", either(labels, pairs([]string{"pcns.env", "pcsa.team", "pcns.projectcalico.org/name"}, []string{"prod", ""})))))}},
	{Name: "NetworkSet", Plural: "networksets", Namespaced: true, body: []field{opt("spec", obj(opt("nets", some(0, 4, either(prefix, addr)))))}},
	{Name: "GlobalNetworkSet", Plural: "globalnetworksets", body: []field{opt("spec", obj(opt("nets", some(0, 4, either(prefix, addr)))))}},
}

var conditions = some(0, 2, obj(req("type", pick("Ready", "Valid")), req("status", pick("True", "False", "Unknown")), opt("observedGeneration", from(1, 9)),
	req("lastTransitionTime", pick("2024-05-06T07:08:09Z")), req("reason", pick("Fine")), req("message", pick("", "all is well"))))
