package kubecontrollers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/status"
)

// realisedBench runs the controller in virtual time.
type realisedBench struct {
	*testing.T
	store  storetest.InMemory
	agents map[string]*status.Versions // by node

	mu      sync.Mutex
	written []string
	err     error
}

func runRealised(t *testing.T, nodes int, test func(*realisedBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &realisedBench{T: t, store: storetest.New(t), agents: map[string]*status.Versions{}}
		storetest.Steady(b.store) // for when something is written is what they are about
		for i := range nodes {
			n := fmt.Sprintf("n%d", i+1)
			b.put(api.ResourcesPrefix+"nodes/"+n, `{}`)
			b.agents[n] = &status.Versions{}
			b.report(n)
			b.say(n)
		}
		r := newRealised(realisedConfig{Store: b.store, Objects: b, Users: b, Turn: func(string, error) {}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.run(ctx) }()
		defer func() { cancel(); <-done }()
		test(b)
	})
}

func (b *realisedBench) put(key, value string) {
	b.Helper()
	if err := datastore.Put(b.Context(), b.store, api.Update{Key: key, Value: []byte(value)}); err != nil {
		b.Fatal(err)
	}
}

// StatusOf implements statuses: NetworkPolicies of Kubernetes have none.
func (b *realisedBench) StatusOf(_ context.Context, key string) (form.Origin, bool, error) {
	return form.Origin{Path: strings.TrimPrefix(key, api.ResourcesPrefix)}, !strings.Contains(key, "knp."), nil
}

// PolicyRealised implements realisedUsers, as an API server does it.
func (b *realisedBench) PolicyRealised(ctx context.Context, of form.Origin, uid string, generation int64, is bool, reason, message string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.written = append(b.written, fmt.Sprintf("%s %d %v %s: %s", of.Path, generation, is, reason, message))
	u, err := b.store.Get(ctx, api.ResourcesPrefix+of.Path)
	if err != nil {
		return err
	}
	var o map[string]any
	if err := json.Unmarshal(u.Value, &o); err != nil {
		return err
	}
	o["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Realised", "status": map[bool]string{true: "True", false: "False"}[is], "observedGeneration": generation, "message": message,
	}}}
	u.Value, _ = json.Marshal(o)
	_, err = b.store.Update(ctx, u)
	return err
}

// policy stores a generation of one.
func (b *realisedBench) policy(key string, generation int) {
	b.Helper()
	b.put(api.ResourcesPrefix+key, fmt.Sprintf(`{"metadata":{"uid":"u","generation":%d},"spec":{"order":%d}}`, generation, generation))
}

// report has agents report, for 90 s.
func (b *realisedBench) report(nodes ...string) {
	b.Helper()
	for _, n := range nodes {
		now := time.Now().UTC()
		b.put(reportsOf+n+"/status", fmt.Sprintf(`{"time":%q,"expires":%q}`, now.Format(time.RFC3339), now.Add(90*time.Second).Format(time.RFC3339)))
	}
}

// say has agents say that all policies are in force as they are.
func (b *realisedBench) say(nodes ...string) {
	b.Helper()
	all, err := b.store.List(b.Context(), api.ResourcesPrefix)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range nodes {
		for _, u := range all.Items {
			if strings.Contains(u.Key, "networkpolicies/") {
				b.agents[n].Set(status.VersionOf(u))
			}
		}
		text, err := json.Marshal(status.Summary{Policies: *b.agents[n]})
		if err != nil {
			b.Fatal(err)
		}
		b.put(reportsOf+n+"/summary", string(text))
	}
}

// after returns what was written within a time since the last call.
func (b *realisedBench) after(d time.Duration) []string {
	<-time.After(d) // virtual
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.written
	b.written = nil
	return out
}

func (b *realisedBench) want(within time.Duration, want ...string) {
	b.Helper()
	if got := strings.Join(b.after(within), "\n"); got != strings.Join(want, "\n") {
		b.Errorf("written:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func (b *realisedBench) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

const everywhere = " true AllNodes: realised on 3 of 3 nodes"

func TestAPolicySaysOnHowManyNodesItIsInForce(t *testing.T) {
	const p = "networkpolicies/prod/web"
	runRealised(t, 3, func(b *realisedBench) {
		b.policy(p, 1)
		b.want(time.Second, p+" 1 false NotAllNodes: realised on 0 of 3 nodes; not on n1; not on n2; not on n3")
		b.say("n1", "n2", "n3")
		b.want(time.Second, p+" 1"+everywhere)
		b.want(5 * time.Second) // that it was written is no news

		b.policy(p, 2) // of which nobody has said anything yet
		b.want(time.Second, p+" 2 false NotAllNodes: realised on 0 of 3 nodes; not on n1; not on n2; not on n3")
		b.say("n1", "n2") // the third is frozen
		b.want(15*time.Second, p+" 2 false NotAllNodes: realised on 2 of 3 nodes; not on n3")
		b.say("n3")
		b.want(time.Second, p+" 2"+everywhere)

		last := time.Now().UTC().Format(time.RFC3339)
		b.report("n1", "n2", "n3") // and then the third is silent
		b.want(60 * time.Second)
		b.report("n1", "n2")
		silent := p + " 2 false NotAllNodes: realised on 2 of 3 nodes; not on n3: its agent has not reported since " + last
		b.want(60*time.Second, silent)
		b.report("n1", "n2", "n3")
		b.want(6*time.Second, p+" 2"+everywhere)
		b.want(2 * time.Minute) // all are silent: that is the API server's fault, or an upgrade's
		b.report("n1", "n2")    // it is back, and one agent is the last to notice
		b.want(10 * time.Second)
		b.report("n3")
		b.want(50 * time.Second)
		b.report("n1", "n2", "n3")
		b.want(time.Minute)
		last = time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)
		b.report("n1", "n2")
		b.want(time.Minute, p+" 2 false NotAllNodes: realised on 2 of 3 nodes; not on n3: its agent has not reported since "+last)
		if err := b.store.Delete(b.Context(), api.ResourcesPrefix+"nodes/n3", api.Revision{}); err != nil {
			b.Fatal(err)
		}
		b.want(time.Second, p+" 2 true AllNodes: realised on 2 of 2 nodes")

		b.policy("networkpolicies/prod/knp.default.x", 1) // has no status
		b.want(30 * time.Second)
		if err := b.store.Delete(b.Context(), api.ResourcesPrefix+p, api.Revision{}); err != nil {
			b.Fatal(err)
		}
		b.want(30 * time.Second)
	})
}

func TestWithoutAgentsNothingIsRealised(t *testing.T) {
	runRealised(t, 0, func(b *realisedBench) {
		b.policy("globalnetworkpolicies/a", 1)
		b.want(time.Minute, "globalnetworkpolicies/a 1 false NotAllNodes: no agent has said which policies are in force")
	})
}

// TestAConditionThatCannotBeWrittenIsWrittenLater, and one whose policy is another by now when that is seen.
func TestAConditionThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	const p = "globalnetworkpolicies/a"
	runRealised(t, 3, func(b *realisedBench) {
		b.fails(errors.New("away"))
		b.policy(p, 1)
		b.say("n1", "n2", "n3")
		b.want(time.Minute)
		b.fails(nil)
		b.want(10*time.Second, p+" 1"+everywhere)
		b.fails(fmt.Errorf("it is another: %w", datastore.ErrConflict))
		b.policy(p, 2)
		b.say("n1", "n2", "n3")
		b.want(10 * time.Second)
		b.fails(nil)
		b.want(10*time.Second, p+" 2"+everywhere)
	})
}

// TestASilentClusterIsHeldForAWhile, and then counts as silent.
func TestASilentClusterIsHeldForAWhile(t *testing.T) {
	const p = "globalnetworkpolicies/a"
	runRealised(t, 1, func(b *realisedBench) {
		b.policy(p, 1)
		b.want(time.Second, p+" 1 false NotAllNodes: realised on 0 of 1 nodes; not on n1")
		b.say("n1")
		b.want(time.Second, p+" 1 true AllNodes: realised on 1 of 1 nodes")
		b.want(3 * time.Minute)
		b.want(time.Minute, p+" 1 false NotAllNodes: realised on 0 of 1 nodes; not on n1: its agent has not reported since 2000-01-01T00:00:00Z")
		b.report("n1")
		b.want(time.Second, p+" 1 true AllNodes: realised on 1 of 1 nodes")
	})
}

// TestConditionsOfALargeClusterAreFewWrites: one that changes on many nodes is written when it changes, while they follow each ten seconds, and at the end;
// of many that change at once 20 are written at once, and then 2,000 in a second for each node.
func TestConditionsOfALargeClusterAreFewWrites(t *testing.T) {
	const nodes, policies = 400, 100
	runRealised(t, nodes, func(b *realisedBench) {
		all := make([]string, nodes)
		for i := range all {
			all[i] = fmt.Sprintf("n%d", i+1)
		}
		for i := range policies {
			b.policy(fmt.Sprintf("globalnetworkpolicies/p%d", i), 1)
		}
		b.say(all...)
		first := len(b.after(0))
		if first > mostConditions {
			b.Errorf("%d were written at once", first)
		}
		if n := len(b.after(10 * time.Second)); n < 40 || n > 70 {
			b.Errorf("%d were written in ten seconds", n)
		}
		b.report(all...)
		b.after(time.Minute)
		b.report(all...)
		b.want(time.Minute)
		b.report(all...)

		b.policy("globalnetworkpolicies/p7", 2)
		var written []string
		for i := range nodes { // each after a hundredth of a second for each node, so all in four seconds
			b.say(all[i])
			written = append(written, b.after(10*time.Millisecond)...)
		}
		written = append(written, b.after(time.Second)...)
		if n := len(written); n < 2 || n > 3 || !strings.HasPrefix(written[n-1], "globalnetworkpolicies/p7 2 true AllNodes: realised on 400 of 400 nodes") {
			b.Errorf("written: %q", written)
		}
	})
}
