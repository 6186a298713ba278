package calc

import (
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// putServices takes over the prefixes of services in a BGPConfiguration, if it is for all nodes or for this one; nil: it was deleted.
func (g *Graph) putServices(name string, s *api.BGPConfigurationSpec) {
	if name != "default" && name != "node."+g.node {
		return
	}
	g.dirtyHost = true
	if delete(g.ranges, name); s == nil {
		return
	}
	of := func(blocks []api.BGPServiceBlock) []netip.Prefix {
		var texts []string
		for _, b := range blocks {
			texts = append(texts, b.CIDR)
		}
		return ordered(prefixes(texts))
	}
	g.ranges[name] = intent.ServicePrefixes{Cluster: of(s.ServiceClusterIPs), External: of(s.ServiceExternalIPs), Balancer: of(s.ServiceLoadBalancerIPs)}
}

// advertised are the prefixes of services that this node advertises: each list is the node's own, else that of all, as package bgp/plan has them.
func (g *Graph) advertised() intent.ServicePrefixes {
	own, all := g.ranges["node."+g.node], g.ranges["default"]
	or := func(own, all []netip.Prefix) []netip.Prefix {
		if len(own) > 0 {
			return own
		}
		return all
	}
	return intent.ServicePrefixes{Cluster: or(own.Cluster, all.Cluster), External: or(own.External, all.External), Balancer: or(own.Balancer, all.Balancer)}
}
