package speaker_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestAWorkloadIsAPeer: it calls an address that the host has for it, and announces what a filter accepts and nothing else, with itself as
// next hop and no other; the host tells its peers, and takes all back when the workload is no peer any more.
func TestAWorkloadIsAPeer(t *testing.T) {
	for _, scope := range []string{"link", "global"} { // of the agent's route to it, and then the other
		t.Run(scope, func(t *testing.T) {
			workloadIsPeer(t, scope, map[string]string{"link": "global", "global": "link"}[scope])
		})
	}
}

func workloadIsPeer(t *testing.T, scope, other string) {
	h, birds := network(t, 1)
	tor := birds[0]
	via := func(scope string) string {
		return "10.123.0.0/26 via 10.65.1.5 dev cali1 proto 186" + map[string]string{"global": " onlink"}[scope]
	}
	w := &bird{NS: netnstest.New(t), t: t, addr: "10.65.1.5", dir: t.TempDir()}
	h.VethTo(w.NS, "cali1", "eth0")
	h.Route("10.65.1.5/32 dev cali1 proto 80 scope " + scope)
	h.Addr("cali1", "169.254.1.1/32") // as if by proxy ARP
	w.Addr("eth0", "10.65.1.5/32")
	w.Route("169.254.1.1 dev eth0")
	w.Route("default via 169.254.1.1 dev eth0")
	w.run(`protocol static s4 { ipv4;
  route 10.123.0.0/26 blackhole;
  route 10.123.1.0/26 blackhole { bgp_next_hop = 192.0.2.2; };
  route 10.65.1.6/32 blackhole; route 10.65.2.0/26 blackhole; route 0.0.0.0/0 blackhole; }
protocol bgp host { local 10.65.1.5 as 65401; neighbor 169.254.0.179 as 64512; multihop; connect delay time 1; error wait time 1,2;
  ipv4 { import all; export where source = RTS_STATIC; next hop keep; }; }`)
	tor.run(speaks("twill", "local as 64512; multihop;", "", ""))
	to := session("192.0.2.2", 64512)
	to.Export = []plan.Rule{pools[0], {Name: "children", Prefix: prefix("10.123.0.0/16"), Min: 16, Max: 32, Accept: true}}
	of := session("10.65.1.5", 65401)
	of.Source, of.Passive, of.Workload, of.Export = netip.Addr{}, true, "ns/router", pools[:1]
	of.Import = []plan.Rule{{Name: "children", Prefix: prefix("10.123.0.0/16"), Min: 16, Max: 32, Accept: true}, {Name: "no more"}}
	h.agent("10.65.1.0/26")
	p := planOf(to, of)
	p.Peering = []netip.Addr{netip.MustParseAddr("169.254.0.179")}
	h.start(p)
	h.up("10.65.1.5", "192.0.2.2")
	h.wantRoute(via(scope))
	h.wantRoute("10.123.1.0/26 via 10.65.1.5 dev cali1") // whatever next hop it names
	tor.wants("10.123.0.0/26", "BGP.next_hop: 10.65.1.5")
	w.wants("10.65.1.0/26", "BGP.next_hop: 169.254.0.179")
	for _, dst := range []string{"10.65.1.6", "10.65.2.0/26", "default"} {
		if err := h.routeIs(dst+" via 10.65.1.5", false); err != nil {
			t.Error(err)
		}
	}
	if s := h.session("10.65.1.5"); s.Workload != "ns/router" || s.Received != 5 {
		t.Errorf("%+v", s)
	}
	for _, r := range h.ask(request{}).Routes {
		if from := r.From == of.Peer; from && !plan.Covers(prefix("10.123.0.0/16"), r.Dst) {
			t.Errorf("it was accepted: %+v", r)
		}
	}

	h.Run("ip", "route", "replace", "10.65.1.5", "dev", "cali1", "proto", "80", "scope", other)
	h.wantRoute(via(other))

	// Another speaker has the plan of this one first, as from the disk, and then that of now.
	h.kill()
	h.start(p)
	h.up("192.0.2.2")
	h.plan(planOf(to))
	h.wantNoRoute("10.123.0.0/26")
	tor.lacks("10.123.0.0/26")
	if out := h.Run("ip", "addr", "show", "dev", "lo"); strings.Contains(out, "169.254.0.179") {
		t.Errorf("the address for workloads is still there:\n%s", out)
	}
}

// TestANextHopIsReachedThroughALearnedRoute: one that came with it, as of a workload that is a router, and after that has changed.
func TestANextHopIsReachedThroughALearnedRoute(t *testing.T) {
	h, birds := network(t, 2)
	one, two := birds[0], birds[1]
	one.run(`protocol static s4 { ipv4; route 10.65.20.0/26 blackhole; }
protocol static far4 { ipv4; route 10.204.0.0/26 blackhole { bgp_next_hop = 10.65.20.5; }; route 10.205.0.0/26 blackhole { bgp_next_hop = 10.204.0.7; }; }` +
		speaks("twill", "local as 64512; direct;", "next hop keep;", ""))
	h.start(planOf(session("192.0.2.2", 64512), session("192.0.2.3", 64512)))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2")
	h.wantRoute("10.205.0.0/26 via 192.0.2.2")
	two.run(`protocol static s4 { ipv4; route 10.65.20.0/26 blackhole { bgp_local_pref = 200; }; }` + speaks("twill", "local as 64512; direct;", "", ""))
	h.wantRoute("10.65.20.0/26 via 192.0.2.3")
	h.wantRoute("10.204.0.0/26 via 192.0.2.3")
	h.wantRoute("10.205.0.0/26 via 192.0.2.3")
}
