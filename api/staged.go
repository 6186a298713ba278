package api

// StagedKubernetesNetworkPolicy is a Kubernetes NetworkPolicy that is judged but never enforced.
type StagedKubernetesNetworkPolicy struct {
	Object
	Spec   StagedKubernetesNetworkPolicySpec `json:"spec"`
	Status *PolicyStatus                     `json:"status,omitempty"`
}

// StagedKubernetesNetworkPolicySpec is Kubernetes' NetworkPolicySpec with a staged action.
type StagedKubernetesNetworkPolicySpec struct {
	StagedAction string        `json:"stagedAction,omitempty"`
	PodSelector  LabelSelector `json:"podSelector"`
	Ingress      []KubeIngress `json:"ingress,omitempty"`
	Egress       []KubeEgress  `json:"egress,omitempty"`
	PolicyTypes  []PolicyType  `json:"policyTypes,omitempty"`
}

// LabelSelector is Kubernetes' own.
type LabelSelector struct {
	MatchLabels      map[string]string  `json:"matchLabels,omitempty"`
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is one of a LabelSelector's expressions.
type LabelRequirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"` // In, NotIn, Exists, DoesNotExist
	Values   []string `json:"values,omitempty"`
}

// KubeIngress is a rule of Kubernetes' for what comes in.
type KubeIngress struct {
	Ports []KubePort `json:"ports,omitempty"`
	From  []KubePeer `json:"from,omitempty"`
}

// KubeEgress is a rule of Kubernetes' for what goes out.
type KubeEgress struct {
	Ports []KubePort `json:"ports,omitempty"`
	To    []KubePeer `json:"to,omitempty"`
}

// KubePort is a port of a rule of Kubernetes'.
type KubePort struct {
	Protocol *string `json:"protocol,omitempty"`
	Port     *Port   `json:"port,omitempty"`
	EndPort  *uint16 `json:"endPort,omitempty"`
}

// KubePeer is the other side of a rule of Kubernetes'.
type KubePeer struct {
	PodSelector       *LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	IPBlock           *KubeIPBlock   `json:"ipBlock,omitempty"`
}

// KubeIPBlock is a prefix without some parts of it.
type KubeIPBlock struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}
