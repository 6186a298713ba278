package speaker_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// ordered waits until BIRD's paths of a route are this.
func (b *bird) path(dst, want string) {
	b.t.Helper()
	await(b.t, patience, func() error {
		if out := b.ask("show", "route", dst, "all"); !strings.Contains(out, "BGP.as_path: "+want+"\n") {
			return fmt.Errorf("no path %q in:\n%s", want, out)
		}
		return nil
	})
}

func TestRulesOfASession(t *testing.T) {
	h, birds := network(t, 2)
	inside, outside := birds[0], birds[1]
	inside.run(`protocol static s4 { ipv4; route 10.65.20.0/26 blackhole { bgp_community.add((7, 8)); }; route 10.65.21.0/26 blackhole; route 10.204.0.0/26 blackhole { bgp_path.prepend(9); bgp_path.prepend(9); }; route 198.51.100.0/24 blackhole; }` +
		speaks("twill", "local as 64512; direct;", "", ""))
	outside.run(speaks("twill", "local as 65001; multihop;", "", ""))
	h.agent("10.65.1.0/26", "10.65.2.0/26", "10.65.2.200/32")
	in, out := session("192.0.2.2", 64512), session("192.0.2.3", 65001)
	within := func(s string) plan.Rule { p := prefix(s); return plan.Rule{Prefix: p, Min: p.Bits(), Max: 32} }
	with := func(r plan.Rule, change func(*plan.Rule)) plan.Rule { change(&r); return r }
	in.Import = []plan.Rule{
		{Name: "lengths exclude each other", Prefix: prefix("10.65.0.0/16"), Min: 26, Max: 16},
		{Name: "communities", Community: "7:8", Accept: true, Add: []string{"64512:1", "64512:2:3"}},
		{Name: "path, whatever the length", Prefix: prefix("10.204.0.0/16"), Not: true, Min: 26, Max: 16, ASPath: []uint32{9, 9}},
		with(within("198.51.100.0/24"), func(r *plan.Rule) { r.Accept, r.Prepend = true, []uint32{65010, 65011} }),
	}
	out.Export = append([]plan.Rule{
		with(within("10.65.2.0/24"), func(r *plan.Rule) {
			r.Accept, r.Max, r.Add, r.Prepend = true, 26, []string{"64512:9"}, []uint32{65020, 65020}
		}),
		with(within("10.65.1.0/26"), func(r *plan.Rule) { r.Not, r.Learned, r.Community = true, true, "64512:2:3" }),
		{Name: "learned", Learned: true, Accept: true},
	}, pools[0])
	h.start(planOf(in, out))
	outside.path("10.65.2.0/26", "64512 65020 65020 64512")
	outside.wants("10.65.2.0/26", "BGP.community: (64512,9)")
	outside.path("10.65.1.0/26", "64512")   // by the pool
	outside.path("10.65.2.200/32", "64512") // too narrow for the first rule, and covered by no route: by the pool
	outside.path("10.65.21.0/26", "64512")  // learned
	outside.path("198.51.100.0/24", "64512 65010 65011")
	outside.lacks("10.65.20.0/26") // learned, with a community that it was given here
	outside.lacks("10.204.0.0/26") // never taken in
	h.wantRoute("10.65.20.0/26 via 192.0.2.2")
	h.wantNoRoute("10.204.0.0/26")
	if all := outside.ask("show", "route", "all"); strings.Contains(all, "4294967295") {
		t.Errorf("a mark has left this process:\n%s", all)
	}
	for _, r := range h.ask(request{}).Routes {
		if r.Dst == prefix("10.65.20.0/26") && strings.Join(r.Communities, " ") != "64512:1 64512:2:3 7:8" {
			t.Errorf("taken in with %v", r.Communities)
		}
	}

	for _, s := range h.ask(request{}).Report.Sessions {
		if s.Peer == in.Peer && (s.Received != 4 || s.Accepted != 3) {
			t.Errorf("%d received, %d accepted, want 4 and 3, as a rule rejects one", s.Received, s.Accepted)
		}
	}

	// The library and the plan agree about to whom it is advertised.
	for _, dst := range []string{"10.65.1.0/26", "10.65.2.0/26", "10.65.20.0/26", "10.65.21.0/26", "198.51.100.0/24"} {
		e := h.ask(request{Explain: prefix(dst)}).Explain
		for _, p := range e.Peers {
			if p.Peer == out.Peer && p.Advertised == strings.Contains(p.Why, "rejects") {
				t.Errorf("%s: %+v", dst, p)
			}
		}
	}
}

func TestNextHops(t *testing.T) {
	h, birds := network(t, 4)
	inside, self, keep, outside := birds[0], birds[1], birds[2], birds[3]
	inside.run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	self.run(speaks("twill", "local as 64512; direct;", "", ""))
	keep.run(speaks("twill", "local as 65001; multihop;", "", ""))
	outside.run(speaks("twill", "local as 65002; multihop;", "", ""))
	one, two, three, four := session("192.0.2.2", 64512), session("192.0.2.3", 64512), session("192.0.2.4", 65001), session("192.0.2.5", 65002)
	all := []plan.Rule{{Name: "all", Accept: true}}
	one.Export, two.Export, three.Export, four.Export = all, all, all, all
	two.NextHop, three.NextHop = plan.NextHopSelf, plan.NextHopKeep
	for _, s := range []*plan.Session{&one, &two} {
		s.Client, s.Cluster = true, prefix("244.0.0.1/32").Addr()
	}
	h.start(planOf(one, two, three, four))
	self.wants("10.204.0.0/26", "BGP.next_hop: 192.0.2.1", "BGP.originator_id: 192.0.2.2", "BGP.cluster_list: 244.0.0.1")
	outside.wants("10.204.0.0/26", "BGP.next_hop: 192.0.2.1", "BGP.as_path: 64512")
	keep.wants("10.204.0.0/26", "BGP.next_hop: 192.0.2.2", "BGP.as_path: 64512")
	two.NextHop = plan.NextHopAuto // as it was advertised, while sessions stay up
	since := h.session("192.0.2.3").Since
	h.plan(planOf(one, two, three, four))
	self.wants("10.204.0.0/26", "BGP.next_hop: 192.0.2.2")
	if now := h.session("192.0.2.3").Since; !now.Equal(since) {
		t.Errorf("the session began at %s, then at %s", since, now)
	}
}

// TestAPeerIsCalledAsItsSessionSays: from which address, at which port, by which AS number, and with how long its routes stay in
// a restart.
func TestAPeerIsCalledAsItsSessionSays(t *testing.T) {
	h, birds := network(t, 2)
	b, other := birds[0], birds[1]
	h.Addr("br0", "192.0.2.77/24", "192.0.2.78/24")
	b.run(statics + strings.ReplaceAll(speaks("twill", "local port 1791 as 4200000001; multihop; passive on;", "", ""), "neighbor 192.0.2.1 as 64512", "neighbor 192.0.2.77 as 4200000002"))
	other.run(strings.ReplaceAll(speaks("twill", "local as 65001; multihop; passive on;", "", ""), "neighbor 192.0.2.1 as", "neighbor 192.0.2.78 as"))
	h.Route("192.0.2.3/32 dev br0 src 192.0.2.78")
	s, unsourced := session("192.0.2.2", 4200000001), session("192.0.2.3", 65001)
	s.Source, s.Port, s.LocalAS, s.Restart = netip.MustParseAddr("192.0.2.77"), 1791, 4200000002, 77*time.Second
	unsourced.Source = netip.Addr{}
	h.agent("10.65.1.0/26")
	h.start(planOf(s, unsourced))
	b.path("10.65.1.0/26", "4200000002")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	if all := b.ask("show", "protocols", "all", "twill4"); !strings.Contains(all, "Restart time: 77") {
		t.Errorf("no restart time of 77 s in\n%s", all)
	}
	other.path("10.65.1.0/26", "64512") // from the address that the kernel takes
}

func TestTTLSecurity(t *testing.T) {
	h, birds := network(t, 2)
	birds[0].run(statics + speaks("twill", "local as 65001; multihop 1; ttl security on;", "", ""))
	birds[1].run(speaks("twill", "local as 65001; multihop;", "", ""))
	s, far := session("192.0.2.2", 65001), session("192.0.2.3", 65001)
	h.start(planOf(s, far)) // from too near: the peer wants TTL 255
	await(t, patience, func() error {
		if got := h.session("192.0.2.2"); got.State != "Active" && got.State != "OpenSent" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	h.up("192.0.2.3")
	s.Hops, far.Hops = 1, 1
	h.plan(planOf(s, far))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	for range 2 { // which takes longer than the peers' connect delay
		birds[0].ask("disable", "twill4")
		h.wantNoRoute("10.204.0.0/26")
		birds[0].ask("enable", "twill4")
		h.up("192.0.2.2")
	}
	if got := h.session("192.0.2.3"); got.State == speaker.Established {
		t.Errorf("packets whose TTL is less than 255 were taken: %+v", got)
	}
}

// TestASessionMayHaveANumberAndAnAddressOfItsOwn: localASNumber, and sourceAddress None, which leaves the address to the route.
func TestASessionMayHaveANumberAndAnAddressOfItsOwn(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	b.run(statics + strings.ReplaceAll(speaks("twill", "local as 65001; multihop;", "", ""), "neighbor 192.0.2.1 as 64512", "neighbor 192.0.2.77 as 64999"))
	h.Addr("br0", "192.0.2.77/32")
	h.Run("ip", "route", "add", "192.0.2.2/32", "dev", "br0", "src", "192.0.2.77")
	h.agent("10.65.1.0/26")
	s := session("192.0.2.2", 65001)
	s.LocalAS, s.Source = 64999, netip.Addr{}
	h.start(planOf(s))
	b.wants("10.65.1.0/26", "BGP.as_path: 64999")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
}

func TestForeignPoolsAreLeftAlone(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	p := planOf(session("192.0.2.2", 64512))
	p.Foreign = append(p.Foreign, prefix("10.204.0.0/16"))
	h.start(p)
	await(t, patience, func() error {
		if r := h.ask(request{}); r.Report.Learned != 1 || r.Report.Kernel != 0 || len(r.Routes) != 1 || r.Routes[0].Kernel != "left to the agent" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	p.Foreign = nil
	h.plan(p)
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
}

func TestAnotherPortOwnNumbersInPathsAndIgnoredInterfaces(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	b.run(strings.ReplaceAll(`protocol static s4 { ipv4; route 10.204.0.0/26 blackhole { bgp_path.prepend(64512); }; }`+
		speaks("twill", "local port 1791 as 65001; multihop;", "", ""), "neighbor 192.0.2.1 as", "neighbor 192.0.2.1 port 1790 as"))
	if err := h.Rtnl().AddRoute(rtnl.Route{Dst: prefix("10.65.3.3/32"), Link: h.Link("br0").Index, Protocol: kernel.RouteProtocolAgent}); err != nil {
		t.Fatal(err)
	}
	h.agent("10.65.1.0/26")
	s := session("192.0.2.2", 65001)
	s.Port, s.Passive = 1791, true // the peer finds the port that is listened on
	p := planOf(s)
	p.Listen = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1790")}
	p.Ignored = []string{"br*"}
	h.start(p)
	b.wants("10.65.1.0/26")
	b.lacks("10.65.3.3/32")
	if e := h.ask(request{Explain: prefix("10.65.3.3/32")}).Explain; !strings.Contains(e.Own, "interface br0 is among ignoredInterfaces") {
		t.Errorf("%+v", e)
	}
	p.Ignored = nil
	h.plan(p)
	b.wants("10.65.3.3/32")
	if routes := h.ask(request{}).Routes; len(routes) != 2 { // a path with our own number is not believed
		t.Errorf("%+v", routes)
	}
	p.Sessions[0].AllowLocalAS = 1
	h.plan(p)
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
}

// TestAPeerCannotForgeAMark tells routes with the mark that rules of several steps put on a route while it is judged:
// one that no rule lets in, and one that no rule lets out.
func TestAPeerCannotForgeAMark(t *testing.T) {
	h, birds := network(t, 2)
	forger, other := birds[0], birds[1]
	const mark = "{ bgp_large_community.add((4294967295, 4294967295, 4294967295)); }"
	forger.run("protocol static s4 { ipv4; route 198.51.100.0/24 blackhole " + mark + "; route 10.65.20.0/26 blackhole " + mark + "; route 10.65.21.0/26 blackhole; }" +
		speaks("twill", "local as 65001; multihop;", "", ""))
	other.run(speaks("twill", "local as 65002; multihop;", "", ""))
	in, out := session("192.0.2.2", 65001), session("192.0.2.3", 65002)
	exactly := func(s string) plan.Rule {
		p := prefix(s)
		return plan.Rule{Prefix: p, Min: p.Bits(), Max: p.Bits(), Accept: true}
	}
	several := exactly("10.65.21.0/26")
	several.Add = []string{"64512:1"}
	in.Import = []plan.Rule{several, exactly("10.65.20.0/26"), {Name: "nothing else"}}
	out.Export = []plan.Rule{several, {Name: "nothing else"}}
	h.start(planOf(in, out))
	h.wantRoute("10.65.20.0/26 via 192.0.2.2")
	h.wantRoute("10.65.21.0/26 via 192.0.2.2")
	other.wants("10.65.21.0/26", "(64512,1)")
	h.wantNoRoute("198.51.100.0/24")
	other.lacks("10.65.20.0/26")
}

// TestRulesAboutInterfaces tells routes by the interface that they lead through, and follows a plan that thinks again.
func TestRulesAboutInterfaces(t *testing.T) {
	h, birds := network(t, 2)
	b, forger := birds[0], birds[1]
	b.run(speaks("twill", "local as 65001; multihop;", "", ""))
	forger.run("protocol static s4 { ipv4; route 10.65.20.0/26 blackhole { bgp_large_community.add((4294967295, 4294967295, 0)); }; }" +
		speaks("twill", "local as 65002; multihop;", "", ""))
	h.Veth("cali1", "peer1")
	h.Up("cali1")
	h.Up("peer1")
	for dst, link := range map[string]string{"10.65.3.3/32": "br0", "10.65.3.4/32": "cali1"} {
		if err := h.Rtnl().AddRoute(rtnl.Route{Dst: prefix(dst), Link: h.Link(link).Index, Protocol: kernel.RouteProtocolAgent}); err != nil {
			t.Fatal(err)
		}
	}
	h.agent("10.65.1.0/26")
	s, in := session("192.0.2.2", 65001), session("192.0.2.3", 65002)
	s.Export = []plan.Rule{{Name: "workloads", Interface: "cali*", Accept: true, Add: []string{"1:2:3"}}, {Name: "no other", Interface: "b?0"}, {Name: "blocks", Prefix: prefix("10.65.1.0/26"), Min: 26, Max: 26, Accept: true}}
	h.start(planOf(s, in))
	b.wants("10.65.3.4/32", "BGP.large_community: (1, 2, 3)")
	b.wants("10.65.1.0/26")
	b.lacks("10.65.3.3/32")
	h.wantRoute("10.65.20.0/26 via 192.0.2.3")
	b.lacks("10.65.20.0/26") // whatever its peer says of it
	for dst, want := range map[string]string{"10.65.3.4/32": "workloads accepts", "10.65.3.3/32": "no other rejects", "10.65.1.0/26": "blocks accepts"} {
		if e := h.ask(request{Explain: prefix(dst)}).Explain; len(e.Peers) == 0 || e.Peers[0].Why != want || e.Peers[0].Advertised != strings.HasSuffix(want, "accepts") {
			t.Errorf("%s: %+v", dst, e)
		}
	}
	s.Export = []plan.Rule{{Name: "not these", Interface: "cali*"}, {Name: "this", Interface: "br0", Accept: true}}
	h.plan(planOf(s, in))
	b.wants("10.65.3.3/32")
	b.lacks("10.65.3.4/32")
	b.lacks("10.65.1.0/26")
	s.Export = []plan.Rule{pools[0]}
	h.plan(planOf(s, in))
	b.wants("10.65.3.4/32")
	if all := b.ask("show", "route", "all"); strings.Contains(all, "4294967295") {
		t.Errorf("a mark has left this process:\n%s", all)
	}
}

// marking is a rule of prefixAdvertisements for IPv4.
func marking(within string, communities ...string) plan.Rule {
	return plan.Rule{Prefix: prefix(within), Min: prefix(within).Bits(), Max: 32, Add: communities, Continue: true}
}

// TestRoutesAdvertisedWithinAPrefixGetItsCommunities: upstream's prefixAdvertisements apply to every route that is advertised, originated or learned,
// unless a filter has accepted it; a node that advertises a route with the community already does not add it twice. A change is advertised to
// peers whose sessions stay up.
func TestRoutesAdvertisedWithinAPrefixGetItsCommunities(t *testing.T) {
	h, birds := network(t, 2)
	inside, outside := birds[0], birds[1]
	inside.run(`protocol static s4 { ipv4; route 10.65.20.0/26 blackhole { bgp_community.add((64512, 120)); }; route 10.65.21.0/26 blackhole; route 10.65.22.0/26 blackhole; route 10.66.1.0/26 blackhole; }` +
		speaks("twill", "local as 64512; direct;", "", ""))
	outside.run(speaks("twill", "local as 65001; multihop;", "", ""))
	h.agent("10.65.1.0/26", "10.65.2.0/26")
	in, out := session("192.0.2.2", 64512), session("192.0.2.3", 65001)
	accepted := func(s string) plan.Rule {
		return plan.Rule{Name: "filter", Prefix: prefix(s), Min: 26, Max: 26, Accept: true}
	}
	out.Export = []plan.Rule{
		accepted("10.65.2.0/26"),
		accepted("10.65.22.0/26"),
		marking("10.65.0.0/16", "64512:120", "64512:300:100"),
		{Name: "marked", Community: "64512:120", Accept: true, Prepend: []uint32{65030}},
		{Name: "all", Accept: true},
	}
	h.start(planOf(in, out))
	for _, dst := range []string{"10.65.1.0/26", "10.65.20.0/26", "10.65.21.0/26"} {
		outside.wants(dst, "BGP.community: (64512,120)\n", "BGP.large_community: (64512, 300, 100)\n")
		outside.path(dst, "64512 65030 64512") // rules after it see what it is marked with
	}
	for _, dst := range []string{"10.66.1.0/26", "10.65.2.0/26", "10.65.22.0/26"} {
		outside.path(dst, "64512")
		if all := outside.ask("show", "route", dst, "all"); strings.Contains(all, "community") {
			t.Errorf("what is outside of the prefix, or accepted by a filter, is marked:\n%s", all)
		}
	}
	for _, peer := range h.ask(request{Explain: prefix("10.65.22.0/26")}).Explain.Peers {
		if peer.Peer == out.Peer && (!peer.Advertised || !strings.Contains(peer.Why, "filter")) {
			t.Errorf("why: %+v", peer)
		}
	}
	since := h.session("192.0.2.3").Since
	out.Export = []plan.Rule{marking("10.65.0.0/16", "64512:130"), {Name: "all", Accept: true}}
	h.plan(planOf(in, out))
	for _, dst := range []string{"10.65.1.0/26", "10.65.21.0/26", "10.65.2.0/26"} {
		outside.wants(dst, "BGP.community: (64512,130)\n")
	}
	outside.wants("10.65.20.0/26", "BGP.community: (64512,120) (64512,130)\n")
	if now := h.session("192.0.2.3").Since; !now.Equal(since) {
		t.Errorf("the session began at %s, then at %s", since, now)
	}
}

// TestOwnBlocksOutsideEveryPoolAreAdvertised: their workloads have to be reached. What peers advertise, and single addresses, are not.
func TestOwnBlocksOutsideEveryPoolAreAdvertised(t *testing.T) {
	h, birds := network(t, 2)
	inside, outside := birds[0], birds[1]
	inside.run(`protocol static s4 { ipv4; route 198.51.100.128/26 blackhole; } protocol static s6 { ipv6; route fd00:99:2::/64 blackhole; }` +
		speaks("twill", "local as 64512; direct;", "", ""))
	outside.run(speaks("twill", "local as 65001; multihop;", "", ""))
	h.agent("198.51.100.0/26", "203.0.113.7/32", "fd00:99:1::/64", "fd00:99:3::7/128")
	w := plan.New()
	w.Update(api.Update{Key: api.KeyPrefix(api.KindNode, "") + "h1", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24","ipv6Address":"2001:db8:1::1/64"}}}`)})
	for i, peer := range []string{"192.0.2.2", "192.0.2.3", "2001:db8:1::2", "2001:db8:1::3"} {
		as := []string{"64512", "65001"}[i%2]
		w.Update(api.Update{Key: api.KeyPrefix(api.KindBGPPeer, "") + fmt.Sprint("p", i), Value: []byte(`{"spec":{"peerIP":"` + peer + `","asNumber":` + as + `}}`)})
	}
	h.start(planOf(w.Plan("h1").Sessions...))
	h.wantRoute("198.51.100.128/26 via 192.0.2.2")
	h.wantRoute("fd00:99:2::/64 via 2001:db8:1::2")
	for _, dst := range []string{"198.51.100.0/26", "fd00:99:1::/64"} {
		inside.wants(dst)
		outside.wants(dst)
	}
	for _, dst := range []string{"198.51.100.128/26", "203.0.113.7/32", "fd00:99:2::/64", "fd00:99:3::7/128"} {
		outside.lacks(dst)
	}
	for _, peer := range h.ask(request{Explain: prefix("198.51.100.0/26")}).Explain.Peers {
		if !peer.Advertised || peer.Why != "a block of this node in no IPPool accepts" {
			t.Errorf("why: %+v", peer)
		}
	}
}

// TestAFilterAdvertisesAnAddressOfABlock to the peer whose filter accepts it, while others have the block alone; and no longer when the
// filter is another, or the address is gone.
func TestAFilterAdvertisesAnAddressOfABlock(t *testing.T) {
	h, birds := network(t, 2)
	filtered, plain := birds[0], birds[1]
	filtered.run(speaks("twill", "local as 65001; multihop;", "", ""))
	plain.run(speaks("twill", "local as 65002; multihop;", "", ""))
	h.agent("10.65.1.0/26", "10.65.1.5/32", "10.65.1.6/32", "10.65.9.9/32")
	one, two := session("192.0.2.2", 65001), session("192.0.2.3", 65002)
	covered := []plan.Rule{{Name: "the block that covers it", Covered: true}, pools[0]}
	with := func(filter ...plan.Rule) plan.Plan {
		one.Export, two.Export = slices.Concat(filter, covered), covered
		return planOf(one, two)
	}
	some := plan.Rule{Name: "filter", Prefix: prefix("10.65.1.4/31"), Min: 32, Max: 32, Accept: true}
	h.start(with(some))
	for _, dst := range []string{"10.65.1.0/26", "10.65.9.9/32"} {
		filtered.wants(dst)
		plain.wants(dst)
	}
	filtered.wants("10.65.1.5/32", "BGP.as_path: 64512\n")
	filtered.lacks("10.65.1.6/32")
	plain.lacks("10.65.1.5/32")
	want := map[string]string{"192.0.2.2": "filter accepts", "192.0.2.3": "the block that covers it rejects"}
	for _, p := range h.ask(request{Explain: prefix("10.65.1.5/32")}).Explain.Peers {
		if why := want[p.Peer.String()]; p.Why != why || p.Advertised != strings.HasSuffix(why, "accepts") {
			t.Errorf("%+v, want %q", p, why)
		}
	}
	h.agent("10.65.1.4/32")
	filtered.wants("10.65.1.4/32")
	h.agentDrops("10.65.1.5/32")
	filtered.lacks("10.65.1.5/32")
	for _, b := range birds {
		if all := b.ask("show", "route", "all"); strings.Contains(all, "4294967295") {
			t.Errorf("a mark has left this process:\n%s", all)
		}
	}
	h.plan(with())
	filtered.lacks("10.65.1.4/32")
	filtered.wants("10.65.1.0/26")
}

// TestPrefixesOfServicesAreAdvertised, and withdrawn when no configuration names them any more; the session stays up.
func TestPrefixesOfServicesAreAdvertised(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	b.run(speaks("twill", "local as 65001; multihop;", "", ""))
	s := session("192.0.2.2", 65001)
	services := prefix("10.96.0.0/12")
	s.Export = []plan.Rule{{Name: "services", Prefix: services, Min: services.Bits(), Max: services.Bits(), Accept: true}}
	p := planOf(s)
	h.start(p)
	h.up("192.0.2.2")
	b.lacks("10.96.0.0/12")
	since := h.session("192.0.2.2").Since
	p.Originate = []netip.Prefix{services}
	h.plan(p)
	b.wants("10.96.0.0/12", "192.0.2.1", "BGP.as_path: 64512\n")
	p.Originate = nil
	h.plan(p)
	b.lacks("10.96.0.0/12")
	if now := h.session("192.0.2.2").Since; !now.Equal(since) {
		t.Errorf("the session began at %s, then at %s", since, now)
	}
}
