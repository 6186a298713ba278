package agreetest

// A notSelector beside what else one side says of labels is about who is selected: one endpoint or network set must be what the one says and not
// what the other says. Alone it is about addresses, and is met by those of nobody.
const combined = `upstream, felix/calc/rule_scanner_test.go: "positive selectors should be combined with negative ones"`

const (
	allowKnown = `{action: Allow, source: {selector: env == "prod", notSelector: trusted == "false"}}`
	denyKnown  = `{action: Deny, source: {selector: env == "prod", notSelector: trusted == "false"}}, {action: Allow}`
	// wide is not trusted, and covers all addresses of the cases; narrow is within it.
	wide = `
- {kind: GlobalNetworkSet, metadata: {name: wide, labels: {trusted: "false"}}, spec: {nets: [203.0.113.0/24, "2001:db8:ffff::/48", 10.65.0.0/16, "fd00:65::/64"]}}`
	narrow = `
- {kind: GlobalNetworkSet, metadata: {name: narrow, labels: {env: prod}}, spec: {nets: [203.0.113.5/32, "2001:db8:ffff::5/128"]}}`
	narrowUntrusted = `
- {kind: GlobalNetworkSet, metadata: {name: narrow, labels: {env: prod, trusted: "false"}}, spec: {nets: [203.0.113.5/32, "2001:db8:ffff::5/128"]}}`
	inNamespace = `
- {kind: NetworkSet, metadata: {namespace: prod, name: near}, spec: {nets: [203.0.113.5/32, "2001:db8:ffff::5/128"]}}`
	robot = `
- kind: WorkloadEndpoint
  metadata: {namespace: prod, name: h2-k8s-far-eth0, labels: {projectcalico.org/serviceaccount: robot}}
  spec:
    {orchestrator: k8s, node: h2, workload: far, pod: far, endpoint: eth0, interfaceName: cali0, serviceAccountName: robot,
     ipNetworks: [203.0.113.5/32, "2001:db8:ffff::5/128"], profiles: [projectcalico-default-allow]}`
	loneInNamespace = `
- {kind: NetworkPolicy, metadata: {namespace: prod, name: n}, spec: {order: 1, types: [Ingress], ingress: [{action: Allow, source: {notSelector: trusted == "false"}}]}}`
	// around has web's addresses and no ports.
	around = `
- {kind: GlobalNetworkSet, metadata: {name: around, labels: {set: around}}, spec: {nets: [10.65.0.0/16, "fd00:65::/64"]}}`
)

var negationCases = []handCase{
	{"a deny hits who is selected though an untrusted set covers it", combined, denyKnown, []string{otherTCP4, otherTCP6}, outside, wide + narrow},
	{"an allow lets in who is selected though an untrusted set covers it", combined, allowKnown, outside, []string{otherTCP4, otherTCP6}, wide + narrow},
	{"who is both is not selected", combined, allowKnown, nil, outside, narrowUntrusted},
	{"nor denied", combined, denyKnown, outside, nil, narrowUntrusted},
	{"an address is of more than one", combined, allowKnown, outside, nil, narrowUntrusted + `
- {kind: GlobalNetworkSet, metadata: {name: third, labels: {env: prod}}, spec: {nets: [203.0.113.0/24, "2001:db8:ffff::/48"]}}`},
	{
		"so it is with a destination", combined, `egress:{action: Deny, destination: {selector: env == "prod", notSelector: trusted == "false"}}, {action: Allow}`,
		[]string{">" + otherTCP4, ">" + otherTCP6},
		[]string{">" + tcp4, ">" + tcp6},
		wide + narrow,
	},
	{"all() is who is known, less those", combined, `{action: Allow, source: {selector: all(), notSelector: trusted == "false"}}`, outside, []string{otherTCP4, otherTCP6}, wide + narrow},
	{
		"a namespaceSelector is met by one that is not those", combined, `{action: Allow, source: {namespaceSelector: all(), notSelector: trusted == "false"}}`,
		outside,
		[]string{otherTCP4, otherTCP6},
		wide + inNamespace,
	},
	{
		"a service account is met by one that is not those", combined, `{action: Allow, source: {serviceAccounts: {names: [robot]}, notSelector: trusted == "false"}}`,
		outside,
		[]string{otherTCP4, otherTCP6},
		wide + robot,
	},
	{
		"alone in a namespace it is about who is there", combined + "; libcalico-go's GetEntityRuleSelector adds the namespace to a lone notSelector", `{action: Deny}`,
		outside,
		[]string{otherTCP4, otherTCP6},
		wide + inNamespace + loneInNamespace,
	},
	{
		"alone it is about addresses", `upstream, felix/calc/rule_scanner_test.go: "only negative selectors"`,
		`{action: Allow, source: {notSelector: trusted == "false"}}`,
		[]string{otherTCP4, otherTCP6},
		outside, wide + narrow,
	},
	{
		"a named port is of who is selected though an untrusted set covers it", combined,
		`{action: Allow, protocol: TCP, destination: {selector: app == "web", notSelector: trusted == "false", ports: [web-tcp]}}`,
		outside,
		[]string{four + " tcp/53", six + " tcp/53"},
		wide,
	},
	{
		"a named port of who is not selected is none", "upstream, felix/calc/rule_scanner.go: sets of named ports are by the selector that is combined",
		`{action: Allow, protocol: TCP, destination: {selector: all(), notSelector: app == "web", ports: [web-tcp, 22]}}`,
		[]string{four + " tcp/22", six + " tcp/22"},
		outside, around,
	},
	{
		"nor is it one that must not be", "upstream, felix/calc/rule_scanner.go: sets of named ports are by the selector that is combined, negated ones, too",
		`{action: Allow, protocol: TCP, destination: {selector: all(), notSelector: app == "web", notPorts: [web-tcp]}}`, outside, nil, around,
	},
}
