package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// asTwill makes this binary the command line.
const asTwill = "BENCH_TEST_AS_TWILL"

func TestMain(m *testing.M) {
	if os.Getenv(asTwill) == "" {
		os.Exit(m.Run())
	}
	os.Exit(cli.Run(context.Background(), os.Args, cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

func itself(t *testing.T) Twill {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	return Twill{Program: exe, Env: []string{asTwill + "=1"}}
}

const (
	fewPolicies  = 10
	manyPolicies = 1000
	leastRatio   = 0.9 // connections that a processor makes with many policies, of those that it makes with few
)

// TestConnectionsCostTheSameWithAThousandPolicies compares processor time of connections, in pairs, on hosts with an agent each: 10
// policies against 1,000 that apply to the workload. Other work on the machine hits both halves of a pair, and
// pairs are added until the answer is clear. With chains the same must fail, or the comparison proves nothing.
func TestConnectionsCostTheSameWithAThousandPolicies(t *testing.T) {
	machinetest.Root(t)
	c := Config{Twill: itself(t), Scratch: t.TempDir()}
	e, err := c.Twill.startEtcd(t.Context(), c.Scratch)
	must(t, err)
	t.Cleanup(func() { must(t, e.close()) })
	world := World{Policies: manyPolicies, Endpoints: 200, All: true, Few: fewPolicies - 1}
	ways := []string{WayChains, WayCompiled}
	var locals []api.Update
	var nodes []string
	for i := range 2 * len(ways) {
		nodes = append(nodes, nodeOf(i))
		locals = append(locals, local(nodeOf(i), i, i%2 == 0))
	}
	must(t, world.load(t.Context(), e.store, nodes, locals))
	lanes := make([]*lane, len(nodes))
	for i := range lanes {
		lanes[i] = c.agentLane(t, e, i, renderings[ways[i/2]])
	}
	for i, way := range ways {
		t.Run(way, func(t *testing.T) {
			want := map[string]int{WayChains: -1, WayCompiled: 1}[way]
			ratios := pairsUntilClear(t, lanes[2*i], lanes[2*i+1])
			verdict := Clear(ratios, leastRatio)
			t.Logf("connections of a processor with %d policies, of those with %d: median %.3f of %d pairs", manyPolicies, fewPolicies, ratios.Median(), len(ratios))
			if verdict != want {
				t.Errorf("the median is %s %v, want it %s", sides[verdict], leastRatio, sides[want])
			}
		})
	}
}

var sides = map[int]string{-1: "below", 0: "not clearly above or below", 1: "above"}

// agentLane is a host with an agent whose workload is reached.
func (c Config) agentLane(t *testing.T, e *etcd, i int, rendering string) *lane {
	t.Helper()
	b, err := newBed(t.Context())
	must(t, err)
	t.Cleanup(b.close)
	must(t, b.plug(i))
	must(t, b.startAgent(c.Twill, e, nodeOf(i), rendering))
	l, err := b.listen(localAddr(i))
	must(t, err)
	t.Cleanup(l.close)
	must(t, l.opened(t.Context()))
	return l
}

// pairsUntilClear measures both in turn, in a random order, and returns the first's processor time over the second's.
func pairsUntilClear(t *testing.T, few, many *lane) (ratios Figures) {
	t.Helper()
	const connections, least, most = 200, 15, 900
	cost := func(l *lane) float64 {
		load, err := l.connections(connections, 1)
		must(t, err)
		if load.Failed > 0 {
			t.Fatalf("%d connections failed: %v", load.Failed, load.Why)
		}
		return load.CPU
	}
	cost(few)
	cost(many)
	for len(ratios) < least || Clear(ratios, leastRatio) == 0 && len(ratios) < most {
		var a, b float64
		if rand.IntN(2) == 0 {
			a, b = cost(few), cost(many)
		} else {
			b, a = cost(many), cost(few)
		}
		ratios = append(ratios, a/b)
	}
	return ratios
}

func TestWhenPairsAreClear(t *testing.T) {
	near := func(middle, spread float64, n int) (f Figures) {
		for i := range n {
			f = append(f, middle+spread*(float64(i)/float64(n-1)-0.5))
		}
		return f
	}
	for _, tt := range []struct {
		name   string
		ratios Figures
		want   int
	}{
		{"none", nil, 0},
		{"too few", near(1, 0.01, 10), 0},
		{"above", near(1, 0.1, 15), 1},
		{"below", near(0.3, 0.1, 15), -1},
		{"wide, and few", near(1, 1, 15), 0},
		{"as wide, and many", near(1, 1, 400), 1},
		{"on the limit", near(0.9, 0.1, 1000), 0},
	} {
		if got := Clear(tt.ratios, 0.9); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("unexpected: %w", err))
	}
}
