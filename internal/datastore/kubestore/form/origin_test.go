package form_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

func TestAPolicyOfKubernetesNamesTheObjectOfWhichItIsMade(t *testing.T) {
	for key, want := range map[string]form.Origin{
		"networkpolicies/prod/knp.default.web":                           {"networking.k8s.io/v1", "NetworkPolicy", "prod", "web", "/apis/networking.k8s.io/v1/namespaces/prod/networkpolicies/web"},
		"globalnetworkpolicies/kcnp.a.b":                                 {"policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", "", "a.b", "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/a.b"},
		"globalnetworkpolicies/kanp.adminnetworkpolicy.a":                {"policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy", "", "a", "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies/a"},
		"globalnetworkpolicies/kbanp.baselineadminnetworkpolicy.default": {"policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy", "", "default", "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies/default"},
		"networkpolicies/prod/web":                                       {},
		"networkpolicies/prod/knp.default.":                              {},
		"globalnetworkpolicies/kcnp":                                     {},
		"profiles/kns.prod":                                              {},
		"kubernetesservices/prod/s":                                      {},
	} {
		if got, ok := form.OriginOf(prefix + key); got != want || ok != (want.Kind != "") {
			t.Errorf("%s: %+v, %v", key, got, ok)
		}
	}
}

// What a view closes it says; what it understands has no such note.
func TestAViewNamesWhatItCloses(t *testing.T) {
	for _, tt := range []struct{ key, object, want string }{
		{"networkpolicies/prod/knp.default.web", `{"metadata":{"name":"web","namespace":"prod"},"spec":{"podSelector":{}}}`, ""},
		{
			"networkpolicies/prod/knp.default.web", `{"metadata":{"name":"web","namespace":"prod"},"spec":{"podSelector":{},"policyTypes":["Sideways"]}}`,
			`"twill.net/not-translated":"spec.policyTypes[0]: is \"Sideways\": want Ingress or Egress"`,
		},
		{"globalnetworkpolicies/kcnp.a", `{"metadata":{"name":"a"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}}}}`, ""},
		{
			"globalnetworkpolicies/kcnp.a", `{"metadata":{"name":"a"},"spec":{"tier":"Middle","priority":1,"subject":{"namespaces":{}}}}`,
			`"twill.net/not-translated":"spec.tier: is \"Middle\": want Admin or Baseline"`,
		},
	} {
		e, err := kindOf(t, form.V3, prefix+tt.key).Object([]byte(tt.object))
		if value := string(e.Value); err != nil || !strings.Contains(value, tt.want) || strings.Contains(value, api.AnnotationNotTranslated) != (tt.want != "") {
			t.Errorf("%s: %s, error %v", tt.object, value, err)
		}
	}
}
