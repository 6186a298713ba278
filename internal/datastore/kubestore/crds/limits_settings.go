package crds

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/twillnet/twill/api"
)

// settingLimits are those of settings.
var settingLimits = limits{
	reflect.TypeFor[api.FelixConfiguration](): func(n node) {
		const own = "(self.metadata.name == 'default' || self.metadata.name.startsWith('node.'))"
		selects := given("spec.nodeSelector", "''")
		n.mustStay("!"+own+" || !"+selects, "is not possible in an object whose name says where it holds", "spec", "nodeSelector")
		n.mustStay(own+" || "+selects, `spec.nodeSelector is missing: only "default" and "node.<name>" need none`)
	},
	reflect.TypeFor[api.FelixConfigurationSpec](): limitFelix,
	reflect.TypeFor[api.HealthTimeout](): func(n node) {
		n.require("name", "timeout").field("name").like(`[A-Za-z0-9_ -]+`)
		n.field("timeout").like(goDuration).longest(64)
	},
	reflect.TypeFor[api.ProtoPort](): func(n node) {
		n.field("protocol").like(anyCase("TCP", "UDP", "SCTP") + `?`)
		n.field("net").prefix()
	},
	reflect.TypeFor[api.KubeControllersConfiguration](): only("default"),
	reflect.TypeFor[api.KubeControllersSpec](): func(n node) {
		n.field("logSeverityScreen").perhaps("None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic")
		n.field("healthChecks").perhaps(api.Enabled, api.Disabled)
		n.field("etcdV3CompactionPeriod").like(goDuration).longest(64)
		n.each(func(f node) { f.within(0, 65535) }, "prometheusMetricsPort", "debugProfilePort")
	},
	reflect.TypeFor[api.PeriodicController](): func(n node) { n.field("reconcilerPeriod").like(goDuration).longest(64) },
	reflect.TypeFor[api.NodeController](): func(n node) {
		n.each(func(f node) { f.like(goDuration).longest(64) }, "reconcilerPeriod", "leakGracePeriod")
		n.field("syncLabels").perhaps(api.Enabled, api.Disabled)
	},
	reflect.TypeFor[api.LoadBalancerController](): func(n node) { n.field("assignIPs").perhaps("AllServices", "RequestedServicesOnly") },
	reflect.TypeFor[api.PolicyMigration]():        func(n node) { n.field("enabled").perhaps(api.Enabled, api.Disabled) },
	reflect.TypeFor[api.AutoHostEndpoints](): func(n node) {
		n.each(func(f node) { f.perhaps(api.Enabled, api.Disabled) }, "autoCreate", "createDefaultHostEndpoint")
		n.must("!has(self.templates) || "+present("createDefaultHostEndpoint", "self.createDefaultHostEndpoint == 'Disabled'")+
			" || self.templates.all(t, has(t.generateName) && t.generateName != '' || has(t.interfacePattern) && t.interfacePattern != '')",
			"one has no generateName: so the host endpoint has the name of the default one; give one, or set createDefaultHostEndpoint to Disabled", "templates")
	},
	reflect.TypeFor[api.HostEndpointTemplate](): func(n node) {
		n.field("generateName").like(group(dnsName) + `?`).longest(longestName)
		n.field("nodeSelector").longest(longestSelector)
		n.field("labels").values().like(labelValue).longest(longestLabel)
		n.field("interfaceCIDRs").distinct().items().formats("cidr")
		n.must(listed("interfaceCIDRs")+" || "+given("interfacePattern", "''"), "is missing, and so is interfacePattern: give one of them, or it is for no address", "interfaceCIDRs")
	},
}

// limitTables holds ranges of tables of routes.
func limitTables(n node) {
	ordered := func(r node, last int64) {
		r.field("min").within(1, last)
		r.field("max").within(1, last)
		r.must("self.min <= self.max", "want the smaller number first")
	}
	ordered(n.field("routeTableRange"), 250)
	n.field("routeTableRanges").most(api.MaxTableRanges)
	ordered(n.field("routeTableRanges").items(), api.MaxTable)
	n.field("routeTableRanges").must(fmt.Sprintf("self.map(r, r.max - r.min + 1).sum() <= %d", api.MaxTables), fmt.Sprintf("want %d tables at most", api.MaxTables))
	n.must("!has(self.routeTableRange) || !has(self.routeTableRanges)", "is the older form of routeTableRanges, which is there, too: delete it", "routeTableRange")
}

// limitFelix holds words in any case, as upstream's agents read them.
func limitFelix(n node) {
	n.field("nodeSelector").longest(longestSelector)
	for f, words := range map[string][]string{
		"defaultEndpointToHostAction": {"Drop", "Return", "Accept"}, "chainInsertMode": {"Insert", "Append"},
		"iptablesFilterAllowAction": {"Accept", "Return"}, "iptablesMangleAllowAction": {"Accept", "Return"}, "iptablesFilterDenyAction": {"Drop", "Reject"},
		"ipForwarding": {api.Enabled, api.Disabled}, "floatingIPs": {api.Enabled, api.Disabled}, "workloadSourceSpoofing": {"Disabled", "Any"}, "serviceLoopPrevention": {"Drop", "Reject", "Disabled"}, "localSubnetL2Reachability": {"Disabled", "PodsAndLoadBalancers"},
		"nftablesMode": {"Enabled", "Disabled", "Auto"}, "iptablesBackend": {"Auto", "NFT", "Legacy"}, "natOutgoingExclusions": {"IPPoolsOnly", "IPPoolsAndHostIPs"},
		"logSeverityScreen": levels, "logSeverityFile": levels, "logSeveritySys": levels,
	} {
		n.field(f).like(anyCase(words...) + `?`)
	}
	n.each(func(f node) { f.like(goDuration).longest(64) },
		"reportingInterval", "reportingTTL", "endpointReportingDelay", "nftablesRefreshInterval", "iptablesRefreshInterval", "routeRefreshInterval", "interfaceRefreshInterval", "ipsetsRefreshInterval", "wireguardKeepAlive", "liveMigrationRouteConvergenceTime", "localSubnetL2ReachabilityRefreshInterval", "usageReportingInitialDelay", "usageReportingInterval")
	const names = interfaceName + `(,` + interfaceName + `)*`
	n.field("interfacePrefix").like(group(names) + `?`)
	n.field("iptablesNATOutgoingInterfaceFilter").like(group(names) + `?\+?`)
	n.field("natOutgoingAddress").formats("ipv4").orEmpty()
	n.field("metadataAddr").like(`(?i:none)?|([1-9][0-9]?|1[0-9]{2}|2[01][0-9]|22[0-3])(\.(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])){3}`)
	n.field("metadataPort").within(1, 65535)
	n.field("natPortRange").like(portRange)
	n.field("logActionRateLimit").like(`(?i:none)?|0*` + group(from1(1<<32-1)) + `/` + anyCase("second", "minute", "hour", "day"))
	n.each(func(f node) { f.like(`(?i:none)?|/.*`) }, "logFilePath", "debugMemoryProfilePath", "endpointStatusPathPrefix", "policySyncPathPrefix")
	n.field("logActionRateLimitBurst").within(1, 9999)
	n.each(func(f node) { f.within(0, 65535) }, "healthPort", "prometheusMetricsPort", "debugPort")
	n.field("deviceRouteProtocol").within(1, api.MaxRouteProtocol)
	taken := strings.Join(strings.Fields(fmt.Sprint(api.TakenRouteProtocols)), ", ")
	n.field("deviceRouteProtocol").must("!(self in "+taken+")", "want a number that is not of routes that others make: not one of "+taken)
	n.field("deviceRouteSourceAddress").formats("ipv4").orEmpty()
	n.field("deviceRouteSourceAddressIPv6").formats("ipv6").orEmpty()
	n.field("externalNodesList").items().formats("ipv4", "ipv6", "cidr")
	n.field("programClusterRoutes").like(anyCase(api.EnabledIPIPOnly, api.Enabled, api.Disabled, api.EnabledNoEncapOnly) + `?`)
	n.each(func(f node) { f.within(1, api.MaxRoutePriority) }, "ipv4NormalRoutePriority", "ipv6NormalRoutePriority", "ipv4ElevatedRoutePriority", "ipv6ElevatedRoutePriority")
	n.field("vxlanPort").within(1, 65535)
	n.field("vxlanVNI").within(1, 1<<24-1)
	n.each(func(f node) { f.within(1, 65535) }, "wireguardListeningPort", "wireguardListeningPortV6")
	n.field("wireguardRoutingRulePriority").within(1, api.MaxRulePriority)
	limitTables(n)
	n.each(func(f node) { f.like(`([a-zA-Z0-9_-][a-zA-Z0-9_.-]{0,14})?`) }, "wireguardInterfaceName", "wireguardInterfaceNameV6")
	for f, low := range map[string]int{"vxlanMTU": api.MinMTU, "ipipMTU": api.MinMTU, "vxlanMTUV6": api.MinMTUV6, "wireguardMTU": api.MinMTU, "wireguardMTUV6": api.MinMTUV6} {
		n.field(f).within(0, api.MaxMTU)
		n.field(f).must(fmt.Sprintf("self == 0 || self >= %d", low), fmt.Sprintf("want 0, or %d to %d", low, api.MaxMTU))
	}
	n.each(func(f node) { f["minimum"] = -1 }, "goGCThreshold", "goMemoryLimitMB", "goMaxProcs")
	n.field("prometheusMetricsHost").like(`[A-Za-z0-9_.:+-]*`).longest(64)
	n.field("openstackRegion").like(group(dnsLabel) + `?`).longest(longestLabel - len("openstack-region-"))
	var bits []string
	for b := range 32 {
		bits = append(bits, fmt.Sprintf("self / %d %% 2", int64(1)<<b))
	}
	few := fmt.Sprintf("want a mask with %d bits or more, such as %d", api.LeastMarks, api.MarkMask)
	for _, f := range []string{"nftablesMarkMask", "iptablesMarkMask"} {
		n.field(f).must(fmt.Sprintf("%s >= %d", strings.Join(bits, " + "), api.LeastMarks), few)
	}
}

var levels = []string{"Trace", "Debug", "Info", "Warning", "Error", "Fatal", "None"}
