package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// nodeBatch is a node with all that guards ask for: workloads, one of them closed, a host endpoint at each stage and one for all others,
// failsafe ports, tunnels of all kinds, floating addresses, and source NAT.
func nodeBatch() intent.Batch {
	early := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "early"}
	raw := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "raw"}
	tier := func(id intent.PolicyID) []intent.Tier {
		return []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{id}, Egress: []intent.PolicyID{id}}}
	}
	all := []intent.Rule{{Action: intent.Allow}}
	floating := []intent.NAT{
		{External: netip.MustParseAddr("198.51.100.9"), Internal: netip.MustParseAddr("10.65.0.5")}, {External: netip.MustParseAddr("2001:db8::9"), Internal: netip.MustParseAddr("fd65::5")},
	}
	return intent.Batch{
		IPSets: []intent.IPSet{{ID: "s:frontend"}, {ID: intent.SetVXLANPeers}, {ID: intent.SetIPIPPeers}, {ID: intent.SetWireGuardPeers}, {ID: "p:6:ssh:x", Kind: intent.SetPorts}},
		Policies: []intent.Policy{
			{ID: gnp, Ingress: []intent.Rule{
				{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{PortSets: []intent.SetID{"p:6:ssh:x"}}}, {Action: intent.Deny, Protocol: 6, Reject: true}, {Action: intent.Pass},
			}, Egress: []intent.Rule{{Action: intent.Deny, Protocol: 17, Reject: true}, {Action: intent.Allow}}},
			{ID: np, Ingress: []intent.Rule{{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{"s:frontend"}}}}},
			{ID: kns, Ingress: all, Egress: all},
			{ID: early, Ingress: all, Egress: all},
			{ID: raw, Ingress: all, Egress: all},
		},
		Endpoints: []intent.Endpoint{
			{ID: pod, Label: "prod/web-0", Link: "cali1", Spoofable: prefixes("10.9.0.0/24", "fd09::/64"), Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.5"), netip.MustParseAddr("fd65::5")}, QoS: intent.QoS{DSCP: 47, In: intent.Limits{PacketRate: 100, PacketBurst: 5}, Out: intent.Limits{Connections: 9}}, NATs: floating, Group: intent.GroupOf(intent.Stages{Normal: append(tier(gnp), tier(np)...)}, kns)},
			{ID: intent.EndpointID{Namespace: "prod", Name: "shut"}, Link: "tap9", Closed: "has no address"},
			{ID: host, Link: "eth0", QoS: intent.QoS{DSCP: 11}, Group: intent.GroupOf(intent.Stages{Untracked: tier(raw), PreDNAT: tier(early), Forward: tier(gnp), Normal: tier(gnp)})},
			{ID: intent.EndpointID{Kind: intent.Host, Name: "others"}, Link: "*", Group: intent.GroupOf(intent.Stages{Normal: tier(gnp)})},
		},
		Host: &intent.HostSettings{
			EndpointToHost: intent.ToHostReturn,
			Inside:         prefixes("10.65.0.0/16", "fd65::/64"),
			Metadata:       netip.MustParseAddrPort("127.0.0.1:8775"),
			DNS:            true,
			Services:       intent.ServicePrefixes{External: prefixes("198.51.100.0/24"), Balancer: prefixes("203.0.113.0/24", "fd98::/64")},
			FailsafeIn:     []intent.Failsafe{{Protocol: 6, Port: 22}, {Protocol: 17, Port: 68, Net: netip.MustParsePrefix("192.0.2.0/24")}},
			FailsafeOut:    []intent.Failsafe{{Protocol: 17, Port: 53}},
			Tunnels: intent.Tunnels{
				intent.VXLAN: {Host: netip.MustParseAddr("192.0.2.1"), Addr: netip.MustParseAddr("10.65.1.1"), MAC: "66:00:00:00:00:01"},
				intent.IPIP:  {Host: netip.MustParseAddr("192.0.2.1")}, intent.WireGuard: {Host: netip.MustParseAddr("192.0.2.1")},
			},
			WireGuard: intent.WireGuardSettings{Port: [2]uint16{51820, 51821}},
			NAT: intent.NATOutgoing{
				From: prefixes("10.65.0.0/16", "fd65::/64"), Pool: prefixes("10.65.0.0/16", "10.66.0.0/16", "fd65::/64"), Addr: netip.MustParseAddr("192.0.2.1"),
				Ports: intent.PortRange{Min: 1024, Max: 2047}, Link: "eth*",
			},
		},
		InSync: true,
	}
}

// nodeTexts are those of a node for a family.
func nodeTexts(t *testing.T, b intent.Batch, f intent.Family) []Text {
	t.Helper()
	s := desired.New(desired.Config{Shared: true})
	s.Merge(b)
	var n Node
	n.Take(s.Changes())
	h, _ := s.Host()
	texts, err := n.Render(f, Settings{Log: intent.LogSettings{Rate: 100, Per: time.Second, Burst: 100}, ToHost: h.EndpointToHost, Tables: h.IPTables, Marks: kernel.Marks(h.MarkMask)})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range s.Outcomes() {
		if o.Err != nil {
			t.Errorf("%v: %v", o.Key, o.Err)
		}
	}
	return texts
}

func TestGoldenNode(t *testing.T) {
	for _, f := range families {
		var all strings.Builder
		for _, x := range nodeTexts(t, nodeBatch(), f) {
			for _, c := range x.Calls {
				fmt.Fprintf(&all, "# of table %s, %s calls %s\n", x.Table, c.Hook, c.Chain)
			}
			all.WriteString(x.Restore)
		}
		golden(t, fmt.Sprintf("node.v%d.txt", f), all.String())
	}
}

// hooked is a text with the rules by which the kernel's chains call ours.
func hooked(x Text) string {
	var calls strings.Builder
	for _, c := range x.Calls {
		fmt.Fprintf(&calls, "-F %s\n-A %s -j %s\n", c.Hook, c.Hook, c.Chain)
	}
	return strings.Replace(x.Restore, "COMMIT\n", calls.String()+"COMMIT\n", 1)
}

func TestBothBackendsTakeAWholeNode(t *testing.T) {
	empty := intent.Batch{InSync: true, Host: &intent.HostSettings{}}
	eachBackend(t, func(t *testing.T, k tools) {
		for _, b := range []intent.Batch{empty, nodeBatch(), empty, {}} {
			for _, f := range families {
				for _, x := range nodeTexts(t, b, f) {
					k.makeSets(t, x.Sets)
					k.feed(t, hooked(x), k.program(f, "restore"), "--test", "--noflush", "-w", "60")
					for range 2 { // the second time everything exists already
						k.restore(t, f, hooked(x))
					}
					got, want := shape(k.Run(k.program(f, "save"), "-t", string(x.Table))), shape(x.Restore)
					for name, n := range want {
						if got[name] != n {
							t.Errorf("IPv%d, table %s: chain %s has %d rules of %d", f, x.Table, name, got[name], n)
						}
					}
				}
			}
		}
	})
}

func TestWhatANodeCannotSayHasAnOwner(t *testing.T) {
	owner := intent.Key(pod)
	chain := func(c desired.Chain) desired.Changes { return desired.Changes{Chains: []desired.Chain{c}} }
	in := &desired.Hook{At: desired.Input}
	for _, tt := range []struct {
		name string
		c    desired.Changes
	}{
		{"no table at a priority", chain(desired.Chain{Owner: owner, Hook: &desired.Hook{At: desired.Forward, Priority: -300}})},
		{"NAT in between", chain(desired.Chain{Owner: owner, Hook: &desired.Hook{At: desired.Forward, NAT: true}})},
		{"a condition that nobody knows", chain(desired.Chain{Owner: owner, Hook: in, Guards: []desired.Guard{{If: []desired.Cond{{}}}}})},
		{"a step that nobody knows", chain(desired.Chain{Owner: owner, Hook: in, Guards: []desired.Guard{{Do: 99}}})},
		{"an interface's name", chain(desired.Chain{Owner: owner, Hook: in, Guards: []desired.Guard{{If: []desired.Cond{{Kind: desired.OnLink, Link: "eth+"}}}}})},
		{"an interface's name, of an endpoint", desired.Changes{
			Chains: []desired.Chain{
				{Name: "in", Hook: in, Guards: []desired.Guard{{Do: desired.Dispatch, Map: desired.Sends}}}, {Name: "ep", Owner: owner, Rules: ending()},
			},
			Links: []desired.Link{{Name: "it+", Open: true, In: "ep", Out: "ep"}},
		}},
		{"an interface's chain that ends without an answer", desired.Changes{
			Chains: []desired.Chain{
				{Name: "in", Hook: in, Guards: []desired.Guard{{Do: desired.Dispatch, Map: desired.Sends}}}, {Name: "ep", Owner: owner, Rules: ending()[:1]},
			},
			Links: []desired.Link{{Name: "cali1", Open: true, In: "ep", Out: "ep"}},
		}},
	} {
		var n Node
		n.Take(tt.c)
		_, err := n.Render(intent.IPv4, Settings{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Owner != owner {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// ending are rules that always answer.
func ending() []rules.Rule { return []rules.Rule{{Action: rules.Begin}, {Action: rules.Deny}} }
