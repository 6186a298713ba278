package calc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

func blockUpdate(cidr, affinity string) api.Update {
	name := strings.Replace(cidr, "/", "-", 1)
	fam := "ipv4"
	if strings.Contains(cidr, ":") {
		fam = "ipv6"
	}
	u := api.Update{Key: "/calico/ipam/v2/assignment/" + fam + "/block/" + name}
	if affinity != "" {
		u.Value = []byte(fmt.Sprintf(`{"cidr":%q,%s,"allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"x"}],"sequenceNumber":1}`, cidr, affinity))
	}
	return u
}

func workloadUpdate(addr string) api.Update {
	return api.Update{Key: api.ResourcesPrefix + "workloadendpoints/prod/h1-k8s-a-eth0", Value: []byte(
		`{"spec":{"node":"h1","orchestrator":"k8s","pod":"a","endpoint":"eth0","interfaceName":"calia","ipNetworks":["` + addr + `"]}}`)}
}

func routesAsText(g *Graph) string {
	g.Flush()
	var out []string
	for _, r := range g.routes.Sent() {
		kind := "to " + r.Link
		if r.Kind == intent.RouteBlackhole {
			kind = "nowhere"
		}
		out = append(out, r.Dst.String()+" "+kind)
	}
	return strings.Join(out, ", ")
}

func TestOwnBlocksLeadNowhereButForEndpoints(t *testing.T) {
	const own, others = `"affinity":"host:h1"`, `"affinity":"host:h2"`
	single := func(owner, user string) api.Update {
		u := blockUpdate("10.65.0.1/32", own)
		u.Value = fmt.Appendf(nil, `{"cidr":"10.65.0.1/32","affinity":"host:%s","allocations":[0],"attributes":[{"secondary":{"node":%q}}]}`, owner, user)
		return u
	}
	for _, tt := range []struct {
		name    string
		updates []api.Update
		want    string
	}{
		{"an own block", []api.Update{blockUpdate("10.65.0.0/26", own)}, "10.65.0.0/26 nowhere"},
		{"of IPv6", []api.Update{blockUpdate("fd65::/122", own)}, "fd65::/122 nowhere"},
		{"as old versions wrote it", []api.Update{blockUpdate("10.65.0.0/26", `"hostAffinity":"h1"`)}, "10.65.0.0/26 nowhere"},
		{"another's", []api.Update{blockUpdate("10.65.0.0/26", others)}, ""},
		{"a load balancer's", []api.Update{blockUpdate("10.65.0.0/26", `"affinity":"virtual:h1"`)}, ""},
		{"nobody's", []api.Update{blockUpdate("10.65.0.0/26", `"affinity":null`)}, ""},
		{"one that is gone", []api.Update{blockUpdate("10.65.0.0/26", own), blockUpdate("10.65.0.0/26", "")}, ""},
		{"one that was given up", []api.Update{blockUpdate("10.65.0.0/26", own), blockUpdate("10.65.0.0/26", `"affinity":null`)}, ""},
		{"one that cannot be read any more", []api.Update{blockUpdate("10.65.0.0/26", own), {Key: blockUpdate("10.65.0.0/26", "").Key, Value: []byte("{")}}, "10.65.0.0/26 nowhere"},
		{"beside an endpoint", []api.Update{blockUpdate("10.65.0.0/26", own), workloadUpdate("10.65.0.1/32")}, "10.65.0.0/26 nowhere, 10.65.0.1/32 to calia"},
		{"a block of one address: Calico's plugin makes its route before the endpoint is known", []api.Update{blockUpdate("10.65.0.1/32", own), blockUpdate("fd65::1/128", own)}, ""},
		{"one of another host, of which this one has the address", []api.Update{poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), single("h2", "h1")}, ""},
		{"an own one, of which another has it", []api.Update{poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), single("h1", "h2")}, "10.65.0.1/32 to vxlan.calico"},
		{"an endpoint in a block of one address", []api.Update{blockUpdate("10.65.0.1/32", own), workloadUpdate("10.65.0.1/32")}, "10.65.0.1/32 to calia"},
		{"the same, the endpoint first", []api.Update{workloadUpdate("10.65.0.1/32"), blockUpdate("10.65.0.1/32", own)}, "10.65.0.1/32 to calia"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := New("h1")
			g.Update(tt.updates)
			if got := routesAsText(g); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestABlockThatCannotBeReadIsAProblemUntilItCan(t *testing.T) {
	g := New("h1")
	key := blockUpdate("10.65.0.0/26", "").Key
	for _, wrong := range []string{"{", `{"cidr":"10.65.9.0/26","affinity":"host:h1"}`} {
		g.Update([]api.Update{{Key: key, Value: []byte(wrong)}})
		if ps := g.Problems(); len(ps) != 1 || ps[0].Key != key {
			t.Errorf("%s: problems %+v", wrong, ps)
		}
		if ready, why := g.Ready(); !ready {
			t.Errorf("%s: not ready, since %v; a route that is missing opens nothing", wrong, why)
		}
	}
	g.Update([]api.Update{blockUpdate("10.65.0.0/26", `"affinity":"host:h1"`)})
	if ps := g.Problems(); len(ps) != 0 {
		t.Errorf("problems %+v", ps)
	}
}

// TestAWrongAllocationTakesNoRouteAway: those of the block's other borrowed addresses stay, and what cannot be read at all changes none of them.
func TestAWrongAllocationTakesNoRouteAway(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{nodeUpdate("h1", "192.0.2.1/24", ""), nodeUpdate("h2", "192.0.2.2/24", ""), poolUpdate("p", `"cidr":"10.65.0.0/16","vxlanMode":"CrossSubnet"`)})
	const h2 = `[{"secondary":{"node":"h2"}}]`
	for _, tt := range []struct{ name, affinity, allocations, attributes, want, problem string }{
		{"the address is borrowed", "host:h1", "[0,null,null,null]", h2, "10.65.0.0/32", ""},
		{"another refers to nothing", "host:h1", "[0,7,null,null]", h2, "10.65.0.0/32", "allocation 1 refers to attributes 7 of 1; nothing leads to such an address if it is borrowed"},
		{"and one to less than that", "host:h1", "[null,-1,0,null]", h2, "10.65.0.2/32", "allocation 1 refers to attributes -1 of 1"},
		{"there are too few", "host:h1", "[0]", h2, "10.65.0.0/32", "has 1 allocations, want 4"},
		{"too many", "host:h1", "[0,null,null,null,0]", h2, "10.65.0.0/32", "has 5 allocations, want 4"},
		{"they cannot be read", "host:h1", `"x"`, h2, "10.65.0.0/32", "what was known of addresses that are borrowed stays in force"},
		{"it is read again", "host:h1", "[null,0,null,null]", h2, "10.65.0.1/32", ""},
		{"nothing is borrowed", "host:h1", "[null,null,null,null]", "[]", "", ""},
	} {
		u := api.Update{Key: api.BlockKey(netip.MustParsePrefix("10.65.0.0/30"))}
		u.Value = fmt.Appendf(nil, `{"cidr":"10.65.0.0/30","affinity":%q,"allocations":%s,"attributes":%s}`, tt.affinity, tt.allocations, tt.attributes)
		g.Update([]api.Update{u})
		g.Flush()
		var got []string
		for _, r := range g.Intents().Routes {
			if r.Node == "h2" {
				got = append(got, r.Dst.String())
			}
		}
		problems := fmt.Sprint(g.Problems())
		if strings.Join(got, " ") != tt.want || !strings.Contains(problems, tt.problem) || tt.problem == "" && problems != "[]" {
			t.Errorf("%s: routes %q, want %q; problems %s", tt.name, got, tt.want, problems)
		}
	}
}

func poolUpdate(name, spec string) api.Update {
	u := api.Update{Key: api.ResourcesPrefix + "ippools/" + name}
	if spec != "" {
		u.Value = []byte(`{"spec":{` + spec + `}}`)
	}
	return u
}

func TestSettingsSayHowTheyLeave(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{
		poolUpdate("a", `"cidr":"10.65.0.0/16","natOutgoing":true`),
		{Key: api.ResourcesPrefix + "nodes/h2", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24","ipv6Address":"2001:db8::2/64"},"addresses":[{"address":"198.51.100.2"}]}}`)},
		{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{"natOutgoingAddress":"192.0.2.7","natPortRange":"1000:2000","natOutgoingExclusions":"IPPoolsAndHostIPs","iptablesNATOutgoingInterfaceFilter":"eth+"}}`)},
	})
	n := g.Flush().Host.NAT
	if got, want := fmt.Sprint(n), "{[10.65.0.0/16] [10.65.0.0/16 192.0.2.2/32 198.51.100.2/32 2001:db8::2/128] 192.0.2.7 {1000 2000} eth*}"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	g.Update([]api.Update{{Key: api.ResourcesPrefix + "nodes/h2"}})
	if n := g.Flush().Host.NAT; len(n.Pool) != 1 {
		t.Errorf("a node is gone, and its addresses are not: %v", n.Pool)
	}
}

func TestPoolsSayWhoLeavesWithTheHostsAddress(t *testing.T) {
	g := New("h1")
	if b := g.Flush(); len(b.Host.NAT.From)+len(b.Host.NAT.Pool) != 0 {
		t.Errorf("without a pool: %v", b.Host.NAT)
	}
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string // empty: nothing changes
	}{
		{"a pool that does not ask for it", poolUpdate("a", `"cidr":"10.66.0.0/16"`), ""},
		{"one that does", poolUpdate("b", `"cidr":"10.65.0.0/16","natOutgoing":true`), "[10.65.0.0/16] [10.65.0.0/16 10.66.0.0/16]"},
		{"of IPv6, and disabled", poolUpdate("c", `"cidr":"fd65::/64","natOutgoing":true,"disabled":true`), "[10.65.0.0/16 fd65::/64] [10.65.0.0/16 10.66.0.0/16 fd65::/64]"},
		{"the same again", poolUpdate("c", `"cidr":"fd65::/64","natOutgoing":true`), ""},
		{"another of the same range", poolUpdate("d", `"cidr":"fd65::/64","natOutgoing":true`), ""},
		{"one that cannot be read", poolUpdate("e", `"cidr":"10.65","natOutgoing":true`), ""},
		{"one that does not ask any more", poolUpdate("b", `"cidr":"10.65.0.0/16"`), "[fd65::/64] [10.65.0.0/16 10.66.0.0/16 fd65::/64]"},
		{"one of two is gone", poolUpdate("c", ""), ""},
		{"both are", poolUpdate("d", ""), "[] []"},
	} {
		g.Update([]api.Update{tt.update})
		b := g.Flush()
		got := ""
		if b.Host != nil {
			got = fmt.Sprintf("%v %v", b.Host.NAT.From, b.Host.NAT.Pool)
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestOfPoolsWithOneCIDRTheFirstByNameCounts, as upstream's agents have it: the other one makes nothing masquerade, and closes nothing.
func TestOfPoolsWithOneCIDRTheFirstByNameCounts(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{rawUpdate("felixconfigurations/default", `{"spec":{"localSubnetL2Reachability":"PodsAndLoadBalancers","floatingIPs":"Enabled"}}`)})
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string // masqueraded, answered for on networks of the host, and whether tunnels are wanted
		unfit  string // why an address of it is nobody's floating one
	}{
		{"the only one", poolUpdate("b", `"cidr":"10.65.0.0/16"`), "[] [10.65.0.0/16] false", ""},
		{"a second one", poolUpdate("c", `"cidr":"10.65.0.0/16","natOutgoing":true,"vxlanMode":"Always","allowedUses":["Tunnel"]`), "[] [10.65.0.0/16] false", ""},
		{"the first is another", poolUpdate("b", `"cidr":"10.66.0.0/16"`), "[10.65.0.0/16] [10.66.0.0/16] true", "is in a pool that is not for workloads (allowedUses)"},
		{"one before it, spelled with bits of a host", poolUpdate("a", `"cidr":"10.65.7.7/16"`), "[] [10.65.0.0/16 10.66.0.0/16] false", ""},
		{"that cannot be read any more, and stays", poolUpdate("a", `"cidr":"10.65"`), "[] [10.65.0.0/16 10.66.0.0/16] false", ""},
		{"and is gone", poolUpdate("a", ""), "[10.65.0.0/16] [10.66.0.0/16] true", "is in a pool that is not for workloads (allowedUses)"},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		h := g.Intents().Host
		got := fmt.Sprint(h.NAT.From, " ", h.LocalSubnet.Pools, " ", g.reach.Wanted()[intent.VXLAN])
		if unfit := g.unfit(netip.MustParseAddr("10.65.0.9"), false); got != tt.want || unfit != tt.unfit {
			t.Errorf("%s: got %q and %q, want %q and %q", tt.name, got, unfit, tt.want, tt.unfit)
		}
	}
}

func TestFindingsChangeOnlyWithProblems(t *testing.T) {
	g := New("h1")
	bad := poolUpdate("a", `"cidr":"10.65"`)
	for _, tt := range []struct {
		name   string
		update api.Update
		change bool
	}{
		{"a pool that cannot be read", bad, true},
		{"the same once more", bad, false},
		{"another that can", poolUpdate("b", `"cidr":"10.65.0.0/16"`), false},
		{"the first is mended", poolUpdate("a", `"cidr":"10.66.0.0/16"`), true},
		{"and goes", poolUpdate("a", ""), false},
	} {
		before := g.Findings()
		g.Update([]api.Update{tt.update})
		if got := g.Findings() != before; got != tt.change {
			t.Errorf("%s: findings changed: %v, want %v; problems %v", tt.name, got, tt.change, g.Problems())
		}
	}
}
