package api

// WorkloadEndpoint is an interface of a container or VM.
type WorkloadEndpoint struct {
	Object
	Spec WorkloadEndpointSpec `json:"spec,omitempty"`
}

// WorkloadEndpointSpec is the body of a WorkloadEndpoint.
type WorkloadEndpointSpec struct {
	Orchestrator               string                 `json:"orchestrator,omitempty"`
	Workload                   string                 `json:"workload,omitempty"`
	Node                       string                 `json:"node,omitempty"`
	ContainerID                string                 `json:"containerID,omitempty"`
	Pod                        string                 `json:"pod,omitempty"`
	Endpoint                   string                 `json:"endpoint,omitempty"`
	ServiceAccountName         string                 `json:"serviceAccountName,omitempty"`
	IPNetworks                 []string               `json:"ipNetworks,omitempty"` // /32 and /128
	AllowedIPs                 []string               `json:"allowedIps,omitempty"` // those of ipNetworks that DHCP does not serve; upstream's networking-calico writes it
	IPNATs                     []IPNAT                `json:"ipNATs,omitempty"`
	IPv4Gateway                string                 `json:"ipv4Gateway,omitempty"`
	IPv6Gateway                string                 `json:"ipv6Gateway,omitempty"`
	Profiles                   []string               `json:"profiles,omitempty"`
	InterfaceName              string                 `json:"interfaceName,omitempty"`
	MAC                        string                 `json:"mac,omitempty"`
	Ports                      []WorkloadEndpointPort `json:"ports,omitempty"`
	AllowSpoofedSourcePrefixes []string               `json:"allowSpoofedSourcePrefixes,omitempty"`
	QoSControls                *QoSControls           `json:"qosControls,omitempty"`
}

// IPNAT maps an external address one to one onto a workload's.
type IPNAT struct {
	InternalIP string `json:"internalIP"`
	ExternalIP string `json:"externalIP"`
}

// WorkloadEndpointPort names a port of a workload.
type WorkloadEndpointPort struct {
	Name     string   `json:"name"`
	Protocol Protocol `json:"protocol"`
	Port     uint16   `json:"port"`
	HostPort uint16   `json:"hostPort,omitempty"`
	HostIP   string   `json:"hostIP,omitempty"`
}

// HostEndpoint is one or all of a host's own interfaces.
type HostEndpoint struct {
	Object
	Spec HostEndpointSpec `json:"spec,omitempty"`
}

// HostEndpointSpec is the body of a HostEndpoint.
type HostEndpointSpec struct {
	Node          string         `json:"node,omitempty"`
	InterfaceName string         `json:"interfaceName,omitempty"` // a name, or "*"
	ExpectedIPs   []string       `json:"expectedIPs,omitempty"`
	Profiles      []string       `json:"profiles,omitempty"`
	Ports         []EndpointPort `json:"ports,omitempty"`
}

// EndpointPort names a port of a host.
type EndpointPort struct {
	Name     string   `json:"name"`
	Protocol Protocol `json:"protocol"`
	Port     uint16   `json:"port"`
}

// NetworkSet is a labelled list of prefixes that rules of its namespace's selectors can match.
type NetworkSet struct {
	Object
	Spec NetworkSetSpec `json:"spec,omitempty"`
}

// GlobalNetworkSet is a NetworkSet without a namespace.
type GlobalNetworkSet struct {
	Object
	Spec NetworkSetSpec `json:"spec,omitempty"`
}

// NetworkSetSpec is the body of both network sets.
type NetworkSetSpec struct {
	Nets []string `json:"nets,omitempty"`
}
