package api

// FelixConfiguration holds settings of the agents: "default" for all, "node.<n>"
// for one node, any other name for the nodes that nodeSelector selects.
type FelixConfiguration struct {
	Object
	Spec FelixConfigurationSpec `json:"spec,omitempty"`
}

// FelixConfigurationSpec is the body of a FelixConfiguration. Upstream has some
// two hundred parameters; those on which Twill does not act are LaterSettings,
// or in the table of [Unhonoured]. Durations are text such as "90s".
type FelixConfigurationSpec struct {
	NodeSelector string `json:"nodeSelector,omitempty"`

	InterfacePrefix  string `json:"interfacePrefix,omitempty"`  // comma-separated; default cali
	InterfaceExclude string `json:"interfaceExclude,omitempty"` // comma-separated

	DefaultEndpointToHostAction string `json:"defaultEndpointToHostAction,omitempty"` // Drop (default), Return, Accept
	ChainInsertMode             string `json:"chainInsertMode,omitempty"`             // Insert (default), Append

	LogPrefix               string  `json:"logPrefix,omitempty"`          // default calico-packet; %t, %k, %n, %p: tier, kind, name, namespace/name of the policy
	LogActionRateLimit      *string `json:"logActionRateLimit,omitempty"` // such as 100/second, the default; none: no limit
	LogActionRateLimitBurst *int    `json:"logActionRateLimitBurst,omitempty"`

	FlowLogsLocalReporter        string `json:"flowLogsLocalReporter,omitempty"`        // Disabled (default), Enabled
	FlowLogsPolicyEvaluationMode string `json:"flowLogsPolicyEvaluationMode,omitempty"` // None, Continuous (default)
	FlowRevocationEnabled        *bool  `json:"flowRevocationEnabled,omitempty"`        // ours; default true

	NftablesTableOwnerEnabled *bool  `json:"nftablesTableOwnerEnabled,omitempty"` // ours; default true
	PolicyRendering           string `json:"policyRendering,omitempty"`           // ours; Compiled (default), Chains

	LogSeverityScreen string `json:"logSeverityScreen,omitempty"` // Trace, Debug, Info (default), Warning, Error, Fatal, None
	LogSeverityFile   string `json:"logSeverityFile,omitempty"`
	LogSeveritySys    string `json:"logSeveritySys,omitempty"`
	LogFilePath       string `json:"logFilePath,omitempty"` // absolute, or none

	PolicySyncPathPrefix     string `json:"policySyncPathPrefix,omitempty"`     // absolute, or none (default)
	EndpointStatusPathPrefix string `json:"endpointStatusPathPrefix,omitempty"` // absolute, or none (default)

	LogDebugFilenameRegex   string `json:"logDebugFilenameRegex,omitempty"`
	DebugDisableLogDropping *bool  `json:"debugDisableLogDropping,omitempty"` // default false
	DebugMemoryProfilePath  string `json:"debugMemoryProfilePath,omitempty"`  // absolute, or none

	UsageReportingEnabled      *bool   `json:"usageReportingEnabled,omitempty"` // default true; a host's usageReportingURL says whether anything is sent
	UsageReportingInitialDelay *string `json:"usageReportingInitialDelay,omitempty"`
	UsageReportingInterval     *string `json:"usageReportingInterval,omitempty"`

	IPForwarding                 string `json:"ipForwarding,omitempty"` // Enabled (default), Disabled
	FloatingIPs                  string `json:"floatingIPs,omitempty"`  // Disabled (default), Enabled
	IPv6Support                  *bool  `json:"ipv6Support,omitempty"`
	DisableConntrackInvalidCheck *bool  `json:"disableConntrackInvalidCheck,omitempty"`
	WorkloadSourceSpoofing       string `json:"workloadSourceSpoofing,omitempty"` // Disabled (default), Any
	ServiceLoopPrevention        string `json:"serviceLoopPrevention,omitempty"`  // Drop (default), Reject, Disabled

	NATOutgoingAddress                 string `json:"natOutgoingAddress,omitempty"`
	NATPortRange                       *Port  `json:"natPortRange,omitempty"`
	NATOutgoingExclusions              string `json:"natOutgoingExclusions,omitempty"`              // IPPoolsOnly (default), IPPoolsAndHostIPs
	IptablesNATOutgoingInterfaceFilter string `json:"iptablesNATOutgoingInterfaceFilter,omitempty"` // an interface's name; + at its end: any that begins so

	FailsafeInboundHostPorts  *[]ProtoPort `json:"failsafeInboundHostPorts,omitempty"` // nil: the default ones; empty: none
	FailsafeOutboundHostPorts *[]ProtoPort `json:"failsafeOutboundHostPorts,omitempty"`

	ReportingInterval        *string `json:"reportingInterval,omitempty"`
	ReportingTTL             *string `json:"reportingTTL,omitempty"`
	EndpointReportingEnabled *bool   `json:"endpointReportingEnabled,omitempty"`
	EndpointReportingDelay   *string `json:"endpointReportingDelay,omitempty"`
	OpenstackRegion          string  `json:"openstackRegion,omitempty"`

	NftablesMode    *string `json:"nftablesMode,omitempty"`    // Enabled, Disabled, Auto
	IptablesBackend *string `json:"iptablesBackend,omitempty"` // Auto, NFT, Legacy

	// Policy in the tables of iptables; ChainInsertMode is of it, too.
	IptablesFilterAllowAction string `json:"iptablesFilterAllowAction,omitempty"` // Accept (default), Return
	IptablesMangleAllowAction string `json:"iptablesMangleAllowAction,omitempty"` // Accept (default), Return
	IptablesFilterDenyAction  string `json:"iptablesFilterDenyAction,omitempty"`  // Drop (default), Reject

	UseInternalDataplaneDriver *bool `json:"useInternalDataplaneDriver,omitempty"`

	NftablesRefreshInterval  *string `json:"nftablesRefreshInterval,omitempty"`
	IptablesRefreshInterval  *string `json:"iptablesRefreshInterval,omitempty"`
	RouteRefreshInterval     *string `json:"routeRefreshInterval,omitempty"`
	InterfaceRefreshInterval *string `json:"interfaceRefreshInterval,omitempty"`
	IPSetsRefreshInterval    *string `json:"ipsetsRefreshInterval,omitempty"`
	NftablesMarkMask         *uint32 `json:"nftablesMarkMask,omitempty"`
	IptablesMarkMask         *uint32 `json:"iptablesMarkMask,omitempty"`
	DeviceRouteProtocol      *int    `json:"deviceRouteProtocol,omitempty"`
	RemoveExternalRoutes     *bool   `json:"removeExternalRoutes,omitempty"`
	RouteSyncDisabled        *bool   `json:"routeSyncDisabled,omitempty"` // true: the agent makes no routes

	DeviceRouteSourceAddress     *string `json:"deviceRouteSourceAddress,omitempty"`     // IPv4, of this host
	DeviceRouteSourceAddressIPv6 *string `json:"deviceRouteSourceAddressIPv6,omitempty"` // of this host
	IPv4NormalRoutePriority      *int    `json:"ipv4NormalRoutePriority,omitempty"`      // metrics of routes to workloads; nil: the kernel's default
	IPv6NormalRoutePriority      *int    `json:"ipv6NormalRoutePriority,omitempty"`
	IPv4ElevatedRoutePriority    *int    `json:"ipv4ElevatedRoutePriority,omitempty"` // of machines that come from another host; nil: 512
	IPv6ElevatedRoutePriority    *int    `json:"ipv6ElevatedRoutePriority,omitempty"`
	LocalSubnetL2Reachability    string  `json:"localSubnetL2Reachability,omitempty"` // Disabled (default), PodsAndLoadBalancers
	ProgramClusterRoutes         string  `json:"programClusterRoutes,omitempty"`      // EnabledIPIPOnly (default), EnabledNoEncapOnly, Enabled, Disabled

	LocalSubnetL2ReachabilityRefreshInterval *string `json:"localSubnetL2ReachabilityRefreshInterval,omitempty"` // how often what is answered for is announced again

	LiveMigrationRouteConvergenceTime *string `json:"liveMigrationRouteConvergenceTime,omitempty"` // how long those metrics stay after a migration

	HealthEnabled *bool   `json:"healthEnabled,omitempty"`
	HealthHost    *string `json:"healthHost,omitempty"`
	HealthPort    *int    `json:"healthPort,omitempty"`

	HealthTimeoutOverrides []HealthTimeout `json:"healthTimeoutOverrides,omitempty"`

	PrometheusMetricsEnabled *bool  `json:"prometheusMetricsEnabled,omitempty"`
	PrometheusMetricsHost    string `json:"prometheusMetricsHost,omitempty"`
	PrometheusMetricsPort    *int   `json:"prometheusMetricsPort,omitempty"`

	PrometheusGoMetricsEnabled      *bool `json:"prometheusGoMetricsEnabled,omitempty"`
	PrometheusProcessMetricsEnabled *bool `json:"prometheusProcessMetricsEnabled,omitempty"`

	PrometheusWireGuardMetricsEnabled *bool `json:"prometheusWireGuardMetricsEnabled,omitempty"` // default true

	PrometheusMetricsCertFile *string `json:"prometheusMetricsCertFile,omitempty"`
	PrometheusMetricsKeyFile  *string `json:"prometheusMetricsKeyFile,omitempty"`
	PrometheusMetricsCAFile   *string `json:"prometheusMetricsCAFile,omitempty"`

	DebugHost *string `json:"debugHost,omitempty"`
	DebugPort *int    `json:"debugPort,omitempty"`

	GoGCThreshold   *int `json:"goGCThreshold,omitempty"`   // per cent; default 40
	GoMemoryLimitMB *int `json:"goMemoryLimitMB,omitempty"` // -1 (default): none
	GoMaxProcs      *int `json:"goMaxProcs,omitempty"`      // -1 (default): as Go decides

	AllowVXLANPacketsFromWorkloads *bool `json:"allowVXLANPacketsFromWorkloads,omitempty"`
	AllowIPIPPacketsFromWorkloads  *bool `json:"allowIPIPPacketsFromWorkloads,omitempty"`

	VXLANEnabled *bool `json:"vxlanEnabled,omitempty"` // nil: as pools say
	VXLANVNI     *int  `json:"vxlanVNI,omitempty"`     // default 4096
	VXLANPort    *int  `json:"vxlanPort,omitempty"`    // default 4789
	VXLANMTU     *int  `json:"vxlanMTU,omitempty"`     // bytes; 0 (default): as the host's interface allows
	VXLANMTUV6   *int  `json:"vxlanMTUV6,omitempty"`   // bytes; 0 (default): as the host's interface allows
	IPIPEnabled  *bool `json:"ipipEnabled,omitempty"`  // nil: as pools say
	IPIPMTU      *int  `json:"ipipMTU,omitempty"`      // bytes; 0 (default): as the host's interface allows

	// MetadataAddr is an IPv4 address, or none in any case: where what workloads send to TCP port 80 of 169.254.169.254 goes, at MetadataPort.
	MetadataAddr                 string    `json:"metadataAddr,omitempty"`
	MetadataPort                 *int      `json:"metadataPort,omitempty"`             // default 8775
	ExternalNodesList            *[]string `json:"externalNodesList,omitempty"`        // addresses and CIDRs of hosts that are no Nodes and may send encapsulated packets
	WireguardEnabled             *bool     `json:"wireguardEnabled,omitempty"`         // of IPv4; default false
	WireguardEnabledV6           *bool     `json:"wireguardEnabledV6,omitempty"`       // default false
	WireguardListeningPort       *int      `json:"wireguardListeningPort,omitempty"`   // default 51820
	WireguardListeningPortV6     *int      `json:"wireguardListeningPortV6,omitempty"` // default 51821
	WireguardInterfaceName       string    `json:"wireguardInterfaceName,omitempty"`   // default wireguard.cali
	WireguardInterfaceNameV6     string    `json:"wireguardInterfaceNameV6,omitempty"` // default wg-v6.cali
	WireguardRoutingRulePriority *int      `json:"wireguardRoutingRulePriority,omitempty"`
	WireguardMTU                 *int      `json:"wireguardMTU,omitempty"`   // bytes; 0 (default): as the host's interfaces allow
	WireguardMTUV6               *int      `json:"wireguardMTUV6,omitempty"` // bytes; 0 (default): as the host's interfaces allow
	WireguardKeepAlive           *string   `json:"wireguardKeepAlive,omitempty"`
	WireguardThreadingEnabled    *bool     `json:"wireguardThreadingEnabled,omitempty"` // of the kernel's devices; default false
	// WireguardUserspaceEnabled is ours: without the kernel's WireGuard, a process of the agent's has the tunnel; default true.
	WireguardUserspaceEnabled *bool `json:"wireguardUserspaceEnabled,omitempty"`
	// WireguardAllowUnencrypted is ours: what goes to a host that has no key is not dropped, but sent as without WireGuard; default false.
	WireguardAllowUnencrypted *bool `json:"wireguardAllowUnencrypted,omitempty"`
	// WireguardHostEncryptionEnabled: what hosts with keys send to each other's own addresses is encrypted, too; default false.
	WireguardHostEncryptionEnabled *bool `json:"wireguardHostEncryptionEnabled,omitempty"`
	// RouteTableRange and RouteTableRanges, one of the two, are the tables of routes that the agent may have; default 1 to 250.
	RouteTableRange  *RouteTableRange   `json:"routeTableRange,omitempty"`
	RouteTableRanges *[]RouteTableRange `json:"routeTableRanges,omitempty"`

	// MTUIfacePattern is a regular expression (RE2) of the names of interfaces that lead to other hosts.
	MTUIfacePattern string `json:"mtuIfacePattern,omitempty"`

	LaterSettings
}

// Bounds of the largest packets of tunnels, in bytes: what IPv4 (RFC 791) and IPv6 (RFC 8200) need of a link, and what the length of a
// packet allows.
const (
	MinMTU   = 68
	MinMTUV6 = 1280
	MaxMTU   = 65535
)

// RouteProtocol is the protocol number of the agent's routes, where settings do not say otherwise; MaxRouteProtocol is the largest that routes may have.
const (
	RouteProtocol    = 80
	MaxRouteProtocol = 255
)

// TakenRouteProtocols are those of others: the kernel, BIRD, and Twill's own other routes. By them it is known whose a route is.
var TakenRouteProtocols = []int{2, 12, 81, 82, 186}

// MaxRoutePriority is the largest metric of routes to workloads: theirs come before all that BGP learns.
const MaxRoutePriority = 2047

// MaxRulePriority is that of the last rule of policy routing before those of the main table.
const MaxRulePriority = 32765

// HealthTimeout is how long a part of the agent may give no sign of life.
type HealthTimeout struct {
	Name    string `json:"name"`
	Timeout string `json:"timeout"`
}

// ProtoPort is a port that stays open, or may be reached, whatever policy says.
type ProtoPort struct {
	Protocol string  `json:"protocol,omitempty"`
	Port     uint16  `json:"port"`
	Net      *string `json:"net,omitempty"` // nil: anywhere
}
