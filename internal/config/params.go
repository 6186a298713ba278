package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// Param is one parameter.
type Param struct {
	Name    string   // as in a FelixConfiguration
	Type    string   // what its values look like, for people
	Default string   // as text; empty: none
	Help    string   // what it does
	Env     []string // names in the environment besides TWILL_… and FELIX_…
	Local   bool     // not taken from the datastore
	Fixed   string   // why a change needs a restart; empty: it is live
	set     func(*Settings, string) error
}

// Params are all parameters, in the order in which they are printed.
func Params() []Param { return append([]Param(nil), params...) }

const (
	neededFirst = "it says where the other settings are read"
	handlerMade = "it is chosen before the first line is written"
)

var params = []Param{
	text("nodeName", "", "name of this node in the datastore; the host's name if none is given", func(s *Settings) *string { return &s.Node }).
		local(neededFirst, "NODENAME", "FELIX_FELIXHOSTNAME"),
	oneOf("datastoreType", "etcdv3", "what the datastore is; of kubernetes, KUBECONFIG or K8S_… say how to reach it", func(s *Settings) *string { return &s.DatastoreType }, "etcdv3", "kubernetes").
		local(neededFirst, "DATASTORE_TYPE"),
	list("etcdEndpoints", "", "URLs of etcd", func(s *Settings) *[]string { return &s.Etcd.Endpoints }).
		local(neededFirst, "ETCD_ENDPOINTS"),
	text("etcdUsername", "", "etcd user name", func(s *Settings) *string { return &s.Etcd.Username }).local(neededFirst, "ETCD_USERNAME"),
	text("etcdPassword", "", "its password", func(s *Settings) *string { return &s.Etcd.Password }).local(neededFirst, "ETCD_PASSWORD"),
	text("etcdCertFile", "", "client certificate for etcd", func(s *Settings) *string { return &s.Etcd.CertFile }).local(neededFirst, "ETCD_CERT_FILE"),
	text("etcdKeyFile", "", "key of the client certificate", func(s *Settings) *string { return &s.Etcd.KeyFile }).local(neededFirst, "ETCD_KEY_FILE"),
	text("etcdCaFile", "", "CA certificate of etcd's servers", func(s *Settings) *string { return &s.Etcd.CACertFile }).local(neededFirst, "ETCD_CA_CERT_FILE"),

	text("typhaAddr", "", "HOST:PORT or unix://PATH of a relay (`twill relay`), or of several with commas between them, by which the datastore is read; empty, and no typhaK8sServiceName: it is read itself", func(s *Settings) *string { return &s.Relay.Address }).local(neededFirst),
	text("typhaK8sServiceName", "", "Service of Kubernetes whose ready endpoints are relays, that of this node first; typhaAddr has precedence", func(s *Settings) *string { return &s.Relay.Service }).local(neededFirst),
	text("typhaK8sNamespace", "kube-system", "namespace of that Service", func(s *Settings) *string { return &s.Relay.Namespace }).local(neededFirst),
	text("typhaCAFile", "", "authority of the relay's certificate", func(s *Settings) *string { return &s.Relay.CAFile }).local(neededFirst),
	text("typhaCertFile", "", "certificate that the relay is shown", func(s *Settings) *string { return &s.Relay.CertFile }).local(neededFirst),
	text("typhaKeyFile", "", "key of that certificate", func(s *Settings) *string { return &s.Relay.KeyFile }).local(neededFirst),
	text("typhaCN", "", "common name that the relay's certificate must have, or else typhaURISAN; with neither it must be for the host of typhaAddr, or for SERVICE.NAMESPACE.svc", func(s *Settings) *string { return &s.Relay.CN }).local(neededFirst),
	text("typhaURISAN", "", "URI that the relay's certificate must have among its subject alternative names", func(s *Settings) *string { return &s.Relay.URISAN }).local(neededFirst),
	duration("typhaReadTimeout", "30s", "for how long the relay may say nothing while it is to answer", func(s *Settings) *time.Duration { return &s.Relay.ReadTimeout }).local(neededFirst),
	yesNo("relayPlaintext", "false", "reach a relay that is not on this machine without TLS", func(s *Settings) *bool { return &s.Relay.Plaintext }).local(neededFirst),
	duration("relayFallback", "0", "for how long the relay may be away before the datastore is read itself, until the relay is back; 0: for ever, and what is in force stays", func(s *Settings) *time.Duration { return &s.Relay.Fallback }).local(neededFirst),

	list("interfacePrefix", "cali", "what names of workloads' interfaces begin with; one that no endpoint is known for carries nothing; with tap the host is one of OpenStack, as docs/openstack.md says",
		func(s *Settings) *[]string { return &s.InterfacePrefixes }).check(interfaces),
	list("interfaceExclude", "kube-ipvs0", "names of interfaces, or /regular expressions/, that no host endpoint has by an address (expectedIPs)",
		func(s *Settings) *[]string { return &s.InterfaceExclude }).check(excluded).orNone(),
	oneOf("defaultEndpointToHostAction", "Drop", "what a workload's packets to its own host get after the workload's egress policy allowed them",
		func(s *Settings) *string { return &s.EndpointToHost }, "Drop", "Return", "Accept"),
	oneOf("ipForwarding", "Enabled", "Disabled: the agent does not make a router of the host, for one that has no workloads; what is on it does not turn off",
		func(s *Settings) *string { return &s.Forwarding }, "Enabled", "Disabled"),
	oneOf("floatingIPs", "Disabled", "Enabled: workloads are reached by the floating addresses that they ask for (ipNATs, annotation floatingIPs), as docs/floating.md says; those of OpenStack's ports are there anyway",
		func(s *Settings) *string { return &s.FloatingIPs }, "Enabled", "Disabled"),
	oneOf("serviceLoopPrevention", "Drop", "what packets get that the host forwards to an address of services (serviceClusterIPs, serviceLoadBalancerIPs, serviceExternalIPs of its BGPConfiguration) which nothing on it translated: the router that they would go to sends them back here. Drop; Reject, with an ICMP error; Disabled: they go round until their hop limit ends",
		func(s *Settings) *string { return &s.ServiceLoops }, "Drop", "Reject", "Disabled"),
	oneOf("localSubnetL2Reachability", "Disabled", "PodsAndLoadBalancers: the host answers ARP and neighbour requests for its workloads' addresses that are in a network of one of its interfaces and in a pool without a tunnel, so that others on that network need no route. Addresses of load balancers are not answered for",
		func(s *Settings) *string { return &s.LocalSubnet }, "Disabled", "PodsAndLoadBalancers"),
	duration("localSubnetL2ReachabilityRefreshInterval", "120s", "how often they are announced again, at least; 0 never, so that they are announced once",
		func(s *Settings) *time.Duration { return &s.LocalSubnetAgain }),
	metadataAddress(),
	port("metadataPort", "8775", "the TCP port of metadataAddr; another than 8775 makes the host one of OpenStack, too", func(s *Settings) *int { return &s.Metadata.Port }),
	yesNo("ipv6Support", "true", "forward IPv6; false: the agent does not turn that on, on the host or on workloads' interfaces (off it turns nothing), and rules for IPv6 are as ever",
		func(s *Settings) *bool { return &s.IPv6 }),
	yesNo("allowVXLANPacketsFromWorkloads", "false", "let workloads send VXLAN (UDP, to vxlanPort)", func(s *Settings) *bool { return &s.AllowVXLAN }),
	yesNo("allowIPIPPacketsFromWorkloads", "false", "let workloads send IPIP (protocol 4)", func(s *Settings) *bool { return &s.AllowIPIP }),
	yesNo("vxlanEnabled", "true", "have a VXLAN tunnel of IPv4 if a pool asks for one; false: what would go through it goes nowhere (tunnels of IPv6 are as pools say)",
		func(s *Settings) *bool { return &s.VXLAN.Enabled }),
	port("vxlanPort", "4789", "the UDP port to which encapsulated packets are sent, the same on all hosts; while it is changed they do not reach each other", func(s *Settings) *int { return &s.VXLAN.Port }),
	within("vxlanVNI", "4096", 1, 1<<24-1, "the network identifier of VXLAN tunnels, the same on all hosts; while it is changed they do not reach each other", func(s *Settings) *int { return &s.VXLAN.VNI }),
	mtu("vxlanMTU", api.MinMTU, "the largest packet in a VXLAN tunnel of IPv4, in bytes; 0: what the interfaces that lead to other hosts carry, less 50", func(s *Settings) *int { return &s.VXLAN.MTU[0] }),
	mtu("vxlanMTUV6", api.MinMTUV6, "the largest packet in a VXLAN tunnel of IPv6, in bytes; 0: what the interfaces that lead to other hosts carry, less 70", func(s *Settings) *int { return &s.VXLAN.MTU[1] }),
	yesNo("ipipEnabled", "true", "have an IPIP tunnel if a pool asks for one; false: what would go through it goes nowhere", func(s *Settings) *bool { return &s.IPIP.Enabled }),
	mtu("ipipMTU", api.MinMTU, "the largest packet in an IPIP tunnel, in bytes; 0: what the interfaces that lead to other hosts carry, less 20", func(s *Settings) *int { return &s.IPIP.MTU }),
	featureOverride(),
	nets("externalNodesList", "addresses and CIDRs of hosts that are no Nodes, of which encapsulated packets are taken, too, while this host has the tunnel", func(s *Settings) *[]netip.Prefix { return &s.ExternalNodes }),
	oneOf("programClusterRoutes", "EnabledIPIPOnly", "to other hosts' addresses of pools without a tunnel: Enabled, EnabledNoEncapOnly: the agent makes routes to hosts on this host's network, and no BGP is needed there; else BGP brings them. Those of pools with a tunnel are the agent's, whatever is set",
		func(s *Settings) *string { return &s.Routes.Cluster }, "EnabledIPIPOnly", "Enabled", "Disabled", "EnabledNoEncapOnly"),
	yesNo("routeSyncDisabled", "false", "true: the agent makes and deletes no routes and no neighbours of workloads, which somebody else does", func(s *Settings) *bool { return &s.Routes.Off }),
	yesNo("removeExternalRoutes", "true", "delete routes of others through workloads' interfaces when they are read back, 10 s after they were seen at the earliest; not the kernel's own, and BGP's", func(s *Settings) *bool { return &s.Routes.RemoveExternal }),
	address("deviceRouteSourceAddress", true, "the address from which the host itself sends to its workloads; it must be this host's", func(s *Settings) *netip.Addr { return &s.Routes.Source[0] }),
	address("deviceRouteSourceAddressIPv6", false, "the same of IPv6", func(s *Settings) *netip.Addr { return &s.Routes.Source[1] }),
	within("ipv4NormalRoutePriority", "0", 0, api.MaxRoutePriority, "the metric of routes to workloads of this host; 0: the kernel's default, which is 0", func(s *Settings) *int { return &s.Routes.Metric[0] }),
	within("ipv6NormalRoutePriority", "0", 0, api.MaxRoutePriority, "the same of IPv6; 0: the kernel's default, which is 1024", func(s *Settings) *int { return &s.Routes.Metric[1] }),
	within("ipv4ElevatedRoutePriority", "512", 1, api.MaxRoutePriority, "the metric of routes to a virtual machine that has come from another host, so that they are preferred to that host's: a lower number than ipv4NormalRoutePriority, of which 0 counts as 1024",
		func(s *Settings) *int { return &s.Routes.Elevated[0] }),
	within("ipv6ElevatedRoutePriority", "512", 1, api.MaxRoutePriority, "the same of IPv6", func(s *Settings) *int { return &s.Routes.Elevated[1] }),
	duration("liveMigrationRouteConvergenceTime", "30s", "how long routes to such a machine keep that metric after the migration is over, while all hosts learn that the other route is gone",
		func(s *Settings) *time.Duration { return &s.Routes.Settle }),
	within("deviceRouteProtocol", strconv.Itoa(api.RouteProtocol), 1, api.MaxRouteProtocol, "the protocol number (ip route show proto) of routes to workloads of this host, for other programs that read it; not 2, 12, 81, 82 or 186, which others have. Blackholes of blocks have 80, routes to other hosts 81",
		func(s *Settings) *int { return &s.Routes.Protocol }).check(routeProtocol),
	yesNo("wireguardEnabled", "false", "encrypt by WireGuard what workloads send to other hosts over IPv4, however pools reach them; what is for a host without a key goes nowhere",
		func(s *Settings) *bool { return &s.WireGuard.Enabled[0] }),
	yesNo("wireguardEnabledV6", "false", "the same over IPv6", func(s *Settings) *bool { return &s.WireGuard.Enabled[1] }),
	port("wireguardListeningPort", "51820", "the UDP port to which encrypted packets of IPv4 are sent, the same on all hosts; while it is changed they do not reach each other", func(s *Settings) *int { return &s.WireGuard.Port[0] }),
	port("wireguardListeningPortV6", "51821", "the same of IPv6", func(s *Settings) *int { return &s.WireGuard.Port[1] }),
	device("wireguardInterfaceName", "wireguard.cali", "the WireGuard device of IPv4; under another name it is a new one, with a new key", func(s *Settings) *string { return &s.WireGuard.Link[0] }),
	device("wireguardInterfaceNameV6", "wg-v6.cali", "the same of IPv6", func(s *Settings) *string { return &s.WireGuard.Link[1] }),
	within("wireguardRoutingRulePriority", "99", 1, api.MaxRulePriority, "the priority of the rule (ip rule) that leads packets into WireGuard devices", func(s *Settings) *int { return &s.WireGuard.Priority }),
	mtu("wireguardMTU", api.MinMTU, "the largest packet in a WireGuard tunnel of IPv4, in bytes; 0: what the interfaces that lead to other hosts carry, less 60", func(s *Settings) *int { return &s.WireGuard.MTU[0] }),
	mtu("wireguardMTUV6", api.MinMTUV6, "the largest packet in a WireGuard tunnel of IPv6, in bytes; 0: what the interfaces that lead to other hosts carry, less 80", func(s *Settings) *int { return &s.WireGuard.MTU[1] }),
	duration("wireguardKeepAlive", "0", "how often a WireGuard device says to each host that it lives, for paths that forget who spoke, in whole seconds; 0 never",
		func(s *Settings) *time.Duration { return &s.WireGuard.KeepAlive }),
	yesNo("wireguardUserspaceEnabled", "true", "where the kernel has no WireGuard, a process of the agent's encrypts; false: nothing does, and what is for other hosts goes nowhere",
		func(s *Settings) *bool { return &s.WireGuard.Userspace }),
	yesNo("wireguardAllowUnencrypted", "false", "what is for a host without a key goes there as without WireGuard, for the time in which hosts get it one by one",
		func(s *Settings) *bool { return &s.WireGuard.Clear }),
	yesNo("wireguardHostEncryptionEnabled", "false", "encrypt what this host and its workloads send to other hosts' own addresses, too, where both hosts have published keys; not what this host sends to or from failsafe ports, WireGuard's and BFD's",
		func(s *Settings) *bool { return &s.WireGuard.Hosts }),
	tables("routeTableRanges", "1-250", "the numbers of tables of routes, MIN-MAX,MIN-MAX, of which the agent takes the first that nobody else has, two for each family that WireGuard encrypts", func(s *Settings) *[]TableRange { return &s.Routes.Tables }),
	yesNo("wireguardThreadingEnabled", "false", "threads of the kernel's take what its WireGuard devices receive, and not the processors that are interrupted; those of a process are as they are",
		func(s *Settings) *bool { return &s.WireGuard.Threads }),
	yesNo("prometheusWireGuardMetricsEnabled", "true", "serve metrics of WireGuard devices", func(s *Settings) *bool { return &s.WireGuard.Metrics }),
	pattern("mtuIfacePattern", `^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)`,
		"a regular expression of the names of interfaces that lead to other hosts: of those that are up, and the one with the host's address, the smallest MTU says how large packets in tunnels, and of workloads, may be",
		func(s *Settings) *string { return &s.MTULinks }),
	yesNo("disableConntrackInvalidCheck", "false", "do not drop packets that conntrack calls invalid; policy still judges them", func(s *Settings) *bool { return &s.SkipInvalidCheck }),
	yesNo("flowRevocationEnabled", "true", "cut live flows as soon as a change of policy denies them; false lets them end by themselves",
		func(s *Settings) *bool { return &s.RevokeFlows }),
	oneOf("flowLogsLocalReporter", "Disabled", "Enabled: flows that policy allows are reported, too, and `twill flows --allowed` shows them; drops always are",
		func(s *Settings) *string { return &s.ReportFlows }, "Disabled", "Enabled"),
	oneOf("flowLogsPolicyEvaluationMode", "Continuous", "Continuous: while an endpoint has staged policies, flows that are allowed are judged by these, too, as they begin; None: only what is dropped is",
		func(s *Settings) *string { return &s.EvaluateStaged }, "None", "Continuous"),
	natAddress(),
	natPorts(),
	oneOf("natOutgoingExclusions", "IPPoolsOnly", "to what packets from pools with natOutgoing keep their address: to all pools, or also to the hosts' own addresses",
		func(s *Settings) *string { return &s.NAT.Exclusions }, "IPPoolsOnly", "IPPoolsAndHostIPs"),
	natLink(),
	spoofing(),
	failsafes("failsafeInboundHostPorts", failsafeIn, "ports of this host that no policy of its host endpoints can close", func(s *Settings) *[]Failsafe { return &s.FailsafeIn }),
	failsafes("failsafeOutboundHostPorts", failsafeOut, "ports of others that no policy of its host endpoints can keep it from", func(s *Settings) *[]Failsafe { return &s.FailsafeOut }),
	duration("nftablesRefreshInterval", "180s", "how often the nftables table is read back, besides the kernel's own events; 0 never",
		func(s *Settings) *time.Duration { return &s.PolicyRefresh }),
	duration("iptablesRefreshInterval", "180s", "the same of tables of iptables, where policy is in those; of iptables-legacy the kernel announces no changes",
		func(s *Settings) *time.Duration { return &s.IPTables.Refresh }),
	duration("ipsetsRefreshInterval", "0", "how often sets of addresses are read back; that is done with the tables, so the shorter of this interval and the tables' counts; 0 with the tables",
		func(s *Settings) *time.Duration { return &s.SetsRefresh }),
	yesNo("nftablesTableOwnerEnabled", "true", "own the nftables table (flags owner and persist, from Linux 6.9 on), so that nobody else changes, deletes or flushes it while the agent lives",
		func(s *Settings) *bool { return &s.OwnTable }),
	oneOf("policyRendering", "Compiled", "Compiled: policy of workloads is look-ups, whose number does not grow with the number of policies; Chains: rules that packets go through one by one",
		func(s *Settings) *string { return &s.PolicyRendering }, "Compiled", "Chains"),
	oneOf("nftablesMode", "Enabled", "Enabled, Auto: policy is in an nftables table; Disabled: in chains of iptables and sets of ipset, as docs/dataplanes.md says",
		func(s *Settings) *string { return &s.Nftables }, "Enabled", "Disabled", "Auto"),
	oneOf("iptablesBackend", "Auto", "with nftablesMode Disabled, NFT: in the tables of iptables-nft, Legacy: in those of iptables-legacy; Auto: in those that this host uses",
		func(s *Settings) *string { return &s.IptablesBackend }, "Auto", "NFT", "Legacy"),
	oneOf("chainInsertMode", "Insert", "where policy is in iptables, Insert: it is asked before the rules of others in chains such as FORWARD; Append: after those that are there, so that what they accept passes without policy",
		func(s *Settings) *string { return &s.IPTables.InsertMode }, "Insert", "Append"),
	oneOf("iptablesFilterAllowAction", "Accept", "what policy in iptables allows in table filter, Accept: is accepted there, whatever others would do after it; Return: goes on to the rules of others, and to the policy of chains such as FORWARD",
		func(s *Settings) *string { return &s.IPTables.FilterAllow }, "Accept", "Return"),
	oneOf("iptablesMangleAllowAction", "Accept", "the same in table mangle, which has policy of host endpoints before DNAT and of what the host sends",
		func(s *Settings) *string { return &s.IPTables.MangleAllow }, "Accept", "Return"),
	oneOf("iptablesFilterDenyAction", "Drop", "what policy in iptables denies in table filter, Drop: is dropped; Reject: is answered with an ICMP error, port unreachable. In other tables it is always dropped",
		func(s *Settings) *string { return &s.IPTables.FilterDeny }, "Drop", "Reject"),
	markMask("nftablesMarkMask", "bits of packets' marks that are Twill's where policy is in nftables, and that no other program on this host may use: 7 or more",
		func(s *Settings) *uint32 { return &s.MarkMask.Nftables }),
	markMask("iptablesMarkMask", "the same where policy is in iptables", func(s *Settings) *uint32 { return &s.MarkMask.Iptables }),
	yesNo("useInternalDataplaneDriver", "true", "false: what this host should be is programmed by dataplaneDriver, and by the agent not at all, as docs/dataplanes.md says",
		func(s *Settings) *bool { return &s.InternalDataplane }),
	dataplaneDriver(),
	duration("routeRefreshInterval", "90s", "how often routes and neighbours are read back, besides the kernel's own events; 0 never",
		func(s *Settings) *time.Duration { return &s.RouteRefresh }),
	duration("interfaceRefreshInterval", "90s", "how often interfaces, their settings and their addresses are read back, besides the kernel's own events; 0 never",
		func(s *Settings) *time.Duration { return &s.InterfaceRefresh }),

	text("logPrefix", "calico-packet", "what begins the report of a packet by a rule with action Log; %t, %k, %n and %p become tier, kind, name and namespace/name of the policy",
		func(s *Settings) *string { return &s.Log.Prefix }),
	logRate(),
	burst(),
	oneOf("logSeverityScreen", "Info", "the least severe lines that are written to standard error", func(s *Settings) *string { return &s.LogSeverity },
		"Trace", "Debug", "Info", "Warning", "Error", "Fatal", "None"),
	absolutePath("logFilePath", "a file to which the agent writes its log, too; full ones (10 MB) are put aside, ten of them are kept; none: no file", func(s *Settings) *string { return &s.LogFile.Path }),
	oneOf("logSeverityFile", "Info", "the least severe lines of that file", func(s *Settings) *string { return &s.LogFile.Severity },
		"Trace", "Debug", "Info", "Warning", "Error", "Fatal", "None"),
	oneOf("logSeveritySys", "None", "the least severe lines that are written to this host's syslog, too, as twill-agent; None: nothing is", func(s *Settings) *string { return &s.LogFile.Sys },
		"Trace", "Debug", "Info", "Warning", "Error", "Fatal", "None"),
	pattern("logDebugFilenameRegex", "", "of lines less severe than Info only those are written, wherever, that were made in source files whose names this regular expression matches, such as ^fib; empty: all",
		func(s *Settings) *string { return &s.LogFile.DebugFiles }),
	yesNo("debugDisableLogDropping", "false", "true: where the log file or syslog is slow the agent waits; false: it goes on, and lines are dropped, which the next one says",
		func(s *Settings) *bool { return &s.LogFile.Wait }),
	absolutePath("debugMemoryProfilePath", "the file to which SIGUSR1 has the agent write a profile of its memory, for `go tool pprof`; <timestamp> in it becomes the time; none: the signal does nothing", func(s *Settings) *string { return &s.HeapProfile }),
	oneOf("logFormat", "text", "how lines of the log look", func(s *Settings) *string { return &s.LogFormat }, "text", "json").local(handlerMade),
	yesNo("usageReportingEnabled", "true", "report usage to usageReportingURL, if a host has one; false: to nobody", func(s *Settings) *bool { return &s.Usage.Enabled }),
	usageURL(),
	duration("usageReportingInitialDelay", "300s", "how long after its start the agent reports first, and a random time of up to a second for each host", func(s *Settings) *time.Duration { return &s.Usage.Delay }),
	duration("usageReportingInterval", "86400s", "how long after that it reports again, less up to a tenth; 0 never", func(s *Settings) *time.Duration { return &s.Usage.Interval }),
	text("openstackRegion", "", "the region in the keys of status", func(s *Settings) *string { return &s.Region }),
	absolutePath("policySyncPathPrefix", "the directory below which workloads' proxies that look into HTTP have sockets on which they read their policy, see docs/policy-sync.md; none: there are no such sockets", func(s *Settings) *string { return &s.PolicySync }),
	absolutePath("endpointStatusPathPrefix", "the directory below which endpoint-status has a file for each workload whose policy is in force, for which upstream's CNI plugin waits if policy_setup_timeout_seconds is set; none: there are no such files", func(s *Settings) *string { return &s.EndpointFiles }),
	duration("reportingInterval", "30s", "how often the agent says in the datastore that it lives; 0 never", func(s *Settings) *time.Duration { return &s.ReportingInterval }),
	duration("reportingTTL", "90s", "how long such a report is valid", func(s *Settings) *time.Duration { return &s.ReportingTTL }),
	yesNo("endpointReportingEnabled", "true", "write the status of each local endpoint to the datastore", func(s *Settings) *bool { return &s.ReportEndpoints }),
	duration("endpointReportingDelay", "1s", "how long changes of an endpoint's status are gathered before they are written",
		func(s *Settings) *time.Duration { return &s.EndpointReportDelay }),
	yesNo("healthEnabled", "true", "serve /liveness, /readiness and /status", func(s *Settings) *bool { return &s.Health.Enabled }),
	text("healthHost", "localhost", "the address at which they are served", func(s *Settings) *string { return &s.Health.Host }),
	port("healthPort", "9099", "the TCP port at which they are served", func(s *Settings) *int { return &s.Health.Port }),
	healthTimeouts(),
	yesNo("prometheusMetricsEnabled", "false", "serve /metrics", func(s *Settings) *bool { return &s.Metrics.Enabled }),
	yesNo("prometheusGoMetricsEnabled", "true", "serve metrics of Go's runtime", func(s *Settings) *bool { return &s.GoMetrics }),
	yesNo("prometheusProcessMetricsEnabled", "true", "serve metrics of the process", func(s *Settings) *bool { return &s.ProcessMetrics }),
	text("prometheusMetricsHost", "", "the address at which metrics are served; empty means all", func(s *Settings) *string { return &s.Metrics.Host }),
	port("prometheusMetricsPort", "9091", "the TCP port at which metrics are served", func(s *Settings) *int { return &s.Metrics.Port }),
	text("prometheusMetricsCertFile", "", "certificate with which metrics are served; empty means plain HTTP", func(s *Settings) *string { return &s.MetricsTLS.CertFile }),
	text("prometheusMetricsKeyFile", "", "its key", func(s *Settings) *string { return &s.MetricsTLS.KeyFile }),
	text("prometheusMetricsCAFile", "", "CA of the certificates that readers of metrics must show; empty means none must", func(s *Settings) *string { return &s.MetricsTLS.ClientCAFile }),
	text("debugHost", "localhost", "the address at which profiles are served", func(s *Settings) *string { return &s.Debug.Host }),
	debugPort(),
	number("goGCThreshold", "40", "per cent by which memory may grow before garbage is collected: less memory, or less work; 0 it is collected all the time, -1 near goMemoryLimitMB alone, and without that as at 100", func(s *Settings) *int { return &s.Memory.GCPercent }),
	number("goMemoryLimitMB", "-1", "megabytes near which garbage is collected more often; 0 and -1 no such limit", func(s *Settings) *int { return &s.Memory.LimitMB }),
	number("goMaxProcs", "-1", "threads that run at once; 0 and -1 as many as the container or the host has processors", func(s *Settings) *int { return &s.Memory.MaxProcs }),
}

func (p Param) local(why string, env ...string) Param {
	p.Local, p.Fixed, p.Env = true, why, env
	return p
}

// check adds a condition on each word of a list.
func (p Param) check(ok func(string) error) Param {
	set := p.set
	p.set = func(s *Settings, text string) error {
		for _, w := range words(text) {
			if err := ok(w); err != nil {
				return err
			}
		}
		return set(s, text)
	}
	return p
}

func text(name, value, help string, field func(*Settings) *string) Param {
	return Param{Name: name, Type: "text", Default: value, Help: help, set: func(s *Settings, text string) error {
		*field(s) = text
		return nil
	}}
}

// absolutePath is where the agent writes files of its own; none: nowhere.
func absolutePath(name, help string, field func(*Settings) *string) Param {
	return Param{Name: name, Type: "absolute path, or none", Default: "none", Help: help, set: func(s *Settings, text string) error {
		if strings.EqualFold(text, "none") {
			text = ""
		}
		if text != "" && !filepath.IsAbs(text) {
			return fmt.Errorf("is %q: want an absolute path, or none", text)
		}
		*field(s) = text
		return nil
	}}
}

// usageURL is the operator's: nobody who writes to the datastore can have hosts send something somewhere.
func usageURL() Param {
	p := text("usageReportingURL", "", "where the agent reports how much the cluster has and which versions, as `twill config --usage-report` shows it; empty: nowhere", func(s *Settings) *string { return &s.Usage.URL })
	set := p.set
	p.Type = "URL, of http or https"
	p.set = func(s *Settings, text string) error {
		u, err := url.Parse(text)
		if err == nil && u.User != nil {
			return errors.New("has a user's name or password, which would be shown with the settings: leave it out")
		}
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			return fmt.Errorf("is %q: want https://HOST/PATH, or http", text)
		}
		return set(s, text)
	}
	return p.local("only who runs a host says what it sends to others")
}

func markMask(name, help string, field func(*Settings) *uint32) Param {
	return Param{Name: name, Type: "mask of 32 bits", Default: fmt.Sprintf("%#08x", api.MarkMask), Help: help, set: func(s *Settings, text string) error {
		m, err := strconv.ParseUint(text, 0, 32)
		if err != nil {
			return fmt.Errorf("is %q: want a mask of 32 bits, such as %#08x", text, api.MarkMask)
		}
		if err := api.CheckMarkMask(uint32(m)); err != nil {
			return err
		}
		*field(s) = uint32(m)
		return nil
	}}
}

// dataplaneDriver also takes upstream's default, which names no driver.
func dataplaneDriver() Param {
	const name, none = "dataplaneDriver", "calico-iptables-plugin"
	p := text(name, none, "with useInternalDataplaneDriver false, where a driver listens: unix:///PATH of its socket; or the absolute path of a program that the agent starts and speaks to as upstream's agent does, see docs/felixbackend.md", func(s *Settings) *string { return &s.DataplaneDriver })
	set := p.set
	p.set = func(s *Settings, text string) error {
		if !strings.HasPrefix(text, "unix:///") && !strings.HasPrefix(text, "/") && text != none && text != "" {
			return fmt.Errorf("is %q: want unix:///PATH of a driver's socket, or the absolute path of a program", text)
		}
		return set(s, text)
	}
	return p
}

func list(name, value, help string, field func(*Settings) *[]string) Param {
	return Param{Name: name, Type: "list, with commas", Default: value, Help: help, set: func(s *Settings, text string) error {
		*field(s) = words(text)
		return nil
	}}
}

func words(text string) []string {
	var out []string
	for w := range strings.SplitSeq(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func oneOf(name, value, help string, field func(*Settings) *string, allowed ...string) Param {
	want := strings.Join(allowed, ", ")
	return Param{Name: name, Type: want, Default: value, Help: help, set: func(s *Settings, text string) error {
		for _, a := range allowed {
			if strings.EqualFold(a, text) {
				*field(s) = a
				return nil
			}
		}
		return fmt.Errorf("is %q: want %s", text, want)
	}}
}

func yesNo(name, value, help string, field func(*Settings) *bool) Param {
	return Param{Name: name, Type: "true or false", Default: value, Help: help, set: func(s *Settings, text string) error {
		switch strings.ToLower(text) {
		case "true", "1", "yes", "y", "t":
			*field(s) = true
		case "false", "0", "no", "n", "f":
			*field(s) = false
		default:
			return fmt.Errorf("is %q: want true or false", text)
		}
		return nil
	}}
}

// duration also takes a bare number, which means seconds, as upstream's files and environment have it.
const durationType = "duration, such as 90s"

func duration(name, value, help string, field func(*Settings) *time.Duration) Param {
	return Param{Name: name, Type: durationType, Default: value, Help: help, set: func(s *Settings, text string) error {
		d, err := time.ParseDuration(text)
		if seconds, e := strconv.ParseFloat(text, 64); e == nil && seconds < 1e9 {
			d, err = time.Duration(seconds*float64(time.Second)), nil
		}
		if err != nil || d < 0 {
			return fmt.Errorf("is %q: want a duration such as 90s or 1m30s", text)
		}
		*field(s) = d
		return nil
	}}
}

// number is at least 1, or -1.
func number(name, value, help string, field func(*Settings) *int) Param {
	return Param{Name: name, Type: "-1 and more", Default: value, Help: help, set: func(s *Settings, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < -1 || n > 1<<30 {
			return fmt.Errorf("is %q: want a whole number from -1", text)
		}
		*field(s) = n
		return nil
	}}
}

// within is a whole number between two, both included.
func within(name, value string, low, high int, help string, field func(*Settings) *int) Param {
	want := fmt.Sprintf("%d to %d", low, high)
	return Param{Name: name, Type: want, Default: value, Help: help, set: func(s *Settings, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return fmt.Errorf("is %q: want a whole number, %s", text, want)
		}
		*field(s) = n
		return nil
	}}
}

// mtu is the largest packet of a device, or zero.
func mtu(name string, low int, help string, field func(*Settings) *int) Param {
	p := within(name, "0", low, api.MaxMTU, help, field)
	p.Type = "0, or " + p.Type
	set := p.set
	p.set = func(s *Settings, text string) error {
		if text == "0" {
			*field(s) = 0
			return nil
		}
		return set(s, text)
	}
	return p
}

// pattern is a regular expression.
func pattern(name, value, help string, field func(*Settings) *string) Param {
	return Param{Name: name, Type: "regular expression", Default: value, Help: help, set: func(s *Settings, text string) error {
		if _, err := regexp.Compile(text); err != nil {
			return fmt.Errorf("is %q: want a regular expression: %w", text, err)
		}
		*field(s) = text
		return nil
	}}
}

// device is the name of an interface that the agent makes.
func device(name, value, help string, field func(*Settings) *string) Param {
	return Param{Name: name, Type: "interface name", Default: value, Help: help, set: func(s *Settings, text string) error {
		if !api.DeviceName(text) {
			return fmt.Errorf("is %q: want an interface's name, of at most 15 letters, digits, dots, hyphens and underscores", text)
		}
		*field(s) = text
		return nil
	}}
}

func port(name, value, help string, field func(*Settings) *int) Param {
	return Param{Name: name, Type: "1 to 65535", Default: value, Help: help, set: func(s *Settings, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("is %q: want a port, 1 to 65535", text)
		}
		*field(s) = n
		return nil
	}}
}

func debugPort() Param {
	p := port("debugPort", "0", "the TCP port at which Go's profiles are served (/debug/pprof/); 0 means not at all", func(s *Settings) *int { return &s.Debug.Port })
	set := p.set
	p.Type = "0 to 65535"
	p.set = func(s *Settings, text string) error {
		if text == "0" {
			s.Debug.Port, s.Debug.Enabled = 0, false
			return nil
		}
		err := set(s, text)
		s.Debug.Enabled = err == nil
		return err
	}
	return p
}

func spoofing() Param {
	p := oneOf("workloadSourceSpoofing", "Disabled", "Any honours an endpoint's allowSpoofedSourcePrefixes; Disabled lets it send from its own addresses alone",
		func(*Settings) *string { return new(string) }, "Disabled", "Any")
	set := p.set
	p.set = func(s *Settings, text string) error {
		if err := set(s, text); err != nil {
			return err
		}
		s.AllowSourceSpoofing = strings.EqualFold(text, "Any")
		return nil
	}
	return p
}

// interfaces refuses what can be no beginning of an interface's name.
func interfaces(prefix string) error {
	if len(prefix) > 14 || strings.ContainsAny(prefix, "/ \t*\"") {
		return fmt.Errorf("has %q: want the beginning of an interface's name, at most 14 characters", prefix)
	}
	return nil
}

// excluded refuses what is neither an interface's name nor a regular expression between slashes.
func excluded(word string) error {
	if pattern, ok := api.ExcludedPattern(word); ok {
		return api.CheckExcluded(pattern)
	}
	return interfaces(word)
}
