package upstreamtest

import (
	"fmt"
	"slices"
)

// The settings of upstream's agent and controllers, see Author.

var files = pick("/etc/a.pem", "/var/log/calico/felix.log")

var failsafes = some(0, 3, obj(req("port", from(1, 65535)), opt("protocol", pick("tcp", "udp", "TCP")), opt("net", prefix)))

// felixSettings are those of which both agents do the same.
var felixSettings = slices.Concat(
	fieldsOf("routeRefreshInterval interfaceRefreshInterval ipsetsRefreshInterval nftablesRefreshInterval iptablesRefreshInterval reportingInterval reportingTTL endpointReportingDelay wireguardKeepAlive liveMigrationRouteConvergenceTime localSubnetL2ReachabilityRefreshInterval usageReportingInitialDelay usageReportingInterval", period),
	fieldsOf("ipv6Support disableConntrackInvalidCheck endpointReportingEnabled healthEnabled prometheusMetricsEnabled prometheusGoMetricsEnabled "+
		"prometheusProcessMetricsEnabled prometheusWireGuardMetricsEnabled wireguardThreadingEnabled wireguardHostEncryptionEnabled allowVXLANPacketsFromWorkloads allowIPIPPacketsFromWorkloads removeExternalRoutes wireguardEnabled wireguardEnabledV6 vxlanEnabled ipipEnabled debugDisableLogDropping usageReportingEnabled routeSyncDisabled useInternalDataplaneDriver", pointer),
	fieldsOf("healthPort prometheusMetricsPort debugPort vxlanPort vxlanVNI wireguardListeningPort wireguardListeningPortV6", from(1, 65535)), fieldsOf("wireguardInterfaceName", pick("wireguard.cali", "wg0")), fieldsOf("wireguardInterfaceNameV6", pick("wg-v6.cali", "wg1")), fieldsOf("wireguardRoutingRulePriority", from(1, 9999)), fieldsOf("wireguardMTU wireguardMTUV6 vxlanMTU vxlanMTUV6 ipipMTU", from(1280, 9000)),
	fieldsOf("healthHost debugHost prometheusMetricsHost", pick("localhost", "127.0.0.1", "::1")),
	fieldsOf("prometheusMetricsCertFile prometheusMetricsKeyFile prometheusMetricsCAFile logFilePath debugMemoryProfilePath endpointStatusPathPrefix policySyncPathPrefix", files),
	fieldsOf("logSeverityScreen logSeverityFile logSeveritySys", anyCase("Trace", "Debug", "Info", "Warning", "Error", "Fatal")),
	fieldsOf("failsafeInboundHostPorts failsafeOutboundHostPorts", failsafes), fieldsOf("externalNodesList", some(0, 2, prefix)),
	fieldsOf("deviceRouteSourceAddress", addr4), fieldsOf("deviceRouteSourceAddressIPv6", addr6), fieldsOf("ipv4NormalRoutePriority ipv6NormalRoutePriority", from(1, 2047)),
	fieldsOf("iptablesFilterAllowAction iptablesMangleAllowAction", anyCase("Accept", "Return")), fieldsOf("iptablesFilterDenyAction", anyCase("Drop", "Reject")),
	[]field{
		opt("mtuIfacePattern", pick("^en.*", "eth.*|bond0")), opt("logDebugFilenameRegex", pick("", "^fib.*")), opt("interfacePrefix", pick("cali", "cali,tap")), opt("interfaceExclude", pick("kube-ipvs0", "/^kube/,veth1")),
		opt("chainInsertMode", anyCase("Insert", "Append")), opt("defaultEndpointToHostAction", anyCase("Drop", "Accept", "Return")),
		opt("logPrefix", pick("calico-packet", "%t %n")), opt("logActionRateLimit", pick("10/second", "9999/day")), opt("logActionRateLimitBurst", from(1, 9999)),
		opt("flowLogsLocalReporter", enabled), opt("flowLogsPolicyEvaluationMode", pick("None", "Continuous")), opt("workloadSourceSpoofing", anyCase("Disabled", "Any")), opt("serviceLoopPrevention", anyCase("Drop", "Reject", "Disabled")),
		opt("localSubnetL2Reachability", pick("Disabled", "PodsAndLoadBalancers")),
		opt("natOutgoingAddress", addr4), opt("natPortRange", pick("32768:65535")), opt("natOutgoingExclusions", pick("IPPoolsOnly", "IPPoolsAndHostIPs")),
		opt("iptablesNATOutgoingInterfaceFilter", pick("eth0", "eth+")), opt("openstackRegion", pick("region-1")), opt("nftablesMode", pick("Enabled", "Disabled", "Auto")),
		opt("nftablesMarkMask", from(0xffff0000, 0xffffffff)), opt("iptablesMarkMask", from(0xffff0000, 0xffffffff)), opt("deviceRouteProtocol", from(83, 185)), opt("goGCThreshold", from(-1, 100)), opt("goMemoryLimitMB", from(-1, 9999)), opt("goMaxProcs", from(1, 64)),
		opt("routeTableRanges", some(0, 2, obj(req("min", from(1, 9)), req("max", from(10, 250))))), // or the older routeTableRange, which is one of them
		opt("programClusterRoutes", pick("Enabled", "Disabled", "EnabledNoEncapOnly", "EnabledIPIPOnly")), opt("healthTimeoutOverrides", some(0, 2, func(a *Author) any { return Object{"name": fmt.Sprintf("part-%d", a.fresh()), "timeout": "20s"} })),
	},
)

// laterSettings are those that concern parts which Twill does not have.
var laterSettings = slices.Concat(
	fieldsOf("bpfEnabled bpfConnectTimeLoadBalancingEnabled bpfDisableUnprivileged bpfHostConntrackBypass bpfIPFragmentReassemblyEnabled "+
		"bpfKubeProxyIptablesCleanupEnabled bpfPolicyDebugEnabled flowLogsCollectorDebugTrace genericXDPEnabled "+
		"requireMTUFile sidecarAccelerationEnabled xdpEnabled", pointer),
	fieldsOf("dataplaneWatchdogTimeout iptablesPostWriteCheckInterval iptablesLockProbeInterval netlinkTimeout bpfIPFragTimeout "+
		"bpfKubeProxyMinSyncPeriod debugSimulateCalcGraphHangAfter debugSimulateDataplaneApplyDelay debugSimulateDataplaneHangAfter flowLogsFlushInterval "+
		"xdpRefreshInterval", period),
	fieldsOf("bpfExportBufferSizeMB bpfExtToServiceConnmark bpfKubeProxyHealthzPort bpfMaglevMaxEndpointsPerService bpfMaglevMaxServices bpfMapSizeConntrack "+
		"bpfMapSizeConntrackCleanupQueue bpfMapSizeIPSets bpfMapSizeIfState bpfMapSizeNATAffinity bpfMapSizeNATBackend bpfMapSizeNATFrontend "+
		"bpfMapSizePerCpuConntrack bpfMapSizeRoute "+
		"maxIpsetSize metadataPort", from(0, 9999)),
	fieldsOf("bpfCTLBLogFilter bpfDataIfacePattern bpfDisableGROForIfaces bpfL3IfacePattern cgroupV2Path dataplaneDriver "+
		"nftablesFlowTableDataIfacePattern featureDetectOverride featureGates flowLogsGoldmaneServer prometheusMetricsClientAuth", pick("", "a=true", "/var/x", "eth.*")),
	fieldsOf("bpfHostNetworkedNATWithoutCTLB bpfProfiling bpfRedirectToPeer nftablesFlowTableOffload floatingIPs ipForwarding istioAmbientMode windowsManageFirewallRules", enabled),
	fieldsOf("nftablesFilterAllowAction nftablesMangleAllowAction", anyCase("Accept", "Return")),
	fieldsOf("nftablesFilterDenyAction", anyCase("Drop", "Reject")),
	fieldsOf("bpfDSROptoutCIDRs bpfExcludeCIDRsFromNAT", some(0, 2, prefix)),
	fieldsOf("metadataAddr", addr4),
	[]field{
		opt("awsSrcDstCheck", pick("DoNothing", "Enable", "Disable")), opt("bpfAttachType", pick("TC", "TCX")), opt("bpfConnectTimeLoadBalancing", pick("TCP", "Enabled", "Disabled")),
		opt("bpfConntrackLogLevel", pick("Off", "Debug")), opt("bpfConntrackMode", pick("Auto", "Userspace", "BPFProgram")), opt("bpfEnforceRPF", anyCase("Disabled", "Strict", "Loose")),
		opt("bpfConntrackTimeouts", obj(opt("creationGracePeriod", period), opt("tcpEstablished", pick("Auto", "1h")), opt("udpTimeout", period))),
		opt("bpfExternalServiceMode", anyCase("Tunnel", "DSR")), opt("bpfForceTrackPacketsFromIfaces", distinct(0, "docker+", "x")), opt("bpfJITHardening", pick("Auto", "Strict")),
		opt("bpfLogFilters", pairs([]string{"all", "weps"}, []string{"tcp", ""})), opt("bpfLogLevel", either(pick(""), anyCase("Off", "Info", "Debug"))),
		opt("bpfMapSizeConntrackScaling", anyCase("Disabled", "DoubleIfFull")), opt("bpfOverlayHostSourceIP", pick("TunnelAddress", "HostAddress")), opt("bpfPSNATPorts", pick("20000:29999")),
		opt("iptablesBackend", pick("Legacy", "NFT", "Auto")), opt("istioDSCPMark", either(from(0, 63), pick("AF11"))), opt("kubeNodePortRanges", some(0, 2, pick("30000:32767"))),
		opt("routeSource", anyCase("WorkloadIPs", "CalicoIPAM")),
	},
)

func periodic(name string) field { return opt(name, obj(opt("reconcilerPeriod", period))) }

var controllers = obj(periodic("policy"), periodic("workloadEndpoint"), periodic("serviceAccount"), periodic("namespace"),
	opt("loadBalancer", obj(opt("assignIPs", pick("AllServices", "RequestedServicesOnly")))), opt("policyMigration", obj(opt("enabled", enabled))),
	opt("node", obj(opt("reconcilerPeriod", period), opt("syncLabels", enabled), opt("leakGracePeriod", period), opt("hostEndpoint", obj(
		opt("autoCreate", enabled), opt("createDefaultHostEndpoint", enabled), opt("templates", some(0, 2, obj(
			req("generateName", func(a *Author) any { return fmt.Sprintf("t-%d", a.fresh()) }), req("interfaceCIDRs", some(1, 2, prefix)), opt("interfacePattern", pick("eth.*")),
			opt("labels", labels), opt("nodeSelector", selector)))))))))

var controllersSpec = obj(req("controllers", controllers), opt("logSeverityScreen", pick("None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic")), opt("healthChecks", enabled),
	opt("etcdV3CompactionPeriod", period), opt("prometheusMetricsPort", from(0, 65535)), opt("debugProfilePort", from(0, 65535)))

var settingKinds = []Kind{
	{
		Name: "FelixConfiguration", Plural: "felixconfigurations", named: either(pick("default"), func(a *Author) any { return fmt.Sprintf("%s%d", pick("node.n", "racks-")(a), a.fresh()) }),
		body: []field{req("spec", either(settings(felixSettings...), settings(laterSettings...)))}, complete: func(a *Author, o Object) {
			if n := o["metadata"].(Object)["name"].(string); n[0] == 'r' {
				spec(o)["nodeSelector"] = selector(a)
			}
		},
	},
	{Name: "KubeControllersConfiguration", Plural: "kubecontrollersconfigurations", One: true, body: []field{
		req("spec", controllersSpec),
		opt("status", either(none, obj(opt("runningConfig", controllersSpec), opt("environmentVars", pairs([]string{"LOG_LEVEL"}, []string{"info"}))))),
	}},
	{Name: "ClusterInformation", Plural: "clusterinformations", One: true, body: []field{opt("spec", obj(opt("clusterGUID", pick("0123456789abcdef0123456789abcdef")), opt("clusterType", pick("k8s,bgp", "typha,kdd")),
		opt("calicoVersion", pick("v3.30.0")), opt("datastoreReady", pointer), opt("variant", pick("Calico"))))}},
}
