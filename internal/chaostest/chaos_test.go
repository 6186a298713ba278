package chaostest_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kubetest"
)

var (
	length   = flag.Duration("chaos", 0, "how long TestChaos breaks things; zero: not at all")
	seed     = flag.Uint64("seed", 0, "of the schedule; zero: a new one")
	kinds    = flag.String("kinds", "", "kinds of faults, separated by commas, each once and in this order, instead of all in random order")
	bound    = flag.Duration("bound", 5*time.Second, "how long after a fault all must be right again")
	patience = flag.Duration("patience", time.Minute, "how long to wait for what is late, to say how late it is")
	twill    = flag.String("twill", "", "the binary to break; empty: one of this tree")
	bundle   = flag.String("bundle", "", "directory for what is known of a failed run; empty: a new one in the system's temporary directory")
)

// chaos breaks a network whose resources are in an API server, or in an etcd of its own if that is nil.
func chaos(t *testing.T, s *kubetest.Server, target string) {
	t.Helper()
	faults := all()
	if s != nil {
		faults = onAPIServer()
	}
	for _, program := range []string{"ip", "nft", "sysctl"} {
		machinetest.Program(t, program)
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	exe := *twill
	if exe == "" {
		exe = build(t)
	}
	t.Logf("replay with: %s CHAOS=%s SEED=%d KINDS=%s", target, *length, *seed, *kinds)
	w := newWorld(t, exe, s)
	r := &run{world: w, t: t, clock: watchClock(t)}
	defer r.report()
	if took, err := w.settled(t.Context(), 3*time.Minute); err != nil {
		t.Errorf("before the first fault, in %s: %v", took, err)
		return
	}
	owned, _, err := w.table(t.Context(), hosts[0])
	must(t, err)
	w.owned = owned
	t.Logf("agents own their tables: %v, asked for %v", owned, ownerWanted())
	if owned && !ownerWanted() {
		t.Error("a table has an owner, and should not")
	}
	r.sample()
	for step, f := range schedule(*seed, faults) {
		if *kinds == "" && time.Since(w.began) > *length {
			break
		}
		if !r.step(step, f) {
			return
		}
	}
	r.growth()
}

// schedule is the order of a seed: all faults in a random order, and again. With -kinds it is these.
func schedule(seed uint64, faults []fault) func(func(int, fault) bool) {
	known := map[string]fault{}
	var names []string
	for _, f := range faults {
		known[f.kind] = f
		names = append(names, f.kind)
	}
	return func(yield func(int, fault) bool) {
		if *kinds != "" {
			for i, kind := range strings.Split(*kinds, ",") {
				if !yield(i, known[kind]) {
					return
				}
			}
			return
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		for step := 0; ; {
			rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, kind := range slices.Clone(names) {
				if !yield(step, known[kind]) {
					return
				}
				step++
			}
		}
	}
}

// run is a test that goes on, and what was measured.
type run struct {
	*world
	t       *testing.T
	done    []outcome
	samples []sample
	marked  uint64 // words of steady flows that were missing at the last look
	failed  bool
	clock   *clock
}

// outcome is what became of one fault.
type outcome struct {
	kind     string
	took     time.Duration // until all was right again
	missing  uint64
	silence  time.Duration
	sessions time.Duration // until all sessions of BGP were up, too
}

// notBitten is the prefix of errors of a fault that failed itself, and not the network.
const notBitten = "it could not be made, or did not bite"

// step does one fault, and judges; false ends the run.
func (r *run) step(n int, f fault) bool {
	r.t.Helper()
	if f.do == nil {
		r.t.Errorf("no such kind of fault; there are those of docs/chaos.md")
		return false
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
	defer cancel()
	rng := rand.New(rand.NewPCG(*seed, uint64(n)+1))
	r.fault(f.kind)
	r.clock.reset()
	r.logf("%d %s", n, f.kind)
	quiet := r.churn(ctx, rng.Uint64())
	err := f.do(ctx, r.world, rng)
	quiet()
	if err != nil {
		r.fails("fault %d, %s: %s: %v", n, f.kind, notBitten, err)
		return false
	}
	took, err := r.settled(ctx, *patience)
	o := outcome{kind: f.kind, took: took}
	if err == nil {
		began := time.Now()
		err = until(ctx, *patience, func() error { return r.sessionsUp(ctx) })
		o.sessions = took + time.Since(began)
	}
	missing, silence := r.missing()
	o.missing, o.silence = missing-r.marked, silence
	r.marked = missing
	r.done = append(r.done, o)
	r.logf("  right after %s, sessions up after %s; %d words lost, longest silence %s", round(took), round(o.sessions), o.missing, round(o.silence))
	stood := r.clock.stood()
	if stood > 0 {
		r.logf("  the machine stood still for %s", round(stood))
	}
	switch {
	case err != nil:
		r.fails("fault %d, %s: not right: %v", n, f.kind, err)
	case took > f.bound()+stood:
		r.fails("fault %d, %s: right after %s, want %s", n, f.kind, round(took), f.bound())
	}
	if o.missing > 0 && !f.loses && stood < time.Second {
		r.fails("fault %d, %s: %d words of allowed flows were lost", n, f.kind, o.missing)
	}
	r.mu.Lock()
	leaks := slices.Clone(r.leaks)
	r.mu.Unlock()
	if len(leaks) > 0 {
		r.fails("denied, and delivered:\n%s", strings.Join(leaks, "\n"))
		return false
	}
	r.sample()
	return err == nil
}

// fails notes a failure; the first leaves a bundle of how things are then.
func (r *run) fails(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf(format, args...)
	r.logf("FAILED: "+format, args...)
	if r.failed {
		return
	}
	r.failed = true
	r.bundle(r.t)
}

// bundle keeps logs and kernels, which the end of the lab takes away.
func (w *world) bundle(t *testing.T) {
	dir := *bundle
	if dir == "" {
		var err error
		dir, err = os.MkdirTemp("", "twill-chaos-")
		must(t, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	keep := func(name, text string) {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		_ = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) // best effort: the failure itself is reported elsewhere
	}
	for _, who := range append([]string{"store"}, hosts...) {
		text, err := os.ReadFile(w.log(who))
		keep(who+"/node.log", fmt.Sprint(string(text), orNothing(err)))
	}
	for _, h := range hosts {
		for name, argv := range map[string]string{
			"nft.txt": "nft list ruleset", "addresses.txt": "ip -d address", "routes.txt": "ip -d route", "routes6.txt": "ip -d -6 route",
			"links.txt": "ip -s link", "neighbours.txt": "ip neighbour",
		} {
			out, err := w.run(ctx, h, strings.Fields(argv)...)
			keep(h+"/"+name, fmt.Sprint(out, orNothing(err)))
		}
		for name, at := range map[string][2]string{
			"status.json": {w.AgentSocket(h), "/status"}, "metrics.txt": {w.AgentSocket(h), "/metrics"}, "bgp.json": {w.bgpSocket(h), "/report"},
			"goroutines.txt": {w.AgentSocket(h), "/debug/pprof/goroutine?debug=2"},
		} {
			out, err := ask(ctx, at[0], at[1])
			keep(h+"/"+name, fmt.Sprint(string(out), orNothing(err)))
		}
	}
	snap, err := w.store.List(ctx, "/calico/")
	var b strings.Builder
	for _, u := range snap.Items {
		fmt.Fprintf(&b, "%s %s\n", u.Key, u.Value)
	}
	keep("store/calico.txt", fmt.Sprint(b.String(), orNothing(err)))
	var flows strings.Builder
	for _, f := range w.flows {
		fmt.Fprintf(&flows, "%s: sent %d, received %d, next %d\n", f.name, f.sent.Load(), f.received.Load(), f.next.Load())
	}
	keep("flows.txt", flows.String())
	w.mu.Lock()
	keep("faults.txt", strings.Join(w.events, "\n")+"\n")
	w.mu.Unlock()
	t.Logf("bundle: %s", dir)
}

func orNothing(err error) string {
	if err == nil {
		return ""
	}
	return "\n" + err.Error()
}

// build makes the binary of this tree.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	machinetest.Root(t)
	exe := filepath.Join(t.TempDir(), "twill")
	args := append(append([]string{"build"}, flags...), "-o", exe, "github.com/twillnet/twill/cmd/twill")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe
}
