package api

// policyView gives one shape to all kinds of policies: pointers into the spec;
// nil where a kind has no such field.
type policyView struct {
	tier                   *string
	order                  **float64
	selector               *string
	types                  *[]PolicyType
	serviceAccountSelector *string
	namespaceSelector      *string
	hints                  *[]string
	stagedAction           *string
	global                 *GlobalNetworkPolicySpec
	ingress, egress        *[]Rule
}

// policyOf views a policy; false for other kinds.
func policyOf(r Resource) (policyView, bool) {
	switch r := r.(type) {
	case *NetworkPolicy:
		return viewNamespaced(&r.Spec), true
	case *GlobalNetworkPolicy:
		return viewGlobal(&r.Spec), true
	case *StagedNetworkPolicy:
		v := viewNamespaced(&r.Spec.NetworkPolicySpec)
		v.stagedAction = &r.Spec.StagedAction
		return v, true
	case *StagedGlobalNetworkPolicy:
		v := viewGlobal(&r.Spec.GlobalNetworkPolicySpec)
		v.stagedAction = &r.Spec.StagedAction
		return v, true
	}
	return policyView{}, false
}

func viewNamespaced(s *NetworkPolicySpec) policyView {
	return policyView{
		tier: &s.Tier, order: &s.Order, selector: &s.Selector, types: &s.Types,
		serviceAccountSelector: &s.ServiceAccountSelector, hints: &s.PerformanceHints,
		ingress: &s.Ingress, egress: &s.Egress,
	}
}

func viewGlobal(s *GlobalNetworkPolicySpec) policyView {
	return policyView{
		tier: &s.Tier, order: &s.Order, selector: &s.Selector, types: &s.Types,
		serviceAccountSelector: &s.ServiceAccountSelector, namespaceSelector: &s.NamespaceSelector,
		hints: &s.PerformanceHints, global: s, ingress: &s.Ingress, egress: &s.Egress,
	}
}

// ruleList is one of a resource's lists of rules.
type ruleList struct {
	path  string // spec.ingress
	rules *[]Rule
}

func rulesOf(r Resource) []ruleList {
	if p, ok := policyOf(r); ok {
		return []ruleList{{"spec.ingress", p.ingress}, {"spec.egress", p.egress}}
	}
	if p, ok := r.(*Profile); ok {
		return []ruleList{{"spec.ingress", &p.Spec.Ingress}, {"spec.egress", &p.Spec.Egress}}
	}
	return nil
}

// assign copies src over dst if both are of one type.
func assign(dst, src Resource) bool {
	switch d := dst.(type) {
	case *NetworkPolicy:
		return set(d, src)
	case *GlobalNetworkPolicy:
		return set(d, src)
	case *StagedNetworkPolicy:
		return set(d, src)
	case *StagedGlobalNetworkPolicy:
		return set(d, src)
	case *StagedKubernetesNetworkPolicy:
		return set(d, src)
	case *Tier:
		return set(d, src)
	case *Profile:
		return set(d, src)
	case *NetworkSet:
		return set(d, src)
	case *GlobalNetworkSet:
		return set(d, src)
	case *WorkloadEndpoint:
		return set(d, src)
	case *KubernetesEndpointSlice:
		return set(d, src)
	case *KubernetesService:
		return set(d, src)
	case *HostEndpoint:
		return set(d, src)
	case *LiveMigration:
		return set(d, src)
	case *IPPool:
		return set(d, src)
	case *IPAMConfiguration:
		return set(d, src)
	case *BlockAffinity:
		return set(d, src)
	case *IPReservation:
		return set(d, src)
	case *Node:
		return set(d, src)
	case *CalicoNodeStatus:
		return set(d, src)
	case *FelixConfiguration:
		return set(d, src)
	case *BGPConfiguration:
		return set(d, src)
	case *BGPPeer:
		return set(d, src)
	case *BGPFilter:
		return set(d, src)
	case *ClusterInformation:
		return set(d, src)
	case *KubeControllersConfiguration:
		return set(d, src)
	}
	return false
}

func set[T any](dst *T, src any) bool {
	s, ok := src.(*T)
	if ok {
		*dst = *s
	}
	return ok
}
