package agreetest

// uplinkCases are about which host endpoint an interface is under: each policy drops what is forwarded through that endpoint.
var uplinkCases = []handCase{
	{
		name: "by an address of the interface", source: "upstream, HostEndpoint: expectedIPs, where interfaceName is not given",
		rules: "{action: Allow}", more: hostByAddress + dropsAtA, denied: fromOutside,
	},
	{
		name: "not by an address of an interface that is excluded", source: "upstream, FelixConfiguration: interfaceExclude",
		rules: "{action: Allow}", more: hostByAddress + dropsAtA + `
- {kind: FelixConfiguration, metadata: {name: default}, spec: {interfaceExclude: "kube-ipvs0, eth0"}}`, allowed: fromOutside,
	},
	{
		name: "nor of one that a regular expression excludes, on this node", source: "upstream, FelixConfiguration: interfaceExclude, /expression/; node.NAME before default",
		rules: "{action: Allow}", more: hostByAddress + dropsAtA + `
- {kind: FelixConfiguration, metadata: {name: default}, spec: {interfaceExclude: "kube-ipvs0"}}
- {kind: FelixConfiguration, metadata: {name: node.h1}, spec: {interfaceExclude: "/^eth[0-9]$/"}}`, allowed: fromOutside,
	},
	{
		name: "by its name, though it is excluded", source: "upstream, FelixConfiguration: interfaceExclude is of interfaces that are looked for by address",
		rules: "{action: Allow}", more: `
- {kind: HostEndpoint, metadata: {name: a, labels: {hep: a}}, spec: {node: h1, interfaceName: eth0}}
- {kind: FelixConfiguration, metadata: {name: default}, spec: {interfaceExclude: eth0}}` + dropsAtA, denied: fromOutside,
	},
	{
		name: "by its address, where the one that names it has a later name", source: "upstream, of host endpoints that match an interface by name or by address: the first by name",
		rules: "{action: Allow}", more: hostByAddress + dropsAtA + `
- {kind: HostEndpoint, metadata: {name: b}, spec: {node: h1, interfaceName: eth0, expectedIPs: [192.0.2.1]}}`, denied: fromOutside,
	},
	{
		name: "by its name, where that with its address has a later name", source: "upstream, of host endpoints that match an interface by name or by address: the first by name",
		rules: "{action: Allow}", more: hostByAddress + dropsAtA + `
- {kind: HostEndpoint, metadata: {name: "0"}, spec: {node: h1, interfaceName: eth0, expectedIPs: [192.0.2.1]}}`, allowed: fromOutside,
	},
}

const (
	hostByAddress = `
- {kind: HostEndpoint, metadata: {name: a, labels: {hep: a}}, spec: {node: h1, expectedIPs: [192.0.2.1]}}`
	dropsAtA = `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", applyOnForward: true, types: [Ingress]}}`
)

var fromOutside = []string{"203.0.113.5 tcp/80", "2001:db8:9::5 udp/80"}
