package kubestore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kubetest"
)

const policyAPI = "/apis/policy.networking.k8s.io/"

// installClusterWide applies the definitions of Kubernetes' cluster-wide policies: that of the API's own module, and, since it has the
// older kinds no more, definitions of those that take anything.
func installClusterWide(t *testing.T, s *kubetest.Server) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/standard/policy.networking.k8s.io_clusternetworkpolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := string(text)
	for _, kind := range []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"} {
		singular := strings.ToLower(kind)
		plural := strings.TrimSuffix(singular, "y") + "ies"
		all += fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.policy.networking.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}}
spec:
  group: policy.networking.k8s.io
  names: {kind: %[3]s, plural: %[1]s, singular: %[2]s}
  scope: Cluster
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, singular, kind)
	}
	s.Apply(t, all)
}

func TestClusterWidePoliciesAreSeenAsTheyChange(t *testing.T) {
	s := cluster(t)
	installClusterWide(t, s)
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
