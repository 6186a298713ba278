package api

// BGPConfiguration says how nodes speak BGP: "default" for all, "node.<name>" for one.
type BGPConfiguration struct {
	Object
	Spec BGPConfigurationSpec `json:"spec,omitempty"`
}

// BGPConfigurationSpec is the body of a BGPConfiguration. What is absent in that of a node is taken from "default".
type BGPConfigurationSpec struct {
	LogSeverityScreen              string                `json:"logSeverityScreen,omitempty"`     // Trace, Debug, Info, Warning, Error, Fatal; empty: as the daemon's flag says
	NodeToNodeMeshEnabled          *bool                 `json:"nodeToNodeMeshEnabled,omitempty"` // nil: true; of "default" alone
	ASNumber                       *ASNumber             `json:"asNumber,omitempty"`              // nil: 64512; of "default" alone
	ServiceLoadBalancerIPs         []BGPServiceBlock     `json:"serviceLoadBalancerIPs,omitempty"`
	ServiceExternalIPs             []BGPServiceBlock     `json:"serviceExternalIPs,omitempty"`
	ServiceClusterIPs              []BGPServiceBlock     `json:"serviceClusterIPs,omitempty"`
	Communities                    []Community           `json:"communities,omitempty"`
	PrefixAdvertisements           []PrefixAdvertisement `json:"prefixAdvertisements,omitempty"`
	ListenPort                     uint16                `json:"listenPort,omitempty"` // 0: 179
	NodeMeshPassword               *BGPPassword          `json:"nodeMeshPassword,omitempty"`
	NodeMeshMaxRestartTime         string                `json:"nodeMeshMaxRestartTime,omitempty"`         // empty: 120s
	BindMode                       string                `json:"bindMode,omitempty"`                       // None, NodeIP
	IgnoredInterfaces              []string              `json:"ignoredInterfaces,omitempty"`              // names, * at the end stands for anything
	ServiceLoadBalancerAggregation string                `json:"serviceLoadBalancerAggregation,omitempty"` // Enabled, Disabled
	// ProgramClusterRoutes is for which pools BGP installs the routes that it learns, of "default" alone: Enabled and EnabledNoEncapOnly
	// (default): those without encapsulation; Disabled and EnabledIPIPOnly: none.
	ProgramClusterRoutes string `json:"programClusterRoutes,omitempty"`
	// Addresses that each host has for its workloads, so that these can call it; of "default" alone.
	LocalWorkloadPeeringIPv4 string `json:"localWorkloadPeeringIPV4,omitempty"`
	LocalWorkloadPeeringIPv6 string `json:"localWorkloadPeeringIPV6,omitempty"`
	// The priority of routes of which nothing else is said, by family: that of the node's own without a metric, and of learned routes; of
	// "default" alone. nil: 1024.
	IPv4NormalRoutePriority *int32 `json:"ipv4NormalRoutePriority,omitempty"`
	IPv6NormalRoutePriority *int32 `json:"ipv6NormalRoutePriority,omitempty"`
}

// BGPServiceBlock is a range of addresses of services.
type BGPServiceBlock struct {
	CIDR string `json:"cidr,omitempty"`
}

// Community is a name for a community: aa:nn, or aa:nn:mm for a large one.
type Community struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

// PrefixAdvertisement puts communities, by name or value, on the routes within a prefix.
type PrefixAdvertisement struct {
	CIDR        string   `json:"cidr,omitempty"`
	Communities []string `json:"communities,omitempty"`
}

// BGPPassword names a secret; the secret itself is never in the datastore.
type BGPPassword struct {
	SecretKeyRef *SecretKeyRef `json:"secretKeyRef,omitempty"`
	// Unread: it cannot be known which secret is meant, and why; no session may be opened. See DecodeStored.
	Unread string `json:"-"`
}

// SecretKeyRef names one value of a secret.
type SecretKeyRef struct {
	Name     string `json:"name,omitempty"`
	Key      string `json:"key"`
	Optional *bool  `json:"optional,omitempty"`
}

// BGPPeer makes sessions: of all nodes, one node or those of a selector, with an address or with other nodes.
type BGPPeer struct {
	Object
	Spec BGPPeerSpec `json:"spec,omitempty"`
}

// BGPPeerSpec is the body of a BGPPeer.
type BGPPeerSpec struct {
	Node                     string       `json:"node,omitempty"`
	NodeSelector             string       `json:"nodeSelector,omitempty"`
	PeerIP                   string       `json:"peerIP,omitempty"`   // perhaps with a port
	ASNumber                 ASNumber     `json:"asNumber,omitempty"` // 0: the cluster's, of BGPConfiguration default
	LocalASNumber            *ASNumber    `json:"localASNumber,omitempty"`
	PeerSelector             string       `json:"peerSelector,omitempty"`
	KeepOriginalNextHop      bool         `json:"keepOriginalNextHop,omitempty"`
	NextHopMode              string       `json:"nextHopMode,omitempty"` // Auto, Self, Keep
	Password                 *BGPPassword `json:"password,omitempty"`
	SourceAddress            string       `json:"sourceAddress,omitempty"`  // UseNodeIP, None
	MaxRestartTime           string       `json:"maxRestartTime,omitempty"` // empty: 120s
	KeepaliveTime            string       `json:"keepaliveTime,omitempty"`  // empty: 30s; three of them are the hold time
	NumAllowedLocalASNumbers *int32       `json:"numAllowedLocalASNumbers,omitempty"`
	TTLSecurity              *uint8       `json:"ttlSecurity,omitempty"` // hops to the peer
	Filters                  []string     `json:"filters,omitempty"`     // names of BGPFilters, in order
	ReversePeering           string       `json:"reversePeering,omitempty"`
	ReachableBy              string       `json:"reachableBy,omitempty"`           // a gateway: the peer gets a route of its own through it
	LocalWorkloadSelector    string       `json:"localWorkloadSelector,omitempty"` // the peers are workloads on the node itself
}

// BGPFilter is a list of rules for routes that a session brings or sends.
type BGPFilter struct {
	Object
	Spec BGPFilterSpec `json:"spec"`
}

// BGPFilterSpec is the body of a BGPFilter. The first rule that matches decides; what none matches is as if there
// were no filter.
type BGPFilterSpec struct {
	ExportV4 []BGPFilterRule `json:"exportV4,omitempty"`
	ImportV4 []BGPFilterRule `json:"importV4,omitempty"`
	ExportV6 []BGPFilterRule `json:"exportV6,omitempty"`
	ImportV6 []BGPFilterRule `json:"importV6,omitempty"`
}

// BGPFilterRule is one rule: all that is given must match.
type BGPFilterRule struct {
	CIDR          string               `json:"cidr,omitempty"`
	PrefixLength  *BGPPrefixLength     `json:"prefixLength,omitempty"`
	Source        string               `json:"source,omitempty"`        // RemotePeers: only what a peer told us
	Interface     string               `json:"interface,omitempty"`     // of exports: the interface of a route of the node's own; * and ? stand for others
	MatchOperator string               `json:"matchOperator,omitempty"` // Equal, NotEqual, In, NotIn
	PeerType      string               `json:"peerType,omitempty"`      // eBGP, iBGP
	Communities   *BGPCommunityMatch   `json:"communities,omitempty"`
	ASPathPrefix  []ASNumber           `json:"asPathPrefix,omitempty"`
	Action        string               `json:"action"` // Accept, Reject
	Operations    []BGPFilterOperation `json:"operations,omitempty"`
	Priority      *int32               `json:"priority,omitempty"` // a route's metric; see MaxBGPRoutePriority
	// Void: it accepts, and was not understood; it matches nothing. See DecodeStored.
	Void bool `json:"-"`
}

// BGPPrefixLength bounds the length of a route's prefix.
type BGPPrefixLength struct {
	Min *int32 `json:"min,omitempty"`
	Max *int32 `json:"max,omitempty"`
}

// BGPCommunityMatch has the one community that a route must carry.
type BGPCommunityMatch struct {
	Values []string `json:"values"`
}

// BGPFilterOperation changes a route that is accepted. Exactly one field is set.
type BGPFilterOperation struct {
	AddCommunity  *BGPAddCommunity  `json:"addCommunity,omitempty"`
	PrependASPath *BGPPrependASPath `json:"prependASPath,omitempty"`
	SetPriority   *BGPSetPriority   `json:"setPriority,omitempty"`
}

// BGPAddCommunity adds a community.
type BGPAddCommunity struct {
	Value string `json:"value"`
}

// BGPPrependASPath puts numbers before the route's path, in this order.
type BGPPrependASPath struct {
	Prefix []ASNumber `json:"prefix"`
}

// BGPSetPriority sets a route's priority.
type BGPSetPriority struct {
	Value int32 `json:"value"` // 1 to MaxBGPRoutePriority
}

// MaxBGPRoutePriority is the largest priority of a route. Peers are sent a priority as the LOCAL_PREF 2147483647 less the priority, and those of
// upstream go to 2147483646; but LOCAL_PREF of other networks is small, 100 by default, and must not be taken for a priority.
const MaxBGPRoutePriority = 1<<30 - 1

// bgpRules are the lists of a filter, with their paths.
func bgpRules(s *BGPFilterSpec) []bgpRuleList {
	return []bgpRuleList{
		{"spec.exportV4", s.ExportV4, true, true},
		{"spec.importV4", s.ImportV4, true, false},
		{"spec.exportV6", s.ExportV6, false, true},
		{"spec.importV6", s.ImportV6, false, false},
	}
}

type bgpRuleList struct {
	path   string
	rules  []BGPFilterRule
	four   bool
	export bool
}
