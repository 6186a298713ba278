package birdconf_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// session is one with nothing special about it.
func session(me, peer string, localAS, as uint32) plan.Session {
	return plan.Session{
		Peer: addr(peer), Port: 179, Why: "BGPPeer p", AS: as, LocalAS: localAS, Source: addr(me),
		Keepalive: plan.DefaultKeepalive, Hold: 3 * plan.DefaultKeepalive, Restart: plan.DefaultRestart,
		Export: []plan.Rule{{Name: "p", Prefix: prefix("10.65.0.0/16"), Min: 16, Max: 32, Accept: true}},
	}
}

// TestANodeIsTheNextHopBetweenSystemsOnOneLink: with BFD sessions are direct, and there BIRD, if it is not configured otherwise,
// leaves the next hop to be a peer on the same link, which the other peer may not be allowed to reach. What it tells on is marked,
// as what it tells of its own is.
func TestANodeIsTheNextHopBetweenSystemsOnOneLink(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	hosts := []*netnstest.NS{netnstest.New(t), netnstest.New(t), netnstest.New(t)}
	const mid = 1
	hosts[mid].Run("ip", "link", "add", "br0", "type", "bridge")
	for _, end := range []int{0, 2} {
		port := fmt.Sprintf("eth%d", end)
		hosts[mid].VethTo(hosts[end], port, "eth0")
		hosts[mid].Run("ip", "link", "set", port, "master", "br0")
		hosts[end].Addr("eth0", fmt.Sprintf("192.0.2.%d/24", end+1))
	}
	hosts[mid].Up("br0")
	hosts[mid].Addr("br0", "192.0.2.2/24")
	if err := hosts[0].Rtnl().AddRoute(rtnl.Route{Dst: prefix("10.65.1.0/26"), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}); err != nil {
		t.Fatal(err)
	}
	socket := ""
	for i, ns := range hosts {
		me, as := fmt.Sprintf("192.0.2.%d", i+1), uint32(65001+i)
		p := plan.Plan{Node: me, AS: as, RouterID: addr(me)}
		for other := range hosts {
			if other != i && (i == mid || other == mid) {
				s := session(me, fmt.Sprintf("192.0.2.%d", other+1), as, uint32(65001+other))
				s.Passive = i > other
				s.BFD = plan.BFD{BFD: api.DefaultBFD, Asked: i == mid}
				p.Sessions = append(p.Sessions, s)
			}
		}
		for j := range p.Sessions {
			if i == mid {
				p.Sessions[j].Export = append([]plan.Rule{{Prefix: prefix("10.65.0.0/16"), Min: 16, Max: 32, Continue: true, Add: []string{"64512:120"}}}, p.Sessions[j].Export...)
			}
		}
		socket = run(t, ns, bird, render(t, birdconf.Config{Plan: p})) // at last, that of who learns
	}
	await(t, func() error {
		table := hosts[2].Run("ip", "-N", "route", "show", "proto", "12")
		if strings.Contains(table, "via 192.0.2.1 ") {
			t.Fatalf("the next hop is not the peer that advertised it:\n%s", table)
		}
		if !strings.Contains(table, "10.65.1.0/26 via 192.0.2.2 ") {
			return fmt.Errorf("not learned:\n%s", table)
		}
		return nil
	})
	paths, err := birdctl.Paths(socket)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(paths, func(p birdctl.Path) bool {
		return p.Dst == prefix("10.65.1.0/26") && slices.Equal(p.Communities, []string{"64512:120"})
	}) {
		t.Errorf("it is not marked: %+v", paths)
	}
}

// TestBIRDListensOnTheConfiguredAddress: on all addresses, or with bindMode NodeIP on the node's alone, whatever sessions call from;
// and it goes from one to the other and back when it reads its configuration anew.
func TestBIRDListensOnTheConfiguredAddress(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	ns, other := netnstest.New(t), netnstest.New(t)
	ns.VethTo(other, "eth0", "eth0")
	ns.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	unsourced := session("192.0.2.1", "192.0.2.3", 64512, 65001)
	unsourced.Source = netip.Addr{}
	p := plan.Plan{
		Node: "h1", AS: 64512, RouterID: addr("192.0.2.1"),
		Sessions: []plan.Session{session("192.0.2.1", "192.0.2.2", 64512, 64512), unsourced, session("2001:db8::1", "2001:db8::2", 64512, 64512)},
	}
	everywhere, own := []string{"0.0.0.0:1790", "[::]:1790"}, []string{"192.0.2.1:1790", "[2001:db8::1]:1790"}
	socket := ""
	for _, listen := range [][]string{everywhere, own, everywhere} {
		p.Listen = []netip.AddrPort{netip.MustParseAddrPort(listen[0]), netip.MustParseAddrPort(listen[1])}
		if text := render(t, birdconf.Config{Plan: p}); socket == "" {
			socket = run(t, ns, bird, text)
		} else if err := os.WriteFile(filepath.Join(filepath.Dir(socket), "bird.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		} else if err := birdctl.Configure(socket); err != nil {
			t.Fatal(err)
		}
		await(t, func() error {
			var got []string
			for l := range strings.Lines(ns.Run("ss", "-Hltn")) {
				const address = 3
				if f := strings.Fields(l); len(f) > address {
					got = append(got, f[address])
				}
			}
			if slices.Sort(got); !slices.Equal(got, listen) {
				return fmt.Errorf("it listens on %v, want %v", got, listen)
			}
			return nil
		})
	}
}

// TestBIRDAdvertisesWhatOurSpeakerDoes of a node with a filter, communities, a block in no pool, and addresses with priorities, of which the
// elevated one is advertised by itself and the filter's rule matches it.
func TestBIRDAdvertisesWhatOurSpeakerDoes(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	one, two := netnstest.New(t), netnstest.New(t)
	one.VethTo(two, "eth0", "eth0")
	one.Addr("eth0", "192.0.2.1/24")
	two.Addr("eth0", "192.0.2.2/24")
	for _, dst := range []string{"10.65.1.0/26", "10.65.1.5/32", "10.65.1.6/32", "198.51.100.0/26", "198.51.100.7/32"} {
		if err := one.Rtnl().AddRoute(rtnl.Route{Dst: prefix(dst), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}); err != nil {
			t.Fatal(err)
		}
	}
	for dst, metric := range map[string]int{"10.65.1.8/32": 512, "10.65.1.9/32": 1024, "10.65.1.10/32": 600} {
		if err := one.Rtnl().AddRoute(rtnl.Route{Dst: prefix(dst), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent, Metric: metric}); err != nil {
			t.Fatal(err)
		}
	}
	w := plan.New()
	for key, value := range map[string]string{
		api.KeyPrefix(api.KindNode, "") + "h1":                  `{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`,
		api.KeyPrefix(api.KindIPPool, "") + "p":                 `{"spec":{"cidr":"10.65.0.0/16"}}`,
		api.KeyPrefix(api.KindBGPConfiguration, "") + "default": `{"spec":{"prefixAdvertisements":[{"cidr":"10.65.0.0/16","communities":["64512:120"]}]}}`,
		api.KeyPrefix(api.KindBGPFilter, "") + "f":              `{"spec":{"exportV4":[{"cidr":"10.65.1.5/32","matchOperator":"Equal","action":"Accept"},{"priority":512,"action":"Accept","operations":[{"addCommunity":{"value":"65000:100"}}]}]}}`,
		api.KeyPrefix(api.KindBGPPeer, "") + "tor":              `{"spec":{"peerIP":"192.0.2.2","asNumber":65001,"filters":["f"]}}`,
	} {
		w.Update(api.Update{Key: key, Value: []byte(value)})
	}
	blocks := []netip.Prefix{prefix("10.65.1.0/26"), prefix("198.51.100.0/26")}
	run(t, one, bird, render(t, birdconf.Config{Plan: w.Plan("h1"), Blocks: blocks}))
	tor := plan.Plan{Node: "tor", AS: 65001, RouterID: addr("192.0.2.2"), Sessions: []plan.Session{session("192.0.2.2", "192.0.2.1", 65001, 64512)}}
	socket := run(t, two, bird, render(t, birdconf.Config{Plan: tor}))
	want := map[string]string{"10.65.1.0/26": "[64512:120]", "10.65.1.5/32": "[]", "198.51.100.0/26": "[]", "10.65.1.8/32": "[65000:100]", "10.65.1.10/32": "[64512:120]"}
	await(t, func() error {
		paths, err := birdctl.Paths(socket)
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, p := range paths {
			if p.Type == "BGP" {
				got[p.Dst.String()] = fmt.Sprint(p.Communities)
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("learned %v, want %v", got, want)
		}
		return nil
	})
}
