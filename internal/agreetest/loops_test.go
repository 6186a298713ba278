package agreetest

// What is forwarded to a prefix of services that BGP advertises, and was not translated before.
const ofLoops = "upstream: serviceLoopPrevention; it is on as Drop, and is about forwarded packets that kube-proxy did not translate"

const (
	advertised = `- {kind: BGPConfiguration, metadata: {name: default}, spec: {serviceClusterIPs: [{cidr: 203.0.113.0/24}], serviceExternalIPs: [{cidr: "2001:db8:ffff::/48"}]}}
`
	toFour, toSix = ">" + four + " tcp/80", ">" + six + " tcp/80"
)

var loopCases = []handCase{
	{"what goes to a prefix of services", ofLoops, allowAll, nil, []string{toFour, toSix, ">" + four + " udp/53", ">" + four + " icmp/8"}, advertised},
	{"of one family", ofLoops, allowAll, []string{toSix}, []string{toFour}, `- {kind: BGPConfiguration, metadata: {name: default}, spec: {serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}]}}`},
	{"rejected", ofLoops, allowAll, nil, []string{toFour, toSix}, advertised + `- {kind: FelixConfiguration, metadata: {name: default}, spec: {serviceLoopPrevention: Reject}}`},
	{"that settings let pass", ofLoops, allowAll, []string{toFour, toSix}, nil, advertised + `- {kind: FelixConfiguration, metadata: {name: default}, spec: {serviceLoopPrevention: Disabled}}`},
	{"policy stays what it is", ofLoops, `egress: {action: Allow, protocol: UDP}`, []string{">" + four + " udp/53"}, []string{toFour}, advertised + `- {kind: FelixConfiguration, metadata: {name: default}, spec: {serviceLoopPrevention: Disabled}}`},
	{"a node's own prefixes take the place of those of all", ofLoops, allowAll, []string{toFour}, []string{toSix}, advertised + `- {kind: BGPConfiguration, metadata: {name: node.h1}, spec: {serviceClusterIPs: [{cidr: 198.51.100.0/24}]}}`},
	{"the prefix of all addresses is none of services", ofLoops, allowAll, []string{toFour}, nil, `- {kind: BGPConfiguration, metadata: {name: default}, spec: {serviceClusterIPs: [{cidr: 0.0.0.0/0}]}}`},
	{"a workload that has such an address", ofLoops, `{action: Allow}`, []string{six + " tcp/80"}, []string{four + " tcp/80"}, `- {kind: BGPConfiguration, metadata: {name: default}, spec: {serviceExternalIPs: [{cidr: 10.65.0.1/32}]}}`},
}
