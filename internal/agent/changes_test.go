package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/syncer"
)

func TestAChangeIsLateAfterTenSeconds(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	nft := []string{"nft"}
	for _, tt := range []struct {
		name  string
		steps func(*changes)
		now   int
		want  string
	}{
		{"nothing has come", func(*changes) {}, 1000, ""},
		{"calc works for nine seconds", func(c *changes) { c.calc = at(1) }, 10, ""},
		{"calc works for ten", func(c *changes) { c.calc = at(1) }, 11, "10s ago is not in force: calc is at work on it"},
		{"the dataplane is busy and takes nothing over", func(c *changes) { c.decide(at(1)) }, 20, "19s ago is not in force: it is being worked on"},
		{"a driver fails", func(c *changes) { c.decide(at(1)); c.merge(); c.round(nft) }, 20, "19s ago is not in force: it waits for nft"},
		{"a newer one, too", func(c *changes) {
			c.decide(at(1))
			c.merge()
			c.round(nft)
			c.decide(at(19))
			c.merge()
			c.round(nft)
		}, 20, "19s ago is not in force: it waits for nft"},
		{"all is in force", func(c *changes) { c.decide(at(1)); c.merge(); c.round(nft); c.round(nil) }, 20, ""},
		{"a newer one is on its way", func(c *changes) { c.decide(at(1)); c.merge(); c.decide(at(18)); c.round(nil) }, 20, ""},
		{"more come than are timed", func(c *changes) {
			for range 2 * unsettled {
				c.decide(at(1))
				c.merge()
				c.round(nft)
			}
			for range 2 * unsettled {
				c.decide(at(19))
				c.merge()
			}
		}, 20, "19s ago is not in force: it waits for nft"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c changes
			tt.steps(&c)
			if got := strings.TrimPrefix(c.late(at(tt.now)), "a change that was received "); got != tt.want {
				t.Errorf("late is %q, want %q", got, tt.want)
			}
		})
	}
}

// policyDriver is one that fails, hangs, or fails for one intent.
type policyDriver struct {
	mu    sync.Mutex
	err   error
	alone error
	hang  time.Duration
}

func (d *policyDriver) Merge(intent.Batch)           {}
func (d *policyDriver) Resync(context.Context) error { return nil }
func (d *policyDriver) Retry()                       {}

func (d *policyDriver) set(err, alone error, hang time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.alone, d.hang = err, alone, hang
}

func (d *policyDriver) Apply(context.Context) ([]intent.Outcome, error) {
	d.mu.Lock()
	err, alone, hang := d.err, d.alone, d.hang
	d.mu.Unlock()
	<-time.After(hang)
	return []intent.Outcome{{Key: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "p"}, Err: alone}}, err
}

// TestANodeIsNotReadyWhileAChangeIsNotInForce: of readiness, of what `twill status` says, and of what the datastore is told.
func TestANodeIsNotReadyWhileAChangeIsNotInForce(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		set  func(*policyDriver)
		want string // after 12 s; empty: it is ready
	}{
		{"the transaction fails", func(d *policyDriver) { d.set(boom, nil, 0) }, "12s ago is not in force: it waits for agent"},
		{"the transaction takes a minute", func(d *policyDriver) { d.set(nil, nil, time.Minute) }, "12s ago is not in force: it is being worked on"},
		{"one policy alone fails, and is closed", func(d *policyDriver) { d.set(nil, boom, 0) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, store, d := slog.New(slog.DiscardHandler), memstore.New(), &policyDriver{}
				r := newReporter(Config{Node: "h1", Log: log}, store, metrics.New(prometheus.NewRegistry()))
				r.configure(config.Settings{ReportingInterval: time.Hour, ReportingTTL: 2 * time.Hour})
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				loop := dataplane.New(dataplane.Config{Policy: d, Observer: r, Outcomes: r.outcomes, Resync: -1})
				batches := make(chan intent.Batch)
				go func() { _ = loop.Run(ctx, batches, make(chan []ifmon.Change)) }()
				go func() { _ = r.run(ctx) }()
				stored := func() (p status.Process) {
					<-time.After(3 * time.Second)
					kv, err := store.Get(ctx, "/calico/felix/v2/no-region/host/h1/status")
					if err != nil || json.Unmarshal(kv.Value, &p) != nil {
						t.Fatal(kv, err)
					}
					return p
				}
				send := func() {
					b := intent.Batch{InSync: true}
					r.changeReceived(time.Now(), nil)
					r.decided(b, time.Now())
					batches <- b
				}
				r.source(syncer.InSync)
				send()
				synctest.Wait()
				if p := stored(); !p.Ready {
					t.Fatalf("at first, it is not ready: %v", p)
				}

				tt.set(d)
				send()
				<-time.After(12 * time.Second)
				why := r.report().NotReady
				found := false
				for _, w := range why {
					found = found || tt.want != "" && strings.HasSuffix(w, tt.want)
				}
				if found != (tt.want != "") || tt.want == "" && len(why) > 0 {
					t.Errorf("after 12 s it is not ready because %q, want %q", why, tt.want)
				}
				if p := stored(); p.Ready != (tt.want == "") {
					t.Errorf("and the datastore says ready: %v, %q", p.Ready, p.Errors)
				}
				if failed := r.report().Failed; tt.want == "" && len(failed) != 1 {
					t.Errorf("status does not name what failed: %v", failed)
				}
				d.set(nil, nil, 0)
				<-time.After(2 * time.Minute)
				if why := r.report().NotReady; len(why) > 0 {
					t.Errorf("all is in force, and it is not ready because %q", why)
				}
				if p := stored(); !p.Ready {
					t.Errorf("and the datastore says ready: %v, %q", p.Ready, p.Errors)
				}
			})
		})
	}
}
