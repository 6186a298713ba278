package world

const (
	transit      = "203.0.113.9 > 203.0.113.10 tcp 80 via h1"
	transitHost  = "HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, expectedIPs: [192.0.2.1], labels: {hep: h1}}\n"
	transitAll   = "HostEndpoint h1-all {node: h1, interfaceName: \"*\", expectedIPs: [192.0.2.1], labels: {hep: h1}}\n"
	nothingAsked = "Allow: no policy of ours is on this way"
)

// transitCases are of packets that a host forwards from one uplink to the other, with no workload at either end.
var transitCases = []stageCase{
	{"a host without a host endpoint forwards anything", "MODEL: between non-workloads: allowed", `GlobalNetworkPolicy a {applyOnForward: true, ingress: [{action: Deny}]}`, transit, nothingAsked},
	{"a host endpoint without forward policies lets all through", "S1: no applicable policy in that direction → allow", transitHost + `GlobalNetworkPolicy a {selector: hep == "h1", types: [Ingress, Egress]}`, transit, nothingAsked},
	{"profiles are not asked of what is forwarded", "S1: no profiles, no failsafes", transitHost, transit, nothingAsked},
	{
		"a forward policy decides on the way in", "S1: host-forward: each direction apart",
		transitHost + `GlobalNetworkPolicy a {selector: hep == "h1", applyOnForward: true, ingress: [{action: Deny, protocol: TCP}]}`, transit, "Deny: rule GlobalNetworkPolicy/a#0",
	},
	{
		"and another on the way out", "S1: host-forward: each direction apart",
		transitHost + `GlobalNetworkPolicy a {selector: hep == "h1", applyOnForward: true, types: [Egress]}`, transit, endOfDefault,
	},
	{
		"a failsafe port is not spared", "S1: Failsafe ports are honoured ...; not in forward",
		transitHost + `GlobalNetworkPolicy a {selector: hep == "h1", applyOnForward: true, types: [Ingress]}`, "203.0.113.9 > 203.0.113.10 tcp 22 via h1", endOfDefault,
	},
	{
		"pre-DNAT policy denies", "S1: pre-DNAT: host endpoints, inbound",
		transitHost + `GlobalNetworkPolicy a {selector: hep == "h1", preDNAT: true, applyOnForward: true, ingress: [{action: Deny}]}`, transit, "Deny: rule GlobalNetworkPolicy/a#0",
	},
	{
		"what pre-DNAT policy allows skips the way in, and not the way out", "S1: allow skips inbound host-endpoint normal/forward only",
		transitHost + `GlobalNetworkPolicy a {order: 1, selector: hep == "h1", preDNAT: true, applyOnForward: true, ingress: [{action: Allow}]}
GlobalNetworkPolicy b {order: 2, selector: hep == "h1", applyOnForward: true, types: [Ingress, Egress], egress: [{action: Deny, protocol: TCP}]}`, transit, "Deny: rule GlobalNetworkPolicy/b#0",
	},
	{
		"what untracked policy allows is asked on the way out alone", "S1: outbound host-endpoint forward policy still applies",
		transitHost + `GlobalNetworkPolicy a {order: 1, selector: hep == "h1", doNotTrack: true, applyOnForward: true, ingress: [{action: Allow}]}
GlobalNetworkPolicy b {order: 2, selector: hep == "h1", applyOnForward: true, types: [Ingress]}`, transit, "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"the host endpoint for all interfaces has no untracked stage", "S1: * host endpoints ignore doNotTrack",
		transitAll + `GlobalNetworkPolicy a {selector: hep == "h1", doNotTrack: true, applyOnForward: true, ingress: [{action: Deny}]}`, transit, nothingAsked,
	},
	{
		"the policy of another node's workload is not this node's", "S1: workload: to and from workload endpoints",
		transitHost + `GlobalNetworkPolicy a {selector: hep == "h1", applyOnForward: true, egress: [{action: Deny}]}`, "prod/db > 203.0.113.10 tcp 80 via h1", "Deny: rule GlobalNetworkPolicy/a#0",
	},
}

const (
	inbound  = "203.0.113.9 > host/h1 tcp 80"
	outbound = "host/h1 > 203.0.113.9 tcp 80"
	openHost = "HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, expectedIPs: [192.0.2.1], labels: {hep: h1}, profiles: [projectcalico-default-allow]}\n"
)

// hostCases are of packets to and from a host's own processes, by way of a host endpoint.
var hostCases = []stageCase{
	{"a host endpoint without policies and profiles drops", "S1: host-normal: drop", transitHost, inbound, "Deny: no profile"},
	{"also what goes out", "S1: host-normal: to or from a local process", transitHost, outbound, "Deny: no profile"},
	{"its profiles are asked after all tiers", "S1: normal policies by tier, then the endpoint's profiles", openHost, inbound, "Allow: profile rule Profile/projectcalico-default-allow#0"},
	{"a policy for workloads and hosts denies by the end of its tier", "S1: host-normal: normal policies by tier", openHost + `GlobalNetworkPolicy a {types: [Ingress]}`, inbound, endOfDefault},
	{"and in its direction alone", "S1: applies to this endpoint in this direction", openHost + `GlobalNetworkPolicy a {types: [Ingress]}`, outbound, "Allow: profile rule Profile/projectcalico-default-allow#0"},
	{"no policy closes SSH", "upstream: failsafeInboundHostPorts: tcp 22", openHost + `GlobalNetworkPolicy a {types: [Ingress]}`, "203.0.113.9 > host/h1 tcp 22", "Allow: failsafe port"},
	{"nor BGP on the way out", "upstream: failsafeOutboundHostPorts: tcp 179", openHost + `GlobalNetworkPolicy a {types: [Egress]}`, "host/h1 > 203.0.113.9 tcp 179", "Allow: failsafe port"},
	{"SSH on the way out is no failsafe", "upstream: failsafeOutboundHostPorts: no tcp 22", openHost + `GlobalNetworkPolicy a {types: [Egress]}`, "host/h1 > 203.0.113.9 tcp 22", endOfDefault},
	{"a setting of none leaves none", "upstream: an empty list", openHost + "FelixConfiguration default {failsafeInboundHostPorts: []}\n" + `GlobalNetworkPolicy a {types: [Ingress]}`, "203.0.113.9 > host/h1 tcp 22", endOfDefault},
	{"a failsafe of a net is for that net", "upstream: net of a failsafe", openHost + "FelixConfiguration default {failsafeInboundHostPorts: [{protocol: tcp, port: 80, net: 198.51.100.0/24}]}\n" + `GlobalNetworkPolicy a {types: [Ingress]}`, inbound, endOfDefault},
	{
		"a node's own failsafes take the place of all", "upstream: node configuration beats global",
		openHost + "FelixConfiguration default {failsafeInboundHostPorts: []}\nFelixConfiguration node.h1 {failsafeInboundHostPorts: [{protocol: tcp, port: 80}]}\n" + `GlobalNetworkPolicy a {types: [Ingress]}`, inbound, "Allow: failsafe port",
	},
	{"forward policies that are of hosts' processes, too, are asked", "upstream: applyOnForward: true applies to local traffic as well", openHost + `GlobalNetworkPolicy a {applyOnForward: true, ingress: [{action: Deny}]}`, inbound, "Deny: rule GlobalNetworkPolicy/a#0"},
	{
		"what untracked policy allows is not asked of normal policy", "S1: an allow skips conntrack and the inbound host-endpoint normal stage",
		openHost + `GlobalNetworkPolicy a {doNotTrack: true, applyOnForward: true, ingress: [{action: Allow}]}
GlobalNetworkPolicy b {ingress: [{action: Deny}]}`, inbound, "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"what untracked policy does not decide goes on", "S1: untracked: continue (no end-of-tier drop)",
		openHost + `GlobalNetworkPolicy a {doNotTrack: true, applyOnForward: true, ingress: [{action: Deny, protocol: UDP}]}`, inbound, "Allow: profile rule Profile/projectcalico-default-allow#0",
	},
	{
		"what pre-DNAT policy denies is denied", "S1: pre-DNAT", openHost + `GlobalNetworkPolicy a {preDNAT: true, applyOnForward: true, ingress: [{action: Deny}]}`, inbound, "Deny: rule GlobalNetworkPolicy/a#0",
	},
	{
		"pre-DNAT policy is not asked of what goes out", "S1: pre-DNAT: inbound", openHost + `GlobalNetworkPolicy a {preDNAT: true, applyOnForward: true, ingress: [{action: Deny}]}`, outbound,
		"Allow: profile rule Profile/projectcalico-default-allow#0",
	},
	{
		"a failsafe port is honoured before conntrack", "S1: Failsafe ports are honoured in untracked, pre-DNAT and host-normal",
		openHost + `GlobalNetworkPolicy a {doNotTrack: true, applyOnForward: true, ingress: [{action: Deny}]}`, "203.0.113.9 > host/h1 tcp 22", "Allow: failsafe port",
	},
	{
		"and the replies of one, too", "S1: both directions of the flow, since nothing is tracked",
		openHost + `GlobalNetworkPolicy a {doNotTrack: true, applyOnForward: true, egress: [{action: Deny}]}`, "host/h1 > 203.0.113.9 tcp 9999 from 22", "Allow: profile rule Profile/projectcalico-default-allow#0",
	},
}
