package api

import (
	"strings"
	"testing"
)

// judge decodes, defaults and validates; want is the path of an error that must
// be among those found, empty for none.
func judge(t *testing.T, kind, meta, spec, want string) {
	t.Helper()
	docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: " + kind + "\nmetadata: {" + meta + "}\nspec: " + spec))
	if err != nil || len(docs) != 1 {
		t.Fatalf("decode: %v", err)
	}
	r := docs[0].Resource
	Default(r)
	errs := Validate(r)
	if want == "" {
		if len(errs) > 0 {
			t.Errorf("refused: %v", errs)
		}
		return
	}
	for _, e := range errs {
		if e.Path == want {
			if e.Reason == "" {
				t.Errorf("%s has no reason", want)
			}
			return
		}
	}
	t.Errorf("no error at %s: %v", want, errs)
}

func many(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func TestRulesAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, rule, want string }{
		{"an action", "action: Allow", ""},
		{"a wrong action", "action: allow", "action"},
		{"no action", "protocol: TCP", "action"},
		{"a Deny that rejects", "action: Deny, metadata: {annotations: {twill.net/reject: 'true'}}", ""},
		{"a Deny that expressly does not", "action: Deny, metadata: {annotations: {twill.net/reject: 'false'}}", ""},
		{"an Allow that expressly does not", "action: Allow, metadata: {annotations: {twill.net/reject: 'false'}}", ""},
		{"an Allow that rejects", "action: Allow, metadata: {annotations: {twill.net/reject: 'true'}}", `metadata.annotations["twill.net/reject"]`},
		{"a Pass that rejects", "action: Pass, metadata: {annotations: {twill.net/reject: 'true'}}", `metadata.annotations["twill.net/reject"]`},
		{"a Log that rejects", "action: Log, metadata: {annotations: {twill.net/reject: 'true'}}", `metadata.annotations["twill.net/reject"]`},
		{"a reject that is neither", "action: Deny, metadata: {annotations: {twill.net/reject: tcp-reset}}", `metadata.annotations["twill.net/reject"]`},
		{"an annotation of ours that there is not", "action: Deny, metadata: {annotations: {twill.net/rejekt: 'true'}}", `metadata.annotations["twill.net/rejekt"]`},
		{"an annotation with upper case before the slash", "action: Allow, metadata: {annotations: {Example.com/a: b}}", ""},
		{"annotations of 256 KiB", "action: Allow, metadata: {annotations: {a: " + strings.Repeat("x", 256<<10-1) + "}}", ""},
		{"annotations of more than 256 KiB", "action: Allow, metadata: {annotations: {a: x, b: " + strings.Repeat("x", 256<<10-2) + "}}", "metadata.annotations"},
		{"an annotation of others", "action: Allow, metadata: {annotations: {example.com/reject: 'true'}}", ""},
		{"ipVersion 6", "action: Allow, ipVersion: 6", ""},
		{"ipVersion 5", "action: Allow, ipVersion: 5", "ipVersion"},
		{"protocol by number", "action: Allow, protocol: 47", ""},
		{"protocol 0", "action: Allow, protocol: 0", "protocol"},
		{"protocol 255", "action: Allow, protocol: 255", ""},
		{"protocol 256 as text", "action: Allow, protocol: '256'", "protocol"},
		{"UDPLite", "action: Allow, protocol: UDPLite", ""},
		{"protocol unknown", "action: Allow, protocol: TPC", "protocol"},
		{"protocol in another case", "action: Allow, protocol: tcp", "protocol"},
		{"notProtocol in another case", "action: Allow, notProtocol: Udp", "notProtocol"},
		{"protocol by a number that is text", "action: Allow, protocol: '6'", ""},
		{"notProtocol unknown", "action: Allow, notProtocol: TPC", "notProtocol"},
		{"icmp", "action: Allow, protocol: ICMP, icmp: {type: 8, code: 0}", ""},
		{"icmp without protocol", "action: Allow, icmp: {type: 8}", "icmp"},
		{"icmp with another protocol", "action: Allow, protocol: TCP, icmp: {type: 8}", "icmp"},
		{"icmp code without type", "action: Allow, protocol: ICMP, icmp: {code: 0}", "icmp"},
		{"icmp with the greatest type and code", "action: Allow, protocol: ICMP, icmp: {type: 254, code: 255}", ""},
		{"notICMP with the greatest type and code", "action: Allow, protocol: ICMPv6, notICMP: {type: 254, code: 255}", ""},
		{"a negative icmp type", "action: Allow, protocol: ICMP, icmp: {type: -1}", "icmp"},
		{"a negative icmp code", "action: Allow, protocol: ICMP, icmp: {type: 8, code: -1}", "icmp"},
		{"notICMP type 255", "action: Allow, protocol: ICMP, notICMP: {type: 255}", "notICMP"},
		{"icmp type 255", "action: Allow, protocol: ICMP, icmp: {type: 255}", "icmp"},
		{"icmp code 256", "action: Allow, protocol: ICMP, icmp: {type: 1, code: 256}", "icmp"},
		{"notICMP without protocol", "action: Allow, notICMP: {type: 8}", "notICMP"},
		{"ICMP is of IPv4", "action: Allow, protocol: ICMP, ipVersion: 6", "protocol"},
		{"ICMPv6 is of IPv6", "action: Allow, protocol: ICMPv6, ipVersion: 4", "protocol"},
		{"nets of both families", "action: Allow, source: {nets: [10.0.0.0/8, 'fd00::/8']}", ""},
		{"notNets of both families", "action: Allow, source: {notNets: [10.0.0.0/8, 'fd00::/8']}", ""},
		{"nets of both families and notNets of one", "action: Allow, source: {nets: [10.0.0.0/8, 'fd00::/8'], notNets: [10.1.0.0/16]}", "source.nets"},
		{"nets of both families at one end, of one at the other", "action: Allow, source: {nets: [10.0.0.0/8]}, destination: {nets: [10.0.0.0/8, 'fd00::/8']}", "destination.nets"},
		{"nets and notNets of one family each", "action: Deny, source: {nets: [10.0.0.0/8]}, destination: {notNets: ['fd00::/8']}", "destination.notNets"},
		{"not in everything", "action: Deny, source: {notNets: [0.0.0.0/0]}", "source.notNets"},
		{"not in everything of one family and some of the other", "action: Deny, destination: {notNets: ['::/0', 10.0.0.0/8]}", "destination.notNets"},
		{"everything", "action: Deny, destination: {nets: ['::/0', 0.0.0.0/0]}", ""},
		{"a net against ipVersion", "action: Allow, ipVersion: 6, source: {nets: [10.0.0.0/8]}", "source.nets[0]"},
		{"a net against ICMPv6", "action: Allow, protocol: ICMPv6, destination: {notNets: [10.0.0.0/8]}", "destination.notNets[0]"},
		{"an unmasked net", "action: Allow, source: {nets: [10.0.0.1/8]}", "source.nets[0]"},
		{"a net that is none", "action: Allow, source: {notNets: [10.0.0.0/8, ten]}", "source.notNets[1]"},
		{"256 nets", "action: Allow, source: {nets: [" + many(256, "10.0.0.0/8") + "]}", ""},
		{"257 nets", "action: Allow, source: {nets: [" + many(257, "10.0.0.0/8") + "]}", "source.nets"},
		{"257 notNets", "action: Allow, destination: {notNets: [" + many(257, "10.0.0.0/8") + "]}", "destination.notNets"},
		{"ports", "action: Allow, protocol: TCP, destination: {ports: [80, '8000:9000', http]}", ""},
		{"50 ports", "action: Allow, protocol: TCP, destination: {ports: [" + many(50, "80") + "]}", ""},
		{"51 ports", "action: Allow, protocol: TCP, destination: {notPorts: [" + many(51, "80") + "]}", "destination.notPorts"},
		{"ports without protocol", "action: Allow, destination: {ports: [80]}", "destination.ports"},
		{"named ports without protocol", "action: Allow, destination: {ports: [http, dns]}, source: {notPorts: [http]}", ""},
		{"a named port and a number without protocol", "action: Allow, destination: {ports: [http, 80]}", "destination.ports"},
		{"a named port of a protocol that has none", "action: Allow, protocol: 47, destination: {ports: [http]}", "destination.ports"},
		{"ports of ICMP", "action: Allow, protocol: ICMP, source: {notPorts: [80]}", "source.notPorts"},
		{"port 0", "action: Allow, protocol: TCP, destination: {ports: [0]}", "destination.ports[0]"},
		{"a range from 0", "action: Allow, protocol: TCP, source: {notPorts: [80, '0:1023']}", "source.notPorts[1]"},
		{"a port's name of 128 characters", "action: Allow, protocol: TCP, source: {ports: [" + strings.Repeat("a", 128) + "]}", ""},
		{"a port's name of 129 characters", "action: Allow, protocol: TCP, source: {ports: [" + strings.Repeat("a", 129) + "]}", "source.ports[0]"},
		{"a port's name with a space", "action: Allow, protocol: TCP, source: {ports: ['a b']}", "source.ports[0]"},
		{"a selector", "action: Allow, source: {selector: 'a == \"b\"'}", ""},
		{"a selector that does not parse", "action: Allow, source: {selector: 'a ='}", "source.selector"},
		{"a notSelector that does not parse", "action: Allow, source: {notSelector: 'a ='}", "source.notSelector"},
		{"a selector too long", "action: Allow, source: {selector: 'has(" + strings.Repeat("a", 500) + ") || has(" + strings.Repeat("b", 511) + ")'}", "source.selector"},
		{"global() as namespaceSelector", "action: Allow, source: {namespaceSelector: global()}", ""},
		{"global() within a namespaceSelector", "action: Allow, source: {namespaceSelector: 'global() || has(a)'}", "source.namespaceSelector"},
		{"global() as selector", "action: Allow, source: {selector: global()}", "source.selector"},
		{"global() as notSelector", "action: Allow, source: {notSelector: global()}", "source.notSelector"},
		{"global() as a service account's selector", "action: Allow, source: {serviceAccounts: {selector: global()}}", "source.serviceAccounts.selector"},
		{"services", "action: Allow, source: {services: {name: a}}", ""},
		{"services of another namespace, with ports of the sender", "action: Allow, protocol: TCP, source: {services: {name: a, namespace: c}, ports: [80]}", ""},
		{"services at the destination of ingress", "action: Allow, destination: {services: {name: a}}", "destination.services"},
		{"services without a name", "action: Allow, source: {services: {namespace: c}}", "source.services.name"},
		{"services beside nets", "action: Allow, source: {services: {name: a}, nets: [10.0.0.0/8]}", "source.services"},
		{"services beside notNets", "action: Allow, source: {services: {name: a}, notNets: [10.0.0.0/8]}", "source.services"},
		{"services beside a selector", "action: Allow, source: {services: {name: a}, selector: has(b)}", "source.services"},
		{"services beside a notSelector", "action: Allow, source: {services: {name: a}, notSelector: has(b)}", "source.services"},
		{"services beside a namespaceSelector", "action: Allow, source: {services: {name: a}, namespaceSelector: has(b)}", "source.services"},
		{"services beside service accounts", "action: Allow, source: {services: {name: a}, serviceAccounts: {names: [b]}}", "source.services"},
		{"service accounts", "action: Allow, source: {serviceAccounts: {names: [a], selector: has(b)}}", ""},
		{"a service account's selector", "action: Allow, source: {serviceAccounts: {selector: '('}}", "source.serviceAccounts.selector"},
		{"a service account's name", "action: Allow, source: {serviceAccounts: {names: ['A B']}}", "source.serviceAccounts.names[0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want != "" {
				want = "spec.ingress[0]." + want
			}
			judge(t, KindNetworkPolicy, "name: a, namespace: b", "{ingress: [{"+tt.rule+"}]}", want)
		})
	}
}

func TestPoliciesAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, kind, spec, want string }{
		{"an empty one", "GlobalNetworkPolicy", "{}", ""},
		{"a tier's name", "GlobalNetworkPolicy", "{tier: A.b}", "spec.tier"},
		{"a selector", "GlobalNetworkPolicy", "{selector: '('}", "spec.selector"},
		{"a selector of 1024 characters", "GlobalNetworkPolicy", "{selector: 'has(" + strings.Repeat("a", 500) + ") || has(" + strings.Repeat("b", 510) + ")'}", ""},
		{"a selector of 1025 characters", "GlobalNetworkPolicy", "{selector: 'has(" + strings.Repeat("a", 500) + ") || has(" + strings.Repeat("b", 511) + ")'}", "spec.selector"},
		{"a selector with global()", "GlobalNetworkPolicy", "{selector: global()}", "spec.selector"},
		{"a serviceAccountSelector with global()", "GlobalNetworkPolicy", "{serviceAccountSelector: global()}", "spec.serviceAccountSelector"},
		{"a namespaceSelector with global()", "GlobalNetworkPolicy", "{namespaceSelector: global()}", "spec.namespaceSelector"},
		{"a serviceAccountSelector", "GlobalNetworkPolicy", "{serviceAccountSelector: '('}", "spec.serviceAccountSelector"},
		{"a type", "GlobalNetworkPolicy", "{types: [ingress]}", "spec.types[0]"},
		{"a type twice", "GlobalNetworkPolicy", "{types: [Egress, Egress]}", "spec.types[1]"},
		{"a hint", "GlobalNetworkPolicy", "{performanceHints: [Fast]}", "spec.performanceHints[0]"},
		{"1024 rules", "GlobalNetworkPolicy", "{egress: [" + many(1024, "{action: Deny}") + "]}", ""},
		{"1025 rules", "GlobalNetworkPolicy", "{egress: [" + many(1025, "{action: Deny}") + "]}", "spec.egress"},
		{"1025 rules of ingress", "GlobalNetworkPolicy", "{ingress: [" + many(1025, "{action: Deny}") + "]}", "spec.ingress"},
		{"doNotTrack", "GlobalNetworkPolicy", "{doNotTrack: true, applyOnForward: true}", ""},
		{"doNotTrack without applyOnForward", "GlobalNetworkPolicy", "{doNotTrack: true}", "spec.applyOnForward"},
		{"doNotTrack with preDNAT", "GlobalNetworkPolicy", "{doNotTrack: true, preDNAT: true, applyOnForward: true}", "spec.preDNAT"},
		{"preDNAT", "GlobalNetworkPolicy", "{preDNAT: true, applyOnForward: true, ingress: [{action: Deny}]}", ""},
		{"preDNAT without applyOnForward", "GlobalNetworkPolicy", "{preDNAT: true}", "spec.applyOnForward"},
		{"preDNAT with egress rules", "GlobalNetworkPolicy", "{preDNAT: true, applyOnForward: true, egress: [{action: Deny}]}", "spec.egress"},
		{"preDNAT with egress among its types", "GlobalNetworkPolicy", "{preDNAT: true, applyOnForward: true, types: [Egress]}", "spec.types"},
		{"services of egress", "GlobalNetworkPolicy", "{egress: [{action: Allow, destination: {services: {name: a, namespace: b}}}]}", ""},
		{"services at the source of egress", "GlobalNetworkPolicy", "{egress: [{action: Allow, source: {services: {name: a, namespace: b}}}]}", "spec.egress[0].source.services"},
		{"services of egress beside ports", "GlobalNetworkPolicy", "{egress: [{action: Allow, protocol: TCP, destination: {services: {name: a, namespace: b}, ports: [80]}}]}", "spec.egress[0].destination.services"},
		{"services of egress beside notPorts", "GlobalNetworkPolicy", "{egress: [{action: Allow, protocol: TCP, destination: {services: {name: a, namespace: b}, notPorts: [80]}}]}", "spec.egress[0].destination.services"},
		{"services of no namespace", "GlobalNetworkPolicy", "{egress: [{action: Allow, destination: {services: {name: a}}}]}", "spec.egress[0].destination.services.namespace"},
		{"a staged one", "StagedGlobalNetworkPolicy", "{selector: all()}", ""},
		{"a staged one that deletes", "StagedGlobalNetworkPolicy", "{stagedAction: Delete}", ""},
		{"a staged one that deletes and selects", "StagedGlobalNetworkPolicy", "{stagedAction: Delete, selector: all()}", "spec.stagedAction"},
		{"a staged action", "StagedGlobalNetworkPolicy", "{stagedAction: Perhaps}", "spec.stagedAction"},
		{"a profile", "Profile", "{ingress: [{action: Allow}], labelsToApply: {a: b}}", ""},
		{"a profile that passes", "Profile", "{ingress: [{action: Pass}]}", "spec.ingress[0].action"},
		{"a profile's label", "Profile", "{labelsToApply: {a: b c}}", "spec.labelsToApply.a"},
	} {
		t.Run(tt.name, func(t *testing.T) { judge(t, tt.kind, "name: a", tt.spec, tt.want) })
	}
}

func TestNamesAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, kind, meta, want string }{
		{"a subdomain", "GlobalNetworkPolicy", "name: default.foo-1", ""},
		{"an upper case letter", "GlobalNetworkPolicy", "name: Foo", "metadata.name"},
		{"a dot at the end", "GlobalNetworkPolicy", "name: foo.", "metadata.name"},
		{"253 characters", "GlobalNetworkPolicy", "name: " + strings.Repeat("a", 253), ""},
		{"254 characters", "GlobalNetworkPolicy", "name: " + strings.Repeat("a", 254), "metadata.name"},
		{"two dots in a global policy's name", "GlobalNetworkPolicy", "name: a.b.c", "metadata.name"},
		{"two dots in a staged global policy's name", "StagedGlobalNetworkPolicy", "name: a.b.c", "metadata.name"},
		{"two dots in a policy's name", "NetworkPolicy", "name: a.b.c", "metadata.name"},
		{"two dots in a staged policy's name", "StagedNetworkPolicy", "name: a.b.c", "metadata.name"},
		{"two dots in another kind's name", "GlobalNetworkSet", "name: a.b.c", ""},
		{"a tier before a policy's name", "NetworkPolicy", "name: default.a", ""},
		{"a policy that Kubernetes' own becomes", "NetworkPolicy", "name: knp.default.a.b", ""},
		{"a policy that OpenStack's groups become", "NetworkPolicy", "name: ossg.default.a", ""},
		{"a policy with such a beginning and no name", "NetworkPolicy", "name: knp.default", ""},
		{"a global policy named as Kubernetes' own", "GlobalNetworkPolicy", "name: knp.default.a", "metadata.name"},
		{"a policy that a ClusterNetworkPolicy becomes", "GlobalNetworkPolicy", "name: kcnp.a.b", ""},
		{"a policy that an AdminNetworkPolicy becomes", "GlobalNetworkPolicy", "name: kanp.adminnetworkpolicy.a.b", ""},
		{"a policy that the BaselineAdminNetworkPolicy becomes", "GlobalNetworkPolicy", "name: kbanp.baselineadminnetworkpolicy.default", ""},
		{"a policy of a namespace named as those are", "NetworkPolicy", "name: kcnp.a.b", "metadata.name"},
		{"annotations of more than 256 KiB", "Tier", "name: a, annotations: {a: x, b: " + strings.Repeat("x", 256<<10-2) + "}", "metadata.annotations"},
		{"no name", "GlobalNetworkPolicy", "labels: {}", "metadata.name"},
		{"a generated name", "GlobalNetworkPolicy", "generateName: a", "metadata.generateName"},
		{"a dot in a tier's name", "Tier", "name: a.b", "metadata.name"},
		{"63 characters in a tier's name", "Tier", "name: " + strings.Repeat("a", 63), ""},
		{"64 characters in a tier's name", "Tier", "name: " + strings.Repeat("a", 64), "metadata.name"},
		{"a namespace that is not wanted", "Tier", "name: a, namespace: b", "metadata.namespace"},
		{"a namespace left out is default", "NetworkPolicy", "name: a", ""},
		{"a namespace that is no name", "NetworkPolicy", "name: a, namespace: B_", "metadata.namespace"},
		{"a label's name", "Tier", "name: a, labels: {'-a': b}", "metadata.labels.-a"},
		{"a label's value", "Tier", "name: a, labels: {a: '-'}", "metadata.labels.a"},
		{"a label with a prefix", "Tier", "name: a, labels: {x.y/a: B_c}", ""},
		{"an annotation's name", "Tier", "name: a, annotations: {'a b': anything goes}", `metadata.annotations["a b"]`},
		{"the built-in profile", "Profile", "name: projectcalico-default-allow", "spec"},
		{"another cluster information", "ClusterInformation", "name: a", "metadata.name"},
	} {
		t.Run(tt.name, func(t *testing.T) { judge(t, tt.kind, tt.meta, "{}", tt.want) })
	}
}

func TestWorkloadsAreValidated(t *testing.T) {
	const good = "orchestrator: cni, node: n1, containerID: c, endpoint: e, interfaceName: cali1"
	for _, tt := range []struct{ name, meta, spec, want string }{
		{"a good one is named by itself", "", good + ", ipNetworks: [10.0.0.1/32, 'fd00::1/128']", ""},
		{"another name", "name: other", good, "metadata.name"},
		{"no node", "", "orchestrator: cni", "metadata.name"},
		{"a network that is none", "", good + ", ipNetworks: [10.0.0.0/24]", "spec.ipNetworks[0]"},
		{"an address twice", "", good + ", ipNetworks: [10.0.0.1/32, 10.0.0.1/32]", "spec.ipNetworks[1]"},
		{"no interface", "", "orchestrator: cni, node: n1, containerID: c, endpoint: e", "spec.interfaceName"},
		{"an interface's name too long", "", strings.Replace(good, "cali1", "cali0123456789ab", 1), "spec.interfaceName"},
		{"a MAC", "", good + ", mac: 'ee:ee:ee:ee:ee:ee'", ""},
		{"a MAC that is none", "", good + ", mac: 'ee:ee'", "spec.mac"},
		{"a port's name twice", "", good + ", ports: [{name: a, protocol: TCP, port: 1}, {name: a, protocol: TCP, port: 2}]", "spec.ports[1].name"},
		{"a port's name for two protocols", "", good + ", ports: [{name: a, protocol: TCP, port: 1}, {name: a, protocol: UDP, port: 1}]", ""},
		{"a port of ICMP", "", good + ", ports: [{name: a, protocol: ICMP, port: 1}]", "spec.ports[0].protocol"},
		{"port 0", "", good + ", ports: [{name: a, protocol: TCP, port: 0}]", "spec.ports[0].port"},
		{"a port of a protocol in another case", "", good + ", ports: [{name: a, protocol: tcp, port: 1}]", "spec.ports[0].protocol"},
		{"a port without a name that the host has, too", "", good + ", ports: [{protocol: TCP, port: 1, hostPort: 80}]", ""},
		{"a port without a name that nothing can mean", "", good + ", ports: [{protocol: TCP, port: 1}]", "spec.ports[0].name"},
		{"a container's ID as CNI has it", "", strings.Replace(good, "containerID: c", "containerID: 0a_B.c-d", 1), ""},
		{"a container's ID with a space", "", strings.Replace(good, "containerID: c", "containerID: 'a b'", 1), "spec.containerID"},
		{"a container's ID that begins with a dash", "", strings.Replace(good, "containerID: c", "containerID: -a", 1), "spec.containerID"},
		{"a gateway of the other family", "", good + ", ipv4Gateway: 'fd00::1'", "spec.ipv4Gateway"},
		{"a spoofed prefix", "", good + ", allowSpoofedSourcePrefixes: [x]", "spec.allowSpoofedSourcePrefixes[0]"},
		{"a label of the namespace", "labels: {pcns.a: b}", good, "metadata.labels[\"pcns.a\"]"},
		{"another namespace's label", "labels: {projectcalico.org/namespace: other}", good, "metadata.labels[\"projectcalico.org/namespace\"]"},
		{"a profile twice", "", good + ", profiles: [a, a]", "spec.profiles[1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			meta := strings.TrimPrefix(tt.meta+", namespace: prod", ", ")
			judge(t, KindWorkloadEndpoint, meta, "{"+tt.spec+"}", tt.want)
		})
	}
}

func TestReservedLabelsAreRefused(t *testing.T) {
	for _, tt := range []struct{ kind, meta, spec, want string }{
		{"NetworkSet", "namespace: a, labels: {pcns.env: prod}", "{}", `metadata.labels["pcns.env"]`},
		{"NetworkSet", "namespace: a, labels: {pcns.projectcalico.org/name: prod}", "{}", `metadata.labels["pcns.projectcalico.org/name"]`},
		{"NetworkSet", "namespace: a, labels: {projectcalico.org/namespace: prod}", "{}", `metadata.labels["projectcalico.org/namespace"]`},
		{"NetworkSet", "namespace: a, labels: {projectcalico.org/namespace: a}", "{}", ""},
		{"NetworkSet", "namespace: a, labels: {projectcalico.org/orchestrator: k8s}", "{}", `metadata.labels["projectcalico.org/orchestrator"]`},
		{"GlobalNetworkSet", "labels: {projectcalico.org/namespace: prod}", "{}", `metadata.labels["projectcalico.org/namespace"]`},
		{"GlobalNetworkSet", "labels: {pcsa.role: bot}", "{}", `metadata.labels["pcsa.role"]`},
		{"GlobalNetworkSet", "labels: {projectcalico.org/serviceaccount: robot}", "{}", `metadata.labels["projectcalico.org/serviceaccount"]`},
		{"GlobalNetworkSet", "labels: {projectcalico.org/name: x, app: web}", "{}", ""},
		{"HostEndpoint", "labels: {pcns.env: prod}", "{node: n1, interfaceName: '*'}", `metadata.labels["pcns.env"]`},
		{"HostEndpoint", "labels: {projectcalico.org/namespace: prod}", "{node: n1, interfaceName: '*'}", `metadata.labels["projectcalico.org/namespace"]`},
		{"Profile", "", "{labelsToApply: {pcns.env: prod, pcsa.a: b}}", ""},
		{"Profile", "", "{labelsToApply: {projectcalico.org/namespace: prod}}", `spec.labelsToApply["projectcalico.org/namespace"]`},
	} {
		t.Run(tt.kind+" "+tt.meta, func(t *testing.T) {
			judge(t, tt.kind, strings.TrimSuffix("name: x, "+tt.meta, ", "), tt.spec, tt.want)
		})
	}
}

func TestOtherKindsAreValidated(t *testing.T) {
	for _, tt := range []struct{ kind, name, spec, want string }{
		{"HostEndpoint", "a", "{node: n1, interfaceName: '*'}", ""},
		{"HostEndpoint", "a", "{node: n1, expectedIPs: [192.0.2.1]}", ""},
		{"HostEndpoint", "a", "{node: n1}", "spec.interfaceName"},
		{"HostEndpoint", "a", "{interfaceName: eth0}", "spec.node"},
		{"HostEndpoint", "a", "{node: n1, expectedIPs: [192.0.2.1/24]}", "spec.expectedIPs[0]"},
		{"HostEndpoint", "a", "{node: n1, interfaceName: 'a b'}", "spec.interfaceName"},
		{"HostEndpoint", "a", "{node: n1, interfaceName: a, ports: [{protocol: TCP, port: 1}]}", "spec.ports[0].name"},
		{"GlobalNetworkSet", "a", "{nets: [10.0.0.1/8]}", ""},
		{"GlobalNetworkSet", "a", "{nets: [x]}", "spec.nets[0]"},
		{"Tier", "a", "{order: 5, defaultAction: Pass}", ""},
		{"Tier", "a", "{defaultAction: Allow}", "spec.defaultAction"},
		{"Tier", "default", "{}", ""},
		{"Tier", "default", "{order: 5}", "spec.order"},
		{"Tier", "default", "{defaultAction: Pass}", "spec.defaultAction"},
		{"Tier", "kube-admin", "{defaultAction: Deny}", "spec.defaultAction"},
		{"Tier", "kube-admin", "{order: 5, defaultAction: Pass}", "spec.order"},
		{"Tier", "kube-admin", "{order: 1000, defaultAction: Pass}", ""},
		{"Tier", "kube-baseline", "{defaultAction: Deny}", "spec.defaultAction"},
		{"Tier", "kube-baseline", "{order: 5, defaultAction: Pass}", "spec.order"},
		{"Tier", "kube-baseline", "{order: 10000000, defaultAction: Pass}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16}", ""},
		{"IPPool", "a", "{cidr: 'fd00::/64'}", ""},
		{"IPPool", "a", "{}", "spec.cidr"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, nodeSelector: global()}", "spec.nodeSelector"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, namespaceSelector: global()}", "spec.namespaceSelector"},
		{"IPPool", "a", "{cidr: 10.65.0.1/16}", "spec.cidr"},
		{"IPPool", "a", "{cidr: 10.65.0.1}", "spec.cidr"},
		{"IPPool", "a", "{cidr: 169.254.1.0/24}", "spec.cidr"},
		{"IPPool", "a", "{cidr: 'fe80::/64'}", "spec.cidr"},
		{"IPPool", "a", "{cidr: 10.65.0.0/27}", "spec.cidr"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, blockSize: 19}", "spec.blockSize"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, blockSize: 20}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, blockSize: 32}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, blockSize: 33}", "spec.blockSize"},
		{"IPPool", "a", "{cidr: 'fd00::/64', blockSize: 26}", "spec.blockSize"},
		{"IPPool", "a", "{cidr: 'fd00::/64', blockSize: 115}", "spec.blockSize"},
		{"IPPool", "a", "{cidr: 'fd00::/64', blockSize: 116}", ""},
		{"IPPool", "a", "{cidr: 'fd00::/64', blockSize: 128}", ""},
		{"IPPool", "a", "{cidr: 'fd00::/64', blockSize: 129}", "spec.blockSize"},
		{"IPPool", "a", "{cidr: 'fd00::/64', ipipMode: Always}", "spec.ipipMode"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, ipipMode: Always, vxlanMode: Always}", "spec.ipipMode"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, vxlanMode: Sometimes}", "spec.vxlanMode"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer]}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer, Tunnel]}", "spec.allowedUses"},
		{"IPPool", "a", "{cidr: 10.65.0.0/27, disabled: true}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/27, disabled: true, blockSize: 33}", "spec.blockSize"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer], nodeSelector: all()}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer], nodeSelector: has(rack)}", "spec.nodeSelector"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer], disableBGPExport: true}", "spec.disableBGPExport"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer], ipipMode: Always}", "spec.ipipMode"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, allowedUses: [LoadBalancer], vxlanMode: CrossSubnet}", "spec.vxlanMode"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, namespaceSelector: has(a), allowedUses: [Workload, Tunnel]}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, assignmentMode: Manual}", ""},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, assignmentMode: ''}", "spec.assignmentMode"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, nodeSelector: '('}", "spec.nodeSelector"},
		{"IPPool", "a", "{cidr: 10.65.0.0/16, assignmentMode: Guess}", "spec.assignmentMode"},
		{"Node", "a", "{bgp: {asNumber: '1.10', ipv4Address: 192.0.2.1/24}}", ""},
		{"Node", "a", "{bgp: {}}", "spec.bgp"},
		{"Node", "a", "{bgp: {ipv4IPIPTunnelAddr: 10.65.0.1}}", ""},
		{"Node", "a", "{bgp: {asNumber: 64512}}", ""},
		{"Node", "a", "{}\nstatus: {wireguardPublicKey: 'lIZGNy2QqzQ6DyrAvSsQFQRqVK2W2qPLZkqkOQ3a9lw='}", ""},
		{"Node", "a", "{}\nstatus: {wireguardPublicKey: 'lIZGNy2QqzQ='}", "status.wireguardPublicKey"},
		{"Node", "a", "{}\nstatus: {wireguardPublicKeyV6: no key}", "status.wireguardPublicKeyV6"},
		{"Node", "a", "{bgp: {ipv4Address: 'fd00::1'}}", "spec.bgp.ipv4Address"},
		{"Node", "a", "{addresses: [{address: x}]}", "spec.addresses[0].address"},
		{"Node", "a", "{vxlanTunnelMACAddr: x}", "spec.vxlanTunnelMACAddr"},
		{"FelixConfiguration", "default", "{reportingInterval: 1m30s, defaultEndpointToHostAction: accept}", ""},
		{"FelixConfiguration", "default", "{reportingInterval: soon}", "spec.reportingInterval"},
		{"FelixConfiguration", "default", "{logActionRateLimit: 9999/day, logActionRateLimitBurst: 9999}", ""},
		{"FelixConfiguration", "default", "{logActionRateLimit: none}", ""},
		{"FelixConfiguration", "default", "{logActionRateLimit: often}", "spec.logActionRateLimit"},
		{"FelixConfiguration", "default", "{logActionRateLimit: 0/second}", "spec.logActionRateLimit"},
		{"FelixConfiguration", "default", "{logActionRateLimitBurst: -5}", "spec.logActionRateLimitBurst"},
		{"FelixConfiguration", "default", "{logActionRateLimitBurst: 10000}", "spec.logActionRateLimitBurst"},
		{"FelixConfiguration", "default", "{defaultEndpointToHostAction: Maybe}", "spec.defaultEndpointToHostAction"},
		{"FelixConfiguration", "default", "{nodeSelector: all()}", "spec.nodeSelector"},
		{"FelixConfiguration", "rack", "{}", "spec.nodeSelector"},
		{"FelixConfiguration", "rack", "{nodeSelector: has(rack)}", ""},
		{"FelixConfiguration", "default", "{healthPort: 70000}", "spec.healthPort"},
		{"FelixConfiguration", "default", "{goGCThreshold: 0, goMemoryLimitMB: 0, goMaxProcs: 0}", ""},
		{"FelixConfiguration", "default", "{goGCThreshold: -2}", "spec.goGCThreshold"},
		{"FelixConfiguration", "default", "{bpfLogLevel: ''}", ""},
		{"FelixConfiguration", "default", "{ipForwarding: disabled}", ""},
		{"FelixConfiguration", "default", "{ipForwarding: perhaps}", "spec.ipForwarding"},
		{"FelixConfiguration", "default", "{nftablesMarkMask: 0xffff0000}", ""},
		{"FelixConfiguration", "default", "{nftablesMarkMask: 0xff000000}", "spec.nftablesMarkMask"},
		{"FelixConfiguration", "default", "{interfaceExclude: '/^kube/,veth1'}", ""},
		{"FelixConfiguration", "default", "{interfaceExclude: '/^kube(/,veth1'}", "spec.interfaceExclude"},
		{"FelixConfiguration", "default", "{interfaceExclude: 'a b'}", "spec.interfaceExclude"},
		{"FelixConfiguration", "default", "{healthTimeoutOverrides: [{name: calc, timeout: 90s}]}", ""},
		{"FelixConfiguration", "default", "{healthTimeoutOverrides: [{name: '', timeout: 90s}]}", "spec.healthTimeoutOverrides[0].name"},
		{"FelixConfiguration", "default", "{healthTimeoutOverrides: [{name: a, timeout: 1s}, {name: a=b, timeout: 90s}]}", "spec.healthTimeoutOverrides[1].name"},
		{"FelixConfiguration", "default", "{healthTimeoutOverrides: [{name: calc, timeout: -1s}]}", "spec.healthTimeoutOverrides[0].timeout"},
		{"FelixConfiguration", "default", "{prometheusMetricsHost: 'fd00::1'}", ""},
		{"FelixConfiguration", "default", "{prometheusMetricsHost: 'a b'}", "spec.prometheusMetricsHost"},
		{"FelixConfiguration", "default", "{prometheusMetricsHost: " + strings.Repeat("a", 65) + "}", "spec.prometheusMetricsHost"},
		{"FelixConfiguration", "default", "{openstackRegion: region-1}", ""},
		{"FelixConfiguration", "default", "{openstackRegion: Region_1}", "spec.openstackRegion"},
		{"FelixConfiguration", "default", "{openstackRegion: " + strings.Repeat("a", 47) + "}", "spec.openstackRegion"},
		{"FelixConfiguration", "default", "{logSeverityScreen: wARNING}", ""},
		{"BGPConfiguration", "default", "{logSeverityScreen: INFO}", ""},
		{"BGPConfiguration", "default", "{logSeverityScreen: trace}", ""},
		{"BGPConfiguration", "default", "{logSeverityScreen: Loud}", "spec.logSeverityScreen"},
		{"BGPFilter", "a", "{importV4: [{action: Accept, interface: eth0}]}", "spec.importV4[0].interface"},
		{"KubeControllersConfiguration", "default", "{controllers: {node: {hostEndpoint: {createDefaultHostEndpoint: Disabled, templates: [{interfaceCIDRs: [10.0.0.0/8]}]}}}}", ""},
		{"KubeControllersConfiguration", "default", "{controllers: {node: {hostEndpoint: {templates: [{interfacePattern: ^eth}]}}}}", ""},
		{"KubeControllersConfiguration", "default", "{controllers: {node: {hostEndpoint: {templates: [{interfaceCIDRs: [10.0.0.0/8]}]}}}}", "spec.controllers.node.hostEndpoint.templates[0].generateName"},
		{"KubeControllersConfiguration", "default", "{controllers: {node: {hostEndpoint: {templates: [{interfaceCIDRs: [10.0.0.0/8]}, {interfaceCIDRs: [10.0.0.0/8]}]}}}}", "spec.controllers.node.hostEndpoint.templates[1]"},
		{"Profile", "a", "{labelsToApply: {pcsa.projectcalico.org/name: " + strings.Repeat("a", 64) + "}}", ""},
		{"Profile", "a", "{labelsToApply: {pcsa.projectcalico.org/name: A_b}}", `spec.labelsToApply["pcsa.projectcalico.org/name"]`},
		{"Profile", "a", "{labelsToApply: {pcsa.role: " + strings.Repeat("a", 64) + "}}", `spec.labelsToApply["pcsa.role"]`},
		{"FelixConfiguration", "default", "{failsafeInboundHostPorts: [{protocol: icmp, port: 1}]}", "spec.failsafeInboundHostPorts[0].protocol"},
	} {
		t.Run(tt.kind+" "+tt.spec, func(t *testing.T) { judge(t, tt.kind, "name: "+tt.name, tt.spec, tt.want) })
	}
}

func TestStagedKubernetesPoliciesAreValidated(t *testing.T) {
	for _, tt := range []struct{ spec, want string }{
		{"{podSelector: {matchLabels: {a: b}}, ingress: [{ports: [{protocol: TCP, port: 80, endPort: 90}], from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}]}", ""},
		{"{ingress: [{from: [{}]}]}", "spec.ingress[0].from[0]"},
		{"{egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}", "spec.egress[0].to[0].ipBlock.except[0]"},
		{"{egress: [{to: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}", "spec.egress[0].to[0].ipBlock"},
		{"{ingress: [{ports: [{port: http, endPort: 90}]}]}", "spec.ingress[0].ports[0].endPort"},
		{"{podSelector: {matchExpressions: [{key: a, operator: In}]}}", "spec.podSelector.matchExpressions[0].values"},
		{"{policyTypes: [Both]}", "spec.policyTypes[0]"},
		{"{ingress: [{ports: [{port: 0}]}]}", "spec.ingress[0].ports[0].port"},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			judge(t, KindStagedKubernetesNetworkPolicy, "name: a, namespace: b", tt.spec, tt.want)
		})
	}
}

func TestPoolsCannotMoveOrOverlap(t *testing.T) {
	pool := func(name, cidr string) *IPPool {
		p := New(KindIPPool).(*IPPool)
		p.Metadata.Name, p.Spec.CIDR = name, cidr
		Default(p)
		return p
	}
	a := pool("a", "10.65.0.0/16")
	if errs := ValidateUpdate(a, pool("a", "10.66.0.0/16")); len(errs) != 1 || errs[0].Path != "spec.cidr" {
		t.Errorf("moved: %v", errs)
	}
	if errs := ValidateUpdate(a, pool("a", "10.65.0.0/16")); len(errs) != 0 {
		t.Errorf("the same: %v", errs)
	}
	finer := pool("a", "10.65.0.0/16")
	finer.Spec.BlockSize = 28
	if errs := ValidateUpdate(a, finer); len(errs) != 1 || errs[0].Path != "spec.blockSize" {
		t.Errorf("with other blocks: %v", errs)
	}
	balancers := pool("a", "10.65.0.0/16")
	balancers.Spec.AllowedUses = []string{"LoadBalancer"}
	if errs := ValidateUpdate(balancers, a); len(errs) != 1 || errs[0].Path != "spec.allowedUses" {
		t.Errorf("taken from load balancers: %v", errs)
	}
	if errs := ValidateAmong(pool("b", "10.65.1.0/24"), []Resource{a}); len(errs) != 1 {
		t.Errorf("overlap: %v", errs)
	}
	if errs := ValidateAmong(a, []Resource{a, pool("b", "10.66.0.0/16")}); len(errs) != 0 {
		t.Errorf("no overlap: %v", errs)
	}
}

func TestNothingWrongIsNoError(t *testing.T) {
	if err := FieldErrors(nil).Err(); err != nil {
		t.Error(err)
	}
}
