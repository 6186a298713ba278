package upstreamtest

import (
	"fmt"
	"strings"
)

// Endpoints, pools, nodes and BGP of upstream's, see Author.

func password(a *Author) any {
	return Object{"secretKeyRef": obj(req("name", name), req("key", pick("password", "a.b_C")), opt("optional", pointer))(a)}
}

var endpointPorts = some(0, 2, func(a *Author) any {
	return obj(req("name", func(a *Author) any { return fmt.Sprintf("port-%d", a.fresh()) }), req("protocol", withPorts), req("port", from(1, 65535)))(a)
})

// workloadPorts have upstream's fields also where they are empty: its type leaves none of these out.
var workloadPorts = some(0, 2, func(a *Author) any {
	return obj(req("name", func(a *Author) any { return fmt.Sprintf("port-%d", a.fresh()) }), req("protocol", withPorts), req("port", from(1, 65535)),
		req("hostPort", either(from(1, 65535), func(*Author) any { return 0 })), req("hostIP", either(addr, pick(""))))(a)
})

// completeWorkload gives an endpoint the name that its parts make, and NATs for addresses that it has.
func completeWorkload(a *Author, o Object) {
	s, m := spec(o), o["metadata"].(Object)
	n := a.fresh()
	id, part := fmt.Sprintf("web-%d", n), "pod"
	switch a.IntN(3) {
	case 0:
		s["orchestrator"] = "k8s"
	case 1:
		s["orchestrator"], part = "openstack", "workload"
	case 2:
		s["orchestrator"], part = "cni", "containerID"
		id = fmt.Sprintf("abc%d", n)
	}
	s[part] = id
	esc := func(v any) string { return strings.ReplaceAll(v.(string), "-", "--") }
	m["name"] = esc(s["node"]) + "-" + esc(s["orchestrator"]) + "-" + esc(id) + "-" + esc(s["endpoint"])
	m.without("generateName")
	if s.has("ipNATs") {
		s["ipNetworks"] = []any{"10.65.0.1/32", "fd65::1/128"}
		s["ipNATs"] = []any{Object{"internalIP": "10.65.0.1", "externalIP": addr4(a)}}
	}
	if l, ok := m["labels"].(dict); ok && a.IntN(2) == 0 {
		l["projectcalico.org/namespace"], l["projectcalico.org/orchestrator"] = m["namespace"].(string), s["orchestrator"].(string)
	}
}

func completePool(a *Author, o Object) {
	s := spec(o)
	n := a.fresh()
	s["cidr"] = fmt.Sprintf("10.%d.%d.0/24", 100+n/256, n%256)
	if a.IntN(3) == 0 {
		s["cidr"] = fmt.Sprintf("fd65:%x::/112", n)
		s.without("blockSize", "ipipMode")
	}
	if m := s["vxlanMode"]; m != nil && m != "Never" {
		s.without("ipipMode")
	}
	if uses, ok := s["allowedUses"].([]any); ok && len(uses) > 0 && uses[0] == "LoadBalancer" {
		s.without("vxlanMode", "ipipMode", "disableBGPExport", "nodeSelector", "namespaceSelector")
	}
}

func completeHost(a *Author, o Object) {
	if s := spec(o); !s.has("interfaceName") {
		s["expectedIPs"] = []any{addr(a)}
	}
}

func completePeer(a *Author, o Object) {
	s := spec(o)
	if s.has("node") {
		s.without("nodeSelector")
	}
	if s.has("peerSelector") {
		s.without("peerIP", "asNumber", "reachableBy")
	} else if !s.has("peerIP") {
		s["peerIP"] = addr(a)
	}
	if ip, _ := s["peerIP"].(string); s.has("reachableBy") && strings.Count(ip, ":") > 1 {
		s["reachableBy"] = "2001:db8::ffff"
	}
	if s["keepOriginalNextHop"] == true {
		s.without("nextHopMode")
	}
}

// completeBGP removes fields that only the configuration of all nodes may have.
func completeBGP(_ *Author, o Object) {
	s := spec(o)
	if s["nodeToNodeMeshEnabled"] == flag(false) {
		s.without("nodeMeshPassword", "nodeMeshMaxRestartTime")
	}
	if o["metadata"].(Object)["name"] != "default" && s != nil {
		s.without("nodeToNodeMeshEnabled", "asNumber", "serviceLoadBalancerIPs", "serviceExternalIPs", "serviceClusterIPs", "nodeMeshPassword", "nodeMeshMaxRestartTime",
			"programClusterRoutes", "localWorkloadPeeringIPV4", "localWorkloadPeeringIPV6", "ipv4NormalRoutePriority", "ipv6NormalRoutePriority")
	}
	if s.has("prefixAdvertisements") {
		s["communities"] = []any{Object{"name": "one", "value": "65000:1"}}
	} else {
		s.without("communities")
	}
}

func filterRule(nets, hops gen) gen {
	return func(a *Author) any {
		r := obj(req("action", pick("Accept", "Reject")), opt("source", pick("RemotePeers")), opt("peerType", pick("eBGP", "iBGP")),
			opt("communities", obj(req("values", some(1, 1, pick("65000:1", "1:2:3"))))), opt("asPathPrefix", some(0, 3, from(1, 65535))), opt("priority", from(1, 4096)))(a).(Object)
		if a.IntN(2) == 0 {
			r["cidr"], r["matchOperator"] = nets(a), pick("Equal", "NotEqual", "In", "NotIn")(a)
			if a.IntN(2) == 0 {
				r["prefixLength"] = obj(opt("min", from(8, 16)), opt("max", hops))(a)
			}
		}
		if r["action"] == "Accept" && a.IntN(2) == 0 {
			r["operations"] = some(1, 2, either(obj(req("addCommunity", obj(req("value", pick("65000:2"))))), obj(req("prependASPath", obj(req("prefix", some(1, 2, from(1, 65535)))))), obj(req("setPriority", obj(req("value", from(1, 4096)))))))(a)
		}
		return r
	}
}

func v4(a *Author) any { return fmt.Sprintf("10.%d.0.0/16", a.IntN(256)) }
func v6(a *Author) any { return fmt.Sprintf("fd00:%x::/32", a.IntN(60000)) }

// exporting is a rule that may name an interface.
func exporting(rule gen) gen {
	return func(a *Author) any {
		r := rule(a).(Object)
		if a.IntN(3) == 0 && !r.has("source") {
			r["interface"] = pick("eth0", "*.cali", "eth?")(a)
		}
		return r
	}
}

var (
	block    = obj(req("cidr", prefix))
	daemon   = obj(opt("state", pick("Ready", "NotReady")), opt("version", pick("2.0.12")), opt("routerID", addr4), opt("lastBootTime", text), opt("lastReconfigurationTime", text))
	bgpPeer  = obj(opt("peerIP", addr), opt("type", pick("NodeMesh", "NodePeer", "GlobalPeer")), opt("state", pick("Established", "Idle")), opt("since", text))
	bgpRoute = obj(opt("type", pick("FIB", "RIB")), opt("destination", prefix), opt("gateway", addr), opt("interface", pick("eth0")),
		opt("learnedFrom", obj(opt("sourceType", pick("Kernel", "BGPPeer")), opt("peerIP", addr))))
	counts = []field{req("numberEstablishedV4", from(0, 3)), req("numberNotEstablishedV4", from(0, 3)), req("numberEstablishedV6", from(0, 3)), req("numberNotEstablishedV6", from(0, 3))}
)

// Of a LiveMigration.
var (
	machineOf   = []field{req("hostname", pick("node-1", "n1")), req("orchestratorID", pick("openstack", "k8s")), req("workloadID", pick("openstack/vm-1", "prod/web"))}
	interfaceOf = append(machineOf[:len(machineOf):len(machineOf)], req("endpointID", name))
	// Where a machine goes is another endpoint than where it comes from, also where hosts are no part of the name.
	targetOf = append(interfaceOf[:len(interfaceOf):len(interfaceOf)], req("hostname", pick("n2")), req("endpointID", pick("there")))
)

var networkKinds = []Kind{
	{Name: "HostEndpoint", Plural: "hostendpoints", complete: completeHost, body: []field{req("spec", obj(req("node", name), opt("interfaceName", pick("eth0", "*", "bond0.7")),
		opt("expectedIPs", some(0, 1, addr)), opt("profiles", distinct(0, "projectcalico-default-allow", "p1")), opt("ports", endpointPorts)))}},
	{Name: "WorkloadEndpoint", Plural: "workloadendpoints", Namespaced: true, named: pick(""), complete: completeWorkload, body: []field{req("spec", obj(
		req("node", pick("node-1", "n1")), req("endpoint", pick("eth0")), req("interfaceName", pick("cali123", "tap1")), opt("serviceAccountName", name),
		opt("ipNetworks", distinct(0, "10.65.0.1/32", "fd65::1/128")), opt("ipNATs", none), opt("ipv4Gateway", addr4), opt("ipv6Gateway", addr6), opt("profiles", distinct(0, "kns.prod", "ksa.prod.web")),
		opt("mac", mac), opt("ports", workloadPorts), opt("allowSpoofedSourcePrefixes", some(0, 2, prefix))))}},
	{Name: "LiveMigration", Plural: "livemigrations", Namespaced: true, body: []field{req("spec", obj(
		opt("source", either(obj(req("workload", obj(machineOf...))), obj(req("workloadEndpoint", obj(interfaceOf...))))),
		req("target", either(obj(req("selector", selector)), obj(req("workloadEndpoint", obj(targetOf...)))))))}},
	{Name: "IPPool", Plural: "ippools", complete: completePool, body: []field{req("spec", obj(req("cidr", none), opt("vxlanMode", pick("Never", "Always", "CrossSubnet")), opt("ipipMode", pick("Never", "Always", "CrossSubnet")),
		opt("natOutgoing", yesno), opt("disabled", yesno), opt("disableBGPExport", yesno), opt("blockSize", from(24, 30)), opt("nodeSelector", selector), opt("namespaceSelector", selector),
		opt("allowedUses", either(distinct(0, "Workload", "Tunnel"), some(1, 1, pick("LoadBalancer")))), opt("assignmentMode", pick("Automatic", "Manual")))), opt("status", obj(opt("conditions", conditions)))}},
	{Name: "IPReservation", Plural: "ipreservations", body: []field{req("spec", obj(opt("reservedCIDRs", some(0, 3, prefix))))}},
	{
		Name: "IPAMConfiguration", Plural: "ipamconfigurations", One: true, body: []field{req("spec", obj(req("strictAffinity", func(*Author) any { return true }), req("autoAllocateBlocks", yesno), opt("maxBlocksPerHost", from(1, 20)), opt("kubeVirtVMAddressPersistence", pick("Enabled", "Disabled"))))},
		complete: func(_ *Author, o Object) {
			o["metadata"].(Object).without("labels", "annotations", "finalizers", "ownerReferences")
		},
	},
	{Name: "Node", Plural: "nodes", body: []field{
		req("spec", obj(
			opt("bgp", obj(req("ipv4Address", pick("192.0.2.1/24", "192.0.2.1")), opt("ipv6Address", pick("2001:db8::1/64")), opt("asNumber", asNumber), opt("ipv4IPIPTunnelAddr", addr4), opt("routeReflectorClusterID", addr4))),
			opt("ipv4VXLANTunnelAddr", addr4), opt("vxlanTunnelMACAddr", mac), opt("ipv6VXLANTunnelAddr", addr6), opt("vxlanTunnelMACAddrV6", mac),
			opt("orchRefs", some(0, 2, obj(opt("nodeName", name), req("orchestrator", pick("k8s"))))), opt("wireguard", obj(opt("interfaceIPv4Address", addr4), opt("interfaceIPv6Address", addr6))),
			opt("addresses", some(0, 2, obj(req("address", either(addr, prefix)), opt("type", pick("CalicoNodeIP", "InternalIP", "ExternalIP"))))),
			opt("interfaces", some(0, 2, obj(req("name", pick("eth0")), opt("addresses", some(0, 2, addr))))))),
		opt("status", either(none, obj(opt("wireguardPublicKey", wgKey), opt("wireguardPublicKeyV6", wgKey), opt("podCIDRs", some(0, 2, prefix))))),
	}},
	{Name: "BGPConfiguration", Plural: "bgpconfigurations", complete: completeBGP, named: either(pick("default"), func(a *Author) any { return fmt.Sprintf("%s%d", pick("node.n", "site-")(a), a.fresh()) }), body: []field{req("spec", obj(
		opt("logSeverityScreen", anyCase("Trace", "Debug", "Info", "Warning", "Error", "Fatal")), opt("nodeToNodeMeshEnabled", pointer), opt("asNumber", asNumber),
		opt("serviceLoadBalancerIPs", some(0, 2, block)), opt("serviceExternalIPs", some(0, 2, block)), opt("serviceClusterIPs", some(0, 2, block)),
		opt("communities", none), opt("prefixAdvertisements", some(1, 2, obj(req("cidr", prefix), req("communities", some(1, 2, pick("one", "65000:7")))))),
		opt("listenPort", from(1, 65535)), opt("nodeMeshPassword", password), opt("nodeMeshMaxRestartTime", seconds), opt("bindMode", pick("None", "NodeIP")),
		opt("ignoredInterfaces", distinct(0, "eth9", "docker*")), opt("serviceLoadBalancerAggregation", pick("Enabled", "Disabled")), opt("programClusterRoutes", pick("Enabled", "Disabled", "EnabledNoEncapOnly", "EnabledIPIPOnly")),
		opt("localWorkloadPeeringIPV4", addr4), opt("localWorkloadPeeringIPV6", addr6), opt("ipv4NormalRoutePriority", from(1, 4096)), opt("ipv6NormalRoutePriority", from(1, 4096))))}},
	{Name: "BGPPeer", Plural: "bgppeers", complete: completePeer, body: []field{req("spec", obj(opt("node", name), opt("nodeSelector", selector), opt("peerIP", either(addr, pick("192.0.2.9:1790", "[2001:db8::9]:179"))),
		opt("asNumber", asNumber), opt("localASNumber", asNumber), opt("peerSelector", selector), opt("keepOriginalNextHop", yesno), opt("nextHopMode", pick("Auto", "Self", "Keep")),
		opt("password", password), opt("sourceAddress", pick("UseNodeIP", "None")), opt("maxRestartTime", seconds), opt("keepaliveTime", pick("10s", "1m0s")), opt("numAllowedLocalASNumbers", from(0, 9)),
		opt("ttlSecurity", from(1, 255)), opt("filters", distinct(0, "f1", "f2")), opt("reversePeering", pick("Auto", "Manual")), opt("reachableBy", pick("192.0.2.254"))))}},
	{Name: "BGPFilter", Plural: "bgpfilters", body: []field{req("spec", obj(opt("exportV4", some(0, 2, exporting(filterRule(v4, from(16, 32))))), opt("importV4", some(0, 2, filterRule(v4, from(16, 32)))),
		opt("exportV6", some(0, 2, exporting(filterRule(v6, from(32, 128))))), opt("importV6", some(0, 2, filterRule(v6, from(32, 128))))))}},
	{Name: "CalicoNodeStatus", Plural: "caliconodestatuses", body: []field{
		req("spec", obj(req("node", name), req("classes", distinct(1, "Agent", "BGP", "Routes")), req("updatePeriodSeconds", from(0, 86400)))),
		opt("status", obj(req("lastUpdated", either(none, pick("2024-05-06T07:08:09Z"))), opt("agent", obj(opt("birdV4", daemon), opt("birdV6", daemon))),
			opt("bgp", obj(append(counts[:len(counts):len(counts)], opt("peersV4", some(0, 2, bgpPeer)), opt("peersV6", some(0, 2, bgpPeer)))...)),
			opt("routes", obj(opt("routesV4", some(0, 2, bgpRoute)), opt("routesV6", some(0, 2, bgpRoute)))))),
	}},
}
