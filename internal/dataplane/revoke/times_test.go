package revoke_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// walked is a table that takes a while to be read, and says how many flows it has.
type walked struct {
	table
	takes time.Duration
	spent time.Duration
	walks func() // called in each reading, before the first flow
}

func (x *walked) Count() (int, error) { return len(x.flows), nil }

func (x *walked) Each(f func(conntrack.Flow)) error {
	<-time.After(x.takes)
	x.spent += x.takes
	if x.walks != nil {
		x.walks()
	}
	return x.table.Each(f)
}

// onWalked runs a driver over a table that takes 10 ms, with a workload that two flows lead to, in force for a minute.
func onWalked(t *testing.T, f func(x *walked, d *revoke.Driver)) {
	synctest.Test(t, func(t *testing.T) {
		x := &walked{takes: 10 * time.Millisecond}
		x.flows = []conntrack.Flow{flow(world, goes, 6, 80), flow(world, goes, 6, 81)}
		d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = d.Run(ctx) }()
		d.InForce(server(), false)
		<-time.After(time.Minute)
		x.reads, x.spent = 0, 0
		f(x, d)
		cancel()
		synctest.Wait()
	})
}

// TestPassesTakeTheirShareOfAProcessor: however many changes there are, a pass of 10 ms comes once in 2 s; the first after a pause soon, and the
// last change is looked at, too.
func TestPassesTakeTheirShareOfAProcessor(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		began := time.Now()
		for i := range 2000 {
			d.InForce(server(denied(6, uint16(80+i%2))), false)
			<-time.After(10 * time.Millisecond)
			if i == 10 && x.reads != 1 {
				t.Errorf("after the first changes, there were %d passes", x.reads)
			}
		}
		if took := time.Since(began); x.reads != 10 || x.spent > took/200+x.takes {
			t.Errorf("%d passes of %v for 2000 changes in %v, want one in 2s", x.reads, x.takes, took)
		}
		d.InForce(server(denied(6, 80), denied(6, 81)), false)
		<-time.After(3 * time.Second)
		if x.reads != 11 || x.flows[0].Mark&cut == 0 || x.flows[1].Mark&cut == 0 {
			t.Errorf("%d passes, and not all is cut: %v", x.reads, x.flows)
		}
	})
}

// TestChangesThatComeTogetherAreOnePass, which follows soon.
func TestChangesThatComeTogetherAreOnePass(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		for i := range uint16(40) {
			d.InForce(server(denied(6, 41+i)), false)
			<-time.After(time.Millisecond)
		}
		if looked(); x.reads != 1 || x.flows[0].Mark&cut == 0 {
			t.Errorf("%d passes, after which there are %v", x.reads, x.flows)
		}
		if <-time.After(time.Minute); x.reads != 1 {
			t.Errorf("%d passes in the end", x.reads)
		}
	})
}

// TestATimeWithoutPolicyIsLookedAtAtOnce: the kernel does not look at those flows again, so their pass does not rest.
func TestATimeWithoutPolicyIsLookedAtAtOnce(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		d.InForce(server(denied(6, 80)), false)
		looked()
		for n := range 3 {
			x.flows[0].Mark = others
			d.InForce(intent.Batch{}, true)
			if looked(); x.reads != 2+n || x.flows[0].Mark&cut == 0 {
				t.Errorf("%d passes, mark %#x", x.reads, x.flows[0].Mark)
			}
		}
	})
}

// TestALongPassHasABoundedRest: replies of what is denied pass until the next.
func TestALongPassHasABoundedRest(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		x.takes = time.Second
		d.InForce(server(denied(6, 80)), false)
		<-time.After(1100 * time.Millisecond)
		d.InForce(server(denied(6, 81)), false)
		<-time.After(1900 * time.Millisecond)
		if x.reads != 1 {
			t.Errorf("%d passes before the rest is over", x.reads)
		}
		if <-time.After(1100 * time.Millisecond); x.reads != 2 || x.flows[1].Mark&cut == 0 {
			t.Errorf("%d passes when it was, mark %#x", x.reads, x.flows[1].Mark)
		}
	})
}

// TestWithoutFlowsNothingIsRead: neither for a change nor for a workload that comes back, and who waits for the flows to be judged is answered.
func TestWithoutFlowsNothingIsRead(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		x.flows = nil
		answered := 0
		for _, b := range []intent.Batch{server(denied(6, 80)), removed("server"), server()} {
			if failed := d.Prepare(b.Endpoints, b.Removed); len(failed) != 0 {
				t.Error(failed)
			}
			d.InForce(b, false)
			d.WhenJudged(func() { answered++ })
			looked()
		}
		if x.reads != 0 || answered != 3 {
			t.Errorf("%d readings, %d answers", x.reads, answered)
		}
		x.flows = []conntrack.Flow{flow(world, goes, 6, 80)}
		d.InForce(server(denied(6, 80)), false)
		if looked(); x.reads != 1 || x.flows[0].Mark&cut == 0 {
			t.Errorf("with a flow, %d readings, mark %#x", x.reads, x.flows[0].Mark)
		}
	})
}

// TestAWorkloadThatComesBackWaitsForNoReading: its address was looked at when it had gone, so that what is to be cut, or deleted for
// another, is known; what policy allows lives when it is in force.
func TestAWorkloadThatComesBackWaitsForNoReading(t *testing.T) {
	for _, tt := range []struct {
		name  string
		next  intent.Endpoint
		marks []uint32 // before it is in force
		then  []uint32
	}{
		{"itself", server().Endpoints[0], []uint32{cut, cut}, []uint32{0, cut}},
		{"another", at("new", goes), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onWalked(t, func(x *walked, d *revoke.Driver) {
				b := &bench{t: t, table: &x.table}
				gone := removed("server")
				gone.Policies = policy(denied(6, 81)).Policies
				d.InForce(gone, false)
				if looked(); x.reads != 1 {
					t.Fatalf("%d readings when it had gone", x.reads)
				}
				for range 2 { // tries
					if failed := d.Prepare([]intent.Endpoint{tt.next}, nil); len(failed) != 0 {
						t.Error(failed)
					}
					b.marks("before it is in force", tt.marks...)
				}
				d.InForce(arrives(tt.next), false)
				synctest.Wait()
				b.marks("when it is", tt.then...)
				if x.reads != 1 {
					t.Errorf("%d readings in all", x.reads)
				}
			})
		})
	}
}

// TestOneReadingIsForAllThatHaveGone: if workloads come back before a pass, the first has the table read for all.
func TestOneReadingIsForAllThatHaveGone(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		d.InForce(arrives(at("other", stays)), false)
		<-time.After(time.Minute)
		x.reads = 0
		x.flows = append(x.flows, flow(world, stays, 6, 80))
		both := removed("server")
		both.Removed = append(both.Removed, removed("other").Removed...)
		d.InForce(both, false)
		for _, e := range []intent.Endpoint{at("new", goes), at("newer", stays)} {
			d.Prepare([]intent.Endpoint{e}, nil)
			d.InForce(arrives(e), false)
		}
		if x.reads != 1 || len(x.flows) != 0 {
			t.Errorf("%d readings, and %v are left", x.reads, x.flows)
		}
	})
}

// TestAPassInProgressRestoresNothingForAWorkloadThatCameMeanwhile: it has read that policy allows a flow, which then was revoked for the
// workload to come. That does not wait for the pass.
func TestAPassInProgressRestoresNothingForAWorkloadThatCameMeanwhile(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		b := &bench{t: t, table: &x.table}
		d.InForce(server(denied(6, 80), denied(6, 81)), false)
		looked()
		b.marks("denied", cut, cut)
		d.InForce(removed("server"), false)
		<-time.After(time.Minute)
		read, again := make(chan struct{}), make(chan struct{})
		x.walks = func() {
			close(read)
			<-again
			x.walks = nil
		}
		x.flows[0].Mark, x.flows[1].Mark = cut|others, cut|others
		d.InForce(intent.Batch{}, true)
		<-read
		if failed := d.Prepare(server().Endpoints, nil); len(failed) != 0 {
			t.Error(failed)
		}
		close(again)
		looked()
		b.marks("the pass has ended, and the workload is not in force", cut, cut)
		d.InForce(server(denied(6, 80)), false)
		synctest.Wait()
		b.marks("it is", cut, 0)
	})
}

// TestWhatCannotBeRestoredAtOnceIsRestoredByAPass.
func TestWhatCannotBeRestoredAtOnceIsRestoredByAPass(t *testing.T) {
	onWalked(t, func(x *walked, d *revoke.Driver) {
		d.InForce(removed("server"), false)
		looked()
		d.Prepare(server().Endpoints, nil)
		x.refuses = errors.New("no")
		d.InForce(server(denied(6, 80)), false)
		looked()
		if x.flows[1].Mark&kernel.ConntrackRevoked == 0 {
			t.Error("it was restored")
		}
		x.refuses = nil
		<-time.After(10 * time.Second)
		if x.flows[0].Mark&cut == 0 || x.flows[1].Mark&cut != 0 {
			t.Errorf("then there are %v", x.flows)
		}
	})
}
