package calc

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// fresh is the oracle: a graph that is given the present resources at once, in any order.
func fresh(rng *rand.Rand, us []api.Update, proxied map[intent.EndpointID]bool) State {
	us = append([]api.Update{}, us...)
	rng.Shuffle(len(us), func(i, j int) { us[i], us[j] = us[j], us[i] })
	g := New("h1")
	g.Proxied(proxied)
	g.Update(us)
	g.Flush()
	return g.Intents()
}

func TestAnyPathSameIntents(t *testing.T) {
	seed := seedtest.New(t)
	for i := range 40 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		// Values that are not JSON are left out: of them the graph keeps what it had, so that the path matters.
		w := calctest.Random(rng, calctest.Config{Wrong: -1, Blocks: 6, Pools: 3})
		g, node, proxied := New("h1"), sim.New(), map[intent.EndpointID]bool{}
		apply := func() {
			node.Merge(g.Flush())
			if _, err := node.Apply(t.Context()); err != nil {
				t.Fatalf("seed %d world %d: apply: %v", seed, i, err)
			}
			if err := node.Refused(); err != nil {
				t.Fatalf("seed %d world %d: batch refused: %v", seed, i, err)
			}
		}
		g.Update(w.State())
		for step := range 150 {
			if rng.IntN(3) == 0 {
				apply()
			}
			g.Update(w.Step())
			if rng.IntN(5) == 0 {
				proxied = idsOf(w.Proxied(rng))
				g.Proxied(proxied)
			}
			if step%10 != 0 {
				continue
			}
			apply()
			if got, want := g.Intents(), fresh(rng, w.State(), proxied); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d world %d step %d:\n got %+v\nwant %+v", seed, i, step, got, want)
			}
		}
		g.Update(w.Teardown(1))
		apply()
		if got, want := g.Intents(), fresh(rng, nil, nil); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d world %d: after teardown %+v remains", seed, i, got)
		}
		if n := g.hosts.Len() + g.hostSets.Len() + g.sources.Len() + g.locals.Len() + g.sets.Len() + g.services.Len() + len(g.policies) + len(g.applied) + len(g.links) + len(g.stacks) + len(g.groups) + len(g.sent.sets) + len(g.sent.users) + len(g.sent.groups) + g.reach.Len() + g.floats.len(); n != 0 {
			t.Fatalf("seed %d world %d: %d things are remembered after all is gone", seed, i, n)
		}
	}
}

func TestBatchesAddUpToTheIntents(t *testing.T) {
	seed := seedtest.New(t)
	for i := range 20 {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+i)))
		w := calctest.Random(rng, calctest.Config{Blocks: 6, Pools: 3})
		g, node := New("h1"), sim.New()
		g.Update(w.State())
		for range 100 {
			node.Merge(g.Flush())
			if _, err := node.Apply(t.Context()); err != nil || node.Refused() != nil {
				t.Fatalf("seed %d world %d: %v %v", seed, i, err, node.Refused())
			}
			want := g.Intents()
			if len(node.Endpoints) != len(want.Endpoints) || len(node.Policies) != len(want.Policies) || len(node.Routes) != len(want.Routes) || len(node.Sets) != len(want.IPSets) || len(node.Peers) != len(want.Peers) {
				t.Fatalf("seed %d world %d: node has %d endpoints, %d policies, %d routes, %d sets; want %d, %d, %d, %d", seed, i, len(node.Endpoints), len(node.Policies),
					len(node.Routes), len(node.Sets), len(want.Endpoints), len(want.Policies), len(want.Routes), len(want.IPSets))
			}
			for _, p := range want.Peers {
				if got := node.Peers[p.ID()]; got != p {
					t.Fatalf("seed %d world %d: peer %+v, want %+v", seed, i, got, p)
				}
			}
			for _, s := range want.IPSets {
				if got := node.Sets[s.ID]; len(got.Members) != len(s.Members) {
					t.Fatalf("seed %d world %d: set %s has %d members, want %d", seed, i, s.ID, len(got.Members), len(s.Members))
				}
			}
			g.Update(w.Step())
			g.Proxied(idsOf(w.Proxied(rng)))
		}
	}
}
