package api_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

// TestAnEndpointHasTheLabelsOfItsOrchestrator, whichever that is, and no other's: rules of others trust them.
func TestAnEndpointHasTheLabelsOfItsOrchestrator(t *testing.T) {
	for _, orchestrator := range []string{"k8s", "cni", "libnetwork", "openstack"} {
		t.Run(orchestrator, func(t *testing.T) {
			w := api.New(api.KindWorkloadEndpoint).(*api.WorkloadEndpoint)
			w.Metadata.Namespace, w.Spec.ServiceAccountName = "shop", "web"
			w.Spec.Node, w.Spec.Orchestrator, w.Spec.Endpoint, w.Spec.InterfaceName = "n1", orchestrator, "eth0", "cali1234"
			w.Spec.Pod, w.Spec.ContainerID, w.Spec.Workload = "web-0", "c1", "vm-1"
			var err error
			if w.Metadata.Name, err = api.WorkloadEndpointName(w.Spec); err != nil {
				t.Fatal(err)
			}
			api.Prepare(w, "u", "2026-01-02T03:04:05Z")
			for label, want := range map[string]string{api.LabelOrchestrator: orchestrator, api.LabelNamespace: "shop"} {
				if got := w.Metadata.Labels[label]; got != want {
					t.Errorf("label %s is %q, want %q", label, got, want)
				}
			}
			if err := api.Validate(w).Err(); err != nil {
				t.Fatal(err)
			}
			w.Metadata.Labels[api.LabelOrchestrator] = "another"
			if err := api.Validate(w).Err(); err == nil || !strings.Contains(err.Error(), api.LabelOrchestrator) {
				t.Errorf("a label of another orchestrator: got error %v", err)
			}
		})
	}
}
