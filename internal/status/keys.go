package status

import (
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// Part is a name as a part of a key: upstream's readers and writers escape % and /, and nothing else (libcalico-go, model.KeyToDefaultPath). A name
// without either, as a node's is, stays.
func Part(name string) string { return escapes.Replace(name) }

var escapes = strings.NewReplacer("%", "%25", "/", "%2f")

// current is a key as this version writes it: one of a former version has %2F, by which upstream's agent took it for a name.
func current(key string) string { return strings.ReplaceAll(key, "%2F", "%2f") }

// place computes the keys of a node's status: those that upstream's agent writes.
type place struct{ region, node string }

// Prefix is above the status of all nodes of a region; an empty region means none.
func Prefix(region string) string {
	if region == "" {
		return api.Root + "felix/v2/no-region/host/"
	}
	return api.Root + "felix/v2/region-" + Part(region) + "/host/"
}

func (p place) process() string { return Prefix(p.region) + Part(p.node) + "/status" }

func (p place) lastProcess() string {
	return Prefix(p.region) + Part(p.node) + "/last_reported_status"
}

func (p place) summary() string { return Prefix(p.region) + Part(p.node) + "/summary" }

func (p place) workloads() string { return Prefix(p.region) + Part(p.node) + "/workload/" }

func (p place) hosts() string {
	return api.Root + "felix/v1/host/" + Part(p.node) + "/endpoint/"
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
		return p.hosts() + Part(id.Name), true
	}
	parts, ok := api.ParseWorkloadEndpointName(id.Name)
	if !ok {
		return "", false
	}
	workload := Part(id.Namespace + "/" + parts.Workload)
	return p.workloads() + Part(parts.Orchestrator) + "/" + workload + "/endpoint/" + Part(parts.Endpoint), true
}
