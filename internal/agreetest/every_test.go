package agreetest

// everyCases are about the host endpoint for all interfaces, and what workloads send and receive. A workload's interface is one of them.
var everyCases = []handCase{
	{
		name: "before DNAT it is asked about what a workload sends", source: "upstream, felix/fv/pre_dnat_test.go: with interfaceName *, no workload connects to a node port either",
		rules: "{action: Allow}", more: allLinks + accepts + `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", preDNAT: true, applyOnForward: true, types: [Ingress], ingress: [{action: Deny}]}}`,
		denied:  []string{">203.0.113.5 tcp/80", ">2001:db8:9::5 udp/80", ">192.0.2.1 tcp/80", "203.0.113.5 tcp/80"},
		allowed: []string{">203.0.113.5 tcp/22", ">192.0.2.1 tcp/22"}, // failsafe ports
	},
	{
		name: "before DNAT the one of an interface is not", source: "upstream, felix/fv/pre_dnat_test.go: with interfaceName eth0 workloads connect",
		rules: "{action: Allow}", more: oneLink + accepts + `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", preDNAT: true, applyOnForward: true, types: [Ingress], ingress: [{action: Deny}]}}`,
		denied: []string{"203.0.113.5 tcp/80"}, allowed: []string{">203.0.113.5 tcp/80", ">192.0.2.1 tcp/80"},
	},
	{
		name: "what it allows before DNAT is the workload's to allow, too", source: "upstream, felix/fv/pre_dnat_test.go: with egress policy of the workload that denies",
		rules: "egress:{action: Deny, protocol: TCP, destination: {ports: [81]}}, {action: Allow}", more: allLinks + accepts + opensAll,
		denied: []string{">203.0.113.5 tcp/81", ">192.0.2.1 tcp/81"}, allowed: []string{">203.0.113.5 tcp/80", ">192.0.2.1 tcp/80"},
	},
	{
		name: "what it allows before DNAT the setting drops", source: "upstream, felix/fv/ep_to_host_action_test.go: ep-to-host=Drop, HEP=*-pre-dnat, HEP-pol=Allow",
		rules: "{action: Allow}", more: allLinks + opensAll, denied: []string{">192.0.2.1 tcp/80"},
	},
	{
		name: "its normal policy does not allow what the setting drops", source: "upstream, felix/fv/ep_to_host_action_test.go: ep-to-host=Drop, HEP=*, HEP-pol=Allow",
		rules: "{action: Allow}", more: allLinks + `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", types: [Ingress], ingress: [{action: Allow}]}}`,
		denied: []string{">192.0.2.1 tcp/80"}, allowed: []string{">203.0.113.5 tcp/80"},
	},
	{
		name: "its normal policy does not deny what the setting accepts", source: "upstream, felix/fv/ep_to_host_action_test.go: ep-to-host=Accept, HEP=*, HEP-pol=Deny",
		rules: "{action: Allow}", more: allLinks + accepts, allowed: []string{">192.0.2.1 tcp/80", ">203.0.113.5 tcp/80", "203.0.113.5 tcp/80"},
	},
	{
		name: "its normal policy does not deny what the setting returns", source: "upstream, felix/fv/ep_to_host_action_test.go: INPUT=ACCEPT, ep-to-host=Return, HEP=*, HEP-pol=Deny",
		rules: "{action: Allow}", more: allLinks + `
- {kind: FelixConfiguration, metadata: {name: default}, spec: {defaultEndpointToHostAction: Return}}`, allowed: []string{">192.0.2.1 tcp/80"},
	},
	{
		name: "of what is forwarded it is asked where a workload sends", source: "upstream's chain for forwarded packets: each incoming interface without an endpoint of its own leads to that of all",
		rules: "{action: Allow}", more: allLinks + `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", applyOnForward: true, types: [Ingress], ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}]}}`,
		denied: []string{">203.0.113.5 tcp/81", ">2001:db8:9::5 udp/80", "203.0.113.5 tcp/81"}, allowed: []string{">203.0.113.5 tcp/80", "203.0.113.5 tcp/80"},
	},
	{
		name: "of what is forwarded it is asked where a workload receives", source: "upstream's chain for forwarded packets: each outgoing interface without an endpoint of its own leads to that of all",
		rules: "{action: Allow}", more: allLinks + `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", applyOnForward: true, types: [Egress], egress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}]}}`,
		denied: []string{">203.0.113.5 tcp/81", "203.0.113.5 tcp/81", "2001:db8:9::5 udp/80"}, allowed: []string{">203.0.113.5 tcp/80", "203.0.113.5 tcp/80"},
	},
}

const (
	allLinks = `
- {kind: HostEndpoint, metadata: {name: a, labels: {hep: a}}, spec: {node: h1, interfaceName: "*"}}`
	oneLink = `
- {kind: HostEndpoint, metadata: {name: a, labels: {hep: a}}, spec: {node: h1, interfaceName: eth0}}`
	accepts = `
- {kind: FelixConfiguration, metadata: {name: default}, spec: {defaultEndpointToHostAction: Accept}}`
	opensAll = `
- {kind: GlobalNetworkPolicy, metadata: {name: a}, spec: {order: 1, selector: hep == "a", preDNAT: true, applyOnForward: true, types: [Ingress], ingress: [{action: Allow}]}}`
)
