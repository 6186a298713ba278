package revoke_test

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// table is a table of connections in memory.
type table struct {
	flows   []conntrack.Flow
	reads   int
	finds   int             // of single flows
	fail    error           // of a reading
	refuses error           // of a change
	windows map[uint16]bool // of connections, by their port, that may have any window
}

func (x *table) Each(f func(conntrack.Flow)) error {
	x.reads++
	for _, flow := range x.flows {
		f(flow)
	}
	return x.fail
}

func (x *table) Find(flows []conntrack.Flow) (found []conntrack.Flow, _ error) {
	x.finds += len(flows)
	for _, f := range flows {
		for _, is := range x.flows {
			if is.Original == f.Original {
				found = append(found, is)
			}
		}
	}
	return found, x.refuses
}

func (x *table) Mark(changes []conntrack.Change) (int, error) {
	if x.refuses != nil {
		return 0, x.refuses
	}
	for _, c := range changes {
		for i := range x.flows {
			if x.flows[i].Original == c.Flow.Original {
				x.flows[i].Mark = x.flows[i].Mark&^c.Mask | c.Mark
				if c.AnyWindow {
					if x.windows == nil {
						x.windows = map[uint16]bool{}
					}
					x.windows[c.Flow.Original.DstPort] = true
				}
			}
		}
	}
	return len(changes), nil
}

func (x *table) Forget(gone []conntrack.Flow) (int, error) {
	if x.refuses != nil {
		return 0, x.refuses
	}
	x.flows = slices.DeleteFunc(x.flows, func(f conntrack.Flow) bool {
		return slices.ContainsFunc(gone, func(g conntrack.Flow) bool { return g.Original == f.Original })
	})
	return len(gone), nil
}

const others = 0x00000042 // bits of somebody else

func flow(src, dst string, proto uint8, port uint16) conntrack.Flow {
	o := conntrack.Tuple{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: proto, SrcPort: 1024, DstPort: port}
	return conntrack.Flow{Original: o, Reply: conntrack.Tuple{Src: o.Dst, Dst: o.Src, Proto: proto, SrcPort: port, DstPort: 1024}, Mark: others}
}

// server is a batch with one workload, whose policy has these rules before "allow".
func server(rules ...intent.Rule) intent.Batch {
	b := policy(rules...)
	b.Endpoints = []intent.Endpoint{{
		ID: intent.EndpointID{Namespace: "prod", Name: "server"}, Link: "cali1", Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.2")},
		Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: []intent.PolicyID{policyID}, Egress: []intent.PolicyID{policyID}}}}),
	}}
	return b
}

func TestExactlyTheFlowsThatPolicyDeniesAreMarked(t *testing.T) {
	const s = "10.65.0.2"
	translated := flow("192.0.2.9", "192.0.2.1", 6, 8080) // to the host's port 8080, which leads to the server's port 80
	translated.Reply.Src, translated.Reply.SrcPort = netip.MustParseAddr(s), 80
	data := flow(s, "192.0.2.9", 6, 2000)
	data.Master = flow("192.0.2.9", s, 6, 80).Original
	for _, tt := range []struct {
		name    string
		flow    conntrack.Flow
		revoked bool
	}{
		{"to the port that is denied", flow("192.0.2.9", s, 6, 80), true},
		{"to another port", flow("192.0.2.9", s, 6, 81), false},
		{"to the same port of another protocol", flow("192.0.2.9", s, 17, 80), false},
		{"from the server to that port elsewhere", flow(s, "192.0.2.9", 6, 80), false},
		{"to the port by DNAT", translated, true},
		{"of a flow that is denied", data, true},
		{"between others", flow("192.0.2.9", "192.0.2.8", 6, 80), false},
		{"from the server's own host", flow("192.0.2.1", s, 6, 80), false},
		{"DHCP", conntrack.Flow{
			Original: conntrack.Tuple{Src: netip.MustParseAddr(s), Dst: netip.MustParseAddr("192.0.2.1"), Proto: 17, SrcPort: 68, DstPort: 67},
			Reply:    conntrack.Tuple{Src: netip.MustParseAddr("192.0.2.1")}, Mark: others,
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := &table{flows: []conntrack.Flow{tt.flow}}
			run(t, x, nil, func(apply func(intent.Batch)) {
				want := func(revoked bool) {
					t.Helper()
					mark := uint32(others)
					if revoked {
						mark |= kernel.ConntrackRevoked
					}
					if x.flows[0].Mark != mark {
						t.Errorf("mark %#x, want %#x", x.flows[0].Mark, mark)
					}
				}
				apply(server())
				want(false)
				apply(server(denied(6, 80)))
				want(tt.revoked)
				apply(intent.Batch{Host: &intent.HostSettings{KeepDenied: true}})
				want(false)
				apply(intent.Batch{Host: &intent.HostSettings{}})
				want(tt.revoked)
				apply(server())
				want(false)
			})
		})
	}
}

// looked waits, in virtual time, until the pass has been that a change asks for after a quiet moment.
func looked() {
	<-time.After(100 * time.Millisecond)
	synctest.Wait()
}

// run runs a driver, and f with a way to bring a batch into force and wait for what follows.
func run(t *testing.T, x *table, done func(revoke.Pass), f func(apply func(intent.Batch))) {
	synctest.Test(t, func(t *testing.T) {
		d := revoke.New(revoke.Config{
			Table: x, Done: done,
			Local: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = d.Run(ctx) }()
		f(func(b intent.Batch) {
			d.InForce(b, false)
			looked()
		})
		cancel()
		synctest.Wait()
	})
}

func TestOnlyChangesThatTouchAnEndpointCostAPass(t *testing.T) {
	x := &table{}
	run(t, x, nil, func(apply func(intent.Batch)) {
		for _, s := range []struct {
			name  string
			batch intent.Batch
			reads int
		}{
			{"nothing is judged before the source is in sync", func() intent.Batch { b := server(); b.InSync = false; return b }(), 0},
			{"then all is", intent.Batch{InSync: true}, 1},
			{"a route touches no policy", intent.Batch{Routes: []intent.Route{{}}, InSync: true}, 1},
			{"nor does a policy that nobody has", intent.Batch{Policies: []intent.Policy{{ID: intent.PolicyID{Name: "other"}}}}, 1},
			{"a policy that the server has does", policy(denied(6, 80)), 2},
			{"a set that its policy asks for, too", func() intent.Batch {
				r := denied(6, 80)
				r.Src.Sets = []intent.SetID{"s"}
				b := policy(r)
				b.IPSets = []intent.IPSet{{ID: "s"}}
				return b
			}(), 3},
			{"a member of that set, too", intent.Batch{Members: []intent.MemberDelta{{Set: "s", Added: []intent.Member{{Prefix: netip.MustParsePrefix("192.0.2.9/32")}}}}}, 4},
			{"that a member leaves it, which can deny nothing, does not", intent.Batch{Members: []intent.MemberDelta{{Set: "s", Removed: []intent.Member{{Prefix: netip.MustParsePrefix("192.0.2.9/32")}}}}}, 4},
			{"a member of another set does not", intent.Batch{Members: []intent.MemberDelta{{Set: "u"}}}, 4},
			{"a policy that allows by the set does", func() intent.Batch {
				r := denied(6, 80)
				r.Action, r.Src.Sets = intent.Allow, []intent.SetID{"s"}
				return policy(r)
			}(), 5},
			{"a new member of what is allowed does not", intent.Batch{Members: []intent.MemberDelta{{Set: "s", Added: []intent.Member{{Prefix: netip.MustParsePrefix("192.0.2.9/32")}}}}}, 5},
			{"one that leaves it does", intent.Batch{Members: []intent.MemberDelta{{Set: "s", Removed: []intent.Member{{Prefix: netip.MustParsePrefix("192.0.2.9/32")}}}}}, 6},
			{"a setting that turns it off does, to let all flows live", intent.Batch{Host: &intent.HostSettings{KeepDenied: true}}, 7},
			{"and from then on nothing does", policy(denied(6, 80)), 7},
			{"until it is on again", intent.Batch{Host: &intent.HostSettings{}}, 8},
			{"that the endpoint goes does", intent.Batch{Removed: []intent.Key{intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: "server"}}}, 9},
		} {
			if apply(s.batch); x.reads != s.reads {
				t.Errorf("%s: the table was read %d times, want %d", s.name, x.reads, s.reads)
			}
		}
	})
}

// TestAfterATimeWithoutPolicyAllFlowsAreJudged: what was admitted then is denied by a policy that has not changed.
func TestAfterATimeWithoutPolicyAllFlowsAreJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &table{}
		d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		d.InForce(server(denied(6, 80)), false)
		synctest.Wait()
		<-time.After(time.Minute)
		x.flows = []conntrack.Flow{flow("192.0.2.9", "10.65.0.2", 6, 80), flow("192.0.2.9", "10.65.0.2", 6, 81), flow("192.0.2.9", "10.65.0.2", 17, 82)}
		d.InForce(intent.Batch{}, false)
		synctest.Wait()
		if x.flows[0].Mark != others || len(x.windows) > 0 {
			t.Error("a batch that changes nothing cost a pass")
		}
		d.InForce(intent.Batch{}, true)
		synctest.Wait()
		if x.flows[0].Mark != others|kernel.ConntrackRevoked || x.flows[1].Mark != others {
			t.Errorf("marks %#x and %#x, want the first revoked", x.flows[0].Mark, x.flows[1].Mark)
		}
		if !maps.Equal(x.windows, map[uint16]bool{80: true, 81: true}) {
			t.Errorf("any window is taken for ports %v; without rules the kernel has forgotten those of 80 and 81, and 82 is UDP", x.windows)
		}
		cancel()
		<-ended
	})
}

func TestNewWorkloadsWaitForTheirPass(t *testing.T) {
	x := &table{}
	fresh := func(name, addr string) intent.Batch {
		return intent.Batch{Endpoints: []intent.Endpoint{{
			ID: intent.EndpointID{Namespace: "prod", Name: name}, Link: "cali-" + name, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
			Group: intent.GroupOf(intent.Stages{Normal: server().Endpoints[0].Policies().Normal}),
		}}}
	}
	run(t, x, nil, func(apply func(intent.Batch)) {
		at := func(want int, what string) {
			t.Helper()
			if synctest.Wait(); x.reads != want {
				t.Errorf("%s: the table was read %d times, want %d", what, x.reads, want)
			}
		}
		apply(server())
		at(1, "the source is in sync")
		<-time.After(time.Minute)
		apply(fresh("a", "10.65.0.3"))
		apply(fresh("b", "10.65.0.4"))
		at(1, "two new workloads")
		<-time.After(5 * time.Second)
		at(2, "five seconds later")
		<-time.After(time.Minute)
		at(2, "and that is all")
		apply(fresh("c", "10.65.0.5"))
		apply(policy(denied(6, 80)))
		at(3, "a change of policy meanwhile")
		<-time.After(time.Minute)
		at(3, "which looked at the new one, too")
		apply(fresh("c", "10.65.0.6"))
		at(4, "another address of a known one")
	})
}

func TestAPassThatFailsIsTriedAgain(t *testing.T) {
	x := &table{flows: []conntrack.Flow{flow("192.0.2.9", "10.65.0.2", 6, 80)}, fail: errors.New("no")}
	var passes []revoke.Pass
	run(t, x, func(p revoke.Pass) { passes = append(passes, p) }, func(apply func(intent.Batch)) {
		apply(server(denied(6, 80)))
		if len(passes) != 1 || passes[0].Err == nil || x.flows[0].Mark != others {
			t.Errorf("after a failure: %+v, mark %#x", passes, x.flows[0].Mark)
		}
		x.fail = nil
		<-time.After(2 * time.Second)
		synctest.Wait()
		if len(passes) != 2 || passes[1].Err != nil || passes[1].Revoked != 1 {
			t.Errorf("after the retry: %+v", passes)
		}
	})
}

// BenchmarkPass judges 100,000 flows, all of one endpoint with a policy of 20 rules.
func BenchmarkPass(b *testing.B) {
	x := &table{}
	for i := range 100_000 {
		f := flow("192.0.2.9", "10.65.0.2", 6, uint16(i%60_000))
		ip := [4]byte{}
		binary.BigEndian.PutUint32(ip[:], 0x0a400000+uint32(i))
		f.Original.Src = netip.AddrFrom4(ip)
		x.flows = append(x.flows, f)
	}
	var rules []intent.Rule
	for i := range uint16(20) {
		rules = append(rules, denied(6, 60_001+i))
	}
	passes := make(chan revoke.Pass)
	d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }, Share: 1, Done: func(p revoke.Pass) { passes <- p }})
	go func() { _ = d.Run(b.Context()) }()
	for b.Loop() {
		d.InForce(server(rules...), false)
		<-passes
	}
}

// TestAHostEndpointRevokesNothing: which interface a flow came by is not known, so a host endpoint must not cut it.
func TestAHostEndpointRevokesNothing(t *testing.T) {
	x := &table{flows: []conntrack.Flow{flow("192.0.2.9", "10.65.0.2", 6, 80)}}
	var passes []revoke.Pass
	run(t, x, func(p revoke.Pass) { passes = append(passes, p) }, func(apply func(intent.Batch)) {
		b := server()
		b.Endpoints = append(b.Endpoints, intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "all"}, Link: "*", Closed: "unreadable"})
		apply(b)
		if len(passes) == 0 || passes[0].Judged != 1 || x.flows[0].Mark != others {
			t.Errorf("passes %+v, mark %#x", passes, x.flows[0].Mark)
		}
	})
}

// A connection that was cut had its packets dropped after the kernel had seen them.
func TestWhatIsRestoredMayHaveAnyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &table{flows: []conntrack.Flow{flow("192.0.2.9", "10.65.0.2", 6, 80), flow("192.0.2.9", "10.65.0.2", 6, 81)}}
		d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		for _, port := range []int{80, 0} {
			d.InForce(server(denied(6, uint16(port))), false)
			<-time.After(time.Minute)
		}
		if x.flows[0].Mark != others || !maps.Equal(x.windows, map[uint16]bool{80: true}) {
			t.Errorf("mark %#x, any window for ports %v; want it restored, and any window for 80 alone", x.flows[0].Mark, x.windows)
		}
		cancel()
		<-ended
	})
}
