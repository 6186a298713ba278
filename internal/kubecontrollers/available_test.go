package kubecontrollers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/status"
)

// availableBench runs the controller in virtual time, with agents that report every 30 s.
type availableBench struct {
	*testing.T
	store  storetest.InMemory
	agents map[string]string // ready, or why not; one that is missing does not report
	log    bytes.Buffer

	mu      sync.Mutex
	network map[string]string // by node: what it says
	writes  int
	away    error // of the datastore
}

func runAvailable(t *testing.T, nodes []string, test func(*availableBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &availableBench{T: t, store: storetest.New(t), agents: map[string]string{}, network: map[string]string{}}
		for _, n := range nodes {
			b.put(api.ResourcesPrefix+"nodes/"+n, `{"metadata":{"uid":"uid of `+n+`"}}`)
			b.agents[n] = "ready"
		}
		b.store.Fail(func(memstore.Op) error { b.mu.Lock(); defer b.mu.Unlock(); return b.away })
		b.report()
		settings, _ := Environment{}.Resolve(nil, true)
		a := newAvailable(availableConfig{
			Store: b.store, Cluster: b.store, Settings: func() Settings { return settings }, Network: b.say, Turn: func(string, error) {}, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = a.run(ctx) }()
		defer func() { cancel(); <-done }()
		test(b)
	})
}

func (b *availableBench) say(_ context.Context, node string, available bool, reason, _ string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.network[node] = fmt.Sprintf("%v %s", available, reason)
	b.writes++
	return true, nil
}

func (b *availableBench) put(key, value string) {
	b.Helper()
	if err := datastore.Put(b.Context(), b.store, api.Update{Key: key, Value: []byte(value)}); err != nil && !errors.Is(err, errAway) {
		b.Fatal(err)
	}
}

const reportsOf = api.Root + "felix/v2/no-region/host/"

// report has agents report.
func (b *availableBench) report() {
	b.Helper()
	for _, n := range slices.Sorted(maps.Keys(b.agents)) {
		now := time.Now().UTC()
		p := status.Process{Time: now.Format(time.RFC3339), Uptime: 1, Ready: b.agents[n] == "ready", Expires: now.Add(90 * time.Second).Format(time.RFC3339)}
		value, err := json.Marshal(p)
		if err != nil {
			b.Fatal(err)
		}
		for _, key := range []string{"/status", "/last_reported_status"} {
			b.put(reportsOf+n+key, string(value))
		}
		b.put(reportsOf+n+"/summary", `{"policies":{}}`)
	}
}

// after lets agents report for so long.
func (b *availableBench) after(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(30*time.Second + time.Millisecond) // virtual
		synctest.Wait()
		b.report()
	}
}

func (b *availableBench) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = err
}

// want compares what nodes say: "n1 true PolicyInForce, …".
func (b *availableBench) want(what, want string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []string
	for _, n := range slices.Sorted(maps.Keys(b.network)) {
		got = append(got, n+" "+b.network[n])
	}
	if all := strings.Join(got, ", "); all != want {
		b.Errorf("%s: nodes say %q, want %q; the log is\n%s", what, all, want, b.log.String())
	}
}

const allAvailable = "n1 true PolicyInForce, n2 true PolicyInForce, n3 true PolicyInForce"

func TestANodeWithAnAgentThatReportsNoMoreHasNoNetwork(t *testing.T) {
	runAvailable(t, []string{"n1", "n2", "n3"}, func(b *availableBench) {
		b.agents["n2"] = "its dataplane fails"
		b.after(2 * time.Minute)
		b.want("one is not ready", "n1 true PolicyInForce, n3 true PolicyInForce")
		b.agents["n2"] = "ready"
		b.after(time.Minute)
		b.want("all are ready", allAvailable)
		writes := b.writes
		b.after(time.Hour)
		if b.writes != writes {
			b.Errorf("it was written %d times more in an hour", b.writes-writes)
		}

		delete(b.agents, "n2")
		b.after(2 * time.Minute)
		b.want("its report holds, and the grace period", allAvailable)
		b.after(90 * time.Second)
		b.want("it is over", "n1 true PolicyInForce, n2 false AgentNotReporting, n3 true PolicyInForce")
		b.agents["n2"] = "not all is in force yet"
		b.after(10 * time.Minute)
		b.want("the agent is back, and not ready", "n1 true PolicyInForce, n2 false AgentNotReporting, n3 true PolicyInForce")
		b.agents["n2"] = "ready"
		b.after(time.Minute)
		b.want("and in force", allAvailable)
	})
}

// TestAReportFromBeforeAnAgentDiedIsNotItsWord: another process begins to act, and nothing says that the agent lives.
func TestAReportFromBeforeAnAgentDiedIsNotItsWord(t *testing.T) {
	runAvailable(t, []string{"n1", "n2", "n3"}, func(b *availableBench) {
		delete(b.agents, "n2")
		b.after(2 * time.Minute)
		b.want("what is there may be old", "n1 true PolicyInForce, n3 true PolicyInForce")
		b.after(2 * time.Minute)
		b.want("and then is", "n1 true PolicyInForce, n2 false AgentNotReporting, n3 true PolicyInForce")
	})
}

func TestWhileMostAgentsDoNotReportNothingIsSetUnavailable(t *testing.T) {
	runAvailable(t, []string{"n1", "n2", "n3"}, func(b *availableBench) {
		b.after(2 * time.Minute)
		clear(b.agents)
		b.after(time.Hour)
		b.want("all agents are silent", allAvailable)
		if n := strings.Count(b.log.String(), "more than half"); n != 1 {
			b.Errorf("logged %d times", n)
		}
		b.agents["n1"], b.agents["n3"] = "ready", "ready"
		b.after(2 * time.Minute)
		b.want("one has time to follow", allAvailable)
		b.after(2 * time.Minute)
		b.want("it is silent still", "n1 true PolicyInForce, n2 false AgentNotReporting, n3 true PolicyInForce")
	})
}

// TestATimeInWhichNobodyCouldReportDoesNotCount: the datastore is away, and after it one agent takes a minute to report.
func TestATimeInWhichNobodyCouldReportDoesNotCount(t *testing.T) {
	runAvailable(t, []string{"n1", "n2", "n3"}, func(b *availableBench) {
		b.after(2 * time.Minute)
		b.fails(errAway)
		b.after(time.Hour)
		b.want("it is away", allAvailable)
		b.fails(nil)
		delete(b.agents, "n2")
		b.after(time.Minute)
		b.agents["n2"] = "ready"
		b.after(10 * time.Minute)
		b.want("it is back", allAvailable)
		if strings.Contains(b.log.String(), networkIsNot) {
			b.Error(b.log.String())
		}
	})
}

// TestWhoDoesNotReportByItsSettingsHasANetwork: then an agent takes its summary away. Nor does a node without an agent lose it.
func TestWhoDoesNotReportByItsSettingsHasANetwork(t *testing.T) {
	runAvailable(t, []string{"n1", "n2", "n3", "n4"}, func(b *availableBench) {
		b.after(2 * time.Minute)
		delete(b.agents, "n2")
		delete(b.agents, "n4")
		if err := b.store.Delete(b.Context(), reportsOf+"n2/summary", api.Revision{}); err != nil {
			b.Fatal(err)
		}
		if err := b.store.Delete(b.Context(), api.ResourcesPrefix+"nodes/n4", api.Revision{}); err != nil { // it has left Kubernetes
			b.Fatal(err)
		}
		b.after(time.Hour)
		b.want("one does not report", allAvailable+", n4 true PolicyInForce")
		b.put(api.ResourcesPrefix+"nodes/n3", `{"metadata":{"uid":"another"}}`) // of the same name
		writes := b.writes
		b.after(2 * time.Minute)
		if b.writes != writes+1 {
			b.Errorf("of a new node it was written %d times", b.writes-writes)
		}
	})
}
