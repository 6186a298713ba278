package revoke_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func routeOf(dst string, kind intent.RouteKind) intent.Route {
	return intent.Route{Dst: netip.MustParsePrefix(dst), Kind: kind}
}

// TestAWorkloadThatComesFromAnotherHostBringsNoFlowThatPolicyDenies: what is here of its address is cut before it is in force, and
// what policy allows lives when it is. The address is in another host's block, or had a route to another host.
func TestAWorkloadThatComesFromAnotherHostBringsNoFlowThatPolicyDenies(t *testing.T) {
	own, other := routeOf("10.65.1.0/26", intent.RouteBlackhole), routeOf("10.65.0.0/26", intent.RouteBlackhole)
	single := []intent.Key{intent.RouteID{Prefix: netip.MustParsePrefix(goes + "/32")}}
	for _, tt := range []struct {
		name   string
		routes func(b *bench)
		before uint32 // marks before it is in force
		reads  int
	}{
		{"in a block of another host", func(b *bench) { b.Routes([]intent.Route{own}, nil) }, cut, 1},
		{"in a block of this host", func(b *bench) { b.Routes([]intent.Route{own, other}, nil) }, 0, 0},
		{"in a block that was this host's", func(b *bench) {
			b.Routes([]intent.Route{own, other}, nil)
			b.Routes(nil, []intent.Key{intent.RouteID{Prefix: other.Dst}})
		}, cut, 1},
		{"nobody has blocks", func(*bench) {}, 0, 0},
		{"this host has blocks of the other family", func(b *bench) { b.Routes([]intent.Route{routeOf("fd65::/122", intent.RouteBlackhole)}, nil) }, 0, 0},
		{"lent to another host until now", func(b *bench) {
			b.Routes([]intent.Route{other, routeOf(goes+"/32", intent.RouteTunnel)}, nil)
			b.Routes([]intent.Route{routeOf(goes+"/32", intent.RouteLink)}, nil)
		}, cut, 1},
		{"lent to another host before", func(b *bench) {
			b.Routes([]intent.Route{other, routeOf(goes+"/32", intent.RouteDirect)}, nil)
			b.Routes(nil, single)
		}, cut, 1},
		{"a machine that comes, whose flows are its own", func(b *bench) {
			comes := routeOf(goes+"/32", intent.RouteLink)
			comes.Link, comes.Move = "cali-comes", intent.Comes
			b.Routes([]intent.Route{own, comes}, nil)
		}, 0, 0},
		{"a machine that comes, and a prefix of another host's that begins with its address", func(b *bench) {
			comes := routeOf(goes+"/32", intent.RouteLink)
			comes.Link, comes.Move = "cali-comes", intent.Comes
			b.Routes([]intent.Route{own, comes, routeOf(goes+"/31", intent.RouteTunnel)}, nil)
		}, 0, 0},
		{"a machine that comes, and another endpoint has its address", func(b *bench) {
			claimed := routeOf(goes+"/32", intent.RouteLink)
			claimed.Link, claimed.Claims = "cali-other", []intent.Claim{{Link: "cali-other"}, {Link: "cali-comes", Move: intent.Comes}}
			b.Routes([]intent.Route{own, claimed}, nil)
		}, 0, 0},
		{"one that comes from another host, and a machine that is about to has its address", func(b *bench) {
			claimed := routeOf(goes+"/32", intent.RouteLink)
			claimed.Link, claimed.Move, claimed.Claims = "cali-other", intent.Comes, []intent.Claim{{Link: "cali-other", Move: intent.Comes}, {Link: "cali-comes"}}
			b.Routes([]intent.Route{own, claimed}, nil)
		}, cut, 1},
		{"a machine that came, and the next workload is another", func(b *bench) {
			comes := routeOf(goes+"/32", intent.RouteLink)
			comes.Link, comes.Move = "cali-comes", intent.Comes
			b.Routes([]intent.Route{own, comes}, nil)
			b.Routes([]intent.Route{routeOf(goes+"/32", intent.RouteLink)}, nil)
		}, cut, 1},
		{"another address was lent", func(b *bench) {
			b.Routes([]intent.Route{other, routeOf(stays+"/32", intent.RouteEncrypted)}, nil)
			b.Routes(nil, single)
		}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBench(t, []conntrack.Flow{flow(world, goes, 6, 80), flow(world, goes, 6, 81), flow(stays, world, 6, 80)}, func(b *bench) {
				first := policy(denied(6, 80))
				first.Endpoints = []intent.Endpoint{at("other", "10.65.1.9")}
				b.table.flows = nil // nothing is here when the agent starts
				b.apply(first)
				b.table.flows = []conntrack.Flow{flow(world, goes, 6, 80), flow(world, goes, 6, 81), flow(stays, world, 6, 80)}
				tt.routes(b)
				reads := b.table.reads
				comes := at("comes", goes)
				if failed := b.Prepare([]intent.Endpoint{comes}, nil); len(failed) > 0 {
					t.Error(failed)
				}
				b.marks("before it is in force", tt.before, tt.before, 0)
				if n := b.table.reads - reads; n != tt.reads {
					t.Errorf("the table is read %d times for it, want %d", n, tt.reads)
				}
				b.InForce(arrives(comes), false)
				if synctest.Wait(); tt.before != 0 {
					b.marks("at once when it is", cut, 0, 0)
				}
				<-time.After(time.Minute)
				synctest.Wait()
				b.marks("later", cut, 0, 0)
			})
		})
	}
}

// TestAWorkloadComesFromAnotherHost, with its connections: those that policy of it allows lose nothing, and of one that its policy
// denies not a packet passes, in either direction.
func TestAWorkloadComesFromAnotherHost(t *testing.T) {
	for _, family := range [][2]string{{"10.65.0.1", "10.65.0.2"}, {"fd65::a", "fd65::b"}} {
		t.Run(family[0], func(t *testing.T) {
			l := newLooped(t, family[0], family[1])
			l.policyLeavesAlone(1) // the server is another host's until it comes
			if l.to.Is6() {
				l.host.Addr("uplink", "fe80::2:1/64") // which went with the link
			}
			block := netip.MustParsePrefix(map[bool]string{true: "10.65.0.0/31", false: "fd65::a/128"}[netip.MustParseAddr(family[0]).Is4()])
			all := l.workloads(policy())
			server := all.Endpoints[1]
			all.Endpoints, all.Routes = all.Endpoints[:1], []intent.Route{{Dst: block, Kind: intent.RouteBlackhole}}
			l.inForce(all)
			kept := l.talks(clientStreams)
			forth, back := l.datagramFlow(datagrams)
			l.moving(kept.streams(), "while it is another host's")
			comes := policy(denied(17, datagrams))
			comes.Policies[0].ID.Name = "q"
			ids := []intent.PolicyID{comes.Policies[0].ID}
			server.Link, server.Group = "uplink", intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: ids, Egress: ids}}})
			comes.Endpoints = []intent.Endpoint{server}
			l.batches <- comes
			for deadline := time.Now().Add(patience); !strings.Contains(l.host.Run("nft", "list", "set", "inet", "twill", "wl-links"), "uplink"); {
				if time.Now().After(deadline) {
					t.Fatal("the workload does not come into force")
				}
			}
			l.moving(kept.streams(), "after it has come")
			if n := forth.arrive(t, 50, netnstest.Silence); n != 0 {
				t.Errorf("%d packets pass that its policy denies", n)
			}
			if n := back.arrive(t, 50, netnstest.Silence); n != 0 {
				t.Errorf("%d answers pass that its policy denies", n)
			}
		})
	}
}
