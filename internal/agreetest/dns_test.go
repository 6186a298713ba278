package agreetest

const openStack = `
- {kind: FelixConfiguration, metadata: {name: default}, spec: {interfacePrefix: "cali,tap", metadataAddr: none}}`

// dnsCases are about what hosts of OpenStack let workloads reach before policy.
var dnsCases = []handCase{
	{
		name: "DNS of the host is reached without policy", source: "upstream, felix/rules/static.go: UDP to port 53 from workloads to the host is allowed before their policy",
		rules: "egress:{action: Deny}", more: openStack,
		allowed: []string{">192.0.2.1 udp/53", ">2001:db8::1 udp/53"},
		denied:  []string{">192.0.2.1 tcp/53", ">192.0.2.1 udp/54", ">203.0.113.5 udp/53", ">2001:db8:9::5 udp/53"},
	},
	{
		name: "DNS of other hosts than OpenStack's needs policy", source: "upstream, felix/dataplane/driver.go: the special cases are for hosts that settings say are OpenStack's",
		rules: "egress:{action: Deny}", more: accepts, denied: []string{">192.0.2.1 udp/53", ">2001:db8::1 udp/53"},
	},
	{
		name: "another server of metadata makes a host OpenStack's", source: "upstream, felix/config/config_params.go, OpenstackActive",
		rules: "egress:{action: Deny}", more: "\n- {kind: FelixConfiguration, metadata: {name: default}, spec: {metadataAddr: 203.0.113.7}}", allowed: []string{">192.0.2.1 udp/53", ">2001:db8::1 udp/53"},
	},
	{
		name: "policy before DNAT is asked about it", source: "upstream, felix/rules/static.go: table mangle has no such rule",
		rules: "{action: Allow}", more: openStack + allLinks + `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", preDNAT: true, applyOnForward: true, types: [Ingress], ingress: [{action: Deny}]}}`,
		denied: []string{">192.0.2.1 udp/53", ">2001:db8::1 udp/53"},
	},
}
