package kubestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

const policyAPI = "/apis/policy.networking.k8s.io/"

func TestClusterWidePoliciesAreSeenAsTheyChange(t *testing.T) {
	s := cluster(t)
	s.DefineClusterWidePolicies(t)
	prefix := api.KeyPrefix(api.KindGlobalNetworkPolicy, "")
	for _, g := range groups {
		t.Run(string(g), func(t *testing.T) {
			c := open(t, s, g)
			f := follow(t, c, prefix)
			policy := func(tier string) {
				s.Apply(t, fmt.Sprintf(`apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: deny.all}
spec:
  tier: %s
  priority: 5
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}]}]
`, tier))
			}
			policy("Admin")
			key := prefix + "kcnp.deny.all"
			f.until(key, `"tier":"kube-admin","order":5`)
			policy("Baseline") // it is the same policy still
			f.until(key, `"tier":"kube-baseline","order":5`)
			if u, err := c.Get(t.Context(), key); err != nil || !strings.Contains(string(u.Value), `"ports":[80]`) {
				t.Errorf("%s, error %v", u.Value, err)
			}
			if _, err := c.Create(t.Context(), api.Update{Key: prefix + "kcnp.x", Value: []byte(`{}`)}); err == nil || !strings.Contains(err.Error(), "with kubectl") {
				t.Errorf("a policy of Kubernetes was written: %v", err)
			}
			// One that nobody here understands denies, and others are seen on.
			s.Apply(t, `apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: strange}
spec: {priority: high, subject: {namespaces: {}}, egress: [{action: Pass, to: [{namespaces: {}}]}, {action: Allow, to: [{namespaces: {}}]}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec: {subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [192.0.2.0/24]}]}]}
`)
			f.until(prefix+"kanp.adminnetworkpolicy.strange", `"egress":[{"action":"Deny"}]`)
			f.until(prefix+"kbanp.baselineadminnetworkpolicy.default", `"nets":["192.0.2.0/24"]`)
			for path, key := range map[string]string{
				"v1alpha2/clusternetworkpolicies/deny.all": key, "v1alpha1/adminnetworkpolicies/strange": prefix + "kanp.adminnetworkpolicy.strange",
				"v1alpha1/baselineadminnetworkpolicies/default": prefix + "kbanp.baselineadminnetworkpolicy.default",
			} {
				call(t, s, "DELETE", policyAPI+path, nil)
				f.until(key, "")
			}
		})
	}
}
