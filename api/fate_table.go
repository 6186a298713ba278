package api

import (
	"reflect"
	"slices"
	"strings"
)

// unhonoured is the one table of the fields of the API on which Twill does not act. A field that is not in it is honoured:
// TestEveryFieldHasAFate wants the name of a test that shows it.
var unhonoured = slices.Concat(
	fatesOf[HealthTimeout](fate(Warned, "the agent has no part of this name: it has syncer, calc (CalculationGraph) and dataplane (InternalDataplaneMainLoop)",
		"name=syncer|calc|dataplane|CalculationGraph|InternalDataplaneMainLoop|async_calc_graph|int_dataplane")),
	fatesOf[SecretKeyRef](fate(Warned, "a session whose password cannot be had is not opened", "optional=false")),
	felixFates,
)

// fate makes entries of one fate and reason: names of fields, each perhaps with quiet values, as in name=a|b.
func fate(f Fate, why, fields string) (out []Unhonoured) {
	for word := range strings.FieldsSeq(fields) {
		name, values, has := strings.Cut(word, "=")
		u := Unhonoured{Field: name, Fate: f, Why: why}
		if has {
			u.Quiet = strings.Split(values, "|")
		}
		out = append(out, u)
	}
	return out
}

func fatesOf[T any](groups ...[]Unhonoured) []Unhonoured {
	out := slices.Concat(groups...)
	for i := range out {
		out[i].Type = reflect.TypeFor[T]()
	}
	return out
}

// What is said of settings that have no effect.
const (
	noEBPF     = "policy is enforced with nftables, not eBPF"
	noTunnels  = "Twill's tunnels are between the hosts of the datastore, and through the interfaces with the hosts' addresses"
	noWindows  = "Twill runs on Linux"
	forFaults  = "it is for finding faults in upstream's agent"
	otherFlows = "Twill's flows are read with `twill flows`"
)

// felixFates are those of the agents' settings. Upstream's defaults are those of its FelixConfiguration reference (3.32) and
// of the comments on its type.
var felixFates = fatesOf[FelixConfigurationSpec](
	fate(Refused, "the settings of instances in AWS stay as they are", "awsSrcDstCheck=DoNothing"),
	fate(Refused, "no packet is marked for Istio", "istioAmbientMode=Disabled"),
	fate(Refused, "what policy denies is dropped", "dropActionOverride=Drop"),
	fate(Refused, "readers of metrics show a certificate if prometheusMetricsCAFile is given, and else none", "prometheusMetricsClientAuth=RequireAndVerifyClientCert"),

	fate(Warned, noEBPF+"; services are kube-proxy's to translate", "bpfEnabled=false"),
	fate(Warned, noEBPF, `
		bpfAttachType=TCX|TC bpfCTLBLogFilter bpfConnectTimeLoadBalancing=TCP bpfConnectTimeLoadBalancingEnabled=true
		bpfConntrackCleanupMode=Auto bpfConntrackLogLevel=Off bpfConntrackMode=Auto bpfConntrackTimeouts bpfDSROptoutCIDRs bpfDataIfacePattern
		bpfDisableGROForIfaces bpfDisableUnprivileged=true bpfEnforceRPF=Loose bpfExcludeCIDRsFromNAT bpfExportBufferSizeMB=1
		bpfExtToServiceConnmark=0 bpfExternalServiceMode=Tunnel bpfForceTrackPacketsFromIfaces=["docker+"] bpfHostConntrackBypass=true|false
		bpfHostNetworkedNATWithoutCTLB=Enabled bpfIPFragTimeout bpfIPFragmentReassemblyEnabled bpfJITHardening=Auto
		bpfKubeProxyEndpointSlicesEnabled=true bpfKubeProxyHealthzPort=10256 bpfKubeProxyIptablesCleanupEnabled=true
		bpfKubeProxyMinSyncPeriod=1s bpfL3IfacePattern bpfLogFilters bpfLogLevel=Off bpfMaglevMaxEndpointsPerService=100
		bpfMaglevMaxServices=100 bpfMapSizeConntrack=512000 bpfMapSizeConntrackCleanupQueue=100000
		bpfMapSizeConntrackScaling=DoubleIfFull bpfMapSizeIPSets=1048576 bpfMapSizeIfState=1000 bpfMapSizeNATAffinity=65536
		bpfMapSizeNATBackend=262144 bpfMapSizeNATFrontend=65536 bpfMapSizePerCpuConntrack=0 bpfMapSizeRoute=262144
		bpfOverlayHostSourceIP bpfPSNATPorts=20000:29999 bpfPolicyDebugEnabled=true bpfProfiling=Disabled bpfRedirectToPeer=L2Only
		xdpEnabled=true|false xdpRefreshInterval=90s genericXDPEnabled=false sidecarAccelerationEnabled=false cgroupV2Path`),
	fate(Warned, "the lock of iptables is waited for in the kernel, up to 10 s and without intervals; XTABLES_LOCKFILE in the agent's environment is another place of it",
		"iptablesLockFilePath=/run/xtables.lock iptablesLockProbeInterval=50ms iptablesLockTimeout=0s"),
	fate(Warned, "what is written into iptables is read back at once, after each time", "iptablesPostWriteCheckInterval=1s"),
	fate(Warned, "a set of ipset may have 1048576 members", "maxIpsetSize=1048576"),
	fate(Warned, "of what is said here, ChecksumOffloadBroken alone has an effect", "featureDetectOverride=ChecksumOffloadBroken=true|ChecksumOffloadBroken=false"),
	fate(Warned, "either value does the same: what policy allows has passed Twill's table alone; the tables of others see the packet all the same",
		"nftablesFilterAllowAction=Accept|Return nftablesMangleAllowAction=Accept|Return"),
	fate(Warned, "in nftables what policy denies is dropped; a rule can reject, see docs/reject.md", "nftablesFilterDenyAction=Drop"),
	fate(Warned, "no flow is offloaded: each packet passes Twill's table", "nftablesFlowTableOffload=Enabled|Disabled nftablesFlowTableDataIfacePattern"),
	fate(Warned, noTunnels, "routeSource=CalicoIPAM"),
	fate(Warned, "the agent says the size of a workload's interface when it is attached, and no file is read", "requireMTUFile=false"),
	fate(Warned, "it is neither unix:///PATH of a driver's socket nor the absolute path of a program, see docs/dataplanes.md", "dataplaneDriver=calico-iptables-plugin|unix:///*|/*"),
	fate(Warned, "the part of upstream that it is for is not in Twill", `dataplaneWatchdogTimeout=90s
		featureGates istioDSCPMark=23
		kubeMasqueradeBit=14
		netlinkTimeout=10s nftablesMapRefreshInterval
		prometheusReporterCAFile prometheusReporterCertFile prometheusReporterKeyFile`),
	fate(Warned, "it is for kube-proxy's mode IPVS, which Twill does not know; in its other modes node ports are translated before policy is asked", `kubeNodePortRanges=["30000:32767"]`),
	fate(Warned, forFaults, `debugSimulateCalcGraphHangAfter=0s|0
		debugSimulateDataplaneApplyDelay=0s|0 debugSimulateDataplaneHangAfter=0s|0 logDropActionOverride=false`),
	fate(Warned, otherFlows, "flowLogsCollectorDebugTrace=false flowLogsFlushInterval=15s|300s flowLogsGoldmaneServer"),
	fate(Warned, noWindows, "windowsManageFirewallRules=Disabled windowsNetworkName"),
)

// agentsOwn are parameters of Calico's agent that no FelixConfiguration has, in lower case, and why they have no effect.
var agentsOwn = map[string]string{
	"typhawritetimeout": "what a relay takes too slowly is cut off by its 20 s without a sign of life",
	"clusterguid":       inInformation, "clustertype": inInformation, "calicoversion": inInformation,
	"debugpanicafter": forFaults, "debugsimulatedatarace": forFaults, "debugcpuprofilepath": "a profile is read over the port of debugPort",
	"debugbpfcgroupv2": noEBPF, "debugbpfmaprepinenabled": noEBPF,
	"variant": "there is one",
}

const inInformation = "it is in the ClusterInformation"
