package api

import "strings"

// LiveMigration is a virtual machine's way from one host to another, from when the target is prepared until the source is torn down. Upstream
// keeps the kind to itself: its driver for OpenStack writes it, of one interface each, and its tools neither show nor take it.
type LiveMigration struct {
	Object
	Spec LiveMigrationSpec `json:"spec"`
}

// LiveMigrationSpec is the body of a LiveMigration.
type LiveMigrationSpec struct {
	Source *LiveMigrationSource `json:"source,omitempty"` // nil: not known yet
	Target *LiveMigrationTarget `json:"target,omitempty"`
}

// LiveMigrationSource is where the machine comes from: one of its fields.
type LiveMigrationSource struct {
	Workload         *WorkloadIdentifier         `json:"workload,omitempty"` // with all its interfaces
	WorkloadEndpoint *WorkloadEndpointIdentifier `json:"workloadEndpoint,omitempty"`
}

// LiveMigrationTarget is where the machine goes: one of its fields.
type LiveMigrationTarget struct {
	Selector         *string                     `json:"selector,omitempty"` // of WorkloadEndpoints of the same namespace
	WorkloadEndpoint *WorkloadEndpointIdentifier `json:"workloadEndpoint,omitempty"`
}

// WorkloadIdentifier names a workload, as the keys of its status do. That of Kubernetes (orchestrator k8s) is the same on every host.
type WorkloadIdentifier struct {
	Hostname       string `json:"hostname,omitempty"` // of the Node
	OrchestratorID string `json:"orchestratorID,omitempty"`
	WorkloadID     string `json:"workloadID,omitempty"` // see WorkloadEndpoint.WorkloadID
}

// WorkloadEndpointIdentifier names a WorkloadEndpoint likewise.
type WorkloadEndpointIdentifier struct {
	Hostname       string `json:"hostname,omitempty"`
	OrchestratorID string `json:"orchestratorID,omitempty"`
	WorkloadID     string `json:"workloadID,omitempty"`
	EndpointID     string `json:"endpointID,omitempty"`
}

// WorkloadID is what stands for the endpoint's workload in keys of status and in LiveMigrations: NAMESPACE/POD, NAMESPACE/WORKLOAD of an orchestrator
// other than Kubernetes, and what CNI and Docker have without a namespace.
func (w *WorkloadEndpoint) WorkloadID() string {
	switch w.Spec.Orchestrator {
	case "k8s":
		return w.Metadata.Namespace + "/" + w.Spec.Pod
	case "cni":
		return w.Spec.ContainerID
	case "libnetwork":
		return "libnetwork"
	}
	return w.Metadata.Namespace + "/" + w.Spec.Workload
}

// Identifier is how a LiveMigration names the endpoint. Compare with == what [WorkloadEndpointIdentifier.Canonical] returns.
func (w *WorkloadEndpoint) Identifier() WorkloadEndpointIdentifier {
	return WorkloadEndpointIdentifier{Hostname: w.Spec.Node, OrchestratorID: w.Spec.Orchestrator, WorkloadID: w.WorkloadID(), EndpointID: w.Spec.Endpoint}.Canonical()
}

// Canonical leaves the host out where it says nothing: of a pod.
func (i WorkloadEndpointIdentifier) Canonical() WorkloadEndpointIdentifier {
	if i.OrchestratorID == "k8s" {
		i.Hostname = ""
	}
	return i
}

// Workload is the identifier without the endpoint.
func (i WorkloadEndpointIdentifier) Workload() WorkloadIdentifier {
	return WorkloadIdentifier{Hostname: i.Hostname, OrchestratorID: i.OrchestratorID, WorkloadID: i.WorkloadID}
}

// String is the identifier's parts with slashes between them.
func (i WorkloadEndpointIdentifier) String() string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.Join([]string{i.Hostname, i.OrchestratorID, i.WorkloadID, i.EndpointID}, "/"), "/"), "/")
}

// From says in one word where the machine comes from; empty: not known yet.
func (s *LiveMigrationSpec) From() string {
	switch {
	case s.Source == nil:
	case s.Source.WorkloadEndpoint != nil:
		return s.Source.WorkloadEndpoint.String()
	case s.Source.Workload != nil:
		w := s.Source.Workload
		return WorkloadEndpointIdentifier{Hostname: w.Hostname, OrchestratorID: w.OrchestratorID, WorkloadID: w.WorkloadID}.String()
	}
	return ""
}

// To says in one word where the machine goes: an endpoint, or a selector.
func (s *LiveMigrationSpec) To() string {
	switch {
	case s.Target == nil:
	case s.Target.WorkloadEndpoint != nil:
		return s.Target.WorkloadEndpoint.String()
	case s.Target.Selector != nil:
		return *s.Target.Selector
	}
	return ""
}
