package api

// KubernetesService is what routes to a Kubernetes Service (v1) depend on: its addresses, and from which nodes they are reached. Unlike
// upstream's, it may also be in a datastore that is not Kubernetes.
type KubernetesService struct {
	Object
	Spec   KubernetesServiceSpec   `json:"spec,omitempty"`
	Status KubernetesServiceStatus `json:"status"`
}

// KubernetesServiceSpec is the body of a KubernetesService, as Kubernetes has it.
type KubernetesServiceSpec struct {
	Type                  string   `json:"type,omitempty"`                  // ClusterIP (also if it is empty), NodePort, LoadBalancer, ExternalName
	ClusterIPs            []string `json:"clusterIPs,omitempty"`            // None: it has no address of its own
	ExternalIPs           []string `json:"externalIPs,omitempty"`           // addresses that somebody routes to nodes
	ExternalTrafficPolicy string   `json:"externalTrafficPolicy,omitempty"` // Local: only nodes with an endpoint of it serve those from outside; Cluster: all nodes
}

// KubernetesServiceStatus has the addresses that a load balancer gave to a service.
type KubernetesServiceStatus struct {
	LoadBalancer ServiceLoadBalancer `json:"loadBalancer,omitzero"`
}

// ServiceLoadBalancer is Kubernetes' LoadBalancerStatus.
type ServiceLoadBalancer struct {
	Ingress []ServiceIngress `json:"ingress,omitempty"`
}

// ServiceIngress is one of a load balancer's addresses.
type ServiceIngress struct {
	IP string `json:"ip,omitempty"`
}

// Values of fields of a KubernetesService.
const (
	ServiceExternalName = "ExternalName"
	ServiceLocal        = "Local"
	ServiceHeadless     = "None"
)
