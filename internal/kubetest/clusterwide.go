package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// DefineClusterWidePolicies applies the definitions of Kubernetes' cluster-wide policies: that of the API's own module, and, since it has the
// older kinds no more, definitions of those that take anything.
func (s *Server) DefineClusterWidePolicies(t testing.TB) {
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
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, singular, kind)
	}
	s.Apply(t, all)
}
