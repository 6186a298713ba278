package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/intent"
)

// TestWhatFailedIsTriedAfterWaitsThatDouble plays a minute in steps of 100 ms: at each, news may come, and the driver is
// tried if it is due.
func TestWhatFailedIsTriedAfterWaitsThatDouble(t *testing.T) {
	const step = 100 * time.Millisecond
	at := func(when ...float64) func(time.Duration) bool {
		return func(now time.Duration) bool { return slices.Contains(when, now.Seconds()) }
	}
	always := func(time.Duration) bool { return true }
	never := func(time.Duration) bool { return false }
	until := func(s float64) func(time.Duration) bool {
		return func(now time.Duration) bool { return now.Seconds() < s }
	}
	for _, tt := range []struct {
		name    string
		news    func(time.Duration) bool
		fails   func(time.Duration) bool
		fresh   func(time.Duration) bool
		whole   bool
		within  time.Duration
		retries []float64 // seconds at which what failed was tried again
		tries   int       // at all
	}{
		{name: "news go in at once", news: always, fails: never, fresh: never, tries: 601},
		{name: "without news nothing is done", news: never, fails: never, fresh: never},
		{name: "one failure is tried again once it is in order", news: at(0), fails: until(0.5), fresh: never, retries: []float64{0.1, 0.3, 0.7}, tries: 4},
		{name: "one failure that stays", news: at(0), fails: always, fresh: never, retries: []float64{0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 51.1}, tries: 10},
		{name: "news neither hurries nor delays it, and goes in at once", news: always, fails: always, fresh: never, retries: []float64{0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 51.1}, tries: 601},
		{name: "nor if all fails, when news is tried once in a second", news: always, fails: always, fresh: never, whole: true, retries: []float64{0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 51.1}, tries: 65},
		{name: "what fails later does not wait for what has failed for ever", news: at(0, 30), fails: always, fresh: at(30), retries: []float64{0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 31, 32.6, 35.8, 42.2, 55}, tries: 15},
		{name: "one that waits for somebody else is tried that often", news: at(0), fails: until(7), fresh: never, whole: true, within: time.Second, retries: []float64{0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5}, tries: 11},
		{name: "a stream of failures tries all that failed once in a second", news: always, fails: always, fresh: always, retries: nil, tries: 601},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := turns{first: step, longest: 30 * time.Second}
			start := time.Unix(0, 0)
			var retries []float64
			tries := 0
			for now := time.Duration(0); now <= time.Minute; now += step {
				w.news = w.news || tt.news(now)
				at := start.Add(now)
				if next := w.next(); w.due(at) != (w.news && w.newsAt.IsZero() || !next.IsZero() && !next.After(at)) {
					t.Fatalf("at %v: due is %v, and the next try at %v", now, w.due(at), next.Sub(start))
				}
				if !w.due(at) {
					continue
				}
				tries++
				retry := w.again(at)
				if retry {
					retries = append(retries, now.Seconds())
				}
				w.news = false
				if tt.fails(now) {
					w.failed(at, failure{retry: retry, whole: tt.whole, fresh: tt.fresh(now), within: tt.within})
				} else if retry || w.retryAt.IsZero() {
					w.succeeded()
				}
			}
			if tt.retries == nil && tt.fails(time.Minute) {
				if n := len(retries); n < 40 || n > 63 {
					t.Errorf("%d retries in a minute, want about one in a second: %v", n, retries)
				}
			} else if !slices.Equal(retries, tt.retries) {
				t.Errorf("tried again at %v, want %v", retries, tt.retries)
			}
			if tries != tt.tries {
				t.Errorf("%d tries, want %d", tries, tt.tries)
			}
		})
	}
}

// parking is a fake that fails for one intent and does not try it again before the loop says so, as drivers do.
type parking struct {
	fake
	failing, due bool
}

func (p *parking) Retry() { p.due = true }

func (p *parking) run() []intent.Outcome {
	if !p.due {
		return nil
	}
	p.due = false
	key := intent.RouteID{Prefix: netip.MustParsePrefix("10.65.0.2/32")}
	if p.failing {
		return []intent.Outcome{{Key: key, Err: errors.New("a route that is not ours is there")}}
	}
	return []intent.Outcome{{Key: key}}
}

// TestAFailureIsLoggedAtThePaceOfItsRetries: one intent of a driver fails, or the driver as a whole, while 2,000 changes of
// something else come.
func TestAFailureIsLoggedAtThePaceOfItsRetries(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				d := &parking{fake: fake{name: "fib", j: j}, failing: true, due: true}
				if whole {
					d.errs = slices.Repeat([]error{errors.New("no")}, 1000)
				} else {
					d.outcomes = d.run
				}
				var log bytes.Buffer
				settled := false
				cfg := Config{Forwarding: []Driver{d}, Resync: -1, Log: slog.New(slog.NewTextHandler(&log, nil)), Observer: rounds{&settled}}
				run(t, cfg, j, func(b *bench) {
					for range 2000 {
						b.batches <- intent.Batch{InSync: true}
						synctest.Wait()
						pass(5 * time.Millisecond)
					}
					applies := 0
					for _, line := range j.lines {
						if strings.HasPrefix(line, "fib apply") {
							applies++
						}
					}
					if !whole && applies < 2000 || whole && applies > 30 {
						t.Errorf("%d changes were tried in 10 s", applies)
					}
					if n := strings.Count(log.String(), "\n"); n < 5 || n > 10 {
						t.Errorf("%d lines were logged in 10 s:\n%s", n, log.String())
					}
					if settled {
						t.Error("all is reported to be in force")
					}
					d.failing, d.errs = false, nil
					pass(time.Minute)
					if !settled {
						t.Error("nothing fails any more, and it is not reported to be in force")
					}
				})
			})
		})
	}
}

// owned is an error that lasts until somebody else has gone.
type owned struct{ error }

func (owned) RetryWithin() time.Duration { return time.Second }

// TestADriverThatWaitsForAnotherProcessIsTriedOftenAndLoggedSeldom: what is wrapped in other errors counts, too, and once it is over, in force is all.
func TestADriverThatWaitsForAnotherProcessIsTriedOftenAndLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft := &fake{name: "nft", j: j, stamps: true, errs: slices.Repeat([]error{fmt.Errorf("table: %w", owned{errors.New("another's")})}, 600)}
		var log bytes.Buffer
		run(t, Config{Policy: nft, Resync: -1, Log: slog.New(slog.NewTextHandler(&log, nil))}, j, func(b *bench) {
			b.batches <- endpoint()
			pass(10 * time.Minute)
			tries := 0
			for _, line := range j.lines {
				if strings.Contains(line, "apply") {
					tries++
				}
			}
			if lines := strings.Count(log.String(), "\n"); tries < 590 || lines < 5 || lines > 15 {
				t.Errorf("%d tries in ten minutes, %d lines of log:\n%s", tries, lines, log.String())
			}
			nft.errs = nil
			pass(time.Second)
			synctest.Wait()
			if o, reported := b.outcomes[endpointKey]; !reported || o.Err != nil {
				t.Errorf("a second after the other has gone: %+v", o)
			}
		})
	})
}

// rounds is an Observer that keeps what the last round reported.
type rounds struct{ settled *bool }

func (rounds) Applied(string, time.Duration, error)  {}
func (rounds) Resynced(string, time.Duration, error) {}
func (rounds) Repaired(string, intent.Cause, int)    {}
func (rounds) Merged()                               {}
func (r rounds) Round(settled bool, _ []string)      { *r.settled = settled }
