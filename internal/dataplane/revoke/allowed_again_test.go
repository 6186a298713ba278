package revoke_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestAFlowThatIsAllowedAgainWaitsForNoReading: whichever change allows it, and whichever end began it.
func TestAFlowThatIsAllowedAgainWaitsForNoReading(t *testing.T) {
	member := func(added, removed []intent.Member) intent.Batch {
		return intent.Batch{Members: []intent.MemberDelta{{Set: "s", Added: added, Removed: removed}}}
	}
	some := []intent.Member{{Prefix: netip.MustParsePrefix("192.0.2.9/32")}}
	bySet := func(action intent.Action) intent.Batch {
		r := denied(6, 80)
		r.Action, r.Src.Sets = action, []intent.SetID{"s"}
		b := policy(r, denied(6, 80))
		b.IPSets = []intent.IPSet{{ID: "s"}}
		return b
	}
	egress := policy()
	egress.Policies[0].Egress = append([]intent.Rule{denied(6, 80)}, egress.Policies[0].Egress...)
	for _, tt := range []struct {
		name       string
		from, to   string
		deny, then intent.Batch
	}{
		{"a rule goes", world, goes, policy(denied(6, 80)), policy()},
		{"a rule of egress goes", goes, world, egress, policy()},
		{"a member that is allowed comes", world, goes, bySet(intent.Allow), member(some, nil)},
		{"a policy that denies goes from the endpoint", world, goes, func() intent.Batch {
			b := policy(denied(6, 80))
			e := at("server", goes)
			e.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: []intent.PolicyID{policyID}}}})
			b.Endpoints = []intent.Endpoint{e}
			return b
		}(), func() intent.Batch {
			b := intent.Batch{Policies: []intent.Policy{{ID: intent.PolicyID{Name: "open"}, Tier: "t", Ingress: []intent.Rule{{Action: intent.Allow}}}}}
			e := at("server", goes)
			e.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: []intent.PolicyID{{Name: "open"}}}}})
			b.Endpoints = []intent.Endpoint{e}
			return b
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onWalked(t, func(x *walked, d *revoke.Driver) {
				b := &bench{t: t, table: &x.table}
				x.flows = []conntrack.Flow{flow(tt.from, tt.to, 6, 80)}
				d.InForce(tt.deny, false)
				looked()
				b.marks("denied", cut)
				reads := x.reads
				d.InForce(tt.then, false)
				synctest.Wait()
				b.marks("allowed again", 0)
				if x.reads != reads || !x.windows[80] {
					t.Errorf("%d readings, any window %v", x.reads-reads, x.windows)
				}
			})
		})
	}
}

// cutOnBench has a flow to each of two workloads be cut: to the first by a rule that goes with the batch that is returned.
func cutOnBench(x *walked, d *revoke.Driver) (then intent.Batch) {
	deny := server(denied(6, 80))
	deny.Endpoints = append(deny.Endpoints, at("other", stays))
	d.InForce(deny, false)
	<-time.After(time.Minute)
	then = server(denied(6, 81))
	then.Policies = append(then.Policies, policy(denied(6, 80)).Policies[0])
	then.Policies[1].ID.Name = "of the other"
	e := at("other", stays)
	e.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: []intent.PolicyID{then.Policies[1].ID}}}})
	then.Endpoints = append(then.Endpoints, e)
	x.reads, x.finds = 0, 0
	return then
}

// TestWhatIsKnownOfAFlowIsAskedAgain: it may have ended, or be another, to somewhere else, that is still denied.
func TestWhatIsKnownOfAFlowIsAskedAgain(t *testing.T) {
	to := func(backend string) conntrack.Flow {
		f := flow(world, ours, 6, 8080)
		f.Reply.Src, f.Reply.SrcPort = netip.MustParseAddr(backend), 80
		return f
	}
	for name, change := range map[string]func(x *walked){
		"it lives": func(*walked) {},
		"it has ended": func(x *walked) {
			x.flows = x.flows[1:]
		},
		"another began as it did": func(x *walked) {
			x.flows[0] = to(stays)
			x.flows[0].Mark |= cut
		},
	} {
		t.Run(name, func(t *testing.T) {
			onWalked(t, func(x *walked, d *revoke.Driver) {
				b := &bench{t: t, table: &x.table}
				x.flows = []conntrack.Flow{to(goes), flow(world, stays, 6, 80)}
				then := cutOnBench(x, d)
				b.marks("denied", cut, cut)
				change(x)
				d.InForce(then, false)
				synctest.Wait()
				b.marks("allowed for the first", map[string][]uint32{"it lives": {0, cut}, "it has ended": {cut}, "another began as it did": {cut, cut}}[name]...)
				if x.reads != 0 || x.finds != 1 {
					t.Errorf("%d readings, and %d flows were asked for", x.reads, x.finds)
				}
				<-time.After(time.Minute)
				x.finds = 0
				d.InForce(policy(denied(6, 82)), false)
				synctest.Wait()
				if want := map[string]int{"another began as it did": 0}[name]; x.finds != want {
					t.Errorf("later %d flows were asked for", x.finds)
				}
			})
		})
	}
}

// TestAnAgentThatStartsKnowsWhatIsCut when it has looked at all flows.
func TestAnAgentThatStartsKnowsWhatIsCut(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		b := &bench{t: t, table: &x.table}
		d.InForce(server(denied(6, 80), denied(6, 81)), false)
		looked()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		next := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
		go func() { _ = next.Run(ctx) }()
		next.InForce(server(denied(6, 80), denied(6, 81)), false)
		looked()
		b.marks("denied", cut, cut)
		reads := x.reads
		next.InForce(policy(denied(6, 80)), false)
		synctest.Wait()
		if b.marks("one is allowed", cut, 0); x.reads != reads {
			t.Error("the table was read")
		}
	})
}

// TestWhatCannotBeFoundAgainIsRestoredByAPass.
func TestWhatCannotBeFoundAgainIsRestoredByAPass(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		b := &bench{t: t, table: &x.table}
		d.InForce(server(denied(6, 80)), false)
		looked()
		x.refuses = errors.New("no")
		d.InForce(server(), false)
		looked()
		b.marks("nothing can be changed", cut, 0)
		x.refuses = nil
		<-time.After(10 * time.Second)
		b.marks("it can", 0, 0)
	})
}

// crowded is a table with many flows.
type crowded struct {
	walked
	at    map[conntrack.Tuple]int
	takes time.Duration // to find flows
	spent time.Duration
}

func (x *crowded) add(f conntrack.Flow) {
	if x.at == nil {
		x.at = map[conntrack.Tuple]int{}
	}
	x.at[f.Original] = len(x.flows)
	x.flows = append(x.flows, f)
}

func (x *crowded) Find(flows []conntrack.Flow) (found []conntrack.Flow, _ error) {
	x.finds += len(flows)
	x.spent += x.takes
	<-time.After(x.takes)
	for _, f := range flows {
		found = append(found, x.flows[x.at[f.Original]])
	}
	return found, nil
}

func (x *crowded) Mark(changes []conntrack.Change) (int, error) {
	for _, c := range changes {
		f := &x.flows[x.at[c.Flow.Original]]
		f.Mark = f.Mark&^c.Mask | c.Mark
	}
	return len(changes), x.refuses
}

func (x *crowded) cut() (n int) {
	for _, f := range x.flows {
		if f.Mark&cut != 0 {
			n++
		}
	}
	return n
}

// onCrowd runs a driver over a table with some flows that somebody began with the first of two workloads, and three of the other, all cut.
func onCrowd(t *testing.T, some int, f func(x *crowded, d *revoke.Driver)) {
	synctest.Test(t, func(t *testing.T) {
		x := &crowded{walked: walked{takes: 10 * time.Millisecond}}
		for i := range some {
			crowd := flow(world, goes, 6, 80)
			crowd.Original.SrcPort = uint16(1024 + i)
			x.add(crowd)
			if i%(some/3) == 0 {
				x.add(flow(world, stays, 6, uint16(81+i)))
			}
		}
		d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		b := server(intent.Rule{Action: intent.Deny})
		b.Endpoints = append(b.Endpoints, at("other", stays))
		d.InForce(b, false)
		<-time.After(time.Minute)
		if n := x.cut(); n != len(x.flows) {
			t.Fatalf("%d of %d flows are cut", n, len(x.flows))
		}
		x.reads = 0
		f(x, d)
		cancel()
		<-ended
	})
}

// TestWhoHasManyFlowsCutLeavesRoomForOthers: what is known is bounded, and each workload has its share. What is not known comes back by the next pass.
func TestWhoHasManyFlowsCutLeavesRoomForOthers(t *testing.T) {
	onCrowd(t, 30_000, func(x *crowded, d *revoke.Driver) {
		d.InForce(policy(denied(6, 79)), false)
		synctest.Wait()
		few := 0
		for _, f := range x.flows {
			if f.Reply.Src == netip.MustParseAddr(stays) && f.Mark&cut == 0 {
				few++
			}
		}
		if n := len(x.flows) - x.cut(); n < 9_000 || n > 10_000 || x.finds != n || few != 3 || x.reads != 0 {
			t.Errorf("%d flows live at once, of %d that were asked for, and %d of the three; %d readings", n, x.finds, few, x.reads)
		}
		if looked(); x.cut() != 0 || x.reads != 1 {
			t.Errorf("%d flows are left after %d readings", x.cut(), x.reads)
		}
	})
}

// TestLooksAtWhatIsCutTakeTheirShareOfAProcessor, though changes come all the time and nothing that is found can be restored.
func TestLooksAtWhatIsCutTakeTheirShareOfAProcessor(t *testing.T) {
	onCrowd(t, 30, func(x *crowded, d *revoke.Driver) {
		x.takes, x.refuses = 20*time.Millisecond, errors.New("no")
		began := time.Now()
		for range 1000 {
			for i := range x.flows {
				x.flows[i].Mark |= cut
			}
			d.InForce(policy(denied(6, 79)), false)
			<-time.After(10 * time.Millisecond)
		}
		if took := time.Since(began); x.spent < took/20 || x.spent > took/9 {
			t.Errorf("in %v, %v were spent to find flows, want a tenth", took, x.spent)
		}
	})
}

// TestAtOnceNothingIsCutThatIsAllowed: whatever changes, and though the table is not read for a while, nothing has the mark that one who reads all flows
// at once would let live.
func TestAtOnceNothingIsCutThatIsAllowed(t *testing.T) {
	seed := seedtest.New(t)
	restored := 0
	for path := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, path))
		synctest.Test(t, func(t *testing.T) {
			x, all := &walked{takes: 10 * time.Millisecond}, &table{flows: flowsOfAll()}
			x.flows = flowsOfAll()
			var drivers []*revoke.Driver
			var ended sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			defer func() { cancel(); ended.Wait() }()
			for _, x := range []revoke.Table{x, all} {
				d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
				drivers = append(drivers, d)
				ended.Go(func() { _ = d.Run(ctx) })
			}
			b := intent.Batch{Policies: []intent.Policy{policyOf("p", rng), policyOf("q", rng)}, IPSets: []intent.IPSet{{ID: "s"}}, InSync: true}
			for step := range 120 {
				reads, before := x.reads, x.marked()
				synctest.Wait()
				x.takes = 0 // a reading that Prepare asks for holds a lock, and no time passes while somebody waits for that
				for _, d := range drivers {
					d.Prepare(b.Endpoints, b.Removed)
				}
				x.takes = 10 * time.Millisecond
				for i, d := range drivers {
					d.InForce(b, i == 1)
				}
				<-time.After(20 * time.Millisecond) // a reading may be going on
				if b.Host != nil {
					looked() // one that judges all flows waits for a moment
				}
				want := all.marked()
				for tuple := range x.marked() {
					if !want[tuple] {
						t.Fatalf("path %d, step %d, after %+v: %+v is cut", path, step, b, tuple)
					}
				}
				if x.reads == reads {
					restored += max(0, len(before)-len(x.marked()))
				}
				<-time.After(time.Duration(rng.IntN(30)*rng.IntN(30)*rng.IntN(5)) * time.Millisecond)
				b = someChange(rng)
			}
		})
	}
	if restored == 0 {
		t.Error("no flow was ever restored without a reading")
	}
}

func (x *table) marked() map[conntrack.Tuple]bool {
	out := map[conntrack.Tuple]bool{}
	for _, f := range x.flows {
		if f.Mark&cut != 0 {
			out[f.Original] = true
		}
	}
	return out
}
