package plan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// child is a cluster of which two workloads on h1 and one on h2 may be peers.
const child = three + `
BGPPeer children {localWorkloadSelector: 'role == "router"', asNumber: 65401, filters: [f]}
BGPFilter f {importV4: [{cidr: 10.123.0.0/16, matchOperator: In, action: Accept}]}
IPPool p {cidr: 10.65.0.0/16}
`

// workloads are WorkloadEndpoints: node, name, labels and addresses.
func workloads(w *plan.Resources, rows ...string) {
	for _, row := range rows {
		f := strings.Fields(row)
		w.Update(api.Update{
			Key:   api.KeyPrefix(api.KindWorkloadEndpoint, "ns") + f[1],
			Value: []byte(`{"metadata":{"labels":{"role":"` + f[2] + `"}},"spec":{"node":"` + f[0] + `","ipNetworks":["` + strings.Join(f[3:], `","`) + `"]}}`),
		})
	}
}

func TestWorkloadsThatASelectorNamesArePeers(t *testing.T) {
	w := world(t, child)
	workloads(w, "h1 a router 10.65.1.5/32 fd00:65::5/128", "h1 b web 10.65.1.6/32", "h2 c router 10.65.2.5/32")
	if !w.Workloads("h1") || !slices.ContainsFunc(plan.WorkloadPrefixes(), func(p string) bool {
		return strings.HasPrefix(api.KeyPrefix(api.KindWorkloadEndpoint, "ns")+"a", p)
	}) {
		t.Error("workloads are not followed")
	}
	ours := func(p plan.Plan) (out []plan.Session) {
		return slices.DeleteFunc(slices.Clone(p.Sessions), func(s plan.Session) bool { return s.Workload == "" })
	}
	p := w.Plan("h1")
	got := ours(p)
	if len(got) != 2 || got[0].Peer != prefix("10.65.1.5/32").Addr() || got[1].Peer != prefix("fd00:65::5/128").Addr() || len(p.Peering) > 0 {
		t.Fatalf("%+v, addresses %v", got, p.Peering)
	}
	if s := got[0]; s.Workload != "ns/a" || s.AS != 65401 || s.LocalAS != 64512 || !s.Passive || s.Source.IsValid() || s.BFD != (plan.BFD{}) || s.Client {
		t.Errorf("%+v", s)
	}
	for _, tt := range []struct {
		name, dst string
		session   int
		accept    bool
	}{
		{"what a filter accepts", "10.123.0.0/26", 0, true},
		{"another workload's address", "10.65.1.6/32", 0, false},
		{"a block", "10.65.2.0/26", 0, false},
		{"its own address", "10.65.1.5/32", 0, false},
		{"a default route", "0.0.0.0/0", 0, false},
		{"of the family of which no filter speaks", "fd00:123::/64", 1, false},
	} {
		if r, decided := plan.Decide(got[tt.session].Import, plan.Route{Dst: prefix(tt.dst), Learned: true}); r.Accept != tt.accept || !decided {
			t.Errorf("%s: %s", tt.name, r)
		}
	}

	// The address that workloads call, also where the node listens on its own alone.
	w.Update(api.Update{Key: api.KeyPrefix(api.KindBGPConfiguration, "") + "default", Value: []byte(`{"spec":{"localWorkloadPeeringIPV4":"169.254.0.179","localWorkloadPeeringIPV6":"fd12::1","bindMode":"NodeIP"}}`)})
	p = w.Plan("h1")
	four, six := netip.MustParseAddr("169.254.0.179"), netip.MustParseAddr("fd12::1")
	if !slices.Equal(p.Peering, []netip.Addr{four, six}) || !slices.Contains(p.Listen, netip.AddrPortFrom(four, 179)) || !slices.Contains(p.Listen, netip.AddrPortFrom(six, 179)) {
		t.Errorf("addresses %v, listens on %v", p.Peering, p.Listen)
	}

	// A reflector's workloads of its AS number are its clients.
	w.Update(api.Update{Key: api.KeyPrefix(api.KindNode, "") + "h1", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.1","asNumber":65401,"routeReflectorClusterID":"244.0.0.1"}}}`)})
	if s := ours(w.Plan("h1"))[0]; !s.Client || s.Cluster != netip.MustParseAddr("244.0.0.1") {
		t.Errorf("%+v", s)
	}

	// Whoever goes, changes its labels or its node is no peer any more.
	workloads(w, "h1 a web 10.65.1.5/32", "h1 c router 10.65.2.5/32")
	if got := ours(w.Plan("h1")); len(got) != 1 || got[0].Workload != "ns/c" {
		t.Errorf("%+v", got)
	}
	w.Update(api.Update{Key: api.KeyPrefix(api.KindWorkloadEndpoint, "ns") + "c"})
	if p := w.Plan("h1"); len(ours(p)) > 0 {
		t.Errorf("%+v", p)
	}
	workloads(w, "h1 c router 10.65.2.5/32")
	w.NoWorkloads = "BIRD has none"
	if p := w.Plan("h1"); w.Workloads("h1") || len(ours(p)) > 0 || len(p.Peering) > 0 || !slices.Contains(p.Problems, "BGPPeer children: localWorkloadSelector has no effect: BIRD has none") {
		t.Errorf("%+v", p)
	}
}

// TestABGPPeerOfOneNodeIsOfItsWorkloads and not of those of others.
func TestABGPPeerOfOneNodeIsOfItsWorkloads(t *testing.T) {
	w := world(t, three+"BGPPeer children {node: h2, localWorkloadSelector: all(), asNumber: 65401}")
	workloads(w, "h1 a router 10.65.1.5/32", "h2 c router 10.65.2.5/32")
	for node, want := range map[string]int{"h1": 0, "h2": 1} {
		n := 0
		for _, s := range w.Plan(node).Sessions {
			if s.Workload != "" {
				n++
			}
		}
		if n != want || w.Workloads(node) != (want > 0) {
			t.Errorf("%s: %d sessions with workloads, want %d", node, n, want)
		}
	}
}

// TestWorkloadsThatComeAndGoDoNotChangeWhereANodeListens: a speaker that is to listen elsewhere ends all sessions.
func TestWorkloadsThatComeAndGoDoNotChangeWhereANodeListens(t *testing.T) {
	w := world(t, child+"BGPPeer others {node: h3, localWorkloadSelector: all(), asNumber: 65402}\n"+
		"BGPConfiguration default {localWorkloadPeeringIPV4: 169.254.0.179, localWorkloadPeeringIPV6: 'fd12::1', bindMode: NodeIP}\n")
	without := w.Plan("h1")
	workloads(w, "h1 a router 10.65.1.5/32 fd00:65::5/128")
	with := w.Plan("h1")
	if len(with.Sessions) != len(without.Sessions)+2 || !slices.Equal(with.Listen, without.Listen) || !slices.Equal(with.Peering, without.Peering) || len(with.Peering) != 2 {
		t.Errorf("without: %v, %v; with: %v, %v", without.Listen, without.Peering, with.Listen, with.Peering)
	}
	if p := w.Plan("h3"); len(p.Peering) != 1 {
		t.Errorf("a node without IPv6 has %v", p.Peering)
	}
	w = world(t, three+"BGPPeer others {node: h3, localWorkloadSelector: all(), asNumber: 65402}\nBGPConfiguration default {localWorkloadPeeringIPV4: 169.254.0.179}\n")
	if p := w.Plan("h1"); len(p.Peering) > 0 {
		t.Errorf("no workload of h1 is ever a peer: %v", p.Peering)
	}
}
