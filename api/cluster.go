package api

import (
	"maps"
	"net/netip"
	"slices"
)

// IPPool is a range of addresses that workloads get.
type IPPool struct {
	Object
	Spec   IPPoolSpec    `json:"spec,omitempty"`
	Status *IPPoolStatus `json:"status,omitempty"`
}

// IPPoolSpec is the body of an IPPool.
type IPPoolSpec struct {
	CIDR              string   `json:"cidr"`
	VXLANMode         string   `json:"vxlanMode,omitempty"` // Never, Always, CrossSubnet
	IPIPMode          string   `json:"ipipMode,omitempty"`
	NATOutgoing       bool     `json:"natOutgoing,omitempty"`
	Disabled          bool     `json:"disabled,omitempty"`
	DisableBGPExport  bool     `json:"disableBGPExport,omitempty"`
	BlockSize         int      `json:"blockSize,omitempty"` // prefix length of a block
	NodeSelector      string   `json:"nodeSelector,omitempty"`
	NamespaceSelector string   `json:"namespaceSelector,omitempty"`
	AllowedUses       []string `json:"allowedUses,omitempty"`    // Workload, Tunnel, LoadBalancer
	AssignmentMode    *string  `json:"assignmentMode,omitempty"` // nil: Automatic
}

// FirstOfEachCIDR returns the pools by which hosts go: of several with one CIDR the first by name, as upstream's agents and its confd have it. Pools are
// by name, or by key. One whose CIDR cannot be read is left out.
func FirstOfEachCIDR(pools map[string]*IPPool) map[string]*IPPool {
	out, seen := map[string]*IPPool{}, map[netip.Prefix]bool{}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		cidr, err := netip.ParsePrefix(pools[name].Spec.CIDR)
		if cidr = cidr.Masked(); err == nil && !seen[cidr] {
			out[name], seen[cidr] = pools[name], true
		}
	}
	return out
}

// Modes in which a pool's addresses are given out.
const (
	AssignAutomatic = "Automatic"
	AssignManual    = "Manual" // to those that ask for the pool by its name
)

// IPPoolStatus is written by controllers.
type IPPoolStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// The condition of a pool that says whether addresses of it may be given out, and its reasons.
const (
	ConditionAllocatable = "Allocatable"
	ReasonOK             = "OK"
	ReasonCIDROverlap    = "CIDROverlap" // another pool has addresses of it
	ReasonTerminating    = "Terminating"
	ReasonPoolDisabled   = "PoolDisabled"
)

// The condition of a pool of which few addresses are left, and its reason. A pool that has enough of them does not have the condition.
const (
	ConditionNearlyFull     = "AddressSpaceNearlyFull"
	ReasonThresholdExceeded = "ThresholdExceeded"
)

// Finalizers of upstream's controllers, by which a pool stays until its addresses are released, and a tier until it holds no policy.
const (
	FinalizerIPPool = "projectcalico.org/ippool-finalizer"
	FinalizerTier   = "projectcalico.org/tier-controller"
)

// IPReservation keeps addresses from being given out unasked.
type IPReservation struct {
	Object
	Spec IPReservationSpec `json:"spec,omitempty"`
}

// IPReservationSpec is the body of an IPReservation.
type IPReservationSpec struct {
	ReservedCIDRs []string `json:"reservedCIDRs,omitempty"`
}

// Node is a host of the cluster.
type Node struct {
	Object
	Spec   NodeSpec   `json:"spec,omitempty"`
	Status NodeStatus `json:"status"`
}

// NodeSpec is the body of a Node.
type NodeSpec struct {
	BGP                  *NodeBGPSpec       `json:"bgp,omitempty"`
	IPv4VXLANTunnelAddr  string             `json:"ipv4VXLANTunnelAddr,omitempty"`
	VXLANTunnelMACAddr   string             `json:"vxlanTunnelMACAddr,omitempty"`
	IPv6VXLANTunnelAddr  string             `json:"ipv6VXLANTunnelAddr,omitempty"`
	VXLANTunnelMACAddrV6 string             `json:"vxlanTunnelMACAddrV6,omitempty"`
	OrchRefs             []OrchRef          `json:"orchRefs,omitempty"`
	Wireguard            *NodeWireguardSpec `json:"wireguard,omitempty"`
	Addresses            []NodeAddress      `json:"addresses,omitempty"`
	Interfaces           []NodeInterface    `json:"interfaces,omitempty"`
}

// NodeInterface is an interface of a node, for those who make host endpoints of them.
type NodeInterface struct {
	Name      string   `json:"name,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

// NodeBGPSpec says how a node speaks BGP, and by which addresses others know it.
type NodeBGPSpec struct {
	ASNumber                *ASNumber `json:"asNumber,omitempty"`    // nil: the cluster's
	IPv4Address             string    `json:"ipv4Address,omitempty"` // with the length of its network's prefix
	IPv6Address             string    `json:"ipv6Address,omitempty"`
	IPv4IPIPTunnelAddr      string    `json:"ipv4IPIPTunnelAddr,omitempty"`
	RouteReflectorClusterID string    `json:"routeReflectorClusterID,omitempty"`
}

// OrchRef is how an orchestrator names the node.
type OrchRef struct {
	NodeName     string `json:"nodeName,omitempty"`
	Orchestrator string `json:"orchestrator"`
}

// NodeWireguardSpec has the addresses of the node's WireGuard interface.
type NodeWireguardSpec struct {
	InterfaceIPv4Address string `json:"interfaceIPv4Address,omitempty"`
	InterfaceIPv6Address string `json:"interfaceIPv6Address,omitempty"`
}

// NodeAddress is one address of a node.
type NodeAddress struct {
	Address string `json:"address"`
	Type    string `json:"type,omitempty"` // CalicoNodeIP, InternalIP, ExternalIP
}

// NodeStatus is written by the agent and by controllers.
type NodeStatus struct {
	WireguardPublicKey   string   `json:"wireguardPublicKey,omitempty"`
	WireguardPublicKeyV6 string   `json:"wireguardPublicKeyV6,omitempty"`
	PodCIDRs             []string `json:"podCIDRs,omitempty"`
}

// ClusterInformation is the one resource "default" that tells the state of the cluster.
type ClusterInformation struct {
	Object
	Spec ClusterInformationSpec `json:"spec,omitempty"`
}

// ClusterInformationSpec is the body of a ClusterInformation.
type ClusterInformationSpec struct {
	ClusterGUID    string `json:"clusterGUID,omitempty"`
	ClusterType    string `json:"clusterType,omitempty"`
	CalicoVersion  string `json:"calicoVersion,omitempty"`
	DatastoreReady *bool  `json:"datastoreReady,omitempty"` // false: everybody pauses
	Variant        string `json:"variant,omitempty"`
}

// Locked reports whether everybody pauses: datastoreReady is false, as while the datastore is moved.
func (s ClusterInformationSpec) Locked() bool { return s.DatastoreReady != nil && !*s.DatastoreReady }
