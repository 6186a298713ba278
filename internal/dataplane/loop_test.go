package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// journal is what the drivers were asked, in order, with the time since the start.
type journal struct {
	start time.Time
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// fake is a Driver that writes a journal.
type fake struct {
	name     string
	j        *journal
	slow     time.Duration
	errs     []error // of the next Applies
	outcomes func() []intent.Outcome
	merged   int
	stamps   bool // write when each Apply came
}

func (f *fake) Merge(intent.Batch) { f.merged++ }

func (f *fake) Resync(context.Context) error {
	f.j.add("%s resync", f.name)
	return nil
}

func (f *fake) Retry() {}

func (f *fake) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if f.stamps {
		f.j.add("%s apply at %v", f.name, time.Since(f.j.start))
	} else {
		f.j.add("%s apply %d", f.name, f.merged)
	}
	f.merged = 0
	if f.slow > 0 {
		select {
		case <-time.After(f.slow):
		case <-ctx.Done():
		}
	}
	var err error
	if len(f.errs) > 0 {
		err, f.errs = f.errs[0], f.errs[1:]
	}
	if err == nil && f.outcomes != nil {
		return f.outcomes(), nil
	}
	return nil, err
}

// reader is a fake that can be read back while it works, if it says so.
type reader struct {
	fake
	can   bool
	notes chan func()
}

func (r *reader) Drift() <-chan func() { return r.notes }

func (r *reader) ReadBack(ctx context.Context, done func(time.Duration, error)) bool {
	if r.can {
		r.j.add("%s reads back", r.name)
		go func() {
			select {
			case r.notes <- func() { done(time.Second, nil) }:
			case <-ctx.Done():
			}
		}()
	}
	return r.can
}

// forwarder is a fake with all that a forwarding driver may have.
type forwarder struct {
	fake
	gates []string
	held  func(string) bool // as last passed
}

func (f *forwarder) Links(cs []ifmon.Change) { f.j.add("%s links %d", f.name, len(cs)) }

func (f *forwarder) Gate(ready bool, held func(string) bool) {
	f.held = held
	f.gates = append(f.gates, fmt.Sprintf("ready=%v held=%v", ready, held("cali1")))
}

func (f *forwarder) Withdraw(context.Context) []intent.Outcome {
	f.j.add("%s withdraw", f.name)
	return nil
}

// bench runs a loop in a bubble.
type bench struct {
	j        *journal
	batches  chan intent.Batch
	links    chan []ifmon.Change
	outcomes map[intent.Key]intent.Outcome
}

func run(t *testing.T, cfg Config, j *journal, script func(b *bench)) {
	t.Helper()
	b := &bench{j: j, batches: make(chan intent.Batch), links: make(chan []ifmon.Change), outcomes: map[intent.Key]intent.Outcome{}}
	j.start = time.Now()
	cfg.Outcomes = func(os []intent.Outcome) {
		for _, o := range os {
			b.outcomes[o.Key] = o
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(cfg).Run(ctx, b.batches, b.links) }()
	script(b)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

func (b *bench) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(b.j.lines, lines) {
		t.Errorf("the drivers saw:\n  %s\nwant:\n  %s", strings.Join(b.j.lines, "\n  "), strings.Join(lines, "\n  "))
	}
	b.j.lines = nil
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

func endpoint() intent.Batch {
	return intent.Batch{Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "ns", Name: "a"}, Link: "cali1"}}, InSync: true}
}

var endpointKey = intent.EndpointID{Namespace: "ns", Name: "a"}

func endpointOutcome(err error, reason string) func() []intent.Outcome {
	return func() []intent.Outcome {
		return []intent.Outcome{{Key: endpointKey, Err: err, Reason: reason}}
	}
}

func byChains(why string) func() []intent.Outcome {
	return func() []intent.Outcome { return []intent.Outcome{{Key: endpointKey, Chains: why}} }
}

func TestDriversTakeTurnsInOrderAndNotBeforeTheFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		cfg := Config{Policy: &fake{name: "nft", j: j}, Forwarding: []Driver{&forwarder{fake: fake{name: "fib", j: j}}, &fake{name: "host", j: j}}}
		run(t, cfg, j, func(b *bench) {
			b.links <- make([]ifmon.Change, 3)
			b.want(t, "fib links 3")
			b.batches <- endpoint()
			b.want(t, "nft resync", "fib resync", "host resync", "fib withdraw", "nft apply 1", "fib apply 1", "host apply 1")
			b.links <- make([]ifmon.Change, 1) // only who cares
			b.want(t, "fib links 1", "fib withdraw", "fib apply 0")
		})
	})
}

func TestWhatComesWhileAnApplyRunsIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		run(t, Config{Policy: &fake{name: "nft", j: j, slow: time.Second}}, j, func(b *bench) {
			b.batches <- intent.Batch{}
			b.want(t, "nft resync", "nft apply 1")
			for range 5 {
				go func() { b.batches <- intent.Batch{} }()
			}
			b.want(t) // waits for the one that runs
			pass(1500 * time.Millisecond)
			b.want(t, "nft apply 5")
			pass(time.Second)
		})
	})
}

func TestFailureIsTriedAgainWithGrowingWaitsAfterReadingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		boom := errors.New("boom")
		nft := &fake{name: "nft", j: j, stamps: true, errs: []error{boom, boom, boom, boom}}
		run(t, Config{Policy: nft, Retry: time.Second, MaxRetry: 3 * time.Second, Resync: -1}, j, func(b *bench) {
			b.batches <- intent.Batch{}
			pass(time.Minute)
			b.want(t, "nft resync", "nft apply at 0s", "nft resync", "nft apply at 1s", "nft resync", "nft apply at 3s",
				"nft resync", "nft apply at 6s", "nft resync", "nft apply at 9s")
			nft.errs = slices.Repeat([]error{boom}, 4)
			b.batches <- intent.Batch{}
			pass(500 * time.Millisecond)
			b.batches <- intent.Batch{} // may be the remedy, but does not try what failed more often than once in a second
			pass(3 * time.Second)
			b.batches <- intent.Batch{}
			pass(10 * time.Second)
			b.want(t, "nft apply at 1m0s", "nft resync", "nft apply at 1m1s", "nft resync", "nft apply at 1m3s", "nft resync", "nft apply at 1m4s",
				"nft resync", "nft apply at 1m6s")
		})
	})
}

func TestOneDriversFailureDoesNotHoldOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		always := slices.Repeat([]error{errors.New("boom")}, 100)
		cfg := Config{Forwarding: []Driver{&fake{name: "fib", j: j, errs: always}, &fake{name: "host", j: j}}, Retry: time.Hour, MaxRetry: time.Hour, Resync: -1}
		run(t, cfg, j, func(b *bench) {
			b.batches <- intent.Batch{}
			synctest.Wait() // else one round may take both
			b.batches <- intent.Batch{}
			b.want(t, "fib resync", "host resync", "fib apply 1", "host apply 1", "host apply 1")
			pass(2 * time.Second)
			b.want(t, "fib resync", "fib apply 1")
		})
	})
}

func TestKernelIsReadBackNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		run(t, Config{Policy: &fake{name: "nft", j: j, stamps: true}}, j, func(b *bench) {
			b.batches <- intent.Batch{}
			b.want(t, "nft resync", "nft apply at 0s")
			pass(200 * time.Second)
			b.want(t, "nft resync", "nft apply at 1m30s", "nft resync", "nft apply at 3m0s")
		})
	})
}

func TestADriverThatCanIsReadBackWhileItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		r := &reader{fake: fake{name: "nft", j: j, stamps: true}, can: true, notes: make(chan func())}
		run(t, Config{Policy: r}, j, func(b *bench) {
			b.batches <- intent.Batch{}
			b.want(t, "nft resync", "nft apply at 0s") // nothing is known yet
			pass(100 * time.Second)
			b.want(t, "nft reads back", "nft apply at 1m30s") // for what was found
			r.can = false
			pass(100 * time.Second)
			b.want(t, "nft resync", "nft apply at 3m0s")
			r.can, r.errs = true, []error{errors.New("refused")}
			b.batches <- intent.Batch{}
			b.want(t, "nft apply at 3m20s")
			pass(time.Second)
			b.want(t, "nft resync", "nft apply at 3m20.1s") // what failed is looked at first
		})
	})
}

func TestForwardingWaitsForPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft := &fake{name: "nft", j: j, errs: []error{errors.New("boom")}}
		fib := &forwarder{fake: fake{name: "fib", j: j}}
		run(t, Config{Policy: nft, Forwarding: []Driver{fib}}, j, func(b *bench) {
			b.batches <- endpoint()
			synctest.Wait()
			if got := b.outcomes[endpointKey]; got.Err == nil {
				t.Errorf("outcome = %+v, want an error", got)
			}
			pass(time.Second) // the second try succeeds
			synctest.Wait()
			if want := []string{"ready=false held=true", "ready=true held=false"}; !slices.Equal(slices.Compact(fib.gates), want) {
				t.Errorf("gates = %v, want %v", fib.gates, want)
			}
			if got, reported := b.outcomes[endpointKey]; got.Err != nil || !reported {
				t.Errorf("outcome = %+v, want success", got)
			}

			nft.outcomes = endpointOutcome(errors.New("no such chain"), "")
			b.batches <- endpoint()
			synctest.Wait()
			if got := fib.gates[len(fib.gates)-1]; got != "ready=true held=true" {
				t.Errorf("gate after the endpoint alone failed: %s", got)
			}
			b.batches <- intent.Batch{Removed: []intent.Key{endpointKey}}
			synctest.Wait()
			if got := fib.gates[len(fib.gates)-1]; got != "ready=true held=false" {
				t.Errorf("gate after the endpoint went: %s", got)
			}
		})
	})
}

func TestWhatIsFinalIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		final := intent.Outcome{Key: intent.PolicyID{Name: "p"}, Err: errors.New("over the budget"), Final: true}
		nft := &fake{name: "nft", j: j, outcomes: func() []intent.Outcome { return []intent.Outcome{final} }}
		run(t, Config{Policy: nft, Resync: -1}, j, func(b *bench) {
			b.batches <- endpoint()
			pass(time.Hour)
			if got := strings.Count(strings.Join(j.lines, "\n"), "apply"); got != 1 {
				t.Errorf("applied %d times: %v", got, j.lines)
			}
			if got := b.outcomes[intent.PolicyID{Name: "p"}]; got.Err == nil {
				t.Errorf("outcome = %+v, want the error", got)
			}
		})
	})
}

// TestAnIntentIsInForceOnceEachDriverWasTried: one that failed as a whole just now waits a while before it takes over more.
func TestAnIntentIsInForceOnceEachDriverWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		host := &fake{name: "host", j: j, errs: slices.Repeat([]error{errors.New("boom")}, 3)}
		run(t, Config{Policy: &fake{name: "nft", j: j}, Forwarding: []Driver{host}, Resync: -1}, j, func(b *bench) {
			b.batches <- intent.Batch{InSync: true}
			b.want(t, "nft resync", "host resync", "nft apply 1", "host apply 1")
			b.batches <- endpoint()
			b.want(t, "nft apply 1")
			if o, reported := b.outcomes[endpointKey]; !reported || o.Err != nil || o.Reason == "" {
				t.Errorf("the outcome is %+v, want that host has not been tried", o)
			}
			pass(time.Minute)
			if o := b.outcomes[endpointKey]; o.Err != nil || o.Reason != "" {
				t.Errorf("the outcome is %+v, want success", o)
			}
			delete(b.outcomes, endpointKey)
			b.batches <- intent.Batch{}
			synctest.Wait()
			if o, reported := b.outcomes[endpointKey]; reported {
				t.Errorf("it is reported again: %+v", o)
			}
		})
	})
}

// drifter is a fake that is notified of changes by others.
type drifter struct {
	fake
	notes chan func()
}

func (d *drifter) Drift() <-chan func() { return d.notes }

func TestDriftIsRepairedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		d := &drifter{fake: fake{name: "fib", j: j}, notes: make(chan func())}
		run(t, Config{Forwarding: []Driver{d, &fake{name: "host", j: j}}}, j, func(b *bench) {
			b.batches <- intent.Batch{}
			b.want(t, "fib resync", "host resync", "fib apply 1", "host apply 1")
			d.notes <- func() { j.add("fib note") }
			b.want(t, "fib note", "fib apply 0")
		})
	})
}

func TestIncompleteTransactionDoesNotOpenForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		fib := &forwarder{fake: fake{name: "fib", j: j}}
		run(t, Config{Policy: &fake{name: "nft", j: j}, Forwarding: []Driver{fib}}, j, func(b *bench) {
			early := endpoint()
			early.InSync = false
			b.batches <- early
			synctest.Wait() // else one round may take both
			b.batches <- intent.Batch{InSync: true}
			synctest.Wait()
			if want := []string{"ready=false held=true", "ready=true held=false"}; !slices.Equal(fib.gates, want) {
				t.Errorf("gates = %v, want %v", fib.gates, want)
			}
		})
	})
}

func TestOutcomeOfAnIntentIsTheWorstOfAllDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		boom := errors.New("boom")
		nft := &fake{name: "nft", j: j, outcomes: endpointOutcome(boom, "")}
		host := &fake{name: "host", j: j, outcomes: endpointOutcome(nil, "interface cali1 is absent")}
		run(t, Config{Policy: nft, Forwarding: []Driver{host}, Retry: time.Hour, MaxRetry: time.Hour, Resync: -1}, j, func(b *bench) {
			for _, step := range []struct {
				nft, host func() []intent.Outcome
				err       error
				reason    string
				chains    string
			}{
				{nft.outcomes, host.outcomes, boom, "", ""},
				{endpointOutcome(nil, ""), host.outcomes, nil, "interface cali1 is absent", ""},
				{byChains("many ports"), host.outcomes, nil, "interface cali1 is absent", "many ports"},
				{byChains("many ports"), endpointOutcome(nil, ""), nil, "", "many ports"},
				{endpointOutcome(nil, ""), endpointOutcome(nil, ""), nil, "", ""},
			} {
				nft.outcomes, host.outcomes = step.nft, step.host
				b.batches <- endpoint()
				synctest.Wait()
				if got := b.outcomes[endpointKey]; !errors.Is(got.Err, step.err) || got.Reason != step.reason || got.Chains != step.chains {
					t.Errorf("outcome = %+v, want error %v, reason %q, chains %q", got, step.err, step.reason, step.chains)
				}
			}
		})
	})
}
