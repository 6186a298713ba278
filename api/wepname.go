package api

import (
	"fmt"
	"strings"
)

// WorkloadEndpointName returns the name that a workload endpoint must have:
// node, orchestrator, workload and endpoint joined by dashes; a dash inside a
// part is doubled. What stands for the workload depends on the orchestrator.
func WorkloadEndpointName(s WorkloadEndpointSpec) (string, error) {
	workload, field := s.Workload, "workload"
	switch s.Orchestrator {
	case "k8s":
		workload, field = s.Pod, "pod"
	case "cni":
		workload, field = s.ContainerID, "containerID"
	case "libnetwork":
		workload = "libnetwork"
	}
	parts := []struct{ field, value string }{
		{"node", s.Node}, {"orchestrator", s.Orchestrator}, {field, workload}, {"endpoint", s.Endpoint},
	}
	var out []string
	for _, p := range parts {
		if p.value == "" {
			return "", fmt.Errorf("workload endpoint's name: spec.%s is empty", p.field)
		}
		if strings.HasPrefix(p.value, "-") || strings.HasSuffix(p.value, "-") {
			return "", fmt.Errorf("workload endpoint's name: spec.%s %q: must not begin or end with a dash", p.field, p.value)
		}
		out = append(out, strings.ReplaceAll(p.value, "-", "--"))
	}
	return strings.Join(out, "-"), nil
}
