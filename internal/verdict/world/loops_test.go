package world

const (
	clusterIPs = "BGPConfiguration default {serviceClusterIPs: [{cidr: 10.96.0.0/12}, {cidr: 0.0.0.0/0}], serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}]}\n"
	asksNobody = "prod/web > 10.96.0.9 udp 53"
	loopEnds   = "Deny: setting serviceLoopPrevention"
)

// loopCases are of packets to addresses of services.
var loopCases = []stageCase{
	{"no service is advertised", "PARITY: FLX-67", "", asksNobody, profileAllows},
	{"no service has the address", "PARITY: FLX-67", clusterIPs, asksNobody, loopEnds},
	{"of load balancers", "PARITY: FLX-67", clusterIPs, "prod/web > 203.0.113.9 udp 53", loopEnds},
	{"an address of none, and the prefix of all is none of services", "PARITY: FLX-67", clusterIPs, "prod/web > 198.51.100.9 udp 53", profileAllows},
	{"rejected", "PARITY: FLX-67", clusterIPs + "FelixConfiguration default {serviceLoopPrevention: reject}", asksNobody, loopEnds},
	{"settings let it pass", "PARITY: FLX-67", clusterIPs + "FelixConfiguration default {serviceLoopPrevention: disabled}", asksNobody, profileAllows},
	{"on this node alone", "PARITY: FLX-67", clusterIPs + "FelixConfiguration node.h1 {serviceLoopPrevention: Disabled}", asksNobody, profileAllows},
	{"not on another", "PARITY: FLX-67", clusterIPs + "FelixConfiguration node.h2 {serviceLoopPrevention: Disabled}", asksNobody, loopEnds},
	{"the node advertises others", "PARITY: FLX-67", clusterIPs + "BGPConfiguration node.h1 {serviceClusterIPs: [{cidr: 10.112.0.0/12}]}", asksNobody, profileAllows},
	{"policy comes first", "PARITY: FLX-67", clusterIPs + "NetworkPolicy prod/shut {types: [Egress]}", asksNobody, endOfDefault},
	{"the host itself is not asked", "PARITY: FLX-67", clusterIPs, "host/h1 > 10.96.0.9 udp 53", "Allow: no policy of ours is on this way"},
	{"through a host", "PARITY: FLX-67", clusterIPs, "198.51.100.9 > 10.96.0.9 udp 53 via h1", loopEnds},
	{"through a host that advertises none", "PARITY: FLX-67", "BGPConfiguration node.h2 {serviceClusterIPs: [{cidr: 10.96.0.0/12}]}", "198.51.100.9 > 10.96.0.9 udp 53 via h1", "Allow: no policy of ours is on this way"},
	{"a workload elsewhere that has such an address", "PARITY: FLX-67", "BGPConfiguration node.h2 {serviceExternalIPs: [{cidr: 10.0.0.2/32}]}", "prod/web > prod/db tcp 80", loopEnds},
	{"the host's own workload that has such an address", "PARITY: FLX-67", "BGPConfiguration node.h2 {serviceExternalIPs: [{cidr: 10.0.0.2/32}]}", "host/h2 > prod/db tcp 80", "Allow: a host always reaches its own workloads"},
	{
		"a service of Kubernetes has it", "PARITY: FLX-67", clusterIPs + `KubernetesService prod/db {type: ClusterIP, clusterIPs: [10.96.0.9]}`,
		asksNobody, profileAllows,
	},
}
