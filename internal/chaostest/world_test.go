package chaostest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/status"
)

// world is a network with traffic, and what is known of both.
type world struct {
	t *testing.T
	*network
	flows []*flow
	began time.Time

	mu      sync.Mutex
	events  []string // the log of faults
	leaks   []string
	excused time.Time // denied packets before then are those of a deleted table

	now     atomic.Pointer[string] // the present fault
	owned   bool                   // agents own their tables, which this kernel may not know
	allowed bool                   // what the policy of toggled flows says
	toggle  api.Update             // that policy as it is stored
}

// newWorld starts all traffic.
func newWorld(t *testing.T, exe string, s *kubetest.Server) *world {
	t.Helper()
	w := &world{t: t, network: newNetwork(t, exe, s), began: time.Now(), allowed: true}
	t.Cleanup(w.quiet)
	w.fault("no fault")
	u, err := w.find(t.Context(), "globalnetworkpolicies/", "toggle")
	must(t, err)
	w.toggle = u
	if w.kube != nil {
		w.kube.prepare(t, u.Key)
	}
	port := uint16(20000)
	add := func(policy, src, dst string, protos ...string) {
		for _, v6 := range []bool{false, true} {
			for _, proto := range protos {
				a, err := w.at(src, v6)
				must(t, err)
				b, err := w.at(dst, v6)
				must(t, err)
				port++
				f := &flow{name: fmt.Sprintf("%s %s %s→%s %s", policy, proto, src, dst, b.addr), policy: policy, proto: proto, leak: w.leaked}
				if err := f.begin(a, b, port); err != nil {
					t.Fatalf("%s: %v", f.name, err)
				}
				w.flows = append(w.flows, f)
			}
		}
	}
	for i := range hosts {
		n := func(s string, i int) string { return fmt.Sprint(s, i%len(hosts)+1) }
		add(steady, n("c", i), n("s", i), "udp", "tcp")     // within a host
		add(steady, n("c", i), n("s", i+1), "udp", "tcp")   // to the next: each host sends to one and answers another
		add(toggled, n("c", i), n("t", i), "udp", "tcp")    // within
		add(toggled, n("c", i+2), n("t", i), "udp", "tcp")  // from elsewhere
		add(toggled, n("c", i+2), n("t", i), "connect")     // new ones
		add(denied, n("x", i), n("s", i), "udp", "connect") // by ingress
		add(denied, n("x", i), n("s", i+1), "udp", "connect")
		add(denied, n("j", i), n("s", i+1), "udp", "connect") // by egress
	}
	return w
}

// quiet ends all traffic.
func (w *world) quiet() {
	for _, f := range w.flows {
		f.close()
	}
	w.flows = nil
}

// find is a stored resource without a namespace.
func (w *world) find(ctx context.Context, plural, name string) (api.Update, error) {
	all, err := w.store.List(ctx, api.ResourcesPrefix+plural)
	for _, u := range all.Items {
		if strings.HasSuffix(u.Key, name) {
			return u, err
		}
	}
	return api.Update{}, errors.Join(err, fmt.Errorf("no %s%s is stored", plural, name))
}

// log takes a line into the log of faults.
func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%8.3f  ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// fault names the present fault, for what is seen during it.
func (w *world) fault(name string) { w.now.Store(&name) }

// leaked is called for each word that policy denies, and that was received.
func (w *world) leaked(f *flow, word uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.excused) {
		return
	}
	if len(w.leaks) < 20 {
		w.leaks = append(w.leaks, fmt.Sprintf("%8.3f  %s: word %d came, during %s", time.Since(w.began).Seconds(), f.name, word, *w.now.Load()))
	}
}

// excuse passes over denied packets until d from now.
func (w *world) excuse(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused = time.Now().Add(d)
}

// change writes the policy of toggled flows, for or against them. From before the write on, nothing is known of them.
func (w *world) change(ctx context.Context, allow bool) error {
	w.unknown()
	write := w.writeToggle
	if w.kube != nil {
		write = w.kube.write
	}
	err := write(ctx, allow)
	if err == nil {
		w.allowed = allow
		w.logf("  policy of toggled flows: allow %v", allow)
	}
	return err
}

// writeToggle is change where one policy decides.
func (w *world) writeToggle(ctx context.Context, allow bool) error {
	var v map[string]any
	if err := json.Unmarshal(w.toggle.Value, &v); err != nil {
		return err
	}
	spec, _ := v["spec"].(map[string]any)
	spec["ingress"] = []any{}
	if allow {
		spec["ingress"] = []any{map[string]any{"action": "Allow", "source": map[string]any{"selector": `app == "client"`}}}
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = datastore.Put(ctx, w.store, api.Update{Key: w.toggle.Key, Value: text})
	}
	return err
}

// unknown says that toggled flows may be allowed from now on.
func (w *world) unknown() {
	for _, f := range w.flows {
		if f.policy == toggled {
			f.shut.Store(open)
		}
	}
}

// hold lets a fault last, and changes policy meanwhile, if it has a store to write to.
func (w *world) hold(ctx context.Context, rng *rand.Rand, most time.Duration) error {
	wait(ctx, span(rng, 0, most/2))
	var err error
	if rng.IntN(2) == 0 {
		err = w.change(ctx, !w.allowed)
	}
	wait(ctx, span(rng, 0, most/2))
	return err
}

// span is a random time.
func span(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// mark is how many words each flow had sent at a moment.
func (w *world) mark() map[*flow]uint64 {
	m := make(map[*flow]uint64, len(w.flows))
	for _, f := range w.flows {
		m[f] = f.sent.Load()
	}
	return m
}

// right says what is not as the datastore asks for: words sent since a mark come where they may and not where they may
// not, kernels are what a fresh agent would make them, agents say that they are ready, and status is written.
func (w *world) right(ctx context.Context, since map[*flow]uint64) error {
	for _, f := range w.flows {
		if why := f.broken.Load(); why != nil {
			return fmt.Errorf("%s: %w: %s", f.name, errBroken, *why)
		}
		if (f.policy == steady || f.policy == toggled && w.allowed) && f.next.Load() <= since[f] {
			return &silent{f}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range hosts {
		group.Go(func() error { return w.hostRight(ctx, h) })
	}
	group.Go(func() error { return w.statusRight(ctx) })
	if err := group.Wait(); err != nil || w.allowed {
		return err
	}
	return w.shut(ctx)
}

// shut wants toggled flows to be silent, and notes from which word on they must be.
func (w *world) shut(ctx context.Context) error {
	since := w.mark()
	for _, f := range w.flows {
		if f.policy != toggled {
			continue
		}
		for f.proto == "udp" && f.sent.Load() < since[f]+3 && ctx.Err() == nil {
			wait(ctx, wordEvery/2)
		}
	}
	for _, f := range w.flows {
		if f.policy == toggled && f.next.Load() > since[f] {
			return fmt.Errorf("%s: words come, and policy denies them", f.name)
		}
	}
	for _, f := range w.flows {
		if f.policy == toggled {
			f.shut.Store(since[f])
		}
	}
	return nil
}

// hostRight says what is wrong on one host. The kernel is judged by the code of this test's own binary.
func (w *world) hostRight(ctx context.Context, host string) error {
	for _, what := range []string{"agent", "bgp", "bfd"} {
		if w.pid(host, what) == 0 {
			return fmt.Errorf("no %s runs on %s", what, host)
		}
	}
	var report struct {
		Ready     bool
		NotReady  []string
		Datastore struct{ State string }
		Wrong     []struct{ What string }
		Failed    []string
	}
	if err := askInto(ctx, w.AgentSocket(host), "/status", &report); err != nil {
		return fmt.Errorf("agent of %s: %w", host, err)
	}
	if report.Datastore.State != "in-sync" {
		return fmt.Errorf("agent of %s: the datastore is %s", host, report.Datastore.State)
	}
	if !report.Ready || len(report.Failed) > 0 {
		return fmt.Errorf("agent of %s: not ready: %v %v", host, report.NotReady, report.Failed)
	}
	err := inside(w.Spec.Prefix+host, func() error {
		is, err := agent.Verify(ctx, agent.Config{Node: host}, w.store)
		if found := is.Differences; err == nil && len(found) > 0 {
			err = fmt.Errorf("%d differences, first %s: %s", len(found), found[0].Part, found[0].What)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("verify %s: %w", host, err)
	}
	return nil
}

// sessionsUp says which session between hosts is not up. Routes outlive sessions, so this is no part of what is right.
func (w *world) sessionsUp(ctx context.Context) error {
	for _, host := range hosts {
		var bgp struct {
			Holding  time.Time
			Sessions []struct{ Peer, State, Why string }
		}
		if err := askInto(ctx, w.bgpSocket(host), "/report", &bgp); err != nil {
			return fmt.Errorf("bgp of %s: %w", host, err)
		}
		if len(bgp.Sessions) == 0 {
			return fmt.Errorf("bgp of %s: no sessions", host)
		}
		for _, s := range bgp.Sessions {
			if s.State != "Established" {
				return fmt.Errorf("bgp of %s: session with %s: %s %s", host, s.Peer, s.State, s.Why)
			}
		}
	}
	return nil
}

// statusRight wants each host's status in the datastore: ready, and all endpoints up.
func (w *world) statusRight(ctx context.Context) error {
	all, err := status.Nodes(ctx, w.store)
	if err != nil {
		return err
	}
	if len(all) != len(hosts) {
		return fmt.Errorf("%d hosts have a status", len(all))
	}
	for _, s := range all {
		if up := s.Endpoints[status.Up]; up != len(workloadsOf(s.Node)) || len(s.Endpoints) != 1 {
			return fmt.Errorf("status of %s: endpoints %v", s.Node, s.Endpoints)
		}
		if !s.Alive || !s.Last.Ready {
			return fmt.Errorf("status of %s: alive %v, ready %v: %v", s.Node, s.Alive, s.Last.Ready, s.Last.Errors)
		}
	}
	return nil
}

// errBroken: an established connection has ended.
var errBroken = errors.New("broken")

// silent: a flow that policy allows does not arrive.
type silent struct{ flow *flow }

func (e *silent) Error() string { return e.flow.name + ": nothing comes of what is sent now" }

// settled awaits that all is right, and says how long that took. What it waited for goes into the log of faults.
func (w *world) settled(ctx context.Context, patience time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	since := w.mark()
	waited, logged := map[string]bool{}, began
	err := until(ctx, patience, func() error {
		err := w.right(ctx, since)
		if err != nil && !waited[err.Error()] && time.Since(began) > 200*time.Millisecond {
			waited[err.Error()], logged = true, time.Now()
			w.logf("    %s", err)
		}
		var mute *silent
		if errors.As(err, &mute) && time.Since(logged) > 2*time.Second {
			logged = time.Now()
			w.logf("      %s", w.known(mute.flow))
		}
		if errors.Is(err, errBroken) {
			cancel() // that is for good
		}
		return err
	})
	return time.Since(began), err
}

// missing is how many words of steady datagrams were lost so far, and the longest silence since it was asked last.
func (w *world) missing() (words uint64, silence time.Duration) {
	for _, f := range w.flows {
		if f.policy == steady && f.proto == "udp" {
			words += f.missing.Load()
			silence = max(silence, time.Duration(f.silence.Swap(0)))
		}
	}
	return words, silence
}
