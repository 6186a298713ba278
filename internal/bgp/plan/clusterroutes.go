package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// AgentPrefixes are the datastore's keys by which a plan says whether the agent's settings fit those of BGP.
func AgentPrefixes() []string { return []string{api.KeyPrefix(api.KindFelixConfiguration, "")} }

// programmed is the programClusterRoutes of a FelixConfiguration; empty: it sets none.
func programmed(f *api.FelixConfiguration) (value string) {
	raw, err := json.Marshal(f.Spec.ProgramClusterRoutes)
	if err != nil || json.Unmarshal(raw, &value) != nil {
		return ""
	}
	return value
}

// installs reports whether this speaker installs the routes that it learns of pools without encapsulation.
func (d *planner) installs() bool { return d.config("default").ProgramClusterRoutes != api.Disabled }

// clusterRoutes says where the settings of BGP and of the agent do not fit together: both make the routes of pools without encapsulation,
// or neither does, and then no packet finds its way.
func (d *planner) clusterRoutes() {
	var plain, ipip []string
	for name, p := range d.Resources.pools {
		switch s := p.Spec; {
		case encapsulated(s.VXLANMode):
		case encapsulated(s.IPIPMode):
			ipip = append(ipip, name)
		default:
			plain = append(plain, name)
		}
	}
	bgp := cmp.Or(d.config("default").ProgramClusterRoutes, api.EnabledNoEncapOnly)
	if bgp == api.Enabled && len(ipip) > 0 {
		d.misfit("BGPConfiguration default programClusterRoutes Enabled: BGP installs no routes of pools with ipipMode, the agent does", ipip)
	}
	agent, where := api.EnabledIPIPOnly, "FelixConfiguration, which does not set it,"
	for _, name := range []string{"default", "node." + d.self.name} {
		if value := d.felix[name]; value != "" {
			agent, where = value, "FelixConfiguration "+name
		}
	}
	makes := strings.EqualFold(agent, api.Enabled)
	if !d.Agent || makes != d.installs() || len(plain) == 0 {
		return
	}
	who := "neither the agent nor BGP makes"
	if makes {
		who = "both the agent and BGP make"
	}
	d.misfit(fmt.Sprintf("BGPConfiguration default programClusterRoutes %s, %s programClusterRoutes %s: %s the routes of pools without encapsulation", bgp, where, agent, who), plain)
}

func (d *planner) misfit(what string, pools []string) {
	slices.Sort(pools)
	d.plan.Problems = append(d.plan.Problems, what+" (IPPool "+strings.Join(pools, ", ")+")")
}
