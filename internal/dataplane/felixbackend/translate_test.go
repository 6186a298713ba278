package felixbackend

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/unsent"
	"github.com/twillnet/twill/internal/intent"
)

// bytesOf are messages as a driver gets them.
func bytesOf(t *testing.T, messages []*pb.ToDataplane) (out [][]byte) {
	t.Helper()
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// sent is what a batch makes a driver be sent.
func sent(t *testing.T, s *unsent.State, to *translator, b intent.Batch) [][]byte {
	t.Helper()
	s.Merge(b)
	items, _ := s.Take()
	return bytesOf(t, to.translate(items).messages())
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// TestEndsComeInTheReverseOrder: what goes is not in use any more when its end comes, and a message comes for what changed alone.
func TestEndsComeInTheReverseOrder(t *testing.T) {
	s, to := unsent.New(), newTranslator("h1")
	b := whole()
	b.IPSets = append(b.IPSets, intent.IPSet{ID: "p:http", Kind: intent.SetPorts, Members: []intent.Member{{Prefix: prefix("10.65.2.7/32"), Proto: tcp, Port: 80}, {Prefix: prefix("fd00::7/128"), Proto: sctp, Port: 81}}}, intent.IPSet{ID: intent.SetVXLANPeers})
	first := sent(t, s, to, b)
	if got := kinds(first); !slices.Equal(got, []int{30, 2, 2, 7, 7, 5, 11, 23}) {
		t.Errorf("first %v", got)
	}
	if v := all(all(first[1], 2)[0], 2); len(v) != 2 || string(v[0]) != "10.65.2.7,tcp:80" || string(v[1]) != "fd00::7,sctp:81" || value(first[1], 2, 3) != "1" {
		t.Errorf("members %q of type %s", v, value(first[1], 2, 3))
	}
	if got := sent(t, s, to, intent.Batch{Members: []intent.MemberDelta{{Set: "s:clients", Removed: []intent.Member{{Prefix: prefix("10.65.2.7/32")}}}, {Set: intent.SetVXLANPeers, Added: []intent.Member{{Prefix: prefix("192.0.2.2/32")}}}}}); len(got) != 1 || value(got[0], 3, 3) != "10.65.2.7/32" {
		t.Errorf("a change of a set is %v", kinds(got))
	}
	gone := sent(t, s, to, intent.Batch{Removed: []intent.Key{intent.SetID("s:clients"), intent.SetID("p:http"), intent.SetVXLANPeers, web, prof, webPod, b.Routes[0].ID(), intent.HostID("")}})
	if got := kinds(gone); !slices.Equal(got, []int{24, 12, 6, 8, 4, 4}) || value(gone[1], 12, 1, 3) != "prod/web-0" || value(gone[0], 24, 2) != "10.65.1.5/32" || value(gone[2], 6, 1, 1) != "kns.prod" || value(gone[3], 8, 1, 4) != "NetworkPolicy" {
		t.Errorf("ends %v", got)
	}
}

// TestWhatHasNoMessageIsClosed: an endpoint that must carry no traffic, a staged policy, and an endpoint that the protocol cannot tell from another.
func TestWhatHasNoMessageIsClosed(t *testing.T) {
	s, to := unsent.New(), newTranslator("h1")
	b := whole()
	b.Endpoints[0].Closed = "its profile is missing"
	b.Endpoints = append(b.Endpoints, intent.Endpoint{ID: eth0, Link: "eth0", Closed: "a clash", Group: b.Endpoints[0].Group})
	b.Policies = append(b.Policies, intent.Policy{ID: intent.PolicyID{Kind: "StagedNetworkPolicy", Namespace: "prod", Name: "later"}, Tier: "default", Ingress: []intent.Rule{{Action: intent.Deny}}})
	got := sent(t, s, to, b)
	if k := kinds(got); !slices.Equal(k, []int{30, 2, 7, 7, 5, 9, 11, 23}) {
		t.Fatalf("%v", k)
	}
	host, workload := all(all(got[5], 9)[0], 3)[0], all(all(got[6], 11)[0], 5)[0]
	if value(workload, 1) != "inactive" || len(all(workload, 7))+len(all(workload, 4)) != 0 {
		t.Errorf("a workload that must carry no traffic is %q", workload)
	}
	if shut := value(got[2], 7, 1, 2); shut != "twill-closed" || value(got[2], 7, 2, 1, 1) != "deny" || value(got[2], 7, 2, 2, 1) != "deny" {
		t.Errorf("policy %s denies nothing", shut)
	}
	for _, tiers := range []protowire.Number{3, 8} {
		if value(host, tiers, 2, 2) != "twill-closed" || value(host, tiers, 3, 2) != "twill-closed" || value(host, tiers, 4) != "Deny" || len(all(host, 2)) != 0 {
			t.Errorf("a host endpoint that must carry no traffic has %q in field %d", all(host, tiers), tiers)
		}
	}
	twin := intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: "h2-k8s-web--0-eth0"}
	s.Merge(intent.Batch{Endpoints: []intent.Endpoint{{ID: twin}}})
	items, _ := s.Take()
	if b := to.translate(items); len(b.messages()) != 0 || !strings.Contains(errText(b.refused[twin]), webPod.String()) {
		t.Errorf("%v, %v", b.messages(), b.refused)
	}
}

// TestPoliciesKnowTheirStage: of host endpoints, a policy is asked where the endpoint's tiers say, and its message says that, too, also once only that changes.
func TestPoliciesKnowTheirStage(t *testing.T) {
	s, to := unsent.New(), newTranslator("h1")
	tiers := []intent.Tier{{Name: "default", Egress: []intent.PolicyID{web}}}
	at := func(stages intent.Stages) intent.Endpoint {
		return intent.Endpoint{ID: eth0, Link: "*", Addrs: []netip.Addr{addr("192.0.2.1"), addr("fd00::1")}, Group: intent.GroupOf(stages)}
	}
	for n, tt := range []struct {
		stages   intent.Stages
		untraced string
		preDNAT  string
		field    protowire.Number
	}{
		{intent.Stages{Untracked: tiers}, "1", "", 6},
		{intent.Stages{PreDNAT: tiers}, "", "1", 7},
		{intent.Stages{Forward: tiers}, "", "", 8},
	} {
		b := intent.Batch{Endpoints: []intent.Endpoint{at(tt.stages)}}
		if n == 0 {
			b.Policies = []intent.Policy{{ID: web, Tier: "default"}}
		}
		got := sent(t, s, to, b)
		policy, host := got[len(got)-2], got[len(got)-1]
		if value(policy, 7, 2, 3) != tt.untraced || value(policy, 7, 2, 4) != tt.preDNAT || value(policy, 7, 1, 2) != "web" {
			t.Errorf("%d: %q", n, policy)
		}
		if value(host, 9, 3, tt.field, 3, 2) != "web" || value(host, 9, 3, 1) != "*" || value(host, 9, 3, 4) != "192.0.2.1" || value(host, 9, 3, 5) != "fd00::1" || value(host, 9, 1, 2) != "h1-eth0" {
			t.Errorf("%d: %q", n, host)
		}
	}
}

// TestWhatADriverKnowsOfTheNetwork: hosts, ends of tunnels, pools and routes are made of several intents, and follow each of them.
func TestWhatADriverKnowsOfTheNetwork(t *testing.T) {
	s, to := unsent.New(), newTranslator("h1")
	h := intent.HostSettings{NAT: intent.NATOutgoing{From: []netip.Prefix{prefix("10.65.0.0/16")}, Pool: []netip.Prefix{prefix("10.65.0.0/16"), prefix("10.66.0.0/16")}}}
	h.MTU.Own[0], h.MTU.Wanted[intent.VXLAN], h.MTU.Wanted[intent.WireGuard] = addr("192.0.2.1"), true, true
	h.Tunnels[intent.VXLAN] = intent.Tunnel{Host: addr("192.0.2.1"), Addr: addr("10.65.0.1"), MAC: "66:00:00:00:00:01"}
	h.Tunnels[intent.WireGuard] = intent.Tunnel{Host: addr("192.0.2.1"), Addr: addr("10.65.0.9")}
	vxlan := intent.TunnelPeer{Node: "h2", Kind: intent.VXLAN, Host: addr("192.0.2.2"), Addr: addr("10.65.2.0"), MAC: "66:00:00:00:00:02"}
	got := sent(t, s, to, intent.Batch{
		Host: &h, Peers: []intent.TunnelPeer{vxlan, {Node: "h3", Kind: intent.WireGuard, Host: addr("192.0.2.3"), Key: "a key"}},
		Routes: []intent.Route{
			{Dst: prefix("10.65.1.0/26"), Kind: intent.RouteBlackhole},
			{Dst: prefix("10.65.2.0/26"), Kind: intent.RouteTunnel, Node: "h2", Link: intent.LinkVXLAN, Via: vxlan.Addr},
			{Dst: prefix("10.65.3.0/26"), Kind: intent.RouteEncrypted, Node: "h3"},
			{Dst: prefix("10.67.4.0/26"), Kind: intent.RouteDirect, Node: "h4", Via: addr("192.0.2.4")},
		},
	})
	text := func(m []byte, field protowire.Number, parts ...protowire.Number) string {
		var out []string
		for _, p := range parts {
			out = append(out, value(m, field, p))
		}
		return strings.Join(out, " ")
	}
	var lines []string
	show := map[int]func([]byte) string{
		30: func(m []byte) string { return text(m, 30, 1, 2, 3, 4) },
		14: func(m []byte) string { return text(m, 14, 1, 2) },
		18: func(m []byte) string { return text(m, 18, 1) },
		16: func(m []byte) string { return value(m, 16, 1) + " " + value(m, 16, 2, 1) + " " + value(m, 16, 2, 2) },
		25: func(m []byte) string { return text(m, 25, 1, 2, 3, 4) },
		26: func(m []byte) string { return text(m, 26, 1) },
		27: func(m []byte) string { return text(m, 27, 1, 2, 3) },
		23: func(m []byte) string { return text(m, 23, 3, 12, 2, 4, 5, 7, 8) },
	}
	write := func(messages [][]byte) []string {
		lines = nil
		for n, k := range kinds(messages) {
			if f := show[k]; f != nil {
				lines = append(lines, strings.TrimRight(fmt.Sprint(k, " ", f(messages[n])), " "))
			}
		}
		return lines
	}
	if want := []string{
		"30  1", "14 h1 192.0.2.1", "14 h2 192.0.2.2", "14 h3 192.0.2.3", "14 h4 192.0.2.4", "16 10.65.0.0-16 10.65.0.0/16 1", "16 10.66.0.0-16 10.66.0.0/16",
		"25 h1 66:00:00:00:00:01 10.65.0.1 192.0.2.1", "25 h2 66:00:00:00:00:02 10.65.2.0 192.0.2.2", "27 h1  10.65.0.9", "27 h3 a key",
		"23 10.65.1.0/26 4  h1 192.0.2.1  1", "23 10.65.2.0/26 1 2 h2 192.0.2.2  1", "23 10.65.3.0/26 1 1 h3 192.0.2.3  1", "23 10.67.4.0/26 1 2 h4 192.0.2.4 1",
	}; !slices.Equal(write(got), want) {
		t.Errorf("%q", lines)
	}
	// The other host has another address, and what leads there follows.
	vxlan.Host = addr("192.0.2.22")
	if want := []string{"14 h2 192.0.2.22", "25 h2 66:00:00:00:00:02 10.65.2.0 192.0.2.22", "23 10.65.2.0/26 1 2 h2 192.0.2.22  1"}; !slices.Equal(write(sent(t, s, to, intent.Batch{Peers: []intent.TunnelPeer{vxlan}})), want) {
		t.Errorf("%q", lines)
	}
	// It goes: the route, and then its end of the tunnel and the host.
	gone := intent.Batch{Removed: []intent.Key{vxlan.ID(), intent.RouteID{Prefix: prefix("10.65.2.0/26")}}}
	if got := sent(t, s, to, gone); !slices.Equal(kinds(got), []int{24, 26, 18}) {
		t.Errorf("%v", kinds(got))
	}
	// Of which prefixes services are advertised, by kind; and that of none, since nothing else takes it back.
	show[29] = func(m []byte) string { return text(m, 29, 1, 2, 3) }
	h.Services = intent.ServicePrefixes{Cluster: []netip.Prefix{prefix("10.96.0.0/12")}, External: []netip.Prefix{prefix("198.51.100.0/24")}, Balancer: []netip.Prefix{prefix("fd98::/64")}}
	if want := []string{"29 10.96.0.0/12 198.51.100.0/24 fd98::/64"}; !slices.Equal(write(sent(t, s, to, intent.Batch{Host: &h})), want) {
		t.Errorf("%q", lines)
	}
	h.Services = intent.ServicePrefixes{}
	if want := []string{"29"}; !slices.Equal(write(sent(t, s, to, intent.Batch{Host: &h})), want) {
		t.Errorf("%q", lines)
	}
	to.keys[0], to.all = "own key", true
	if want := []string{"27 h1 own key 10.65.0.9"}; !slices.Equal(write(sent(t, s, to, intent.Batch{})), want) {
		t.Errorf("%q", lines)
	}
}
