package revoke_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/seedtest"
)

// finder is a large table that finds the flows of an address by itself, or, if it is old, cannot.
type finder struct {
	table
	found, asked int
	old          bool
}

func (x *finder) Count() (int, error) { return 1_000_000, nil }

func (x *finder) EachOf(of map[netip.Addr]bool, f func(conntrack.Flow)) error {
	x.asked++
	for a := range of {
		for _, flow := range x.flows {
			for _, src := range []netip.Addr{flow.Original.Src, flow.Reply.Src} {
				if src == a { // of both, it finds it twice
					x.found++
					f(flow)
				}
			}
		}
		if x.old {
			return &kernel.UnsupportedError{Feature: "dumps of some connections"}
		}
	}
	return nil
}

// flowsOfAll are flows between two workloads of the host and two others, each of a port.
func flowsOfAll() (all []conntrack.Flow) {
	ends := []string{"10.65.0.1", "10.65.0.2", "192.0.2.8", "192.0.2.9"}
	for _, src := range ends {
		for i, dst := range ends {
			for port := range uint16(4) {
				f := flow(src, dst, 6, 80+port)
				if port == 3 { // by DNAT, of one address for each
					f.Original.Dst = netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})
				}
				all = append(all, f)
			}
		}
	}
	return all
}

// someChange is a change of what policy there is, of who has it, or of whether it is enforced.
func someChange(rng *rand.Rand) intent.Batch {
	p := []intent.Policy{policyOf("p", rng), policyOf("q", rng)}[rng.IntN(2)]
	id := intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: fmt.Sprint("w", rng.IntN(2))}
	switch rng.IntN(8) {
	case 0:
		return intent.Batch{Removed: []intent.Key{id}}
	case 1, 2:
		number := byte(rng.IntN(2)) // each has the other's address now and then
		ids := []intent.PolicyID{p.ID}
		return intent.Batch{Endpoints: []intent.Endpoint{{
			ID: id, Link: "cali-" + id.Name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 65, 0, number + 1})},
			Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: ids, Egress: ids}}}),
		}}}
	case 3:
		if rng.IntN(4) == 0 {
			return intent.Batch{Host: &intent.HostSettings{KeepDenied: rng.IntN(3) == 0}}
		}
	case 4, 5, 6:
		m := intent.MemberDelta{Set: "s"}
		x := []intent.Member{{Prefix: netip.MustParsePrefix([]string{"192.0.2.8/32", "10.65.0.1/32"}[rng.IntN(2)])}}
		if rng.IntN(2) == 0 {
			m.Added = x
		} else {
			m.Removed = x
		}
		return intent.Batch{Members: []intent.MemberDelta{m}}
	}
	return intent.Batch{Policies: []intent.Policy{p}}
}

func policyOf(name string, rng *rand.Rand) intent.Policy {
	rules := func() []intent.Rule {
		r := denied(6, 80+uint16(rng.IntN(6))) // which no flow has, now and then
		if rng.IntN(2) == 0 {
			r.Src.Sets = []intent.SetID{"s"}
		}
		return []intent.Rule{r, {Action: intent.Allow}}
	}
	return intent.Policy{ID: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: name}, Tier: "t", Ingress: rules(), Egress: rules()}
}

// TestFlowsThatTheKernelFindsAreThoseThatMatter: whether the kernel finds the flows of who is touched, or all are read, the same are cut, live
// again and are forgotten, whatever changes.
func TestFlowsThatTheKernelFindsAreThoseThatMatter(t *testing.T) {
	// The first: a workload left while revocation was off. The second: a new one had the address of another.
	seedtest.Each(t, []uint64{1268961906, 1350185641}, 1, testFlowsThatTheKernelFinds)
}

func testFlowsThatTheKernelFinds(t *testing.T, seed uint64) {
	found, whole, readings := 0, 0, 0
	for path := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, path))
		synctest.Test(t, func(t *testing.T) {
			some, all := &finder{table: table{flows: flowsOfAll()}}, &table{flows: flowsOfAll()}
			var drivers []*revoke.Driver
			ctx, cancel := context.WithCancel(t.Context())
			for _, x := range []revoke.Table{some, all} {
				d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
				drivers = append(drivers, d)
				go func() { _ = d.Run(ctx) }()
			}
			b := intent.Batch{Policies: []intent.Policy{policyOf("p", rng), policyOf("q", rng)}, IPSets: []intent.IPSet{{ID: "s"}}, InSync: true}
			for step := range 120 {
				for _, d := range drivers {
					d.Prepare(b.Endpoints, b.Removed)
					d.InForce(b, false)
				}
				<-time.After(time.Duration(rng.IntN(10)) * time.Second)
				synctest.Wait()
				for i, f := range all.flows {
					if i >= len(some.flows) || some.flows[i] != f {
						t.Fatalf("seed %d, path %d, step %d, after %+v: %d and %d flows, the first that differs is %+v", seed, path, step, b, len(all.flows), len(some.flows), f)
					}
				}
				b = someChange(rng)
			}
			cancel()
			synctest.Wait()
			found, whole, readings = found+some.found, whole+some.reads, readings+all.reads
		})
	}
	if found == 0 || whole >= readings {
		t.Errorf("%d flows were found, in %d readings of all where without it there were %d", found, whole, readings)
	}
}

// TestAKernelThatCannotFindFlowsIsReadWhole: it is asked once.
func TestAKernelThatCannotFindFlowsIsReadWhole(t *testing.T) {
	x := &finder{table: table{flows: flowsOfAll()}, old: true}
	synctest.Test(t, func(t *testing.T) {
		var passes []revoke.Pass
		d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }, Done: func(p revoke.Pass) { passes = append(passes, p) }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = d.Run(ctx) }()
		for _, b := range []intent.Batch{server(), policy(denied(6, 80)), policy(denied(6, 81))} {
			d.InForce(b, false)
			<-time.After(time.Second)
		}
		synctest.Wait()
		if len(passes) != 3 || x.asked != 1 || x.reads != 3 {
			t.Fatalf("%d passes, %d questions and %d readings: %+v", len(passes), x.asked, x.reads, passes)
		}
		for _, p := range passes {
			if p.Flows != len(x.flows) || p.Err != nil {
				t.Errorf("%+v, of %d flows", p, len(x.flows))
			}
		}
		cut := slices.DeleteFunc(slices.Clone(x.flows), func(f conntrack.Flow) bool { return f.Mark&kernel.ConntrackRevoked == 0 })
		if len(cut) != 4 {
			t.Errorf("flows %v are cut, want the 4 to port 81", cut)
		}
	})
}

// TestPassesMissNothing: whatever changes, and however changes come together, one that judges all flows finds nothing that those before it, which
// judge the flows of whom a change touches, have left.
func TestPassesMissNothing(t *testing.T) {
	seed := seedtest.New(t)
	cuts := 0
	for path := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, path))
		synctest.Test(t, func(t *testing.T) {
			x := &table{flows: flowsOfAll()}
			d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = d.Run(ctx) }()
			b := intent.Batch{Policies: []intent.Policy{policyOf("p", rng), policyOf("q", rng)}, IPSets: []intent.IPSet{{ID: "s"}}, InSync: true}
			for step := range 100 {
				d.Prepare(b.Endpoints, b.Removed)
				d.InForce(b, false)
				<-time.After(time.Duration(rng.IntN(4)*20) * time.Millisecond)
				if rng.IntN(5) == 0 {
					<-time.After(10 * time.Second)
					before := slices.Clone(x.flows)
					cuts += len(x.marked())
					d.InForce(intent.Batch{}, true)
					synctest.Wait()
					for i, f := range before {
						if i >= len(x.flows) || f != x.flows[i] {
							t.Fatalf("path %d, step %d: a pass over all changes %+v, or deletes it", path, step, f)
						}
					}
				}
				b = someChange(rng)
			}
			cancel()
			synctest.Wait()
		})
	}
	if cuts == 0 {
		t.Error("no flow was ever cut when all were looked at")
	}
}
