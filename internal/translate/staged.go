package translate

import (
	"encoding/json"
	"errors"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/twillnet/twill/api"
)

// Staged translates a staged policy of Kubernetes, as Policy does the NetworkPolicy that it would be. What comes out has the name of that, since it would take its place.
func Staged(r *api.StagedKubernetesNetworkPolicy) (*api.StagedNetworkPolicy, error) {
	np := &networkingv1.NetworkPolicy{}
	np.Namespace, np.Name, np.UID = r.Metadata.Namespace, r.Metadata.Name, types.UID(r.Metadata.UID)
	o := &object{kind: api.KindStagedKubernetesNetworkPolicy, meta: np}
	text, err := json.Marshal(r.Spec)
	if err == nil {
		err = json.Unmarshal(text, &np.Spec) // Kubernetes' own form; it has no staged action
	}
	if err != nil {
		o.fail("spec", "%v", err)
	}
	p, err := o.policy(np)
	out := &api.StagedNetworkPolicy{Object: p.Object}
	out.Kind, out.Spec.StagedAction, out.Spec.NetworkPolicySpec = api.KindStagedNetworkPolicy, r.Spec.StagedAction, p.Spec
	return out, err
}

// Stored is a stored resource as what decides about packets reads it: a StagedKubernetesNetworkPolicy is the StagedNetworkPolicy of [Staged], by whose name its reference calls it, and
// what cannot be translated is among its problems. Others stay as they are.
func Stored(s api.Stored) api.Stored {
	r, ok := s.Resource.(*api.StagedKubernetesNetworkPolicy)
	if !ok {
		return s
	}
	r.Metadata.Namespace, r.Metadata.Name = s.Ref.Namespace, s.Ref.Name
	p, err := Staged(r)
	s.Resource, s.Ref.Name = p, p.Metadata.Name
	var wrong api.FieldErrors
	if errors.As(err, &wrong) && s.Closed == "" { // else that is known
		for _, e := range wrong {
			s.Problems = append(s.Problems, api.Problem{Key: s.Key, Field: e.Path, Reason: e.Reason})
		}
	}
	return s
}
