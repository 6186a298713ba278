package crds

import (
	"reflect"

	"github.com/twillnet/twill/api"
)

// bgpLimits are those of BGP's resources.
var bgpLimits = limits{
	reflect.TypeFor[api.ASNumber](): func(n node) { n.within(0, 1<<32-1).like(asNumber) },
	reflect.TypeFor[api.BGPConfiguration](): func(n node) {
		const elsewhere = "self.metadata.name == 'default' || !has(self.spec) || !"
		const message = `is possible in "default" only`
		for _, f := range []string{"nodeToNodeMeshEnabled", "asNumber", "nodeMeshPassword", "ipv4NormalRoutePriority", "ipv6NormalRoutePriority"} {
			n.mustStay(elsewhere+"has(self.spec."+f+")", message, "spec", f)
		}
		for _, f := range []string{"programClusterRoutes", "localWorkloadPeeringIPV4", "localWorkloadPeeringIPV6"} {
			n.mustStay(elsewhere+present("spec."+f, "self.spec."+f+" != ''"), message, "spec", f)
		}
		n.mustStay(elsewhere+present("spec.nodeMeshMaxRestartTime", "self.spec.nodeMeshMaxRestartTime != ''"), message, "spec", "nodeMeshMaxRestartTime")
		n.mustStay(elsewhere+"("+listed("spec.communities")+" && !"+listed("spec.prefixAdvertisements")+")", message, "spec", "communities")
	},
	reflect.TypeFor[api.BGPConfigurationSpec](): func(n node) {
		n.field("logSeverityScreen").like(anyCase("Trace", "Debug", "Info", "Warning", "Error", "Fatal") + "?")
		n.field("asNumber").within(1, 1<<32-1)
		n.field("serviceLoadBalancerAggregation").perhaps(api.Enabled, api.Disabled)
		n.field("programClusterRoutes").perhaps(api.Enabled, api.Disabled, api.EnabledNoEncapOnly, api.EnabledIPIPOnly)
		n.field("localWorkloadPeeringIPV4").address().orEmpty().longest(64).like(`[0-9.]*`)
		n.field("localWorkloadPeeringIPV6").address().orEmpty().longest(64).like(`([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)?`)
		n.each(func(f node) {
			f.must("!isIP(self) || ip(self).isGlobalUnicast() || ip(self).isLinkLocalUnicast()", "is an address that no workload can call")
		}, "localWorkloadPeeringIPV4", "localWorkloadPeeringIPV6")
		n.field("bindMode").perhaps("None", "NodeIP")
		n.each(func(f node) { f.within(1, api.MaxBGPRoutePriority) }, "ipv4NormalRoutePriority", "ipv6NormalRoutePriority")
		n.field("ignoredInterfaces").distinct().items().like(`\*|` + interfaceName + `\*?`)
		wholeSeconds(n.field("nodeMeshMaxRestartTime"), "4095s")
	},
	reflect.TypeFor[api.BGPServiceBlock](): func(n node) { n.require("cidr").field("cidr").prefix() },
	reflect.TypeFor[api.Community](): func(n node) {
		n.require("name", "value").field("name").like(dnsName).longest(longestName)
		n.field("value").like(community)
	},
	reflect.TypeFor[api.PrefixAdvertisement](): func(n node) {
		n.require("cidr", "communities").field("cidr").prefix()
		n.field("communities").notEmpty()
	},
	reflect.TypeFor[api.BGPPassword](): func(n node) { n.require("secretKeyRef") },
	reflect.TypeFor[api.SecretKeyRef](): func(n node) {
		n.require("name", "key").field("name").like(dnsName).longest(longestName)
		n.field("key").like(fileName)
	},
	reflect.TypeFor[api.BGPPeerSpec]():   limitPeer,
	reflect.TypeFor[api.BGPFilterSpec](): limitFilter,
	reflect.TypeFor[api.BGPFilterRule](): func(n node) {
		n.require("action").field("action").one("Accept", "Reject")
		n.field("source").perhaps("RemotePeers")
		n.field("peerType").perhaps("eBGP", "iBGP")
		n.field("matchOperator").perhaps("Equal", "NotEqual", "In", "NotIn")
		n.field("asPathPrefix").items().within(1, 1<<32-1)
		n.field("priority").within(1, api.MaxBGPRoutePriority)
		n.field("operations").most(10)
		const cidr, operator = "(has(self.cidr) && self.cidr != '')", "(has(self.matchOperator) && self.matchOperator != '')"
		n.must("!"+cidr+" || "+operator, "is missing, although there is a cidr", "matchOperator")
		n.must(cidr+" || !"+operator+" && !has(self.prefixLength)", "is missing, although there is a matchOperator or prefixLength", "cidr")
		n.must("self.action == 'Accept' || !"+listed("operations"), "are possible with action Accept only", "operations")
	},
	reflect.TypeFor[api.BGPPrefixLength](): func(n node) {
		n.must("!has(self.min) || !has(self.max) || self.min <= self.max", "want the lower first")
	},
	reflect.TypeFor[api.BGPCommunityMatch](): func(n node) {
		n.require("values").field("values").notEmpty().most(1).items().like(community)
	},
	reflect.TypeFor[api.BGPFilterOperation](): func(n node) {
		n.must("(has(self.addCommunity) ? 1 : 0) + (has(self.prependASPath) ? 1 : 0) + (has(self.setPriority) ? 1 : 0) == 1", "want one of addCommunity, prependASPath and setPriority")
	},
	reflect.TypeFor[api.BGPSetPriority]():  func(n node) { n.require("value").field("value").within(1, api.MaxBGPRoutePriority) },
	reflect.TypeFor[api.BGPAddCommunity](): func(n node) { n.require("value").field("value").like(community) },
	reflect.TypeFor[api.BGPPrependASPath](): func(n node) {
		n.require("prefix").field("prefix").notEmpty().items().within(1, 1<<32-1)
	},
}

// wholeSeconds is that a text is a duration of whole seconds, from one second to the most, or empty.
func wholeSeconds(n node, most string) {
	n.longest(64).must("self == '' || duration(self) >= duration('1s') && duration(self) <= duration('"+most+"') && duration(self).getMilliseconds() % 1000 == 0",
		"want whole seconds, 1s to "+most)
}

func limitPeer(n node) {
	n.each(func(f node) { f.longest(longestSelector) }, "nodeSelector", "peerSelector", "localWorkloadSelector")
	n.field("peerIP").address().or(map[string]any{"pattern": `^([0-9.]+|\[[0-9A-Fa-f:.]+\]):` + portNumber + `$`}).orEmpty().longest(64)
	n.field("reachableBy").address().orEmpty().longest(64)
	n.field("localASNumber").within(1, 1<<32-1)
	n.field("nextHopMode").perhaps("Auto", "Self", "Keep")
	n.field("sourceAddress").perhaps("UseNodeIP", "None")
	n.field("reversePeering").perhaps("Auto", "Manual")
	n.field("numAllowedLocalASNumbers").within(0, 255)
	n.field("ttlSecurity").within(1, 255)
	n.field("node").like(group(dnsName) + `?`).longest(longestName)
	n.field("filters").distinct().items().like(dnsName).longest(longestName)
	wholeSeconds(n.field("maxRestartTime"), "4095s")
	wholeSeconds(n.field("keepaliveTime"), "21845s")

	ip, selector, by, workloads := given("peerIP", "''"), given("peerSelector", "''"), given("reachableBy", "''"), given("localWorkloadSelector", "''")
	n.must("!"+given("node", "''")+" || !"+given("nodeSelector", "''"), "and spec.node cannot both be set", "nodeSelector")
	n.must("!"+selector+" || !"+ip+" && !"+given("asNumber", "0"), "cannot be set beside spec.peerIP or spec.asNumber: the nodes that it selects say both", "peerSelector")
	n.must("!"+workloads+" || !"+ip+" && !"+selector, "cannot be set beside spec.peerIP or spec.peerSelector: the peers are workloads then", "localWorkloadSelector")
	n.must("!"+workloads+" || "+given("asNumber", "0"), "is missing: beside spec.localWorkloadSelector it is that of the workloads", "asNumber")
	n.must(workloads+" || "+selector+" || "+ip, "is missing, and so is spec.peerSelector: give one of them", "peerIP")
	n.must("!"+present("keepOriginalNextHop", "self.keepOriginalNextHop")+" || !"+given("nextHopMode", "''"), "and spec.nextHopMode cannot both be set: nextHopMode is the newer", "keepOriginalNextHop")
	n.must("!"+by+" || "+ip, "is possible beside spec.peerIP only: it is the way to that peer", "reachableBy")
	n.must("!"+by+" || !"+ip+" || self.reachableBy != self.peerIP && !self.peerIP.startsWith(self.reachableBy + ':') && self.reachableBy.contains(':') == (size(self.peerIP.split(':')) > 2)",
		"is no gateway to the peer: want another address of its family", "reachableBy")
}

// limitFilter has what rules may say by their list.
func limitFilter(n node) {
	for _, l := range []struct {
		list, family string
		longest      int64
		export       bool
	}{
		{"exportV4", `[^:]*`, 32, true}, {"importV4", `[^:]*`, 32, false}, {"exportV6", `.*:.*|`, 128, true}, {"importV6", `.*:.*|`, 128, false},
	} {
		rule := n.field(l.list).items()
		rule.field("cidr").prefix().orEmpty().like(l.family)
		rule.field("prefixLength").each(func(f node) { f.within(0, l.longest) }, "min", "max")
		if l.export {
			rule.field("interface").like(`([A-Za-z0-9_.*?-]{1,15})?`)
			rule.must("!"+given("source", "''")+" || !"+given("interface", "''"), "is not possible beside source: it is that of a route of the node's own", "interface")
		} else {
			rule.field("interface").longest(0) // it is looked up after the route was accepted
		}
	}
}
