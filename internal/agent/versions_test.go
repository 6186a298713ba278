package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/status"
)

// TestAVersionIsInForceWhenTheRoundThatBringsItEnds: not before, in no order of events.
func TestAVersionIsInForceWhenTheRoundThatBringsItEnds(t *testing.T) {
	policy := func(name, revision string) api.Update {
		return api.Update{Key: api.KeyPrefix(api.KindGlobalNetworkPolicy, "") + name, Value: []byte(`{"spec":{"order":` + revision + `}}`)}
	}
	a1, a2, b1 := policy("a", "1"), policy("a", "2"), policy("b", "1")
	other := api.Update{Key: api.KeyPrefix(api.KindProfile, "") + "p", Value: []byte("{}")}
	gone := api.Update{Key: a1.Key}
	names := map[status.Version]string{status.VersionOf(a1): "a 1", status.VersionOf(a2): "a 2", status.VersionOf(b1): "b 1", status.VersionOf(gone): "a gone"}
	nft := []string{"nft"}
	for _, tt := range []struct {
		name  string
		steps func(*versions) []status.Version // what the last step returns
		want  string
	}{
		{"it is calculated", func(v *versions) []status.Version { v.note([]api.Update{a1}); return v.round(nil) }, ""},
		{"it concerns nothing here", func(v *versions) []status.Version { v.note([]api.Update{a1, other}); return v.irrelevant() }, "a 1"},
		{"it goes, and concerned nothing here", func(v *versions) []status.Version { v.note([]api.Update{gone}); return v.irrelevant() }, "a gone"},
		{"it is on its way", func(v *versions) []status.Version { v.note([]api.Update{a1}); v.decide(); return v.round(nil) }, ""},
		{"a driver has yet to do it", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			return v.round(nft)
		}, ""},
		{"it is done", func(v *versions) []status.Version {
			v.note([]api.Update{a1, b1})
			v.decide()
			v.merge()
			v.round(nft)
			return v.round(nil)
		}, "a 1, b 1"},
		{"once", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			v.round(nil)
			return v.round(nil)
		}, ""},
		{"a newer one is on its way", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			v.note([]api.Update{a2})
			v.decide()
			return v.round(nil)
		}, "a 1"},
		{"only the newest counts", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.merge()
			v.round(nft)
			v.note([]api.Update{a2})
			v.decide()
			v.merge()
			return v.round(nil)
		}, "a 2"},
		{"what concerns nothing here waits for what was sent before", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.note([]api.Update{b1})
			return v.irrelevant()
		}, ""},
		{"and comes with it", func(v *versions) []status.Version {
			v.note([]api.Update{a1})
			v.decide()
			v.note([]api.Update{b1})
			v.irrelevant()
			v.merge()
			return v.round(nil)
		}, "a 1, b 1"},
		{"or with what is merged and not done, be it of no policy", func(v *versions) []status.Version {
			v.note([]api.Update{other})
			v.decide()
			v.merge()
			v.round(nft)
			v.note([]api.Update{b1})
			if now := v.irrelevant(); len(now) > 0 {
				return now
			}
			return v.round(nil)
		}, "b 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, v := range tt.steps(&versions{}) {
				got = append(got, names[v])
			}
			if slices.Sort(got); strings.Join(got, ", ") != tt.want {
				t.Errorf("in force is %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAWaitForAPolicyEndsWhenItIsInForce: of the version that was asked for, or why it is not.
func TestAWaitForAPolicyEndsWhenItIsInForce(t *testing.T) {
	key := api.KeyPrefix(api.KindNetworkPolicy, "prod") + "p"
	first, second, gone := api.Update{Key: key, Value: []byte(`{"spec":{"order":1}}`)}, api.Update{Key: key, Value: []byte(`{"spec":{"order":2}}`)}, api.Update{Key: key}
	for _, tt := range []struct {
		name   string
		set    func(*policyDriver)
		has    []api.Update // what comes, one after the other
		here   bool         // it concerns something on this node
		early  bool         // it is awaited before anything comes
		awaits api.Update
		want   string // the error after ten seconds; empty: none
	}{
		{name: "it is in force", has: []api.Update{first}, here: true, awaits: first},
		{name: "it concerns nothing here", has: []api.Update{first}, awaits: first},
		{name: "it comes into force", has: []api.Update{first}, here: true, early: true, awaits: first},
		{name: "it comes, and concerns nothing here", has: []api.Update{first}, early: true, awaits: first},
		{name: "it is gone", has: []api.Update{first, gone}, here: true, awaits: gone},
		{name: "there never was one", awaits: gone},
		{name: "it has not come", awaits: first, want: "it is written, and not in the kernel yet"},
		{name: "the one before is in force", has: []api.Update{first}, here: true, awaits: second, want: "it is written, and not in the kernel yet"},
		{name: "another one is in force by now", has: []api.Update{first, second}, here: true, awaits: first, want: "it is written, and not in the kernel yet"},
		{name: "the kernel refuses it", set: func(d *policyDriver) { d.set(nil, errors.New("boom"), 0) }, has: []api.Update{first}, here: true, awaits: first, want: "boom"},
		{name: "the transaction fails", set: func(d *policyDriver) { d.set(errors.New("boom"), nil, 0) }, has: []api.Update{first}, here: true, awaits: first, want: "it is written, and not in the kernel yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &policyDriver{}
				r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				loop := dataplane.New(dataplane.Config{Policy: d, Observer: r, Outcomes: r.outcomes, Resync: -1})
				batches := make(chan intent.Batch)
				go func() { _ = loop.Run(ctx, batches, make(chan []ifmon.Change)) }()
				if tt.set != nil {
					tt.set(d)
				}
				waits, end := context.WithTimeout(ctx, 10*time.Second)
				defer end()
				got := make(chan error, 1)
				await := func() { got <- r.PolicyInForce(waits, tt.awaits) }
				if tt.early {
					go await()
					synctest.Wait()
				}
				for _, u := range tt.has {
					r.changeReceived(time.Now(), []api.Update{u})
					if !tt.here {
						r.nothingDecided()
						continue
					}
					b := intent.Batch{InSync: true, Policies: []intent.Policy{{ID: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "p"}}}}
					r.decided(b, time.Now())
					batches <- b
				}
				if !tt.early {
					synctest.Wait()
					go await()
				}
				if err := <-got; tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("the error is %v, want %q", err, tt.want)
				}
			})
		})
	}
}
