package api

import (
	"reflect"
	"strings"
)

// laterKinds are kinds of Calico's that come with later issues.
var laterKinds = wordSet(`IPAMConfig IPAMBlock IPAMHandle LiveMigration`)

// laterFields are fields that Calico has and this version does not honour: they
// are refused by name, never passed over.
var laterFields = map[reflect.Type]map[string]bool{
	reflect.TypeFor[WorkloadEndpointSpec]():   wordSet("qosControls"),
	reflect.TypeFor[FelixConfigurationSpec](): wordSet(laterSettings),
	reflect.TypeFor[BGPConfigurationSpec](): wordSet(`localWorkloadPeeringIPV4 localWorkloadPeeringIPV6
		ipv4NormalRoutePriority ipv6NormalRoutePriority`),
	reflect.TypeFor[BGPPeerSpec]():        wordSet("localWorkloadSelector"),
	reflect.TypeFor[BGPFilterRule]():      wordSet("priority"),
	reflect.TypeFor[BGPFilterOperation](): wordSet("setPriority"),
}

func wordSet(text string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(text) {
		out[w] = true
	}
	return out
}

const laterSettings = `
	awsSrcDstCheck
	bpfAttachType bpfCTLBLogFilter bpfConnectTimeLoadBalancing bpfConnectTimeLoadBalancingEnabled bpfConntrackCleanupMode
	bpfConntrackLogLevel bpfConntrackMode bpfConntrackTimeouts bpfDSROptoutCIDRs bpfDataIfacePattern bpfDisableGROForIfaces
	bpfDisableUnprivileged bpfEnabled bpfEnforceRPF bpfExcludeCIDRsFromNAT bpfExportBufferSizeMB bpfExtToServiceConnmark
	bpfExternalServiceMode bpfForceTrackPacketsFromIfaces bpfHostConntrackBypass bpfHostNetworkedNATWithoutCTLB bpfJITHardening
	bpfKubeProxyEndpointSlicesEnabled bpfKubeProxyHealthzPort bpfKubeProxyIptablesCleanupEnabled bpfKubeProxyMinSyncPeriod
	bpfL3IfacePattern bpfLogFilters bpfLogLevel bpfMaglevMaxEndpointsPerService bpfMaglevMaxServices bpfMapSizeConntrack
	bpfMapSizeConntrackCleanupQueue bpfMapSizeConntrackScaling bpfMapSizeIPSets bpfMapSizeIfState bpfMapSizeNATAffinity
	bpfMapSizeNATBackend bpfMapSizeNATFrontend bpfMapSizePerCpuConntrack bpfMapSizeRoute bpfPSNATPorts bpfPolicyDebugEnabled
	bpfProfiling bpfRedirectToPeer cgroupV2Path
	dataplaneDriver dataplaneWatchdogTimeout debugDisableLogDropping debugMemoryProfilePath
	debugSimulateCalcGraphHangAfter debugSimulateDataplaneApplyDelay debugSimulateDataplaneHangAfter deviceRouteSourceAddress
	deviceRouteSourceAddressIPv6 endpointStatusPathPrefix externalNodesList
	featureDetectOverride featureGates floatingIPs flowLogsCollectorDebugTrace flowLogsFlushInterval flowLogsGoldmaneServer
	genericXDPEnabled
	ipForwarding ipipEnabled ipipMTU iptablesBackend iptablesFilterAllowAction iptablesFilterDenyAction
	iptablesLockFilePath iptablesLockProbeInterval iptablesLockTimeout iptablesMangleAllowAction iptablesMarkMask
	iptablesPostWriteCheckInterval iptablesRefreshInterval ipv4ElevatedRoutePriority
	ipv6ElevatedRoutePriority ipv4NormalRoutePriority ipv6NormalRoutePriority istioAmbientMode istioDSCPMark kubeMasqueradeBit
	kubeNodePortRanges liveMigrationRouteConvergenceTime localSubnetL2Reachability
	logDebugFilenameRegex logDropActionOverride maxIpsetSize metadataAddr metadataPort mtuIfacePattern
	netlinkTimeout nftablesFilterAllowAction nftablesFilterDenyAction nftablesMangleAllowAction nftablesMapRefreshInterval
	policySyncPathPrefix programClusterRoutes
	prometheusMetricsClientAuth
	prometheusReporterCAFile prometheusReporterCertFile prometheusReporterKeyFile prometheusWireGuardMetricsEnabled
	requireMTUFile routeSource routeSyncDisabled routeTableRange routeTableRanges serviceLoopPrevention
	sidecarAccelerationEnabled usageReportingEnabled usageReportingInitialDelay usageReportingInterval useInternalDataplaneDriver
	vxlanEnabled vxlanMTU vxlanMTUV6 vxlanPort vxlanVNI windowsManageFirewallRules windowsNetworkName wireguardEnabled
	wireguardEnabledV6 wireguardHostEncryptionEnabled wireguardInterfaceName wireguardInterfaceNameV6 wireguardKeepAlive
	wireguardListeningPort wireguardListeningPortV6 wireguardMTU wireguardMTUV6 wireguardRoutingRulePriority
	wireguardThreadingEnabled xdpEnabled xdpRefreshInterval
	dropActionOverride`

// KnownSetting reports whether a FelixConfiguration of Calico's has a field of this name, in any case.
func KnownSetting(name string) bool {
	for word := range laterFields[reflect.TypeFor[FelixConfigurationSpec]()] {
		if strings.EqualFold(word, name) {
			return true
		}
	}
	spec := reflect.TypeFor[FelixConfigurationSpec]()
	for i := range spec.NumField() {
		if strings.EqualFold(spec.Field(i).Name, name) {
			return true
		}
	}
	return false
}

// nearest finds the word that was probably meant: the one with the fewest
// changes, if these are few for its length.
func nearest(word string, among []string) string {
	best, bestAt := "", 1+min(3, (len(word)+1)/3)
	if len(word) > 64 {
		return ""
	}
	for _, w := range among {
		if d := distance(strings.ToLower(word), strings.ToLower(w)); d < bestAt {
			best, bestAt = w, d
		}
	}
	return best
}

// distance counts the bytes to change, add or remove to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
