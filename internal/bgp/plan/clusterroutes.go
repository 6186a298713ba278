package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

// AgentPrefixes are the datastore's keys by which a plan says whether the agent's settings fit those of BGP.
func AgentPrefixes() []string { return []string{api.KeyPrefix(api.KindFelixConfiguration, "")} }

// agent are the settings of this node's agent.
func (d *planner) agent() config.Effective {
	r := config.New(d.self.name, d.Local...)
	r.SetLabels(d.self.labels)
	for _, f := range d.felix {
		r.Set(f)
	}
	return r.Resolve()
}

// installs reports whether this speaker installs the routes that it learns of pools without encapsulation.
func (d *planner) installs() bool {
	is := d.config("default").ProgramClusterRoutes
	return is != api.Disabled && is != api.EnabledIPIPOnly
}

// agentSettings takes over what the agent's settings mean for BGP.
func (d *planner) agentSettings() {
	if !d.Agent {
		return
	}
	settings := d.agent()
	if p := settings.Settings.Routes.Protocol; p != api.RouteProtocol {
		d.plan.AgentProtocol = p
	}
	for _, prefix := range settings.Settings.InterfacePrefixes {
		if pattern := prefix + "*"; !slices.Contains(inside, pattern) {
			d.plan.Inside = append(d.plan.Inside, pattern)
		}
	}
	for _, link := range settings.Settings.WireGuard.Link {
		if !slices.Contains(inside, link) {
			d.plan.Inside = append(d.plan.Inside, link)
		}
	}
	from, given := map[string]string{}, map[string]bool{}
	for _, v := range settings.Values {
		given[v.Param.Name] = v.From != "default"
		if from[v.Param.Name] = v.From; v.From == "default" {
			from[v.Param.Name] = "FelixConfiguration, which does not set it,"
		}
	}
	d.contradiction(settings.Settings.Routes, from["programClusterRoutes"])
	for f, name := range []string{"ipv4ElevatedRoutePriority", "ipv6ElevatedRoutePriority"} {
		if metric, normal := settings.Settings.Routes.Elevated[f], d.plan.NormalPriority(f == 0); given[name] && metric >= int(normal) {
			d.plan.Problems = append(d.plan.Problems, fmt.Sprintf(
				"%s %s %d is no better than BGP's normal priority, %d: packets to a virtual machine that comes from another host go there until its route is gone", from[name], name, metric, normal))
		}
	}
	for f, name := range []string{"ipv4NormalRoutePriority", "ipv6NormalRoutePriority"} {
		metric, normal := settings.Settings.Routes.Metric[f], d.plan.NormalPriority(f == 0)
		if metric > int(normal) {
			d.plan.Problems = append(d.plan.Problems, fmt.Sprintf(
				"%s %s %d is worse than BGP's normal priority, %d: if a peer advertises the address of a workload here, packets go to that peer, and this node does not advertise the address", from[name], name, metric, normal))
		}
	}
}

// clusterRoutes says what of BGP's setting Twill's speaker does not do.
func (d *planner) clusterRoutes() {
	is := d.config("default").ProgramClusterRoutes
	if _, ipip := d.byWay(); (is == api.Enabled || is == api.EnabledIPIPOnly) && len(ipip) > 0 {
		d.misfit("BGPConfiguration default programClusterRoutes "+is+": BGP installs no routes of pools with ipipMode, the agent does", ipip)
	}
}

// byWay are the pools without encapsulation, and those with IPIP.
func (d *planner) byWay() (plain, ipip []string) {
	for name, p := range d.counting {
		switch s := p.Spec; {
		case encapsulated(s.VXLANMode):
		case encapsulated(s.IPIPMode):
			ipip = append(ipip, name)
		default:
			plain = append(plain, name)
		}
	}
	return plain, ipip
}

// contradiction says where the settings of BGP and of the agent do not fit together: both make the routes of pools without encapsulation,
// or neither does, and then no packet finds its way.
func (d *planner) contradiction(agent config.Routes, where string) {
	plain, _ := d.byWay()
	bgp := cmp.Or(d.config("default").ProgramClusterRoutes, api.EnabledNoEncapOnly)
	makes := agent.Direct()
	if makes != d.installs() || len(plain) == 0 {
		return
	}
	who := "neither the agent nor BGP makes"
	if makes {
		who = "both the agent and BGP make"
	}
	d.misfit(fmt.Sprintf("BGPConfiguration default programClusterRoutes %s, %s programClusterRoutes %s: %s the routes of pools without encapsulation", bgp, where, agent.Cluster, who), plain)
}

func (d *planner) misfit(what string, pools []string) {
	slices.Sort(pools)
	d.plan.Problems = append(d.plan.Problems, what+" (IPPool "+strings.Join(pools, ", ")+")")
}
