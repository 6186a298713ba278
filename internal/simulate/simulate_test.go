package simulate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/sched"
	"github.com/twillnet/twill/internal/seedtest"
)

// small is a cluster of a few nodes with as much change as there can be.
func small(t *testing.T) Config {
	r := rand.New(rand.NewPCG(seedtest.New(t), 0)) //nolint:gosec // no secret
	nodes := 2 + r.IntN(6)
	return Config{
		Nodes: nodes, Endpoints: 20 + r.IntN(300), Policies: r.IntN(80), Churn: 100, Duration: 2 * time.Second, Seed: r.Uint64(), Sample: 1 + r.IntN(nodes),
		CPU: sched.ProcessTime, Store: StoreCosts{Send: 15 * time.Microsecond, Cores: 4, Commit: 900 * time.Microsecond},
	}
}

func run(t *testing.T, c Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return r
}

// counts are what follows from the seed.
func counts(r *Report) map[string]float64 {
	out := map[string]float64{}
	for _, f := range r.Figures {
		if f.Known == Counted || f.Known == Estimated {
			out[f.Name] = f.Value
		}
	}
	return out
}

func TestOneSeedHasTheSameCounts(t *testing.T) {
	c := small(t)
	a, b := run(t, c), run(t, c)
	if a.State != b.State || strings.Join(a.Sample, " ") != strings.Join(b.Sample, " ") {
		t.Errorf("agents of %v end with %s, and of %v with %s", a.Sample, a.State, b.Sample, b.State)
	}
	for name, v := range counts(a) {
		if w := counts(b)[name]; v != w {
			t.Errorf("%s is %v and %v", name, v, w)
		}
	}
	c.Seed++
	if other := run(t, c); other.State == a.State {
		t.Errorf("another seed ends with %s, too", a.State)
	}
}

// TestACheckSaysHowFarTheSampleIs: what is counted is exact, all other errors are those of the sample against the plain sums of all agents.
func TestACheckSaysHowFarTheSampleIs(t *testing.T) {
	c := small(t)
	c.Check = true
	r := run(t, c)
	var sum cost
	p := newPlan(newWorld(c))
	events := [kinds][2]int{}
	for node := range c.Nodes {
		one, err := calculate(t.Context(), quietly(p), node)
		if err != nil {
			t.Fatal(err)
		}
		for k := range kinds {
			for own := range 2 {
				sum.add(one.churn[k][own])
				events[k][own] += one.churn[k][own].events
			}
		}
	}
	if events != p.counts {
		t.Errorf("changes of agents by kind, others' and own: %v, counted beforehand %v", events, p.counts)
	}
	for _, f := range r.Figures {
		want := map[string]float64{
			"agent-operations": float64(sum.operations) / float64(sum.events), "agent-intents": float64(sum.intents) / float64(sum.events),
			"store-messages": float64(sum.messages) / c.Duration.Seconds(), "cluster-operations": float64(sum.operations) / c.Duration.Seconds(),
		}
		if w, ok := want[f.Name]; ok && (*f.Full < w*(1-1e-9) || *f.Full > w*(1+1e-9)) {
			t.Errorf("%s of all agents is %v, want %v", f.Name, *f.Full, w)
		}
		if f.Known == Counted && (f.Value != *f.Full || *f.Error != 0) {
			t.Errorf("%s is counted, and %v in the sample, %v of all, error %v", f.Name, f.Value, *f.Full, *f.Error)
		}
		if off := 100 * math.Abs(f.Value-*f.Full); off > *f.Error**f.Full*(1+1e-9) {
			t.Errorf("%s: %v of the sample is not within %v %% of %v", f.Name, f.Value, *f.Error, *f.Full)
		}
	}
}

func quietly(p *plan) *plan {
	p.Progress = silent{}
	return p
}

func TestASampleOfAllHasNoError(t *testing.T) {
	c := small(t)
	c.Check, c.Sample = true, c.Nodes
	for _, f := range run(t, c).Figures {
		if *f.Error != 0 {
			t.Errorf("%s: %v and %v, error %v", f.Name, f.Value, *f.Full, *f.Error)
		}
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		with       func(*Config)
	}{
		{"no nodes", "--nodes: want at least 1", func(c *Config) { c.Nodes = 0 }},
		{"no endpoints", "--endpoints: want at least 1", func(c *Config) { c.Endpoints = 0 }},
		{"fewer policies than none", "--policies: want no negative number", func(c *Config) { c.Policies = -1 }},
		{"more nodes than a check takes", "--nodes: --check calculates every node in full, so want at most 100", func(c *Config) { c.Nodes, c.Check = 101, true }},
		{"no churn", "--churn: want a number", func(c *Config) { c.Churn = 0 }},
		{"nothing happens", "--duration: no change would happen in 1ns", func(c *Config) { c.Duration = 1 }},
		{"too much happens", "--duration: more than a million changes", func(c *Config) { c.Churn, c.Duration = 1e6, time.Hour }},
		{"a larger sample than there are nodes", "--sample: want from 1 to as many", func(c *Config) { c.Sample = c.Nodes + 1 }},
		{"no sample", "--sample: want from 1", func(c *Config) { c.Sample = 0 }},
		{"a store that sends before it was asked", "--store-send: want no negative", func(c *Config) { c.Store.Send = -1 }},
		{"a store without processors", "--store-cores: want more than 0", func(c *Config) { c.Store.Cores = 0 }},
		{"more addresses than there are", "do not fit into 10.0.0.0/8", func(c *Config) { c.Endpoints = 1 << 24 }},
		{"a million endpoints on a small machine", "GB of memory, and 500 MB are available: say fewer --endpoints", func(c *Config) { c.Endpoints, c.Available = 1_000_000, 500e6 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Nodes: 10, Endpoints: 100, Policies: 10, Churn: 10, Duration: time.Second, Sample: 1, CPU: sched.ProcessTime, Store: StoreCosts{Cores: 1}}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			tt.with(&c)
			if r, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %q", r, err, tt.want)
			}
		})
	}
}

func TestASimulationEndsWithItsContext(t *testing.T) {
	c := small(t)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.Progress = stopper{func() { cancel(stop) }}
	if r, err := Run(ctx, c); err == nil {
		t.Errorf("it went on: %v", r)
	}
}
