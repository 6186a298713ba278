package status

import (
	"net/url"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// place computes the keys of a node's status: those that upstream's agent writes.
type place struct{ region, node string }

// Prefix is above the status of all nodes of a region; an empty region means none.
func Prefix(region string) string {
	if region == "" {
		return api.Root + "felix/v2/no-region/host/"
	}
	return api.Root + "felix/v2/region-" + url.PathEscape(region) + "/host/"
}

func (p place) process() string { return Prefix(p.region) + url.PathEscape(p.node) + "/status" }

func (p place) lastProcess() string {
	return Prefix(p.region) + url.PathEscape(p.node) + "/last_reported_status"
}

func (p place) summary() string { return Prefix(p.region) + url.PathEscape(p.node) + "/summary" }

func (p place) workloads() string { return Prefix(p.region) + url.PathEscape(p.node) + "/workload/" }

func (p place) hosts() string {
	return api.Root + "felix/v1/host/" + url.PathEscape(p.node) + "/endpoint/"
}
func (p place) prefixes() []string { return []string{p.workloads(), p.hosts()} }

// EndpointKey is the key of the status of an endpoint of a node, in the region of whoever has none. A workload whose name does
// not follow the rule has none.
func EndpointKey(node string, id intent.EndpointID) (string, bool) {
	return place{node: node}.endpoint(id)
}

// endpoint is the key of one endpoint's status. A workload whose name does not follow the rule has none.
func (p place) endpoint(id intent.EndpointID) (string, bool) {
	if id.Kind == intent.Host {
		return p.hosts() + url.PathEscape(id.Name), true
	}
	parts, ok := api.ParseWorkloadEndpointName(id.Name)
	if !ok {
		return "", false
	}
	workload := url.PathEscape(id.Namespace + "/" + parts.Workload)
	return p.workloads() + url.PathEscape(parts.Orchestrator) + "/" + workload + "/endpoint/" + url.PathEscape(parts.Endpoint), true
}
