package calc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

func nodeUpdate(name, v4, end string) api.Update {
	u := api.Update{Key: api.ResourcesPrefix + "nodes/" + name}
	if v4 != "" {
		u.Value = fmt.Appendf(nil, `{"spec":{"bgp":{"ipv4Address":%q},"ipv4VXLANTunnelAddr":%q}}`, v4, end)
	}
	return u
}

// reached is what leads to other hosts and how, as of the last flush.
func reached(g *Graph) string {
	s := g.Intents()
	var out []string
	for _, r := range s.Routes {
		switch {
		case r.Kind == intent.RouteDirect:
			out = append(out, fmt.Sprintf("%s direct %s", r.Dst, r.Via))
		case r.Kind == intent.RouteTunnel && !r.Via.IsValid():
			out = append(out, fmt.Sprintf("%s nowhere", r.Dst))
		case r.Kind == intent.RouteTunnel:
			out = append(out, fmt.Sprintf("%s by %s at %s", r.Dst, r.Link, r.Via))
		}
	}
	for _, p := range s.Peers {
		out = append(out, fmt.Sprintf("%s is %s %s %s", p.Node, p.Host, p.Addr, p.MAC))
	}
	return strings.Join(out, ", ")
}

// TestHowOtherHostsAreReached has a step in each line; the hardware address is what upstream's agents work out of the name h2.
func TestHowOtherHostsAreReached(t *testing.T) {
	const peer = "h2 is 192.0.2.2 10.65.2.1 66:bf:1c:36:57:41"
	lent := blockUpdate("10.65.1.0/26", `"affinity":"host:h1"`)
	lent.Value = fmt.Appendf(nil, `{"cidr":"10.65.1.0/26","affinity":"host:h1","allocations":[null,0%s],"attributes":[{"secondary":{"node":"h2"}}]}`, strings.Repeat(",null", 62))
	without := func(name, spec string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "nodes/" + name, Value: []byte(`{"spec":{"ipv4VXLANTunnelAddr":"10.65.2.1",` + spec + `}}`)}
	}
	g := New("h1")
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string
	}{
		{"a pool without a tunnel", poolUpdate("a", `"cidr":"10.65.0.0/16"`), ""},
		{"this node", nodeUpdate("h1", "192.0.2.1/24", "10.65.1.1"), ""},
		{"another's block, and nothing of the other", blockUpdate("10.65.2.0/26", `"affinity":"host:h2"`), ""},
		{"the pool has a tunnel", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), "10.65.2.0/26 nowhere"},
		{"the other has no end of it", nodeUpdate("h2", "192.0.2.2/24", ""), "10.65.2.0/26 nowhere"},
		{"it has", nodeUpdate("h2", "192.0.2.2/24", "10.65.2.1"), "10.65.2.0/26 by vxlan.calico at 10.65.2.1, " + peer},
		{"an address of an own block is the other's", lent, "10.65.1.1/32 by vxlan.calico at 10.65.2.1, 10.65.2.0/26 by vxlan.calico at 10.65.2.1, " + peer},
		{"which gives it back", blockUpdate("10.65.1.0/26", `"affinity":"host:h1"`), "10.65.2.0/26 by vxlan.calico at 10.65.2.1, " + peer},
		{"a tunnel to other networks alone", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"CrossSubnet"`), "10.65.2.0/26 direct 192.0.2.2, " + peer},
		{"the other moves to one", nodeUpdate("h2", "198.51.100.2/24", "10.65.2.1"), strings.Replace("10.65.2.0/26 by vxlan.calico at 10.65.2.1, "+peer, "192.0.2.2", "198.51.100.2", 1)},
		{"a smaller pool without a tunnel", poolUpdate("b", `"cidr":"10.65.2.0/24"`), strings.Replace(peer, "192.0.2.2", "198.51.100.2", 1)},
		{"which goes", poolUpdate("b", ""), strings.Replace("10.65.2.0/26 by vxlan.calico at 10.65.2.1, "+peer, "192.0.2.2", "198.51.100.2", 1)},
		{"a node that comes first by name has its end", nodeUpdate("h0", "192.0.2.9/24", "10.65.2.1"), "10.65.2.0/26 nowhere, " + "h0 is 192.0.2.9 10.65.2.1 66:dd:c5:74:47:cc"},
		{"and goes", nodeUpdate("h0", "", ""), strings.Replace("10.65.2.0/26 by vxlan.calico at 10.65.2.1, "+peer, "192.0.2.2", "198.51.100.2", 1)},
		{"another has no address of BGP", without("h2", `"addresses":[{"address":"203.0.113.2","type":"ExternalIP"},{"address":"192.0.2.9"},{"address":"2001:db8::2","type":"InternalIP"},{"address":"192.0.2.2/24","type":"InternalIP"}]`), "10.65.2.0/26 direct 192.0.2.2, " + peer},
		{"nor an internal one", without("h2", `"bgp":{"ipv4IPIPTunnelAddr":"10.65.2.9","ipv6Address":"2001:db8::2/64"},"addresses":[{"address":"203.0.113.2","type":"ExternalIP"}]`), strings.Replace("10.65.2.0/26 by vxlan.calico at 10.65.2.1, "+peer, "192.0.2.2", "203.0.113.2", 1)},
		{"nor any", without("h2", `"addresses":[{"address":"192.0.2.2"}]`), "10.65.2.0/26 nowhere"},
		{"it has that of BGP again", nodeUpdate("h2", "198.51.100.2/24", "10.65.2.1"), strings.Replace("10.65.2.0/26 by vxlan.calico at 10.65.2.1, "+peer, "192.0.2.2", "198.51.100.2", 1)},
		{"this node loses its end", nodeUpdate("h1", "192.0.2.1/24", ""), "10.65.2.0/26 nowhere"},
		{"no pool", poolUpdate("a", ""), ""},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		if got := reached(g); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// TestHowOtherHostsAreReachedByIPIP: through the host, with an end of the tunnel at both, and beside pools with VXLAN.
func TestHowOtherHostsAreReachedByIPIP(t *testing.T) {
	node := func(name, v4, ipip string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "nodes/" + name, Value: fmt.Appendf(nil,
			`{"spec":{"bgp":{"ipv4Address":%q,"ipv4IPIPTunnelAddr":%q},"ipv4VXLANTunnelAddr":"10.66.%s.1"}}`, v4, ipip, name[1:])}
	}
	const (
		byIPIP  = "10.65.2.0/26 by tunl0 at 192.0.2.2"
		byVXLAN = "10.66.2.0/26 by vxlan.calico at 10.66.2.1"
		isVXLAN = "h2 is 192.0.2.2 10.66.2.1 66:bf:1c:36:57:41"
		isIPIP  = "h2 is 192.0.2.2 10.65.2.1 "
	)
	g := New("h1")
	g.Update([]api.Update{
		node("h1", "192.0.2.1/24", "10.65.1.1"), node("h2", "192.0.2.2/24", "10.65.2.1"),
		blockUpdate("10.65.2.0/26", `"affinity":"host:h2"`), blockUpdate("10.66.2.0/26", `"affinity":"host:h2"`),
	})
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string
	}{
		{"IPIP", poolUpdate("a", `"cidr":"10.65.0.0/16","ipipMode":"Always"`), byIPIP + ", " + isIPIP},
		{"VXLAN, too", poolUpdate("b", `"cidr":"10.66.0.0/16","vxlanMode":"Always"`), byIPIP + ", " + byVXLAN + ", " + isVXLAN + ", " + isIPIP},
		{"the other has no end", node("h2", "192.0.2.2/24", ""), "10.65.2.0/26 nowhere, " + byVXLAN + ", " + isVXLAN},
		{"this node's, too", node("h2", "192.0.2.2/24", "10.65.1.1"), "10.65.2.0/26 nowhere, " + byVXLAN + ", " + isVXLAN},
		{"it has its own", node("h2", "192.0.2.2/24", "10.65.2.1"), byIPIP + ", " + byVXLAN + ", " + isVXLAN + ", " + isIPIP},
		{"to other networks alone", poolUpdate("a", `"cidr":"10.65.0.0/16","ipipMode":"CrossSubnet"`), "10.65.2.0/26 direct 192.0.2.2, " + byVXLAN + ", " + isVXLAN + ", " + isIPIP},
		{"VXLAN instead", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), "10.65.2.0/26 by vxlan.calico at 10.66.2.1, " + byVXLAN + ", " + isVXLAN},
		{"without VXLAN", poolUpdate("b", ""), "10.65.2.0/26 by vxlan.calico at 10.66.2.1, " + isVXLAN},
		{"nor any", poolUpdate("a", `"cidr":"10.65.0.0/16","ipipMode":"Never"`), ""},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		if got := reached(g); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestANodeThatChangesCostsItsOwnBlocks(t *testing.T) {
	g := New("h1")
	us := []api.Update{poolUpdate("a", `"cidr":"10.64.0.0/12","vxlanMode":"Always"`), nodeUpdate("h1", "192.0.2.1/24", "10.65.1.1")}
	for i := range 200 {
		us = append(us, nodeUpdate(fmt.Sprint("n", i), fmt.Sprintf("198.51.100.%d/24", i), fmt.Sprintf("10.66.%d.1", i)), blockUpdate(fmt.Sprintf("10.66.%d.0/26", i), fmt.Sprintf(`"affinity":"host:n%d"`, i)))
	}
	g.Update(us)
	if b := g.Flush(); len(b.Routes) != 200 || len(b.Peers) != 200 {
		t.Fatalf("%d routes, %d peers; want 200 of each", len(b.Routes), len(b.Peers))
	}
	g.Update([]api.Update{nodeUpdate("n7", "198.51.100.7/24", "10.66.7.9")})
	if b := g.Flush(); len(b.Routes) != 1 || len(b.Peers) != 1 || len(b.Members)+len(b.IPSets)+len(b.Removed) != 0 {
		t.Errorf("one end has another address: %+v", b)
	}
	g.Update([]api.Update{nodeUpdate("n7", "198.51.100.207/24", "10.66.7.9")})
	if b := g.Flush(); len(b.Routes) != 0 || len(b.Peers) != 1 || len(b.Members) != 1 {
		t.Errorf("one host has another address: %+v", b)
	}
}

// TestATunnelThatSettingsDoNotWant: of IPv4, what it would carry is unreachable; other ways, and IPv6, are as before.
func TestATunnelThatSettingsDoNotWant(t *testing.T) {
	set := func(spec string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{` + spec + `}}`)}
	}
	both := func(name string, i int) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "nodes/" + name, Value: fmt.Appendf(nil,
			`{"spec":{"bgp":{"ipv4Address":"192.0.2.%[1]d/24","ipv6Address":"2001:db8::%[1]d/64"},"ipv4VXLANTunnelAddr":"10.65.%[1]d.1","ipv6VXLANTunnelAddr":"fd65::%[1]d"}}`, i)}
	}
	const six = "fd65::2:0/122 by vxlan-v6.calico at fd65::2, h2 is 2001:db8::2 fd65::2 66:6a:97:ee:c1:4e"
	g := New("h1")
	g.Update([]api.Update{
		poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), poolUpdate("b", `"cidr":"fd65::/64","vxlanMode":"Always"`), both("h1", 1), both("h2", 2),
		blockUpdate("10.65.2.0/26", `"affinity":"host:h2"`), blockUpdate("fd65::2:0/122", `"affinity":"host:h2"`),
	})
	g.Flush()
	before := reached(g)
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string
	}{
		{"no tunnel of IPv4", set(`"vxlanEnabled":false`), "10.65.2.0/26 nowhere, " + six},
		{"a pool with it to other networks alone", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"CrossSubnet"`), "10.65.2.0/26 direct 192.0.2.2, " + six},
		{"that pool as it was", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), "10.65.2.0/26 nowhere, " + six},
		{"a tunnel again", set(`"vxlanEnabled":true`), before},
		{"no setting", api.Update{Key: api.ResourcesPrefix + "felixconfigurations/default"}, before},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		if got := reached(g); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	if !strings.HasPrefix(before, "10.65.2.0/26 by vxlan.calico at 10.65.2.1, fd65::2:0/122 by vxlan-v6.calico at fd65::2, ") {
		t.Errorf("without the setting: %s", before)
	}
}

// TestAnIPIPTunnelThatSettingsDoNotWant: what it would carry is unreachable, and no size follows from it.
func TestAnIPIPTunnelThatSettingsDoNotWant(t *testing.T) {
	node := func(name string, i int) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "nodes/" + name, Value: fmt.Appendf(nil, `{"spec":{"bgp":{"ipv4Address":"192.0.2.%[1]d/24","ipv4IPIPTunnelAddr":"10.65.%[1]d.1"}}}`, i)}
	}
	g := New("h1")
	g.Update([]api.Update{poolUpdate("a", `"cidr":"10.65.0.0/16","ipipMode":"Always"`), node("h1", 1), node("h2", 2), blockUpdate("10.65.2.0/26", `"affinity":"host:h2"`)})
	for _, tt := range []struct{ spec, want string }{
		{`{}`, "10.65.2.0/26 by tunl0 at 192.0.2.2, h2 is 192.0.2.2 10.65.2.1 , wanted true"},
		{`{"ipipEnabled":false}`, "10.65.2.0/26 nowhere, wanted false"},
		{`{"ipipEnabled":true}`, "10.65.2.0/26 by tunl0 at 192.0.2.2, h2 is 192.0.2.2 10.65.2.1 , wanted true"},
	} {
		g.Update([]api.Update{{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":` + tt.spec + `}`)}})
		g.Flush()
		if got := fmt.Sprintf("%s, wanted %v", reached(g), g.host().MTU.Wanted[intent.IPIP]); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.spec, got, tt.want)
		}
	}
}

// TestRoutesWithoutBGPOnOneNetwork has a step in each line.
func TestRoutesWithoutBGPOnOneNetwork(t *testing.T) {
	felix := func(spec string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{` + spec + `}}`)}
	}
	g := New("h1")
	g.Update([]api.Update{
		poolUpdate("a", `"cidr":"10.65.0.0/16"`), nodeUpdate("h1", "192.0.2.1/24", ""), nodeUpdate("h2", "192.0.2.2/24", ""), nodeUpdate("h3", "198.51.100.3/24", ""),
		blockUpdate("10.65.2.0/26", `"affinity":"host:h2"`), blockUpdate("10.65.3.0/26", `"affinity":"host:h3"`), blockUpdate("10.99.0.0/26", `"affinity":"host:h2"`),
	})
	for _, tt := range []struct {
		name   string
		update api.Update
		want   string
	}{
		{"by default BGP brings them", felix(""), ""},
		{"to hosts on this network, of blocks in a pool", felix(`"programClusterRoutes":"Enabled"`), "10.65.2.0/26 direct 192.0.2.2"},
		{"one comes to this network", nodeUpdate("h3", "192.0.2.3/24", ""), "10.65.2.0/26 direct 192.0.2.2, 10.65.3.0/26 direct 192.0.2.3"},
		{"and leaves it", nodeUpdate("h3", "198.51.100.3/24", ""), "10.65.2.0/26 direct 192.0.2.2"},
		{"Disabled", felix(`"programClusterRoutes":"Disabled"`), ""},
		{"in any case of letters", felix(`"programClusterRoutes":"enabled"`), "10.65.2.0/26 direct 192.0.2.2"},
		{"the pool gets a tunnel", poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), "10.65.2.0/26 nowhere, 10.65.3.0/26 nowhere"},
		{"no pool", poolUpdate("a", ""), ""},
	} {
		g.Update([]api.Update{tt.update})
		g.Flush()
		if got := reached(g); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// TestHostsThatAreNoNodesMaySendEncapsulatedPackets has a step in each line.
func TestHostsThatAreNoNodesMaySendEncapsulatedPackets(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{
		poolUpdate("a", `"cidr":"10.65.0.0/16","vxlanMode":"Always"`), nodeUpdate("h1", "192.0.2.1/24", "10.65.1.1"), nodeUpdate("h2", "192.0.2.2/24", "10.65.2.1"),
	})
	for _, tt := range []struct{ list, want string }{
		{`null`, "192.0.2.2/32"},
		{`["198.51.100.9","203.0.113.7/24","192.0.2.2"]`, "192.0.2.2/32 198.51.100.9/32 203.0.113.0/24"},
		{`["198.51.100.9","nothing"]`, "192.0.2.2/32"}, // a wrong value is as none
		{`["198.51.100.9","198.51.100.9/32"]`, "192.0.2.2/32 198.51.100.9/32"},
		{`[]`, "192.0.2.2/32"},
	} {
		g.Update([]api.Update{{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{"externalNodesList":` + tt.list + `}}`)}})
		g.Flush()
		var got []string
		for _, s := range g.Intents().IPSets {
			if s.ID == intent.SetVXLANPeers {
				for _, m := range s.Members {
					got = append(got, m.Prefix.String())
				}
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: taken from %s, want %s", tt.list, got, tt.want)
		}
	}
}
