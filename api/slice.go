package api

// KubernetesEndpointSlice is Kubernetes' EndpointSlice (discovery.k8s.io/v1): a part of the endpoints of a service, which
// rules name by `services`. Unlike upstream's, it may also be in a datastore that is not Kubernetes.
type KubernetesEndpointSlice struct {
	Object
	AddressType string          `json:"addressType,omitempty"` // IPv4, IPv6, FQDN
	Endpoints   []SliceEndpoint `json:"endpoints,omitempty"`
	Ports       []SlicePort     `json:"ports,omitempty"`
}

// LabelServiceName is the label by which an EndpointSlice names its service.
const LabelServiceName = "kubernetes.io/service-name"

// Service names the service that the slice is of, in the slice's namespace; empty: none.
func (s *KubernetesEndpointSlice) Service() string { return s.Metadata.Labels[LabelServiceName] }

// SliceEndpoint is one endpoint of a service. Whether it is ready makes no difference to policy.
type SliceEndpoint struct {
	Addresses  []string         `json:"addresses,omitempty"` // what is no address, such as a name, means nothing
	Conditions *SliceConditions `json:"conditions,omitempty"`
	Hostname   string           `json:"hostname,omitempty"`
	NodeName   string           `json:"nodeName,omitempty"`
	Zone       string           `json:"zone,omitempty"`
}

// SliceConditions is Kubernetes' EndpointConditions.
type SliceConditions struct {
	Ready       *bool `json:"ready,omitempty"`
	Serving     *bool `json:"serving,omitempty"`
	Terminating *bool `json:"terminating,omitempty"`
}

// SlicePort is a port that all endpoints of a slice serve.
type SlicePort struct {
	Name        string    `json:"name,omitempty"`
	Protocol    *Protocol `json:"protocol,omitempty"` // TCP if it is not said
	Port        *uint16   `json:"port,omitempty"`
	AppProtocol string    `json:"appProtocol,omitempty"`
}

// Number is the port with its protocol; false if it is none that a rule can mean.
func (p SlicePort) Number() (proto uint8, port uint16, ok bool) {
	if p.Port == nil || *p.Port == 0 {
		return 0, 0, false
	}
	if p.Protocol == nil {
		return protoTCP, *p.Port, true
	}
	proto, ok = p.Protocol.Number()
	return proto, *p.Port, ok && hasPorts(p.Protocol)
}
