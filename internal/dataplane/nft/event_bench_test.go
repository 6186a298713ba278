package nft

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// BenchmarkEvent is the time from a change of intents until it is in force, where policy is compiled: "kernel" is the part of the
// transaction; "later" is what comes after it, when the grace period is over.
func BenchmarkEvent(b *testing.B) {
	for _, c := range []cluster{{10_000, 200}, {100_000, 2_000}} {
		k := &counting{Conn: newKernel(b)}
		d := New(k, Config{Recheck: true})
		d.Merge(c.batch())
		apply(b, d)
		n := 0
		events := []struct {
			name  string
			there func() intent.Batch
			back  func() intent.Batch
		}{
			{"remote", func() intent.Batch { return c.remote(n, true) }, func() intent.Batch { return c.remote(n, false) }},
			{"policy", func() intent.Batch { return intent.Batch{Policies: []intent.Policy{c.policy(5, uint16(20000+n))}} }, nil},
			{"local", func() intent.Batch {
				e := c.endpoint(7)
				e.ID.Name, e.Link = fmt.Sprintf("new-%d", n), fmt.Sprintf("new%d", n)
				return intent.Batch{Endpoints: []intent.Endpoint{e}}
			}, func() intent.Batch {
				id := c.endpoint(7).ID
				id.Name = fmt.Sprintf("new-%d", n)
				return intent.Batch{Removed: []intent.Key{id}}
			}},
			{"alone", func() intent.Batch { // the only one with its list of policies
				e := c.endpoint(7)
				e.ID.Name, e.Link = fmt.Sprintf("new-%d", n), fmt.Sprintf("new%d", n)
				ids := []intent.PolicyID{np("np-7"), np("np-8"), np(fmt.Sprintf("np-%d", c.policies))}
				intenttest.Normal(&e, tier("default", intent.Deny, ids, ids))
				return intent.Batch{Endpoints: []intent.Endpoint{e}}
			}, func() intent.Batch {
				id := c.endpoint(7).ID
				id.Name = fmt.Sprintf("new-%d", n)
				return intent.Batch{Removed: []intent.Key{id}}
			}},
		}
		for _, ev := range events {
			b.Run(fmt.Sprintf("%s/remotes=%d/policies=%d", ev.name, c.remotes, c.policies), func(b *testing.B) {
				var took, back, later, kernel []time.Duration
				*k = counting{Conn: k.Conn}
				var there [2]int
				for b.Loop() {
					n++
					t0, m0, k0 := k.transactions, k.messages, k.last
					began := time.Now()
					d.Merge(ev.there())
					apply(b, d)
					took = append(took, time.Since(began))
					kernel = append(kernel, k.last-k0)
					there[0] += k.transactions - t0
					there[1] += k.messages - m0
					if ev.back != nil {
						began = time.Now()
						d.Merge(ev.back())
						apply(b, d)
						back = append(back, time.Since(began))
					}
					for len(d.tables.since) > 0 {
						note := <-d.Drift()
						began = time.Now()
						note()
						apply(b, d)
						later = append(later, time.Since(began))
					}
					d.Judged(d.Standing())
				}
				for what, all := range map[string][]time.Duration{"there": took, "kernel": kernel, "back": back, "later": later} {
					if slices.Sort(all); len(all) > 0 {
						b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms/"+what)
					}
				}
				times := len(took)
				b.ReportMetric(float64(there[0])/float64(times), "transactions")
				b.ReportMetric(float64(there[1])/float64(times), "messages")
				b.ReportMetric(float64(k.transactions)/float64(times), "transactions-all")
			})
		}
	}
}
