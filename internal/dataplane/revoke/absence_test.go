package revoke_test

import (
	"context"
	"errors"
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

const (
	world = "192.0.2.9"
	ours  = "192.0.2.1" // the host's
	goes  = "10.65.0.2" // has the endpoint of server()
	stays = "10.65.0.3"
)

// bench is a driver with a table in memory, and time that a test makes pass.
type bench struct {
	*revoke.Driver
	t      *testing.T
	table  *table
	passes []revoke.Pass
}

func onBench(t *testing.T, flows []conntrack.Flow, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, table: &table{flows: flows}}
		b.Driver = revoke.New(revoke.Config{
			Table: b.table, Done: func(p revoke.Pass) { b.passes = append(b.passes, p) },
			Local: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(ours)}, nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = b.Run(ctx) }()
		f(b)
		cancel()
		synctest.Wait()
	})
}

// apply does what package dataplane's loop does.
func (b *bench) apply(next intent.Batch) {
	failed := b.Prepare(next.Endpoints, next.Removed)
	next.Endpoints = slices.Clone(next.Endpoints)
	for n := range next.Endpoints {
		if err := failed[next.Endpoints[n].ID]; err != nil {
			next.Endpoints[n].Closed = err.Error()
		}
	}
	b.InForce(next, false)
	looked()
}

func (b *bench) marks(what string, want ...uint32) {
	b.t.Helper()
	var got []uint32
	for _, f := range b.table.flows {
		got = append(got, f.Mark&^others)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: marks %#x, want %#x", what, got, want)
	}
}

// at is a workload with an address, which has the policy of server().
func at(name, addr string) intent.Endpoint {
	return intent.Endpoint{
		ID: intent.EndpointID{Namespace: "prod", Name: name}, Link: "cali-" + name, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		Group: intent.GroupOf(intent.Stages{Normal: server().Endpoints[0].Policies().Normal}),
	}
}

func arrives(all ...intent.Endpoint) intent.Batch { return intent.Batch{Endpoints: all} }

const cut = kernel.ConntrackRevoked

func TestFlowsOfAWorkloadThatDoesNotReturnAreForgotten(t *testing.T) {
	translated := flow(world, ours, 6, 8080) // to the host's port 8080, which leads to the one that goes
	translated.Reply.Src = netip.MustParseAddr(goes)
	flows := []conntrack.Flow{
		flow(world, goes, 6, 80), flow(goes, world, 17, 53), flow(ours, goes, 6, 80), translated,
		flow(stays, goes, 6, 80), flow(world, stays, 6, 80), flow(world, ours, 6, 22),
	}
	onBench(t, flows, func(b *bench) {
		first := server()
		first.Endpoints = append(first.Endpoints, at("other", stays))
		b.apply(first)
		b.apply(removed("server"))
		<-time.After(15 * time.Minute)
		synctest.Wait()
		if len(b.table.flows) != 7 {
			t.Fatalf("15 minutes later there are %v", b.table.flows)
		}
		<-time.After(15 * time.Minute)
		synctest.Wait()
		if len(b.table.flows) != 3 || b.table.flows[0].Original != flow(stays, goes, 6, 80).Original {
			t.Errorf("30 minutes later there are %v", b.table.flows)
		}
		if p := b.passes[len(b.passes)-1]; p.Forgotten != 4 {
			t.Errorf("%+v, want 4 forgotten", p)
		}
		reads := b.table.reads
		<-time.After(time.Hour)
		if b.table.reads != reads {
			t.Error("the table is read, though nothing changes")
		}
	})
}

func TestFlowsOfAWorkloadThatReturnsWaitForTheirJudgement(t *testing.T) {
	onBench(t, []conntrack.Flow{flow(world, goes, 6, 80), flow(world, goes, 6, 81), flow(stays, goes, 6, 80), flow(world, stays, 6, 80)}, func(b *bench) {
		first := server()
		first.Endpoints = append(first.Endpoints, at("other", stays))
		b.apply(first)
		b.apply(removed("server"))
		b.marks("gone", 0, 0, 0, 0)
		again := intent.Batch{Endpoints: server().Endpoints}
		b.Prepare(again.Endpoints, nil)
		b.marks("before it is in force", cut, cut, cut, 0)
		b.Prepare(nil, removed("other").Removed) // other tries
		b.InForce(policy(denied(6, 80)), false)  // in force without it: what it was held for does not come
		looked()
		b.marks("it does not come", cut, cut, 0, cut)
		b.InForce(policy(denied(6, 80)), false) // its pass has not begun
		b.Prepare(again.Endpoints, nil)
		looked()
		b.marks("after a pass that does not know of it", cut, cut, cut, cut)
		b.InForce(again, false)
		synctest.Wait()
		b.marks("at once when it is in force", cut, 0, cut, cut)
		b.apply(policy())
		b.marks("allowed again", 0, 0, 0, 0)
	})
}

func TestWhoeverGetsAnAddressGetsNoFlowsWithIt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps func(b *bench)
		flows int
	}{
		{"another name, later", func(b *bench) {
			b.apply(removed("server"))
			b.Prepare([]intent.Endpoint{at("new", goes)}, nil)
		}, 1},
		{"another name, at once", func(b *bench) {
			b.Prepare([]intent.Endpoint{at("new", goes)}, removed("server").Removed)
		}, 1},
		{"its own name", func(b *bench) {
			b.apply(removed("server"))
			b.Prepare([]intent.Endpoint{server().Endpoints[0]}, nil)
		}, 3},
		{"a second one, while the first is there", func(b *bench) { b.apply(arrives(at("second", goes))) }, 3},
		{"one of two stays, and changes", func(b *bench) {
			b.apply(arrives(at("second", goes)))
			b.apply(removed("server"))
			b.apply(arrives(at("second", goes)))
		}, 3},
		{"another address of the one that is there", func(b *bench) { b.apply(arrives(at("server", "10.65.0.9"))) }, 3},
		{"another, with an address that it had before", func(b *bench) {
			b.apply(arrives(at("server", "10.65.0.9")))
			b.apply(arrives(at("new", goes)))
		}, 1},
		{"another, while revocation is off", func(b *bench) {
			b.apply(intent.Batch{Host: &intent.HostSettings{KeepDenied: true}})
			b.apply(removed("server"))
			b.apply(arrives(at("new", goes)))
		}, 1},
		{"its own name, while revocation is off", func(b *bench) {
			b.apply(intent.Batch{Host: &intent.HostSettings{KeepDenied: true}})
			b.apply(removed("server"))
			b.apply(server())
		}, 3},
		{"another, when revocation is on again", func(b *bench) {
			b.apply(intent.Batch{Host: &intent.HostSettings{KeepDenied: true}})
			b.apply(removed("server"))
			b.apply(intent.Batch{Host: &intent.HostSettings{}})
			b.apply(arrives(at("new", goes)))
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBench(t, []conntrack.Flow{flow(world, goes, 6, 80), flow(stays, goes, 6, 80), flow(world, stays, 6, 80)}, func(b *bench) {
				first := server()
				first.Endpoints = append(first.Endpoints, at("other", stays))
				b.apply(first)
				if tt.steps(b); len(b.table.flows) != tt.flows {
					t.Errorf("%d flows are left, want %d: %v", len(b.table.flows), tt.flows, b.table.flows)
				}
			})
		})
	}
}

// TestAWorkloadIsClosedWhileItsFormerFlowsCannotBeCut, and opens once they were; others are as ever.
func TestAWorkloadIsClosedWhileItsFormerFlowsCannotBeCut(t *testing.T) {
	for _, tt := range []struct {
		name string
		next intent.Batch
		left []uint32 // marks of the flows when it is open
	}{
		{"its own", intent.Batch{Endpoints: server().Endpoints}, []uint32{0, 0, 0}},
		{"another's", intent.Batch{Endpoints: []intent.Endpoint{at("new", goes)}}, []uint32{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBench(t, []conntrack.Flow{flow(world, goes, 6, 80), flow(goes, world, 6, 81), flow(world, stays, 6, 80)}, func(b *bench) {
				first := server()
				first.Endpoints = append(first.Endpoints, at("other", stays))
				b.apply(first)
				b.apply(removed("server"))
				boom := errors.New("boom")
				b.table.fail, b.table.refuses = boom, boom
				id := tt.next.Endpoints[0].ID
				all := slices.Concat(tt.next.Endpoints, []intent.Endpoint{at("other", stays)})
				for range 3 { // tries
					if failed := b.Prepare(all, nil); len(failed) != 1 || !errors.Is(failed[id], boom) {
						t.Errorf("not prepared: %v, want %s alone, for %v", failed, id, boom)
					}
					b.apply(intent.Batch{Endpoints: all})
				}
				b.table.fail, b.table.refuses = nil, nil
				if failed := b.Prepare(all, nil); len(failed) != 0 {
					t.Errorf("not prepared: %v", failed)
				}
				for _, f := range b.table.flows {
					if f.Mark&cut == 0 && (f.Original.Src.String() == goes || f.Original.Dst.String() == goes) {
						t.Errorf("before it is open, %v is there, and not cut", f)
					}
				}
				b.apply(intent.Batch{Endpoints: all})
				b.marks("open", tt.left...)
			})
		})
	}
}

// TestAFreshAgentHoldsTheFlowsThatItFinds: it does not know which endpoint had the address, so the endpoint is taken to return.
func TestAFreshAgentHoldsTheFlowsThatItFinds(t *testing.T) {
	for name, host := range map[string][]intent.HostSettings{
		"that starts": nil, "in which revocation is turned on later": {{KeepDenied: true}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, []conntrack.Flow{flow(stays, goes, 6, 80), flow(stays, goes, 6, 81), flow(world, stays, 6, 80)}, func(b *bench) {
				first := policy(denied(6, 80))
				first.Endpoints = []intent.Endpoint{at("other", stays)}
				for i := range host {
					first.Host = &host[i]
					b.apply(first)
				}
				b.apply(first)
				b.marks("while the endpoint is gone", 0, 0, cut)
				b.Prepare(server().Endpoints, nil)
				b.marks("before it is in force", cut, cut, cut)
				b.InForce(arrives(server().Endpoints...), false)
				synctest.Wait()
				b.marks("when it is", cut, 0, cut)
			})
		})
	}
}

// TestFlowsOfAnAddressAreJudgedSoonWhenASecondWorkloadHasIt: a new workload has flows, if another has its address.
func TestFlowsOfAnAddressAreJudgedSoonWhenASecondWorkloadHasIt(t *testing.T) {
	const six = "2001:db8::2"
	flows := []conntrack.Flow{flow(world, goes, 6, 80), flow(goes, world, 6, 80), flow(goes, goes, 6, 80), flow("2001:db8::9", six, 6, 80), flow(stays, goes, 6, 81)}
	onBench(t, flows, func(b *bench) {
		first := server()
		first.Endpoints[0].Addrs = append(first.Endpoints[0].Addrs, netip.MustParseAddr(six))
		b.apply(first)
		<-time.After(time.Minute)
		b.marks("with one workload", 0, 0, 0, 0, 0)
		strict := policy(denied(6, 80))
		strict.Policies[0].ID.Name = "strict"
		strict.Policies[0].Egress = strict.Policies[0].Ingress
		e := at("new", goes) // the smaller name: the routes lead to it
		e.Addrs = append(e.Addrs, netip.MustParseAddr(six))
		ids := []intent.PolicyID{strict.Policies[0].ID}
		e.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: ids, Egress: ids}}})
		strict.Endpoints = []intent.Endpoint{e}
		b.apply(strict)
		b.marks("with a second, whose policy denies", cut, cut, cut, cut, 0)
		b.apply(removed("new"))
		b.marks("with the first alone", 0, 0, 0, 0, 0)
	})
}
