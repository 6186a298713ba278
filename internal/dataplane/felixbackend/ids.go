package felixbackend

import (
	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/felixwire"
	"github.com/twillnet/twill/internal/intent"
)

// wireID is a name of an endpoint on the wire, as a key of maps.
type wireID struct{ host, orchestrator, workload, endpoint string }

func wireOf(id intent.EndpointID) wireID {
	if id.Kind == intent.Host {
		return wireID{host: id.Name}
	}
	return workloadWire(felixwire.WorkloadID(id))
}

func workloadWire(id *pb.WorkloadEndpointID) wireID {
	return wireID{"", id.GetOrchestratorId(), id.GetWorkloadId(), id.GetEndpointId()}
}
