package api

// GroupVersion is the apiVersion of every resource.
const GroupVersion = "projectcalico.org/v3"

// Kinds of the resources.
const (
	KindNetworkPolicy                 = "NetworkPolicy"
	KindGlobalNetworkPolicy           = "GlobalNetworkPolicy"
	KindStagedNetworkPolicy           = "StagedNetworkPolicy"
	KindStagedGlobalNetworkPolicy     = "StagedGlobalNetworkPolicy"
	KindStagedKubernetesNetworkPolicy = "StagedKubernetesNetworkPolicy"
	KindKubernetesEndpointSlice       = "KubernetesEndpointSlice"
	KindKubernetesService             = "KubernetesService"
	KindTier                          = "Tier"
	KindNetworkSet                    = "NetworkSet"
	KindGlobalNetworkSet              = "GlobalNetworkSet"
	KindProfile                       = "Profile"
	KindWorkloadEndpoint              = "WorkloadEndpoint"
	KindHostEndpoint                  = "HostEndpoint"
	KindLiveMigration                 = "LiveMigration"
	KindIPPool                        = "IPPool"
	KindIPReservation                 = "IPReservation"
	KindIPAMConfiguration             = "IPAMConfiguration"
	KindBlockAffinity                 = "BlockAffinity"
	KindNode                          = "Node"
	KindBGPConfiguration              = "BGPConfiguration"
	KindBGPPeer                       = "BGPPeer"
	KindBGPFilter                     = "BGPFilter"
	KindFelixConfiguration            = "FelixConfiguration"
	KindCalicoNodeStatus              = "CalicoNodeStatus"
	KindClusterInformation            = "ClusterInformation"
	KindKubeControllersConfiguration  = "KubeControllersConfiguration"
)

// Labels and label prefixes with a meaning of their own.
const (
	LabelNamespace      = "projectcalico.org/namespace"
	LabelServiceAccount = "projectcalico.org/serviceaccount"
	LabelOrchestrator   = "projectcalico.org/orchestrator"
	LabelName           = "projectcalico.org/name"
	LabelTier           = "projectcalico.org/tier"
	// LabelNode is a label of Nodes alone, with their name. A selector in a rule that demands it (has, or equal to something) means addresses of
	// nodes and nothing else, not even an endpoint with that label; no other selector means a node.
	LabelNode = AnnotationPrefix + "node"
	// LabelCreatedBy with CreatedByControllers is on resources that nobody wrote by hand, and which may be changed and
	// removed again: Calico's controllers and ours know them by it.
	LabelCreatedBy       = "projectcalico.org/created-by"
	CreatedByControllers = "calico-kube-controllers"
	// NamespaceLabelPrefix and ServiceAccountLabelPrefix begin the labels that
	// an endpoint inherits from its namespace's and service account's profiles.
	NamespaceLabelPrefix      = "pcns."
	ServiceAccountLabelPrefix = "pcsa."
	// AnnotationMetadata holds the name a user gave to a policy, as JSON.
	AnnotationMetadata = "projectcalico.org/metadata"
	// AnnotationReject on a Deny rule, "true": who sent the packet is told, and need not wait.
	AnnotationReject = AnnotationPrefix + "reject"
	// AnnotationBFD on a BGPConfiguration or BGPPeer: see [ParseBFD].
	AnnotationBFD = AnnotationPrefix + "bfd"
	// AnnotationNotTranslated is, on a resource that was made of an object of Kubernetes, what of that could not be translated and is closed, for
	// people. Where an API server's objects are views, it stands there and is no annotation of the object itself.
	AnnotationNotTranslated = AnnotationPrefix + "not-translated"
	// AnnotationPrefix begins the annotations that are ours and not Calico's.
	AnnotationPrefix = "twill.net/"
)

// Names that exist whether or not the store holds them.
const (
	TierDefault         = "default"
	TierKubeAdmin       = "kube-admin"
	TierKubeBaseline    = "kube-baseline"
	ProfileDefaultAllow = "projectcalico-default-allow"
)

// TypeMeta says what a document is.
type TypeMeta struct {
	Kind       string `json:"kind,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// ObjectMeta is the part of Kubernetes' object metadata that is stored.
type ObjectMeta struct {
	Name              string            `json:"name,omitempty"`
	GenerateName      string            `json:"generateName,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	OwnerReferences   []OwnerReference  `json:"ownerReferences,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
}

// OwnerReference is Kubernetes' own.
type OwnerReference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         *bool  `json:"controller,omitempty"`
	BlockOwnerDeletion *bool  `json:"blockOwnerDeletion,omitempty"`
}

// Resource is any of the kinds of this package.
type Resource interface {
	Meta() *ObjectMeta
	Type() *TypeMeta
}

// Object is embedded by every kind; its fields come first in the JSON.
type Object struct {
	TypeMeta `json:",inline"`
	Metadata ObjectMeta `json:"metadata"`
}

// Meta returns the resource's metadata.
func (o *Object) Meta() *ObjectMeta { return &o.Metadata }

// Type returns the resource's kind and version.
func (o *Object) Type() *TypeMeta { return &o.TypeMeta }
