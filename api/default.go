package api

import "strings"

// Default fills in what upstream writes when a user leaves it out. Call it
// before Validate.
func Default(r Resource) {
	if r.Type().APIVersion == "" {
		r.Type().APIVersion = GroupVersion
	}
	if k, ok := kindOf(r.Type().Kind); ok && k.Namespaced && r.Meta().Namespace == "" {
		r.Meta().Namespace = "default"
	}
	if p, ok := policyOf(r); ok {
		defaultPolicy(p)
		return
	}
	switch r := r.(type) {
	case *StagedKubernetesNetworkPolicy:
		if r.Spec.StagedAction == "" {
			r.Spec.StagedAction = stagedSet
		}
	case *Tier:
		defaultTier(r)
	case *IPPool:
		defaultPool(&r.Spec)
	case *WorkloadEndpoint:
		if name, err := WorkloadEndpointName(r.Spec); err == nil && r.Metadata.Name == "" {
			r.Metadata.Name = name
		}
	}
}

const (
	stagedSet    = "Set"
	stagedDelete = "Delete"
)

// DefaultTypes are the directions of a policy that names none: ingress, unless
// it has egress rules alone.
func DefaultTypes(hasIngress, hasEgress bool) []PolicyType {
	switch {
	case hasEgress && hasIngress:
		return []PolicyType{Ingress, Egress}
	case hasEgress:
		return []PolicyType{Egress}
	}
	return []PolicyType{Ingress}
}

func defaultPolicy(p policyView) {
	if *p.tier == "" {
		*p.tier = TierDefault
	}
	if p.stagedAction != nil {
		if *p.stagedAction == "" {
			*p.stagedAction = stagedSet
		}
		if *p.stagedAction == stagedDelete {
			return // it names a policy and says nothing else
		}
	}
	if len(*p.types) == 0 {
		*p.types = DefaultTypes(len(*p.ingress) > 0, len(*p.egress) > 0)
	}
}

// builtinTiers are the tiers whose order and action nobody may change.
var builtinTiers = map[string]TierSpec{
	TierKubeAdmin:    {Order: ptr(1000.0), DefaultAction: ptr(Pass)},
	TierDefault:      {Order: ptr(1000000.0), DefaultAction: ptr(Deny)},
	TierKubeBaseline: {Order: ptr(10000000.0), DefaultAction: ptr(Pass)},
}

// BuiltinProfile is projectcalico-default-allow, which exists though nothing stores it.
func BuiltinProfile() *Profile {
	p := New(KindProfile).(*Profile)
	p.Metadata.Name = ProfileDefaultAllow
	p.Spec.Ingress, p.Spec.Egress = []Rule{{Action: Allow}}, []Rule{{Action: Allow}}
	return p
}

func ptr[T any](v T) *T { return &v }

func defaultTier(r *Tier) {
	fixed, builtin := builtinTiers[r.Metadata.Name]
	if r.Spec.DefaultAction == nil {
		r.Spec.DefaultAction = ptr(Deny)
		if builtin {
			r.Spec.DefaultAction = ptr(*fixed.DefaultAction)
		}
	}
	if r.Spec.Order == nil { // upstream stores it: a tier without an order was last, when the default tier had none
		r.Spec.Order = ptr(*builtinTiers[TierDefault].Order)
		if builtin {
			r.Spec.Order = ptr(*fixed.Order)
		}
	}
}

// blockSize is the length of a pool's blocks: upstream's default where old versions wrote none.
func (s *IPPoolSpec) blockSize() int {
	switch {
	case s.BlockSize != 0:
		return s.BlockSize
	case strings.Contains(s.CIDR, ":"):
		return 122
	}
	return 26
}

func defaultPool(s *IPPoolSpec) {
	if p, bad := prefixOf(s.CIDR); bad == "" && p == p.Masked() && strings.Contains(s.CIDR, "/") {
		s.CIDR = p.String() // IPv6 can be written in many ways; upstream stores one
	}
	if s.VXLANMode == "" {
		s.VXLANMode = "Never"
	}
	if s.IPIPMode == "" {
		s.IPIPMode = "Never"
	}
	s.BlockSize = s.blockSize()
	if s.NodeSelector == "" {
		s.NodeSelector = "all()"
	}
	if len(s.AllowedUses) == 0 {
		s.AllowedUses = []string{"Workload", "Tunnel"}
	}
	if s.AssignmentMode == nil {
		s.AssignmentMode = ptr(AssignAutomatic)
	}
}
