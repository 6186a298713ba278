package api

// Action is what a rule or the end of a tier does.
type Action string

// Actions of rules; a tier's default action is Deny or Pass.
const (
	Allow Action = "Allow"
	Deny  Action = "Deny"
	Log   Action = "Log"
	Pass  Action = "Pass"
)

// PolicyType is a direction in which a policy applies.
type PolicyType string

// Directions, as seen from the endpoint.
const (
	Ingress PolicyType = "Ingress"
	Egress  PolicyType = "Egress"
)

// NetworkPolicy applies to the workload endpoints of its namespace.
type NetworkPolicy struct {
	Object
	Spec   NetworkPolicySpec `json:"spec"`
	Status *PolicyStatus     `json:"status,omitempty"`
}

// NetworkPolicySpec is the body of a NetworkPolicy.
type NetworkPolicySpec struct {
	Tier                   string       `json:"tier,omitempty"`
	Order                  *float64     `json:"order,omitempty"` // lower first; nil is last
	Ingress                []Rule       `json:"ingress,omitempty"`
	Egress                 []Rule       `json:"egress,omitempty"`
	Selector               string       `json:"selector,omitempty"`
	Types                  []PolicyType `json:"types,omitempty"`
	ServiceAccountSelector string       `json:"serviceAccountSelector,omitempty"`
	PerformanceHints       []string     `json:"performanceHints,omitempty"`
}

// GlobalNetworkPolicy applies to workload endpoints of any namespace and to host endpoints.
type GlobalNetworkPolicy struct {
	Object
	Spec   GlobalNetworkPolicySpec `json:"spec"`
	Status *PolicyStatus           `json:"status,omitempty"`
}

// GlobalNetworkPolicySpec is the body of a GlobalNetworkPolicy.
type GlobalNetworkPolicySpec struct {
	Tier                   string       `json:"tier,omitempty"`
	Order                  *float64     `json:"order,omitempty"`
	Ingress                []Rule       `json:"ingress,omitempty"`
	Egress                 []Rule       `json:"egress,omitempty"`
	Selector               string       `json:"selector,omitempty"`
	Types                  []PolicyType `json:"types,omitempty"`
	DoNotTrack             bool         `json:"doNotTrack,omitempty"`
	PreDNAT                bool         `json:"preDNAT,omitempty"`
	ApplyOnForward         bool         `json:"applyOnForward,omitempty"`
	ServiceAccountSelector string       `json:"serviceAccountSelector,omitempty"`
	NamespaceSelector      string       `json:"namespaceSelector,omitempty"`
	PerformanceHints       []string     `json:"performanceHints,omitempty"`
}

// AssumeNeededOnEveryNode is a performance hint: every node has the policy's sets ready before an endpoint needs them.
const AssumeNeededOnEveryNode = "AssumeNeededOnEveryNode"

// StagedNetworkPolicy is a NetworkPolicy that is judged but never enforced.
type StagedNetworkPolicy struct {
	Object
	Spec   StagedNetworkPolicySpec `json:"spec"`
	Status *PolicyStatus           `json:"status,omitempty"`
}

// StagedNetworkPolicySpec is the body of a StagedNetworkPolicy.
type StagedNetworkPolicySpec struct {
	StagedAction string `json:"stagedAction,omitempty"` // Set (default) or Delete
	NetworkPolicySpec
}

// StagedGlobalNetworkPolicy is a GlobalNetworkPolicy that is judged but never enforced.
type StagedGlobalNetworkPolicy struct {
	Object
	Spec   StagedGlobalNetworkPolicySpec `json:"spec"`
	Status *PolicyStatus                 `json:"status,omitempty"`
}

// StagedGlobalNetworkPolicySpec is the body of a StagedGlobalNetworkPolicy.
type StagedGlobalNetworkPolicySpec struct {
	StagedAction string `json:"stagedAction,omitempty"`
	GlobalNetworkPolicySpec
}

// PolicyStatus is written by controllers.
type PolicyStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// Tier orders groups of policies.
type Tier struct {
	Object
	Spec   TierSpec   `json:"spec"`
	Status TierStatus `json:"status"`
}

// TierSpec is the body of a Tier.
type TierSpec struct {
	Order         *float64 `json:"order,omitempty"`
	DefaultAction *Action  `json:"defaultAction,omitempty"` // Deny (default) or Pass
}

// TierStatus is written by controllers.
type TierStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is Kubernetes' metav1.Condition.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// Profile gives its endpoints labels, and rules that apply after all tiers.
type Profile struct {
	Object
	Spec ProfileSpec `json:"spec,omitempty"`
}

// ProfileSpec is the body of a Profile.
type ProfileSpec struct {
	Ingress       []Rule            `json:"ingress,omitempty"`
	Egress        []Rule            `json:"egress,omitempty"`
	LabelsToApply map[string]string `json:"labelsToApply,omitempty"`
}

// Rule matches packets and says what becomes of them.
type Rule struct {
	Action      Action        `json:"action"`
	IPVersion   *int          `json:"ipVersion,omitempty"`
	Protocol    *Protocol     `json:"protocol,omitempty"`
	ICMP        *ICMPFields   `json:"icmp,omitempty"`
	NotProtocol *Protocol     `json:"notProtocol,omitempty"`
	NotICMP     *ICMPFields   `json:"notICMP,omitempty"`
	Source      EntityRule    `json:"source,omitzero"`
	Destination EntityRule    `json:"destination,omitzero"`
	HTTP        *HTTPMatch    `json:"http,omitempty"`
	Metadata    *RuleMetadata `json:"metadata,omitempty"`

	// Void is set by DecodeStored on a rule that was not understood and must
	// match nothing; such a rule keeps its place, since a rule's identity is
	// its index. It is never stored.
	Void bool `json:"-"`
}

// Rejects reports whether the rule tells the sender that it denies.
func (r *Rule) Rejects() bool {
	return r.Action == Deny && r.Metadata != nil && r.Metadata.Annotations[AnnotationReject] == "true"
}

// EntityRule is what one side of a packet must be.
type EntityRule struct {
	Nets              []string             `json:"nets,omitempty"`
	Selector          string               `json:"selector,omitempty"`
	NamespaceSelector string               `json:"namespaceSelector,omitempty"`
	Services          *ServiceMatch        `json:"services,omitempty"`
	Ports             []Port               `json:"ports,omitempty"`
	NotNets           []string             `json:"notNets,omitempty"`
	NotSelector       string               `json:"notSelector,omitempty"`
	NotPorts          []Port               `json:"notPorts,omitempty"`
	ServiceAccounts   *ServiceAccountMatch `json:"serviceAccounts,omitempty"`
}

// ICMPFields match the type, and the code if given.
type ICMPFields struct {
	Type *int `json:"type,omitempty"`
	Code *int `json:"code,omitempty"`
}

// ServiceMatch names a Kubernetes service.
type ServiceMatch struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// ServiceAccountMatch matches workloads by their service account.
type ServiceAccountMatch struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"`
}

// HTTPMatch matches requests; only a proxy can enforce it.
type HTTPMatch struct {
	Methods []string   `json:"methods,omitempty"`
	Paths   []HTTPPath `json:"paths,omitempty"`
}

// HTTPPath is one of exact or prefix.
type HTTPPath struct {
	Exact  string `json:"exact,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// RuleMetadata is carried to the kernel's comments.
type RuleMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
}
