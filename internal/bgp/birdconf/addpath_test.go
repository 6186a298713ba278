package birdconf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// TestBIRDReflectsAllPaths: of a prefix that two clients originate, the third installs two next hops.
func TestBIRDReflectsAllPaths(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	var hosts []*netnstest.NS
	const reflector, learner = 0, 3
	for range learner + 1 {
		hosts = append(hosts, netnstest.New(t))
	}
	hosts[reflector].Run("ip", "link", "add", "br0", "type", "bridge")
	hosts[reflector].Up("br0")
	hosts[reflector].Addr("br0", "192.0.2.1/24")
	address := func(i int) string { return fmt.Sprintf("192.0.2.%d", i+1) }
	own := plan.Plan{Node: "r", AS: 64512, RouterID: addr(address(reflector)), Cluster: addr("244.0.0.1")}
	for i := 1; i <= learner; i++ {
		port := fmt.Sprintf("eth%d", i)
		hosts[reflector].VethTo(hosts[i], port, "eth0")
		hosts[reflector].Run("ip", "link", "set", port, "master", "br0")
		hosts[i].Addr("eth0", address(i)+"/24")
		s := session(address(reflector), address(i), 64512, 64512)
		s.Client, s.Cluster, s.Passive = true, own.Cluster, true
		own.Sessions = append(own.Sessions, s)
		if i < learner {
			if err := hosts[i].Rtnl().AddRoute(rtnl.Route{Dst: prefix("10.65.1.0/26"), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}); err != nil {
				t.Fatal(err)
			}
		}
		client := plan.Plan{Node: address(i), AS: 64512, RouterID: addr(address(i)), Sessions: []plan.Session{session(address(i), address(reflector), 64512, 64512)}}
		run(t, hosts[i], bird, render(t, birdconf.Config{Plan: client}))
	}
	socket := run(t, hosts[reflector], bird, render(t, birdconf.Config{Plan: own}))
	await(t, func() error {
		table := strings.Join(strings.Fields(hosts[learner].Run("ip", "-N", "route", "show", "10.65.1.0/26")), " ")
		if !strings.Contains(table, "via 192.0.2.2 ") || !strings.Contains(table, "via 192.0.2.3 ") {
			return fmt.Errorf("one next hop is missing: %s", table)
		}
		return nil
	})
	if paths, err := birdctl.Paths(socket); err != nil || len(paths) < 2 {
		t.Errorf("%+v, %v", paths, err)
	}
}
