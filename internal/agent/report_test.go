package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/syncer"
)

var (
	web      = intent.EndpointID{Namespace: "prod", Name: "h1-k8s-web-eth0"}
	webKey   = web
	routeKey = intent.RouteID{Prefix: netip.MustParsePrefix("10.65.0.2/32")}
	webBatch = intent.Batch{
		Endpoints: []intent.Endpoint{{ID: web, Label: "prod/web", Link: "cali1"}},
		Routes:    []intent.Route{{Dst: netip.MustParsePrefix("10.65.0.2/32"), Link: "cali1"}},
	}
)

func TestAnEndpointIsAsItsWorstPart(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		says     string
		closed   string
		outcomes []intent.Outcome
		want     status.Endpoint
	}{
		{"nothing is known yet", "", nil, status.Endpoint{Status: status.Down, Reason: "not yet in force"}},
		{"the route is awaited", "", []intent.Outcome{{Key: webKey}}, status.Endpoint{Status: status.Down, Reason: "route 10.65.0.2/32 is not yet in force"}},
		{"all is in force", "", []intent.Outcome{{Key: webKey}, {Key: routeKey}}, status.Endpoint{Status: status.Up}},
		{"the interface is absent", "", []intent.Outcome{{Key: webKey, Reason: "interface cali1 is absent"}, {Key: routeKey}}, status.Endpoint{Status: status.Down, Reason: "interface cali1 is absent"}},
		{"the route fails", "", []intent.Outcome{{Key: webKey, Reason: "interface cali1 is absent"}, {Key: routeKey, Err: boom}}, status.Endpoint{Status: status.Error, Reason: "boom"}},
		{"the policy fails", "", []intent.Outcome{{Key: webKey, Err: boom}, {Key: routeKey, Reason: "x"}}, status.Endpoint{Status: status.Error, Reason: "boom"}},
		{"it is closed", "two endpoints have its interface", []intent.Outcome{{Key: webKey}, {Key: routeKey}}, status.Endpoint{Status: status.Error, Reason: "two endpoints have its interface"}},
	} {
		t.Run(tt.says, func(t *testing.T) {
			tr := newTracker()
			b := webBatch
			b.Endpoints = slices.Clone(b.Endpoints)
			b.Endpoints[0].Closed = tt.closed
			tr.onBatch(b)
			tr.merged()
			tr.update(tt.outcomes)
			tr.changedStates(time.Now())
			if got := tr.endpoints[web].state; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	tr := newTracker()
	tr.onBatch(webBatch)
	tr.merged()
	tr.update([]intent.Outcome{{Key: webKey}, {Key: routeKey, Err: errors.New("boom")}})
	gone := tr.onBatch(intent.Batch{Removed: []intent.Key{routeKey, webKey}})
	if !slices.Equal(gone, []intent.EndpointID{web}) {
		t.Errorf("gone are %v", gone)
	}
	if n := len(tr.endpoints) + len(tr.links) + len(tr.routes) + len(tr.outcomes) + len(tr.reach) + len(tr.changedStates(time.Now())); n != 0 {
		t.Errorf("%+v keeps %d things", tr, n)
	}
}

// The dataplane may be at work on what was asked for before when a batch is sent to it. What it then says is of that.
func TestAnAnswerIsToWhatWasAskedForLast(t *testing.T) {
	all := []intent.Outcome{{Key: webKey}, {Key: routeKey}}
	boom := errors.New("boom")
	for _, tt := range []struct {
		name  string
		steps func(tr *tracker) // after all was in force once
		want  bool              // there is an answer
	}{
		{name: "nothing is asked for", steps: func(*tracker) {}, want: true},
		{name: "it was asked for, and not taken over", steps: func(tr *tracker) { tr.onBatch(webBatch) }},
		{name: "a word of before it was taken over is none", steps: func(tr *tracker) { tr.onBatch(webBatch); tr.update(all) }},
		{name: "nor is one of between two batches", steps: func(tr *tracker) { tr.onBatch(webBatch); tr.onBatch(webBatch); tr.merged(); tr.update(all) }},
		{name: "nor one of before, once it is taken over", steps: func(tr *tracker) { tr.onBatch(webBatch); tr.update(all); tr.merged() }},
		{name: "what is said of the endpoint says nothing of its routes", steps: func(tr *tracker) { tr.onBatch(webBatch); tr.merged(); tr.update(all[:1]) }},
		{name: "it was taken over, and all is said", steps: func(tr *tracker) { tr.onBatch(webBatch); tr.merged(); tr.update(all[:1]); tr.update(all[1:]) }, want: true},
		{name: "what is said late of a route that is removed is not kept", steps: func(tr *tracker) {
			tr.onBatch(intent.Batch{Removed: []intent.Key{routeKey}})
			tr.update([]intent.Outcome{{Key: routeKey, Err: boom}})
			tr.merged()
		}, want: true},
		{name: "what is said of one that is asked for again is", steps: func(tr *tracker) {
			tr.onBatch(intent.Batch{Removed: []intent.Key{webKey, routeKey}})
			tr.onBatch(webBatch)
			tr.merged()
			tr.update([]intent.Outcome{{Key: webKey, Err: boom}})
			tr.merged()
			tr.update(all)
		}, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTracker()
			tr.onBatch(webBatch)
			tr.merged()
			tr.update(all)
			tt.steps(tr)
			if s, answered := tr.inForce(web); answered != tt.want || answered && s.Status != status.Up {
				t.Errorf("answered is %v, of %+v, want %v", answered, s, tt.want)
			}
			if failed := tr.failed(); len(failed) > 0 {
				t.Errorf("failed are %q", failed)
			}
		})
	}
}

func TestReadinessSaysWhyNot(t *testing.T) {
	r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
	step := func(says, want string, do func()) {
		t.Helper()
		do()
		if got := strings.Join(r.notReady(), "; "); got != want {
			t.Errorf("%s: not ready because %q, want %q", says, got, want)
		}
	}
	const pending = "not all that the datastore asks for has been in force yet"
	step("at start", "never yet in sync with the datastore", func() {})
	step("in sync", pending, func() { r.source(syncer.InSync) })
	step("calc has decided", pending, func() { r.decided(intent.Batch{InSync: true}, time.Now()); r.Round(true, nil) })
	step("a round that is not settled", pending, func() { r.Merged(); r.Round(false, []string{"nft"}) })
	step("all is in force", "", func() { r.Round(true, nil) })
	step("the datastore is away", "", func() { r.source(syncer.WaitForDatastore) })
	step("a driver fails", "nft: boom", func() { r.Applied("nft", 0, errors.New("boom")) })
	step("it works again", "", func() { r.Applied("nft", 0, nil) })
	step("the datastore says so", api.Locked.Why(), func() { r.freeze(api.Locked) })
	step("it does not say anything any more", api.Gone.Why(), func() { r.freeze(api.Gone) })
	probe := func(says string, want string) {
		t.Helper()
		if got := strings.Join(r.unprobed(), "; "); got != want {
			t.Errorf("%s: the probe fails because %q, want %q", says, got, want)
		}
	}
	probe("frozen: nothing that this node could do is lacking", "")
	r.Applied("nft", 0, errors.New("boom"))
	probe("frozen, and a driver fails", "nft: boom")
	r = newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
	r.freeze(api.Locked)
	probe("frozen before it is in sync", "never yet in sync with the datastore")
	r.source(syncer.InSync)
	probe("frozen from the start", "")
	r.freeze(api.Ready)
	probe("ready again", pending)
}

func TestTheReportNamesWhatIsWrongAndSinceWhen(t *testing.T) {
	r := newReporter(Config{Node: "h1", Version: "v", Log: slog.New(slog.DiscardHandler), Problems: []config.Problem{{From: "environment", Name: "TWILL_X", Reason: "no such parameter"}}},
		memstore.New(), metrics.New(prometheus.NewRegistry()))
	found := []api.Problem{{Key: "/calico/x", Field: "spec.order", Reason: "want a number"}}
	r.problems(found)
	since := r.report().Wrong[1].Since
	r.problems(append(found, api.Problem{Key: "/calico/y", Reason: "not JSON"}, api.Problem{Key: "/calico/z", Field: "spec.bpfEnabled", Reason: "has no effect", NoEffect: true}))
	r.decided(webBatch, time.Now())
	r.Merged()
	r.outcomes([]intent.Outcome{{Key: webKey, Reason: "interface cali1 is down", Chains: "too many ports"}, {Key: intent.PolicyID{Kind: "Profile", Name: "p"}, Err: errors.New("boom")}})
	r.Repaired("nft", intent.ByEvent, 2)
	got := r.report()
	if len(got.Wrong) != 3 || got.Wrong[0].Where != "environment TWILL_X" || got.Wrong[1].Where != "/calico/x spec.order" || !got.Wrong[1].Since.Equal(since) {
		t.Errorf("wrong is %+v", got.Wrong)
	}
	if len(got.NoEffect) != 1 || got.NoEffect[0].Where != "/calico/z spec.bpfEnabled" {
		t.Errorf("without effect is %+v", got.NoEffect)
	}
	if len(got.Endpoints) != 1 || got.Endpoints[0].Name != "prod/web" || got.Endpoints[0].Status != "down" || got.Endpoints[0].Reason != "interface cali1 is down" || got.Endpoints[0].Chains != "too many ports" || got.Counts.ByChains != 1 {
		t.Errorf("endpoints are %+v, %d groups by chains", got.Endpoints, got.Counts.ByChains)
	}
	if !slices.Equal(got.Failed, []string{"Profile/p: boom"}) || got.Repairs["nft by event"] != 2 || got.Counts.Endpoints["down"] != 1 {
		t.Errorf("the report is %+v", got)
	}
}

func TestAFailureIsLoggedWhenItBeginsAndWhenItChanges(t *testing.T) {
	var log bytes.Buffer
	r := newReporter(Config{Node: "h1", Log: slog.New(slog.NewTextHandler(&log, nil))}, memstore.New(), metrics.New(prometheus.NewRegistry()))
	for _, tt := range []struct {
		name  string
		o     intent.Outcome
		lines int
	}{
		{"it fails", intent.Outcome{Key: routeKey, Err: errors.New("boom")}, 1},
		{"it is tried again", intent.Outcome{Key: routeKey, Err: errors.New("boom")}, 1},
		{"it fails in another way", intent.Outcome{Key: routeKey, Err: errors.New("bang")}, 2},
		{"it waits", intent.Outcome{Key: routeKey, Reason: "interface cali1 is down"}, 3},
		{"it is in force, which is debug", intent.Outcome{Key: routeKey}, 3},
		{"it fails anew", intent.Outcome{Key: routeKey, Err: errors.New("bang")}, 4},
		{"it is in force by chains", intent.Outcome{Key: webKey, Chains: "too many ports"}, 5},
		{"by chains for another reason", intent.Outcome{Key: webKey, Chains: "too many classes"}, 6},
	} {
		r.outcomes([]intent.Outcome{tt.o})
		if n := strings.Count(log.String(), "\n"); n != tt.lines {
			t.Errorf("%s: %d lines, want %d", tt.name, n, tt.lines)
		}
	}
}
