package birdconf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func secret(s plan.Secret) (string, error) {
	if s.Key == "none" {
		return "", errors.New("no such file")
	}
	return "sesame", nil
}

// everything is a plan in which each thing that can be said is said.
func everything() birdconf.Config {
	s := plan.Session{
		Peer: addr("192.0.2.2"), Port: 1790, Why: "BGPPeer tor", PeerNode: "h2", AS: 65001, LocalAS: 64513, Source: addr("192.0.2.1"), Passive: true,
		Password: &plan.Secret{Name: "a", Key: "b"}, NextHop: plan.NextHopKeep, Hops: 1, Keepalive: 10 * time.Second, Hold: 30 * time.Second, Restart: 5 * time.Second, Via: addr("192.0.2.254"),
		AllowLocalAS: 2,
		Import:       []plan.Rule{{Name: "none"}},
		Export: []plan.Rule{
			{Name: "in", Prefix: prefix("10.65.0.0/16"), Min: 16, Max: 26, Accept: true, Add: []string{"1:2", "1:2:3"}, Prepend: []uint32{5, 6}},
			{Name: "not", Prefix: prefix("10.66.0.0/16"), Not: true, Min: 16, Max: 32, Learned: true, Community: "7:8", ASPath: []uint32{9, 10}},
			{Name: "never", Prefix: prefix("10.66.0.0/16"), Min: 16, Max: 12, Accept: true},
			{Name: "always", Prefix: prefix("10.66.0.0/16"), Not: true, Min: 24, Max: 16, Learned: true, Accept: true},
			{Name: "large", Community: "7:8:9", Accept: true},
			{Name: "link", Interface: "cali*", Accept: true},
			{Name: "priority", Priority: 512, Accept: true, SetPriority: 700},
			{Name: "marks", Prefix: prefix("10.65.0.0/16"), Min: 16, Max: 32, Continue: true, Add: []string{"64512:120"}},
			{Name: "own", Own: true, Accept: true},
			{Name: "covered", Covered: true},
		},
	}
	six, lacking := s, s
	six.Peer, six.Source, six.Import, six.Export, six.Via = addr("2001:db8::2"), netip.Addr{}, nil, nil, addr("2001:db8::fe")
	lacking.Via = netip.Addr{}
	six.Password, six.Passive, six.NextHop, six.Hops, six.AllowLocalAS = nil, false, plan.NextHopSelf, 0, 0
	six.AS, six.Client, six.Cluster = six.LocalAS, true, addr("244.0.0.1")
	near := six
	near.Peer, near.Via = addr("2001:db8::3"), netip.Addr{}
	near.BFD = plan.BFD{BFD: api.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}, Asked: true}
	six.BFD = near.BFD
	lacking.Peer, lacking.Password = addr("192.0.2.3"), &plan.Secret{Name: "a", Key: "none"}
	return birdconf.Config{
		Blocks: []netip.Prefix{prefix("10.65.1.0/26"), prefix("10.65.9.9/32"), prefix("fd00:65::/122")}, Secret: secret,
		Plan: plan.Plan{
			Node: "h1", AS: 64512, RouterID: addr("192.0.2.1"), Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:179")},
			Sessions: []plan.Session{s, lacking, six, near}, Originate: []netip.Prefix{prefix("10.96.0.0/12"), prefix("fd00:96::/108")},
			Foreign: []netip.Prefix{prefix("10.96.0.0/12"), prefix("fd00:67::/48")}, Ignored: []string{"eth9"}, Normal: [2]uint32{1500},
		},
	}
}

func render(t *testing.T, c birdconf.Config) string {
	t.Helper()
	text, err := birdconf.Render(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestBIRDTakesWhatIsRendered(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	for name, c := range map[string]birdconf.Config{"everything": everything(), "off": {Plan: plan.Plan{Node: "h1", Off: "there is no Node h1"}}, "reflector": reflector()} {
		t.Run(name, func(t *testing.T) {
			text := render(t, c)
			path := filepath.Join(t.TempDir(), "bird.conf")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(bird, "-p", "-c", path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s\n%s", err, out, text)
			}
		})
	}
}

func TestEachThingOfAPlanIsRendered(t *testing.T) {
	text := render(t, everything())
	for _, want := range []string{
		"router id 192.0.2.1;", `timeformat base "%FT%T";`, `interface -"eth9", -"cali*", -"kube-ipvs*", "*";`, "if krt_source != 80 then reject;",
		"if source != RTS_BGP && net ~ [ 10.65.1.0/26{27,32} ] && !(defined(krt_metric) && krt_metric > 0 && krt_metric < 1500) then { reject; } # covered", "metric 2050;", "graceful restart wait 5;",
		"if net ~ fd00:67::/48 then reject;", "route 10.96.0.0/12 blackhole;", "route fd00:96::/108 blackhole;",
		"protocol bgp twill_192_0_2_2 {", "local 192.0.2.1 port 179 as 64513;", "neighbor 192.0.2.2 port 1790 as 65001;",
		"ttl security on; multihop 1;", "\n  multihop;\n", "keepalive time 10; hold time 30;", "graceful restart on; graceful restart time 5;",
		"protocol bfd { accept direct; }", "  direct; bfd { interval 300000 us; multiplier 3; };",
		"route 192.0.2.2/32 via 192.0.2.254;", "route 2001:db8::2/128 via 2001:db8::fe;", `password "sesame";`, "passive on;", "rr client; rr cluster id 244.0.0.1;", "allow local as 2;", "next hop keep;", "next hop self;",
		"      reject; # none",
		"if net ~ [ 10.65.0.0/16{16,26} ] then { bgp_community.add((1, 2)); bgp_large_community.add((1, 2, 3)); bgp_path.prepend(6); bgp_path.prepend(5); accept; } # in",
		"if !(net ~ [ 10.66.0.0/16{16,32} ]) && source = RTS_BGP && (7, 8) ~ bgp_community && bgp_path ~ [= 9 10 * =] then { reject; } # not",
		"if false then { accept; } # never", "if true && source = RTS_BGP then { accept; } # always",
		`if source != RTS_BGP && defined(ifname) && ifname ~ "cali*" then { accept; } # link`,
		"if (7, 8, 9) ~ bgp_large_community then { accept; } # large", "if bgp_local_pref = 2147483135 then { bgp_local_pref = 2147482947; accept; } # priority",
		"if source != RTS_BGP then bgp_local_pref = 2147482147;", "if source != RTS_BGP && defined(krt_metric) && krt_metric > 0 then bgp_local_pref = 2147483647 - krt_metric;",
		"if net ~ [ 10.65.0.0/16{16,32} ] then { bgp_community.add((64512, 120)); } # marks", "if source != RTS_BGP then { accept; } # own",
		"# 192.0.2.3 is left out: password: no such file", "neighbor 2001:db8::2 port 1790 as 64513;", "  local port 179 as 64513;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "    add paths on;\n"); n != 3 {
		t.Errorf("add paths %d times, want it for the session with next hop keep and for the two internal ones:\n%s", n, text)
	}
	if n := strings.Count(text, "bfd { interval"); n != 1 {
		t.Errorf("%d sessions are direct and have BFD, want that which has no gateway:\n%s", n, text)
	}
	if strings.Contains(text, "then reject; # advertised as a whole\n  accept;\n}\nfilter twill_kernel4") || !strings.Contains(text, "if net ~ [ fd00:65::/122{123,128} ] && !(defined(krt_metric) && krt_metric != 1024 && krt_metric < 1024) then reject;") {
		t.Errorf("a filter for IPv4 may accept what a block covers, and none for IPv6:\n%s", text)
	}
	c := everything()
	c.Plan.Sessions = c.Plan.Sessions[2:] // which have no filters
	c.Blocks = append(c.Blocks, prefix("10.65.2.0/26"))
	for _, want := range []string{"if net ~ [ 10.65.1.0/26{27,32}, 10.65.2.0/26{27,32} ] && !(defined(krt_metric) && krt_metric > 0 && krt_metric < 1500) then reject;", "if net ~ [ fd00:65::/122{123,128} ] &&"} {
		if text := render(t, c); !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "10.65.9.9/32{") {
		t.Error("nothing lies within one address")
	}
}

// reflector is everything, of a dedicated reflector.
func reflector() birdconf.Config {
	c := everything()
	c.Plan.Cluster = netip.MustParseAddr("244.0.0.1")
	c.Plan = c.Plan.Reflector()
	return c
}

func TestADedicatedReflectorLearnsNothingFromTheKernelAndInstallsNothing(t *testing.T) {
	text := render(t, reflector())
	for _, want := range []string{
		`ipv4 { import none; export where proto = "twill_ways4"; };`, "route 192.0.2.2/32 via 192.0.2.254;", "rr client; rr cluster id 244.0.0.1;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, never := range []string{"learn;", "twill_import", "filter twill_kernel", "twill_services", "merge paths"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in\n%s", never, text)
		}
	}
	c := reflector()
	for i := range c.Plan.Sessions {
		c.Plan.Sessions[i].Via = netip.Addr{}
	}
	if text := render(t, c); strings.Contains(text, "protocol kernel") {
		t.Errorf("no peer is behind a gateway, and BIRD has to do with the kernel's routes:\n%s", text)
	}
}

// TestHostsWithBIRDRouteForEachOther is the reachability that our own speaker gives, seen in the kernels.
func TestHostsWithBIRDRouteForEachOther(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	one, two := netnstest.New(t), netnstest.New(t)
	one.VethTo(two, "eth0", "eth0")
	const odd = `se\same\\ #'//é;` // a password that BIRD takes as it is
	allowed := []plan.Rule{{Name: "p", Prefix: prefix("10.65.0.0/16"), Min: 16, Max: 32, Accept: true}}
	for i, ns := range []*netnstest.NS{one, two} {
		me, other := fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("192.0.2.%d", 2-i)
		ns.Addr("eth0", me+"/24")
		ns.Forward()
		block := prefix(fmt.Sprintf("10.65.%d.0/26", i+1))
		for _, dst := range []string{block.String(), fmt.Sprintf("10.65.%d.5/32", i+1), fmt.Sprintf("10.65.200.%d/32", i+1), fmt.Sprintf("198.51.100.%d/32", i+1)} {
			if err := ns.Rtnl().AddRoute(rtnl.Route{Dst: prefix(dst), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}); err != nil {
				t.Fatal(err)
			}
		}
		ns.Veth("cali1", "peer1")
		ns.Route(fmt.Sprintf("10.65.201.%d/32 dev cali1 proto 99", i+1)) // a workload's, by the agent's settings
		ns.Route(fmt.Sprintf("10.65.20%d.0/24 dev cali1 proto 99", i+2)) // somebody else's
		ns.Route("10.65.77.0/24 via " + other + " proto 17")             // somebody else's
		text := render(t, birdconf.Config{Blocks: []netip.Prefix{block}, Secret: func(plan.Secret) (string, error) { return odd, nil }, Plan: plan.Plan{
			Node: me, AS: 64512, AgentProtocol: 99, RouterID: addr(me), Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:179")}, Sessions: []plan.Session{{
				Peer: addr(other), Port: 179, Why: "mesh", AS: 64512, LocalAS: 64512, Source: addr(me), Passive: i == 0, Password: &plan.Secret{Name: "a", Key: "b"},
				Keepalive: plan.DefaultKeepalive, Hold: 90 * time.Second, Restart: plan.DefaultRestart, Export: allowed,
			}, {
				Peer: addr(fmt.Sprintf("10.65.15%d.9", i+1)), Via: addr(other), Port: 179, Why: "BGPPeer far", AS: 65001, LocalAS: 64512,
				Keepalive: plan.DefaultKeepalive, Hold: 90 * time.Second, Restart: plan.DefaultRestart, Export: allowed,
			}},
		}})
		if i == 1 { // written by hand, as BIRD reads it
			before, after, _ := strings.Cut(text, "  password ")
			_, after, _ = strings.Cut(after, "\n")
			text = before + `  password "` + odd + "\";\n" + after
		}
		run(t, ns, bird, text)
	}
	for i, ns := range []*netnstest.NS{one, two} {
		other := 2 - i
		await(t, func() error {
			table := ns.Run("ip", "-N", "route", "show", "proto", "12")
			for _, want := range []string{fmt.Sprintf("10.65.15%d.9 via 192.0.2.%d", i+1, other), fmt.Sprintf("10.65.%d.0/26 via 192.0.2.%d", other, other), fmt.Sprintf("10.65.200.%d via", other), fmt.Sprintf("10.65.201.%d via", other), "metric 2050"} {
				if !strings.Contains(table, want) {
					return fmt.Errorf("no %q in\n%s", want, table)
				}
			}
			for _, not := range []string{fmt.Sprintf("10.65.%d.5", other), fmt.Sprintf("10.65.15%d.9", other), "198.51.100", "10.65.77.0", fmt.Sprintf("10.65.20%d.0/24 via", other+1)} {
				if strings.Contains(table, not) {
					t.Fatalf("%s was advertised:\n%s", not, table)
				}
			}
			return nil
		})
	}
}

// TestBIRDSpeaksBFDWhereItIsAskedFor: one hop, as all of ours do.
func TestBIRDSpeaksBFDWhereItIsAskedFor(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	one, two := netnstest.New(t), netnstest.New(t)
	one.VethTo(two, "eth0", "eth0")
	var sockets []string
	for i, ns := range []*netnstest.NS{one, two} {
		me, other := fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("192.0.2.%d", 2-i)
		ns.Addr("eth0", me+"/24")
		p := plan.Plan{Node: me, AS: 64512, RouterID: addr(me), Sessions: []plan.Session{{
			Peer: addr(other), Port: 179, Why: "mesh", AS: 64512, LocalAS: 64512, Source: addr(me), Passive: i == 0,
			Keepalive: plan.DefaultKeepalive, Hold: 90 * time.Second, Restart: plan.DefaultRestart, BFD: plan.BFD{BFD: api.DefaultBFD},
		}}}
		if text := render(t, birdconf.Config{Plan: p}); strings.Contains(text, "bfd") {
			t.Errorf("nobody asked for it:\n%s", text)
		}
		p.Sessions[0].BFD.Asked = true
		sockets = append(sockets, run(t, ns, bird, render(t, birdconf.Config{Plan: p})))
	}
	for _, s := range sockets {
		await(t, func() error {
			out, _ := exec.Command("birdc", "-s", s, "show", "bfd", "sessions").CombinedOutput() // its text says what failed
			if line := strings.Join(strings.Fields(string(out)), " "); !strings.Contains(line, "eth0 Up") || !strings.HasSuffix(line, "0.300 0.900") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
}

func run(t *testing.T, ns *netnstest.NS, bird, text string) (socket string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bird, "-f", "-c", path, "-s", filepath.Join(dir, "ctl"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := ns.Handle().Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("birdc", "-s", filepath.Join(dir, "ctl"), "show", "route", "all").CombinedOutput()
			more, _ := exec.Command("birdc", "-s", filepath.Join(dir, "ctl"), "show", "protocols", "all").CombinedOutput()
			t.Logf("%s\n%s\n%s", text, out, more)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return filepath.Join(dir, "ctl")
}

// await looks until a condition holds.
func await(t *testing.T, look func() error) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}
