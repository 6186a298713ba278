package calc

import (
	"strings"

	"github.com/twillnet/twill/api"
)

// Cluster is how much there is in the whole cluster.
type Cluster struct {
	GUID, Type, CalicoVersion string // of ClusterInformation default
	Known                     bool   // the datastore has been read

	Hosts, WorkloadEndpoints, HostEndpoints, Policies, Profiles int // policies with those that are staged
}

// Cluster counts, in constant time.
func (g *Graph) Cluster() Cluster {
	c := g.cluster
	c.Known = g.inSync
	c.Policies, c.Profiles = len(g.policies), len(g.profiles)
	return c
}

var nodeKeys, workloadKeys, hostKeys = api.KeyPrefix(api.KindNode, ""), api.KeyPrefix(api.KindWorkloadEndpoint, ""), api.KeyPrefix(api.KindHostEndpoint, "")

// tally counts a Node or an endpoint that comes (1) or goes (-1); other keys do not count.
func (g *Graph) tally(key string, n int) {
	switch {
	case strings.HasPrefix(key, nodeKeys):
		g.cluster.Hosts += n
	case strings.HasPrefix(key, workloadKeys):
		g.cluster.WorkloadEndpoints += n
	case strings.HasPrefix(key, hostKeys):
		g.cluster.HostEndpoints += n
	}
}
