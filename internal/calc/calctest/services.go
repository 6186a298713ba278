package calctest

import (
	"fmt"
	"slices"

	"github.com/twillnet/twill/api"
)

// bgp says of which prefixes addresses of services are advertised. Without pools they are of the outside (see otherAddr); with pools some are of workloads.
func (w *Cluster) bgp(name string) object {
	lists := [][]object{{}, {{"cidr": "203.0.113.5/32"}}, {{"cidr": "2001:db8:ffff::/126"}, {"cidr": "0.0.0.0/0"}}}
	if w.cfg.Pools > 0 {
		lists = append(lists, []object{{"cidr": "10.96.0.0/12"}}, []object{{"cidr": "fd00:96::/112"}, {"cidr": "10.65.0.0/24"}})
	}
	spec := object{}
	for _, field := range []string{"serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs"} {
		if w.maybe(0.5) {
			spec[field] = pick(w, lists)
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
