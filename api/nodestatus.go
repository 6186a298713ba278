package api

// CalicoNodeStatus asks a node to say how it is, and has what it said last.
type CalicoNodeStatus struct {
	Object
	Spec   CalicoNodeStatusSpec   `json:"spec,omitempty"`
	Status CalicoNodeStatusStatus `json:"status,omitempty"`
}

// Classes of a CalicoNodeStatus.
const (
	ClassAgent  = "Agent"  // the daemon that speaks BGP
	ClassBGP    = "BGP"    // its sessions
	ClassRoutes = "Routes" // what it knows
)

// CalicoNodeStatusSpec is the body of a CalicoNodeStatus.
type CalicoNodeStatusSpec struct {
	Node                string   `json:"node,omitempty"`
	Classes             []string `json:"classes,omitempty"`
	UpdatePeriodSeconds *uint32  `json:"updatePeriodSeconds,omitempty"` // 0: not at all
}

// CalicoNodeStatusStatus is written by the node; a class that nobody asks for is empty.
type CalicoNodeStatusStatus struct {
	LastUpdated *string          `json:"lastUpdated"` // RFC 3339, UTC; nil: never
	Agent       NodeAgentStatus  `json:"agent,omitempty"`
	BGP         NodeBGPStatus    `json:"bgp,omitempty"`
	Routes      NodeRoutesStatus `json:"routes,omitempty"`
}

// NodeAgentStatus says how the daemons are that speak BGP; ours is one for both families.
type NodeAgentStatus struct {
	BIRDV4 BGPDaemonStatus `json:"birdV4"`
	BIRDV6 BGPDaemonStatus `json:"birdV6"`
}

// BGPDaemonStatus says how one daemon is.
type BGPDaemonStatus struct {
	State                   string `json:"state,omitempty"` // Ready, NotReady
	Version                 string `json:"version,omitempty"`
	RouterID                string `json:"routerID,omitempty"`
	LastBootTime            string `json:"lastBootTime,omitempty"`
	LastReconfigurationTime string `json:"lastReconfigurationTime,omitempty"`
}

// NodeBGPStatus has the node's sessions.
type NodeBGPStatus struct {
	NumberEstablishedV4    int          `json:"numberEstablishedV4"`
	NumberNotEstablishedV4 int          `json:"numberNotEstablishedV4"`
	NumberEstablishedV6    int          `json:"numberEstablishedV6"`
	NumberNotEstablishedV6 int          `json:"numberNotEstablishedV6"`
	PeersV4                []PeerStatus `json:"peersV4,omitempty"`
	PeersV6                []PeerStatus `json:"peersV6,omitempty"`
}

// PeerStatus is one session.
type PeerStatus struct {
	PeerIP string `json:"peerIP,omitempty"`
	Type   string `json:"type,omitempty"`  // NodeMesh, NodePeer, GlobalPeer
	State  string `json:"state,omitempty"` // Idle, Connect, Active, OpenSent, OpenConfirm, Established, Close
	Since  string `json:"since,omitempty"`
}

// NodeRoutesStatus has the routes that the node knows.
type NodeRoutesStatus struct {
	RoutesV4 []RouteStatus `json:"routesV4,omitempty"`
	RoutesV6 []RouteStatus `json:"routesV6,omitempty"`
	// OmittedV4 and OmittedV6, which are ours and not Calico's, count the routes that are too many for one document.
	OmittedV4 int `json:"omittedV4,omitempty"`
	OmittedV6 int `json:"omittedV6,omitempty"`
}

// RouteStatus is one route.
type RouteStatus struct {
	Type        string           `json:"type,omitempty"` // FIB: packets go by it; RIB: it is known
	Destination string           `json:"destination,omitempty"`
	Gateway     string           `json:"gateway,omitempty"`
	Interface   string           `json:"interface,omitempty"`
	LearnedFrom RouteLearnedFrom `json:"learnedFrom,omitempty"`
}

// RouteLearnedFrom says who brought a route.
type RouteLearnedFrom struct {
	SourceType string `json:"sourceType,omitempty"` // Kernel, Static, Direct, NodeMesh, BGPPeer
	PeerIP     string `json:"peerIP,omitempty"`
}
