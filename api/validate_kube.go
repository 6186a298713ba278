package api

import (
	"fmt"
	"net/netip"
)

func (v *validator) kubePolicy(r *StagedKubernetesNetworkPolicy) {
	s := &r.Spec
	v.oneOf("spec.stagedAction", s.StagedAction, stagedSet, stagedDelete, "Learn", "Ignore")
	v.labelSelector("spec.podSelector", &s.PodSelector)
	var types []string
	for i, t := range s.PolicyTypes {
		v.oneOf(fmt.Sprintf("spec.policyTypes[%d]", i), string(t), string(Ingress), string(Egress))
		types = append(types, string(t))
	}
	v.unique("spec.policyTypes", types)
	for i, rule := range s.Ingress {
		path := fmt.Sprintf("spec.ingress[%d]", i)
		v.kubePorts(path, rule.Ports)
		v.kubePeers(path+".from", rule.From)
	}
	for i, rule := range s.Egress {
		path := fmt.Sprintf("spec.egress[%d]", i)
		v.kubePorts(path, rule.Ports)
		v.kubePeers(path+".to", rule.To)
	}
}

func (v *validator) kubePorts(path string, ports []KubePort) {
	for i, p := range ports {
		at := fmt.Sprintf("%s.ports[%d]", path, i)
		if p.Protocol != nil {
			v.oneOf(at+".protocol", *p.Protocol, "TCP", "UDP", "SCTP")
		}
		if p.Port != nil && p.Port.Name == "" && p.Port.Min != p.Port.Max {
			v.fail(at+".port", "is a range: Kubernetes wants port and endPort")
		}
		if p.Port != nil && p.Port.Name == "" && p.Port.Min == 0 {
			v.fail(at+".port", "is 0: want 1 to 65535, or a name")
		}
		if p.EndPort != nil && (p.Port == nil || p.Port.Name != "" || *p.EndPort < p.Port.Max) {
			v.fail(at+".endPort", "needs a numeric port that is not above it")
		}
	}
}

func (v *validator) kubePeers(path string, peers []KubePeer) {
	for i, p := range peers {
		at := fmt.Sprintf("%s[%d]", path, i)
		if p.PodSelector != nil {
			v.labelSelector(at+".podSelector", p.PodSelector)
		}
		if p.NamespaceSelector != nil {
			v.labelSelector(at+".namespaceSelector", p.NamespaceSelector)
		}
		switch {
		case p.IPBlock == nil && p.PodSelector == nil && p.NamespaceSelector == nil:
			v.fail(at, "is empty: want podSelector, namespaceSelector or ipBlock")
		case p.IPBlock != nil && (p.PodSelector != nil || p.NamespaceSelector != nil):
			v.fail(at+".ipBlock", "cannot stand beside selectors: use a peer of its own")
		case p.IPBlock != nil:
			v.ipBlock(at+".ipBlock", p.IPBlock)
		}
	}
}

func (v *validator) ipBlock(path string, b *KubeIPBlock) {
	whole, reason := prefixOf(b.CIDR)
	v.check(path+".cidr", reason)
	for i, e := range b.Except {
		at := fmt.Sprintf("%s.except[%d]", path, i)
		part, bad := prefixOf(e)
		v.check(at, bad)
		if bad == "" && reason == "" && !inside(part, whole) {
			v.fail(at, fmt.Sprintf("%s is not a part of %s", e, b.CIDR))
		}
	}
}

func inside(part, whole netip.Prefix) bool {
	return part.Bits() > whole.Bits() && whole.Contains(part.Addr())
}

func (v *validator) labelSelector(path string, s *LabelSelector) {
	v.labels(path+".matchLabels", s.MatchLabels)
	for i, e := range s.MatchExpressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", path, i)
		v.check(at+".key", badLabelKey(e.Key))
		v.oneOf(at+".operator", e.Operator, "In", "NotIn", "Exists", "DoesNotExist")
		if listed := e.Operator == "In" || e.Operator == "NotIn"; listed != (len(e.Values) > 0) {
			v.fail(at+".values", "goes with the operators In and NotIn, and only with them")
		}
		for _, value := range e.Values {
			v.check(at+".values", badLabelValue(value))
		}
	}
}
