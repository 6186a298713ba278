package translate

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/twillnet/twill/api"
)

// PolicyPrefix begins the names of policies that come from Kubernetes.
const PolicyPrefix = "knp.default."

// policyOrder is the order of all policies that come from Kubernetes: they only
// allow, so among themselves their order does not matter.
const policyOrder = 1000

// Policy translates a NetworkPolicy.
func Policy(np *networkingv1.NetworkPolicy) (*api.NetworkPolicy, error) {
	return (&object{kind: "NetworkPolicy", meta: np}).policy(np)
}

func (o *object) policy(np *networkingv1.NetworkPolicy) (*api.NetworkPolicy, error) {
	out := &api.NetworkPolicy{Object: o.head(api.KindNetworkPolicy, np.Namespace, PolicyPrefix+np.Name)}
	out.Metadata.Generation = np.Generation
	s := &out.Spec
	s.Tier, s.Order = api.TierDefault, ptr(float64(policyOrder))
	var selectsPods, typesOK bool
	s.Selector, selectsPods = o.pods("spec.podSelector", &np.Spec.PodSelector)
	s.Types, typesOK = o.types(np.Spec)
	for i, r := range np.Spec.Ingress {
		path := fmt.Sprintf("spec.ingress[%d]", i)
		s.Ingress = append(s.Ingress, o.rules(path, o.peers(path+".from", r.From), o.ports(path+".ports", r.Ports), fromPeer)...)
	}
	for i, r := range np.Spec.Egress {
		path := fmt.Sprintf("spec.egress[%d]", i)
		s.Egress = append(s.Egress, o.rules(path, o.peers(path+".to", r.To), o.ports(path+".ports", r.Ports), toPeer)...)
	}
	if !selectsPods || !typesOK {
		// It restricts somebody, and nobody knows whom or in which direction.
		s.Selector, s.Types, s.Ingress, s.Egress = anyPod, []api.PolicyType{api.Ingress, api.Egress}, nil, nil
	}
	return out, o.errs.Err()
}

// types are the directions that a policy restricts. Unlike in v3, ingress is
// always among them if none is named.
func (o *object) types(spec networkingv1.NetworkPolicySpec) (out []api.PolicyType, ok bool) {
	if len(spec.PolicyTypes) == 0 {
		out = []api.PolicyType{api.Ingress}
		if len(spec.Egress) > 0 {
			out = append(out, api.Egress)
		}
		return out, true
	}
	ok = true
	for i, t := range spec.PolicyTypes {
		t := api.PolicyType(t)
		switch {
		case t != api.Ingress && t != api.Egress:
			o.fail(fmt.Sprintf("spec.policyTypes[%d]", i), "is %q: want Ingress or Egress", t)
			ok = false
		case !slices.Contains(out, t):
			out = append(out, t)
		}
	}
	return out, ok
}
