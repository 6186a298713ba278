package api

import (
	"fmt"
	"strings"
)

// OrchestratorOpenStack is spec.orchestrator of what Neutron's ports become.
const OrchestratorOpenStack = "openstack"

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

// WorkloadEndpointParts is what WorkloadEndpointName made a name of.
type WorkloadEndpointParts struct{ Node, Orchestrator, Workload, Endpoint string }

// ParseWorkloadEndpointName is the reverse; false: nobody who follows the rule made that name.
func ParseWorkloadEndpointName(name string) (WorkloadEndpointParts, bool) {
	parts, at := make([]string, 1, 4), 0
	for i := 0; i < len(name); i++ {
		switch {
		case name[i] != '-':
			parts[at] += name[i : i+1]
		case i+1 < len(name) && name[i+1] == '-':
			parts[at] += "-"
			i++
		default:
			parts = append(parts, "")
			at++
		}
	}
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || parts[2] == "" || parts[3] == "" {
		return WorkloadEndpointParts{}, false
	}
	return WorkloadEndpointParts{parts[0], parts[1], parts[2], parts[3]}, true
}
