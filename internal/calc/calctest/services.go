package calctest

import (
	"fmt"
	"slices"

	"github.com/twillnet/twill/api"
)

// bgp says of which prefixes addresses of services are advertised; some are of workloads.
func (w *Cluster) bgp(name string) object {
	spec := object{}
	for _, field := range []string{"serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs"} {
		if w.maybe(0.5) {
			spec[field] = pick(w, [][]object{{}, {{"cidr": "10.96.0.0/12"}}, {{"cidr": "fd00:96::/112"}, {"cidr": "10.65.0.0/24"}}, {{"cidr": "0.0.0.0/0"}, {"cidr": "203.0.113.9/32"}}})
		}
	}
	return resource(api.KindBGPConfiguration, "", name, nil, spec)
}

// services are the prefixes that the node advertises addresses of services of, and what packets to them get.
func (x *expected) services() string {
	text := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.ServiceLoopPrevention }), "Drop")
	for _, of := range []func(api.BGPConfigurationSpec) []api.BGPServiceBlock{
		func(s api.BGPConfigurationSpec) []api.BGPServiceBlock { return s.ServiceClusterIPs },
		func(s api.BGPConfigurationSpec) []api.BGPServiceBlock { return s.ServiceExternalIPs },
		func(s api.BGPConfigurationSpec) []api.BGPServiceBlock { return s.ServiceLoadBalancerIPs },
	} {
		blocks := of(x.bgp["node."+x.node])
		if len(blocks) == 0 {
			blocks = of(x.bgp["default"])
		}
		list := []string{}
		for _, b := range blocks {
			list = append(list, b.CIDR)
		}
		slices.Sort(list)
		text += fmt.Sprint(" ", list)
	}
	return text
}
