package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/config"
)

// TestWhoMakesTheRoutesOfPools: BGP by its own setting, and where the agent's does not fit, the plan says so.
func TestWhoMakesTheRoutesOfPools(t *testing.T) {
	const pools = alone + "IPPool plain {cidr: 10.65.0.0/16}\nIPPool vx {cidr: 10.67.0.0/16, vxlanMode: Always}\n"
	const both, neither = "both the agent and BGP make the routes of pools without encapsulation (IPPool plain)", "neither the agent nor BGP makes the routes of pools without encapsulation (IPPool plain)"
	for _, tt := range []struct {
		name, bgp, felix, ofNode string
		blind                    bool // the agent's settings are not followed
		others                   bool // others make them
		want                     string
	}{
		{name: "by default BGP makes them"},
		{name: "as by its default value", bgp: "EnabledNoEncapOnly"},
		{name: "and by Enabled", bgp: "Enabled"},
		{name: "the agent makes them", bgp: "Disabled", felix: "Enabled", others: true},
		{name: "the agent makes these alone", bgp: "EnabledIPIPOnly", felix: "EnabledNoEncapOnly", others: true},
		{name: "nobody does, by the other two", bgp: "EnabledIPIPOnly", felix: "EnabledIPIPOnly", others: true, want: neither},
		{name: "both do, by the same value", bgp: "EnabledNoEncapOnly", felix: "EnabledNoEncapOnly", want: both},
		{name: "in any case of its letters", bgp: "Disabled", felix: "enabled", others: true},
		{name: "nobody does", bgp: "Disabled", others: true, want: neither},
		{name: "nobody does by name", bgp: "Disabled", felix: "Disabled", others: true, want: neither},
		{name: "nobody does on this node", bgp: "Disabled", felix: "Enabled", ofNode: "EnabledIPIPOnly", others: true, want: neither},
		{name: "both do", felix: "Enabled", want: both},
		{name: "both do on this node", bgp: "Enabled", felix: "Disabled", ofNode: "Enabled", want: both},
		{name: "nothing is reported of settings that are not known", bgp: "Disabled", blind: true, others: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := world(t, pools)
			w.Agent = !tt.blind
			for key, value := range map[string]string{api.KindBGPConfiguration + " default": tt.bgp, api.KindFelixConfiguration + " default": tt.felix, api.KindFelixConfiguration + " node.h1": tt.ofNode} {
				kind, name, _ := strings.Cut(key, " ")
				if value != "" {
					w.Update(api.Update{Key: api.KeyPrefix(kind, "") + name, Value: []byte(`{"spec":{"programClusterRoutes":"` + value + `"}}`)})
				}
			}
			p := w.Plan("h1")
			if got := p.IsForeign(prefix("10.65.1.0/26")); got != tt.others || !p.IsForeign(prefix("10.67.1.0/26")) {
				t.Errorf("others install its routes: %v", got)
			}
			reported := slices.DeleteFunc(p.Problems, func(s string) bool { return !strings.Contains(s, "BGPConfiguration default programClusterRoutes") })
			if tt.want == "" && len(reported) > 0 || tt.want != "" && (len(reported) != 1 || !strings.HasSuffix(reported[0], tt.want)) {
				t.Errorf("reported %q, want %q", reported, tt.want)
			}
			if tt.felix == "" {
				return
			}
			for _, name := range []string{"default", "node.h1"} {
				w.Update(api.Update{Key: api.KeyPrefix(api.KindFelixConfiguration, "") + name})
			}
			if again := w.Plan("h1"); tt.want == both && len(again.Problems) > 0 {
				t.Errorf("after it is deleted: %q", again.Problems)
			}
		})
	}
	for _, value := range []string{"Enabled", "EnabledIPIPOnly"} {
		p := world(t, pools+"IPPool ip {cidr: 10.68.0.0/16, ipipMode: Always}\nBGPConfiguration default {programClusterRoutes: "+value+"}").Plan("h1")
		if len(p.Problems) != 1 || !strings.Contains(p.Problems[0], value+": BGP installs no routes of pools with ipipMode, the agent does (IPPool ip)") {
			t.Errorf("%q", p.Problems)
		}
	}
	if !slices.ContainsFunc(plan.AgentPrefixes(), func(p string) bool {
		return strings.HasPrefix(api.KeyPrefix(api.KindFelixConfiguration, "")+"default", p)
	}) {
		t.Error("the agent's settings are not followed")
	}
}

// TestOfPoolsWithOneCIDRTheFirstByNameCounts, as upstream's agents have it: what another one says keeps no route from BGP, and hides none.
func TestOfPoolsWithOneCIDRTheFirstByNameCounts(t *testing.T) {
	block := plan.Route{Dst: prefix("10.65.1.0/26")}
	for _, tt := range []struct {
		name, pools string
		foreign     bool
		accept      bool
		by          string
	}{
		{"the one without a tunnel is the first", "IPPool a {cidr: 10.65.0.0/16}\nIPPool b {cidr: 10.65.0.0/16, vxlanMode: Always, disableBGPExport: true}\n", false, true, "IPPool a"},
		{"it is the second", "IPPool a {cidr: 10.65.0.0/16, vxlanMode: Always, disableBGPExport: true}\nIPPool b {cidr: 10.65.0.0/16}\n", true, false, "IPPool a (disableBGPExport)"},
		{"one within another counts", "IPPool a {cidr: 10.65.0.0/16}\nIPPool b {cidr: 10.65.1.0/24, ipipMode: Always}\n", true, true, "IPPool a"},
	} {
		w := world(t, alone+tt.pools+"BGPPeer p {peerIP: 192.0.2.9, asNumber: 64512}\n")
		p := w.Plan("h1")
		by, _ := plan.Decide(p.Sessions[0].Export, block)
		if p.IsForeign(block.Dst) != tt.foreign || by.Accept != tt.accept || by.Name != tt.by {
			t.Errorf("%s: others install its routes: %v, advertised: %v by %s", tt.name, p.IsForeign(block.Dst), by.Accept, by.Name)
		}
		if pool := w.Keys(p)["/calico/v1/ipam/v4/pool/10.65.0.0-16"].Value; strings.Contains(pool, `"vxlan_mode":"always"`) != (tt.foreign && !tt.accept) {
			t.Errorf("%s: templates see %s", tt.name, pool)
		}
	}
	both := world(t, alone+"IPPool a {cidr: 10.65.0.0/16, vxlanMode: Always}\nIPPool b {cidr: 10.65.0.0/16, ipipMode: Always}\nBGPConfiguration default {programClusterRoutes: Enabled}\n").Plan("h1")
	if len(both.Problems) > 0 {
		t.Errorf("a pool that does not count: %q", both.Problems)
	}
}

// TestTheProtocolOfTheAgentsRoutes: as the agent works it out, of every FelixConfiguration that is this node's, and of its environment.
func TestTheProtocolOfTheAgentsRoutes(t *testing.T) {
	for _, tt := range []struct {
		name, resources string
		local           string
		blind           bool
		want            int
	}{
		{name: "the agent's own"},
		{name: "by name", resources: "FelixConfiguration default {deviceRouteProtocol: 80}"},
		{name: "another", resources: "FelixConfiguration default {deviceRouteProtocol: 99}", want: 99},
		{name: "of this node", resources: "FelixConfiguration default {deviceRouteProtocol: 99}\nFelixConfiguration node.h1 {deviceRouteProtocol: 3}", want: 3},
		{name: "of another", resources: "FelixConfiguration node.h2 {deviceRouteProtocol: 99}"},
		{name: "by a selector", resources: "FelixConfiguration some {nodeSelector: all(), deviceRouteProtocol: 99}", want: 99},
		{name: "one that others have", local: "186"},
		{name: "of the environment", local: "77", want: 77},
		{name: "which the datastore overrides", local: "77", resources: "FelixConfiguration default {deviceRouteProtocol: 80}"},
		{name: "of a reflector", local: "77", blind: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := world(t, alone+tt.resources)
			w.Agent = !tt.blind
			if tt.local != "" {
				w.Local = []config.Layer{{Name: "environment", Values: map[string]string{"deviceRouteProtocol": tt.local}}}
			}
			if got := w.Plan("h1").AgentProtocol; got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// TestAPriorityThatIsWorseThanBGPsIsReported: of each family, against what BGPConfiguration has or else the default.
func TestAPriorityThatIsWorseThanBGPsIsReported(t *testing.T) {
	const says = " is worse than BGP's normal priority, "
	for _, tt := range []struct{ felix, bgp, want string }{
		{"", "", ""},
		{"ipv4NormalRoutePriority: 1024", "", ""},
		{"ipv4NormalRoutePriority: 1025", "", "FelixConfiguration default ipv4NormalRoutePriority 1025" + says + "1024: "},
		{"ipv4NormalRoutePriority: 1025", "ipv4NormalRoutePriority: 1025", ""},
		{"ipv6NormalRoutePriority: 700, ipv4NormalRoutePriority: 900", "ipv6NormalRoutePriority: 600", "FelixConfiguration default ipv6NormalRoutePriority 700" + says + "600: "},
		{"", "ipv4NormalRoutePriority: 5, ipv6NormalRoutePriority: 5", ""}, // a route without a metric has the normal priority
	} {
		w := world(t, alone+"FelixConfiguration default {"+tt.felix+"}\nBGPConfiguration default {"+tt.bgp+"}")
		w.Agent = true
		ps := w.Plan("h1").Problems
		if tt.want == "" && len(ps) > 0 || tt.want != "" && (len(ps) != 1 || !strings.HasPrefix(ps[0], tt.want)) {
			t.Errorf("%+v: %q", tt, ps)
		}
	}
}
