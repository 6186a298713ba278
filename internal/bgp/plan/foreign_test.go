package plan_test

import (
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// TestFiltersAloneAcceptRoutesOfOthers: a static route, or the network of an interface, is for the peers whose BGPFilter accepts it, and a default route
// of the host's for those whose BGPFilter names it.
func TestFiltersAloneAcceptRoutesOfOthers(t *testing.T) {
	const tor = alone + "IPPool p {cidr: 10.65.0.0/16}\nBGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}\nBGPPeer other {peerIP: 192.0.2.8, asNumber: 65008}\n"
	static := plan.Route{Dst: prefix("203.0.113.0/24"), Link: "eth1", Foreign: true, Priority: 1024}
	all := plan.Route{Dst: prefix("0.0.0.0/0"), Link: "eth0", Foreign: true, Priority: 1024}
	learned := plan.Route{Dst: prefix("0.0.0.0/0"), Learned: true}
	inPool := plan.Route{Dst: prefix("10.65.7.0/24"), Foreign: true}
	for _, tt := range []struct {
		name, rules string
		accepted    []plan.Route
	}{
		{"no rule", "", nil},
		{"rules that reject alone", "{action: Reject, cidr: 10.0.0.0/8, matchOperator: In}", nil},
		{"its prefix", "{cidr: 203.0.113.0/24, matchOperator: Equal, action: Accept}", []plan.Route{static}},
		{"a wider prefix", "{cidr: 203.0.0.0/16, matchOperator: In, action: Accept}", []plan.Route{static}},
		{"rejected before", "{cidr: 203.0.113.0/24, matchOperator: Equal, action: Reject}, {action: Accept}", []plan.Route{learned, inPool}},
		{"its interface", "{interface: 'eth?', cidr: 203.0.0.0/8, matchOperator: In, action: Accept}", []plan.Route{static}},
		{"another interface", "{interface: eth2, action: Accept}", nil},
		{"its priority", "{priority: 1024, cidr: 203.0.0.0/8, matchOperator: In, action: Accept}", []plan.Route{static}},
		{"learned routes", "{source: RemotePeers, action: Accept}", []plan.Route{learned}},
		{"the pool", "{cidr: 10.65.0.0/16, matchOperator: In, action: Accept}", []plan.Route{inPool}},
		{"everything", "{action: Accept}", []plan.Route{static, learned, inPool}},
		{"everything by prefix", "{cidr: 0.0.0.0/0, matchOperator: In, action: Accept}", []plan.Route{static, learned, inPool}},
		{"the default route by name", "{cidr: 0.0.0.0/0, matchOperator: Equal, action: Accept}", []plan.Route{all, learned}},
		{"the default route by its length", "{cidr: 0.0.0.0/0, matchOperator: In, prefixLength: {max: 0}, action: Accept}", []plan.Route{all, learned}},
		{"the learned default route by name, and everything", "{cidr: 0.0.0.0/0, matchOperator: Equal, source: RemotePeers, action: Accept}, {action: Accept}", []plan.Route{static, learned, inPool}},
		{"the default route by name and another interface, and everything", "{cidr: 0.0.0.0/0, matchOperator: Equal, interface: eth5, action: Accept}, {action: Accept}", []plan.Route{static, learned, inPool}},
		{"another interface, and then the default route by name", "{interface: eth5, action: Accept}, {cidr: 0.0.0.0/0, matchOperator: Equal, action: Accept}", []plan.Route{all, learned}},
		{"another prefix, and then the default route by name", "{cidr: 203.0.113.0/24, matchOperator: Equal, action: Accept}, {cidr: 0.0.0.0/0, matchOperator: Equal, action: Accept}", []plan.Route{static, all, learned}},
		{"the default route by name, behind everything", "{action: Accept}, {cidr: 0.0.0.0/0, matchOperator: Equal, action: Accept}", []plan.Route{static, learned, inPool}},
		{"anything but the default route", "{cidr: 0.0.0.0/0, matchOperator: NotEqual, action: Accept}", []plan.Route{static, inPool}},
		{"the default route rejected", "{cidr: 0.0.0.0/0, matchOperator: Equal, action: Reject}, {action: Accept}", []plan.Route{static, inPool}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := world(t, tor+"BGPFilter f {exportV4: ["+tt.rules+"]}").Plan("h1")
			for _, route := range []plan.Route{static, all, learned, inPool} {
				want := slices.ContainsFunc(tt.accepted, func(r plan.Route) bool { return r.Dst == route.Dst && r.Learned == route.Learned })
				kept := slices.ContainsFunc(p.Filters(), func(f plan.Filter) bool { return f.Accepts(route) })
				if route.Foreign && kept != want {
					t.Errorf("%+v: kept %t, want %t", route, kept, want)
				}
				if !kept && route.Foreign && !want {
					continue // it is never advertised, whatever rules say
				}
				for _, s := range p.Sessions {
					r, _ := plan.Decide(s.Export, route)
					if byFilter := want && s.Peer.String() == "192.0.2.9"; r.Accept != byFilter {
						t.Errorf("%+v to %s: %q accepts %t, want %t", route, s.Peer, r.Name, r.Accept, byFilter)
					}
				}
			}
		})
	}
}

// TestWhichNetworksAreTheHosts: upstream's two patterns of interfaces are not, nor are those of workloads by another prefix, devices of tunnels, and what is
// ignored.
func TestWhichNetworksAreTheHosts(t *testing.T) {
	w := world(t, alone+"BGPConfiguration default {ignoredInterfaces: [docker*]}\nFelixConfiguration default {interfacePrefix: 'cali,tap', wireguardInterfaceName: wg7}\n")
	w.Agent = true
	p := w.Plan("h1")
	for link, want := range map[string]bool{
		"eth0": true, "lo": true, "bond0.7": true, "wg0": true,
		"cali1234": false, "tap1": false, "kube-ipvs0": false, "docker0": false, "tunl0": false, "vxlan.calico": false, "vxlan-v6.calico": false, "wireguard.cali": false, "wg7": false, "": false,
	} {
		if got := p.Connects(link); got != want {
			t.Errorf("%q: got %t, want %t", link, got, want)
		}
	}
}
