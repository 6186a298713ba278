package world

const (
	openStack = "FelixConfiguration default {interfacePrefix: \"tap,cali\"}\n"
	asksDNS   = "prod/web > 192.0.2.1 udp 53"
	dnsPasses = "Allow: workloads of OpenStack always reach DNS of their host"
	known     = "upstream, felix/config/config_params.go, OpenstackActive"
	upstream  = "upstream, felix/rules/static.go and static_test.go: from workloads to the host UDP to port 53, before the workload's policy, if OpenStackSpecialCasesEnabled"
)

// dnsCases are of workloads that ask their host for names. Hosts of OpenStack are those whose interfacePrefix has tap, or with another server of metadata than upstream has without settings.
var dnsCases = []stageCase{
	{"the workload's policy does not deny it", upstream, openStack + webIsShut, asksDNS, dnsPasses},
	{"nor is the setting for what goes to the host asked", upstream, openStack + "FelixConfiguration node.h1 {defaultEndpointToHostAction: Drop}", asksDNS, dnsPasses},
	{"of IPv6", upstream, openStack + webIsShut, "prod/web > 2001:db8::1 udp6 53", dnsPasses},
	{"TCP", upstream, openStack + webIsShut, "prod/web > 192.0.2.1 tcp 53", endOfDefault},
	{"another port", upstream, openStack + webIsShut, "prod/web > 192.0.2.1 udp 54", endOfDefault},
	{"of another host", upstream, openStack + webIsShut, "prod/web > 192.0.2.2 udp 53", endOfDefault},
	{"without OpenStack's names", upstream, webIsShut, asksDNS, endOfDefault},
	{"without them, with a server of metadata", known, webIsShut + "FelixConfiguration default {metadataAddr: 203.0.113.7}", asksDNS, dnsPasses},
	{"with another port of it alone", known, webIsShut + "FelixConfiguration default {metadataPort: 81}", asksDNS, dnsPasses},
	{"with what is upstream's default", known, webIsShut + "FelixConfiguration default {metadataAddr: 127.0.0.1, metadataPort: 8775}", asksDNS, endOfDefault},
	{"with none", known, webIsShut + "FelixConfiguration default {metadataAddr: None}", asksDNS, endOfDefault},
	{"of a name that begins with OpenStack's", upstream, "FelixConfiguration default {interfacePrefix: \"tapX,cali\"}\n" + webIsShut, asksDNS, endOfDefault},
	{"without them on this node", upstream, openStack + "FelixConfiguration node.h1 {interfacePrefix: cali}\n" + webIsShut, asksDNS, endOfDefault},
	{"on this node alone", upstream, "FelixConfiguration node.h1 {interfacePrefix: \"cali,tap\"}\n" + webIsShut, asksDNS, dnsPasses},
	{"what settings drop as a tunnel's", "S1: encapsulated packets are dropped before policy", "FelixConfiguration default {interfacePrefix: \"tap,cali\", vxlanPort: 53}", asksDNS, "Deny: encapsulation from a workload"},
	{
		"policy before DNAT denies it", "upstream, felix/rules/static.go: table mangle has no such rule",
		openStack + "HostEndpoint all {node: h1, interfaceName: \"*\", labels: {hep: all}}\nGlobalNetworkPolicy d {selector: hep == \"all\", preDNAT: true, applyOnForward: true, types: [Ingress], ingress: [{action: Deny, protocol: UDP, destination: {ports: [53]}}]}",
		asksDNS, "Deny: rule GlobalNetworkPolicy/d#0",
	},
}
