package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/seedtest"
)

// tallied is a tally, and what agents have in force.
type tallied struct {
	*testing.T
	*Tally
	now  time.Time
	says map[string]*Versions // by node
}

func newTallied(t *testing.T, nodes ...string) *tallied {
	t.Helper()
	b := &tallied{T: t, Tally: NewTally(), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), says: map[string]*Versions{}}
	for _, n := range nodes {
		b.Node(n, true)
		b.says[n] = &Versions{}
		b.report(n)
		b.summary(n, nil)
	}
	return b
}

func (b *tallied) wrote(node, what, value string) {
	u := api.Update{Key: Prefix("") + node + "/" + what}
	if value != "" {
		u.Value = []byte(value)
	}
	b.Report(u, b.now)
}

// report has an agent report, for 90 s.
func (b *tallied) report(node string) {
	b.wrote(node, "status", fmt.Sprintf(`{"time":%q,"expires":%q}`, b.now.Format(time.RFC3339), b.now.Add(90*time.Second).Format(time.RFC3339)))
}

// summary has an agent say what is in force, and what failed.
func (b *tallied) summary(node string, failed map[string]string) {
	b.Helper()
	text, err := json.Marshal(Summary{Policies: b.says[node].Without(failed), Failed: first(failed, mostFailed)})
	if err != nil {
		b.Fatal(err)
	}
	b.wrote(node, "summary", string(text))
}

func (b *tallied) want(u api.Update, want string) {
	b.Helper()
	if got := b.Count(b.now).Say(u.Key); got != want {
		b.Errorf("%s, want %s", got, want)
	}
}

func TestAPolicyCountsWhereItsAgentSaysSo(t *testing.T) {
	b := newTallied(t, "n1", "n2")
	a1, a2 := version("a", 1), version("a", 2)
	b.Policy(VersionOf(a1))
	b.want(a1, "realised on 0 of 2 nodes; not on n1; not on n2")
	b.says["n1"].Set(VersionOf(a1))
	b.summary("n1", nil)
	b.want(a1, "realised on 1 of 2 nodes; not on n2")
	b.says["n2"].Set(VersionOf(a2)) // it is quicker than who watches
	b.summary("n2", nil)
	b.want(a1, "realised on 1 of 2 nodes; not on n2")
	b.Policy(VersionOf(a2))
	b.want(a2, "realised on 1 of 2 nodes; not on n1")
	b.says["n1"].Set(VersionOf(a2))
	b.summary("n1", nil)
	b.want(a2, "realised on 2 of 2 nodes")

	b.summary("n1", map[string]string{a2.Key: "over its budget"})
	b.want(a2, "realised on 1 of 2 nodes; not on n1: over its budget")
	b.Node("n1", false)
	b.want(a2, "realised on 1 of 1 nodes")
	b.Node("n1", true)
	b.summary("n1", nil)
	b.want(a2, "realised on 2 of 2 nodes")

	b.Policy(VersionOf(api.Update{Key: a2.Key}))
	b.want(a2, "realised on 0 of 2 nodes")
	b.Policy(VersionOf(version("b", 1))) // in the place of the other
	b.want(version("b", 1), "realised on 0 of 2 nodes; not on n1; not on n2")
}

func TestAnAgentThatDoesNotReportCountsAsNot(t *testing.T) {
	b := newTallied(t, "n1", "n2")
	a := version("a", 1)
	b.Policy(VersionOf(a))
	for n, v := range b.says {
		v.Set(VersionOf(a))
		b.summary(n, nil)
	}
	const silent = "realised on 1 of 2 nodes; not on n2: its agent has not reported since 2026-01-02T03:04:05Z"
	b.now = b.now.Add(80 * time.Second)
	b.report("n1")
	b.want(a, "realised on 2 of 2 nodes")
	b.now = b.now.Add(20 * time.Second)
	b.want(a, silent)
	b.summary("n2", nil) // which is late, and no report
	b.want(a, silent)
	b.report("n2")
	b.want(a, "realised on 2 of 2 nodes")

	// Where keys expire, one that is gone says so, and one that is there holds.
	b.wrote("n2", "status", `{"time":"2026-01-02T03:04:05Z"}`)
	b.now = b.now.Add(time.Second)
	b.want(a, "realised on 2 of 2 nodes")
	b.wrote("n2", "status", "")
	b.want(a, silent)
	b.wrote("n2", "summary", "")
	b.want(a, "realised on 1 of 1 nodes")

	// One that had expired long before it is seen first is not taken for one that reports.
	b.now = b.now.Add(-time.Hour)
	b.report("n3")
	b.now = b.now.Add(time.Hour)
	other := newTallied(t)
	other.Policy(VersionOf(a))
	other.Node("n3", true)
	other.wrote("n3", "status", `{"time":"2026-01-02T03:04:05Z","expires":"2026-01-02T03:05:35Z"}`)
	other.now = other.now.Add(time.Hour)
	other.wrote("n3", "summary", `{"policies":{}}`)
	other.want(a, "realised on 0 of 1 nodes; not on n3: its agent has not reported since 2026-01-02T03:04:05Z")
}

func TestALatePolicyHidesNoOther(t *testing.T) {
	b := newTallied(t, "n1")
	for i := range 5000 {
		u := version(fmt.Sprint(i), 1)
		b.Policy(VersionOf(u))
		b.says["n1"].Set(VersionOf(u))
	}
	b.summary("n1", nil)
	b.Count(b.now)
	for i := range 1000 {
		b.Policy(VersionOf(version(fmt.Sprint(i), 2)))
	}
	b.summary("n1", nil)
	counts := b.Count(b.now)
	for i := range 5000 {
		if on := counts.On(version(fmt.Sprint(i), 1).Key); (on == 1) != (i >= 1000) {
			t.Fatalf("policy %d is in force on %d", i, on)
		}
	}
	// More have failed than are named: none of which it is not reported counts.
	failed := map[string]string{}
	for i := 1000; i < 1100; i++ {
		failed[version(fmt.Sprint(i), 1).Key] = "over its budget"
	}
	b.summary("n1", failed)
	counts = b.Count(b.now)
	for key := range failed {
		if counts.On(key) != 0 {
			t.Fatalf("%s has failed, and counts", key)
		}
	}
}

// TestNothingCountsThatNoAgentReports: against what agents have in force and have said so, with policies and summaries that come in any order.
func TestNothingCountsThatNoAgentReports(t *testing.T) {
	r := seedtest.Rand(t)
	b := newTallied(t, "n1", "n2", "n3")
	now, reported := map[string]Version{}, map[string]map[string]bool{} // of policies; of nodes by key: the present version
	for step := range 4000 {
		node := fmt.Sprintf("n%d", 1+r.IntN(3))
		switch key := "policies/" + fmt.Sprint(r.IntN(600)); r.IntN(4) {
		case 0:
			v := VersionOf(api.Update{Key: key, Value: fmt.Appendf(nil, `{"spec":{"order":%d}}`, step)})
			if r.IntN(5) == 0 {
				v = Version{Key: key, Gone: true}
			}
			b.Policy(v)
			now[key], reported[key] = v, map[string]bool{}
		case 1:
			b.summary(node, nil)
			for key, v := range now {
				if b.says[node].known[key] == v.print {
					reported[key][node] = true
				}
			}
		default:
			if v, is := now[key]; is {
				b.says[node].Set(v)
			}
		}
		if step%200 != 0 {
			continue
		}
		counts := b.Count(b.now)
		for key := range now {
			if got := counts.On(key); got > len(reported[key]) {
				t.Fatalf("step %d: %s counts on %d nodes, and %d have said so", step, key, got, len(reported[key]))
			}
		}
	}
	for n, v := range b.says {
		for _, is := range now {
			v.Set(is)
		}
		b.summary(n, nil)
	}
	counts := b.Count(b.now)
	for key, v := range now {
		if got := counts.On(key); !v.Gone && got != 3 {
			t.Fatalf("%s counts on %d nodes, and is in force on 3: %s", key, got, counts.Say(key))
		}
	}
}

func TestATallyPassesOverWhatIsNoReport(t *testing.T) {
	b := newTallied(t)
	for _, key := range []string{"status", "/felix/v1/host/n/status", strings.TrimSuffix(Prefix(""), "host/") + "n/summary", Prefix("") + "n/workload/k8s/a/endpoint/e", Prefix("") + "n/last_reported_status"} {
		b.Report(api.Update{Key: key, Value: []byte(`{"policies":{}}`)}, b.now)
	}
	b.Node("n", true)
	if n := b.Count(b.now).Nodes; n != 0 {
		t.Errorf("%d nodes", n)
	}
	b.wrote("n", "summary", "{")
	b.wrote("n", "status", "{")
	a := version("a", 1)
	b.Policy(VersionOf(a))
	b.want(a, "realised on 0 of 1 nodes; not on n: its agent has not reported since its start")
}

func BenchmarkTally(b *testing.B) {
	t, now := NewTally(), time.Now()
	var v Versions
	for i := range 5000 {
		u := VersionOf(version(fmt.Sprint(i), 1))
		t.Policy(u)
		v.Set(u)
	}
	text, err := json.Marshal(Summary{Policies: v})
	if err != nil {
		b.Fatal(err)
	}
	summary := func(i int) api.Update {
		return api.Update{Key: fmt.Sprintf("%sn%d/summary", Prefix(""), i), Value: text}
	}
	for i := range 1000 {
		t.Node(fmt.Sprintf("n%d", i), true)
		t.Report(api.Update{Key: fmt.Sprintf("%sn%d/status", Prefix(""), i), Value: []byte("{}")}, now)
		t.Report(summary(i), now)
	}
	i := 0
	for b.Loop() { // what 25 of 1,000 agents say in 250 ms
		for range 25 {
			i++
			t.Report(summary(i%1000), now)
		}
		if n := t.Count(now); n.On("policies/7") != 1000 {
			b.Fatal(n.Say("policies/7"))
		}
	}
}
