package simulate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/calc"
)

// stopper stops once an agent begins.
type stopper struct{ stop func() }

func (stopper) Step()        {}
func (s stopper) Now(string) { s.stop() }

// held is what a store holds: at the start, or after changes.
type held map[string][]byte

func (h held) put(us ...api.Update) {
	for _, u := range us {
		if u.Value == nil {
			delete(h, u.Key)
		} else {
			h[u.Key] = u.Value
		}
	}
}

func beginning(w *world) held {
	h := held{}
	w.resources(func(u api.Update) { h.put(u) })
	w.blocks(func(u api.Update) { h.put(u) })
	return h
}

// TestTheWorldIsWhole: at the start and after all changes each endpoint has an address of its own, which its node's block says is its.
func TestTheWorldIsWhole(t *testing.T) {
	c := small(t)
	c.Duration = 10 * time.Second
	w := newWorld(c)
	h := beginning(w)
	check := func() {
		t.Helper()
		has := map[string]string{} // pods by address, as blocks say
		endpoints := 0
		for key, value := range h {
			if _, ok := api.ParseBlockKey(key); !ok {
				continue
			}
			b, err := api.DecodeBlock(api.Update{Key: key, Value: value})
			if err != nil || len(b.Faults()) > 0 {
				t.Fatalf("%s: %v %v", key, err, b.Faults())
			}
			for i, at := range b.Allocations {
				if at != nil {
					a := b.CIDR.Addr().As4()
					a[3] += byte(i)
					has[addrText(a)] = *b.Affinity + " " + b.Attributes[*at].Owner[api.AttributeNamespace] + "/" + b.Attributes[*at].Owner[api.AttributePod]
				}
			}
		}
		for key, value := range h {
			s, err := api.Admit(api.Update{Key: key, Value: value})
			if _, block := api.ParseBlockKey(key); block {
				continue
			}
			if err != nil || len(s.Problems) > 0 {
				t.Fatalf("%s: %v %v", key, err, s.Problems)
			}
			if ep, ok := s.Resource.(*api.WorkloadEndpoint); ok {
				endpoints++
				want := "host:" + ep.Spec.Node + " " + s.Ref.Namespace + "/" + ep.Spec.Pod
				if got := has[strings.TrimSuffix(ep.Spec.IPNetworks[0], "/32")]; got != want {
					t.Errorf("%s has %v, which is %q in its block", key, ep.Spec.IPNetworks, got)
				}
			}
		}
		if endpoints != len(has) {
			t.Errorf("%d endpoints, %d addresses that are taken", endpoints, len(has))
		}
	}
	check()
	ch := newChurn(w)
	seen := [kinds]int{}
	for range w.events() {
		e := ch.step()
		h.put(e.updates...)
		seen[e.kind]++
	}
	check()
	if seen[added] == 0 || seen[removed] == 0 || seen[moved] == 0 || seen[labelled] == 0 || seen[ruled] == 0 && c.Policies > 0 {
		t.Errorf("changes by kind: %v", seen)
	}
}

func addrText(a [4]byte) string {
	b, _ := json.Marshal(a)
	return strings.ReplaceAll(strings.Trim(string(b), "[]"), ",", ".")
}

// TestAnAgentEndsAsOneThatStartsThen: nothing of the changes was lost on the way, or came twice.
func TestAnAgentEndsAsOneThatStartsThen(t *testing.T) {
	c := small(t)
	p := quietly(newPlan(newWorld(c)))
	node := p.sample[0]
	r, err := calculate(t.Context(), p, node)
	if err != nil {
		t.Fatal(err)
	}
	h := beginning(p.world)
	ch := newChurn(p.world)
	for range p.events {
		h.put(ch.step().updates...)
	}
	g := calc.New(p.nodeName(node))
	for _, key := range slices.Sorted(maps.Keys(h)) {
		g.Update([]api.Update{{Key: key, Value: h[key]}})
	}
	g.SetInSync()
	g.Flush()
	if want := hash(g.Intents()); r.state != want {
		t.Errorf("it ends with %s, one that starts then has %s", r.state, want)
	}
}

// TestPoliciesApplyWhereItIsCounted asks the selectors themselves.
func TestPoliciesApplyWhereItIsCounted(t *testing.T) {
	c := small(t)
	c.Policies += 20
	w := newWorld(c)
	all := map[int]int{}
	for i := range c.Policies {
		all[i] = 1
	}
	got := w.appliesWhere(all)
	found := 0
	for i := range c.Policies {
		ref, _ := api.ParseKey(w.policy(i, 0).Key)
		sel, err := selector.Parse(w.subject(i))
		if err != nil {
			t.Fatal(err)
		}
		for node := range c.Nodes {
			want := false
			for e := range c.Endpoints {
				p := w.first(e)
				want = want || p.node == node && (ref.Namespace == "" || ref.Namespace == w.namespaceName(w.namespace(p))) && sel.Match(w.labels(p))
			}
			if want {
				found++
			}
			if got.has(i, node) != want {
				t.Errorf("%s on %s: %v, want %v", ref, w.nodeName(node), got.has(i, node), want)
			}
		}
	}
	if found == 0 {
		t.Error("no policy applies anywhere")
	}
}

// TestTheModelOfConvergence has cases that were worked out by hand.
func TestTheModelOfConvergence(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, tt := range []struct {
		name     string
		nodes    int
		at       []time.Duration
		cores    float64
		took     float64 // an agent, for a change
		p50, end time.Duration
	}{
		{"one change and one agent: commit, send, calculate", 1, []time.Duration{0}, 1, .005, ms(10 + 2 + 5), ms(17)},
		{"the last of ten agents waits for nine messages", 10, []time.Duration{0}, 1, .005, ms(10 + 5*2 + 5), ms(10 + 10*2 + 5)},
		{"two cores send twice as fast", 10, []time.Duration{0}, 2, .005, ms(10 + 5 + 5), ms(10 + 10 + 5)},
		{"the second change waits until the first is sent", 10, []time.Duration{0, 0}, 1, 0, ms(10 + 20), ms(10 + 40)},
		{"the second change waits for the agent", 1, []time.Duration{0, 0}, 1, .1, ms(10 + 2 + 100), ms(10 + 2 + 200)},
		{"a change that comes later waits for nobody", 1, []time.Duration{0, ms(500)}, 1, .1, ms(112), ms(112)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &plan{world: &world{Config: Config{Nodes: tt.nodes, Store: StoreCosts{Send: ms(2), Cores: tt.cores, Commit: ms(10)}}}}
			var of service
			for k := range kinds {
				of[k] = [2]float64{tt.took, tt.took}
			}
			for _, at := range tt.at {
				p.events = append(p.events, timing{kind: labelled, messages: 1, at: at, event: event{nodes: [2]int{-1, -1}}})
			}
			c := p.converge(of)
			for _, q := range []struct {
				what      string
				got, want time.Duration
			}{{"half of all", c.one.quantile(.5), tt.p50}, {"the last", c.last.quantile(1), tt.end}} {
				if q.got < q.want*99/100 || q.got > q.want*103/100 {
					t.Errorf("%s: %v, want %v", q.what, q.got, q.want)
				}
			}
		})
	}
}
