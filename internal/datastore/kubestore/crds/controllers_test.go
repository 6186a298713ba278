package crds

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// TestControllersMayRenamePoliciesWhereNamesMayDiffer, and nowhere else.
func TestControllersMayRenamePoliciesWhereNamesMayDiffer(t *testing.T) {
	for g, want := range map[form.Group]bool{form.V1: true, form.V3: false} {
		group, _, _ := strings.Cut(string(g), "/")
		for _, plural := range []string{"networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"} {
			for _, verb := range []any{"create", "delete"} {
				may := false
				for _, o := range Controllers(g, "ns", "lease") {
					rules, _ := o["rules"].([]any)
					may = may || o["kind"] == "ClusterRole" && slices.ContainsFunc(rules, func(r any) bool {
						rule := r.(map[string]any)
						return slices.Contains(rule["apiGroups"].([]any), any(group)) && slices.Contains(rule["resources"].([]any), any(plural)) && slices.Contains(rule["verbs"].([]any), verb)
					})
				}
				if may != want {
					t.Errorf("%s: %s %s: %t, want %t", g, verb, plural, may, want)
				}
			}
		}
	}
}
