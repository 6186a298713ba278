package translate_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// specs are what both a NetworkPolicy of Kubernetes and a staged one can say.
var specs = []string{
	`{"podSelector":{}}`,
	`{"podSelector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"NotIn","values":["a","b"]}]},"policyTypes":["Egress"]}`,
	`{"podSelector":{},"ingress":[{}],"egress":[{}]}`,
	`{"podSelector":{},"ingress":[{"from":[{"podSelector":{},"namespaceSelector":{"matchLabels":{"env":"prod"}}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],
		"ports":[{"port":"http"},{"port":53,"protocol":"UDP"},{"port":1000,"endPort":2000}]}]}`,
	`{"podSelector":{},"egress":[{"to":[{"ipBlock":{"cidr":"fd00::/8"}}],"ports":[{"port":132,"protocol":"SCTP"}]}]}`,
	`{"podSelector":{"matchExpressions":[{"key":"tier","operator":"Near","values":["a"]}]},"ingress":[{}]}`,
	`{"podSelector":{},"policyTypes":["Sideways"]}`,
	`{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0"}}],"ports":[{"port":"1:5"}]}]}`,
}

// TestAStagedPolicyOfKubernetesIsTheNetworkPolicyThatItWouldBe: the same rules, place and name, and the same of it closed.
func TestAStagedPolicyOfKubernetesIsTheNetworkPolicyThatItWouldBe(t *testing.T) {
	const metadata = `"metadata":{"name":"web","namespace":"prod","uid":"u"},"spec":`
	reasons := func(err error) (out []string) {
		var all api.FieldErrors
		errors.As(err, &all)
		for _, e := range all {
			out = append(out, e.Path+": "+e.Reason)
		}
		return out
	}
	for _, spec := range specs {
		o, err := translate.Decode([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy",` + metadata + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		want, wrong := translate.Resources(o)
		key := api.KeyPrefix(api.KindStagedKubernetesNetworkPolicy, "prod") + "web"
		s, err := api.DecodeStored(api.Update{Key: key, Value: []byte(`{"apiVersion":"projectcalico.org/v3","kind":"StagedKubernetesNetworkPolicy",` + metadata + spec[:1] + `"stagedAction":"Delete",` + spec[1:] + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		got, failed := translate.Staged(s.Resource.(*api.StagedKubernetesNetworkPolicy))
		np := want[0].(*api.NetworkPolicy)
		if !reflect.DeepEqual(got.Spec.NetworkPolicySpec, np.Spec) || got.Metadata.Name != "knp.default.web" || got.Metadata.Namespace != "prod" || got.Spec.StagedAction != "Delete" || got.Kind != api.KindStagedNetworkPolicy {
			t.Errorf("%s\n is %+v\nwant %+v", spec, got, np)
		}
		if !reflect.DeepEqual(reasons(failed), reasons(wrong)) {
			t.Errorf("%s: wrong is %q, want %q", spec, reasons(failed), reasons(wrong))
		}
		if as := translate.Stored(s); as.Ref.Name != "knp.default.web" || as.Ref.Kind != api.KindStagedKubernetesNetworkPolicy || len(as.Problems) == 0 && wrong != nil {
			t.Errorf("%s: stored it is %+v", spec, as)
		}
	}
	other := api.Stored{Resource: &api.NetworkPolicy{}, Key: "k"}
	if got := translate.Stored(other); !reflect.DeepEqual(got, other) {
		t.Errorf("another is %+v", got)
	}
}
