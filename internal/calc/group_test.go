package calc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// sharing fails if two endpoints that are asked by the same have a value each, in what was sent last of each.
func sharing(t *testing.T, endpoints map[intent.EndpointID]intent.Endpoint) {
	t.Helper()
	values := map[intent.GroupID]*intent.Group{}
	for id, e := range endpoints {
		g := e.Policies()
		if is := values[g.ID]; is != nil && is != g {
			t.Errorf("%s has a copy of group %s", id, g.ID)
		}
		values[g.ID] = g
	}
}

func TestEndpointsThatAreAskedByTheSameShareOneGroup(t *testing.T) {
	seed := seedtest.New(t)
	for i := range 10 {
		rng := rand.New(rand.NewPCG(seed, uint64(3000+i)))
		w := calctest.Random(rng, calctest.Config{})
		g := New("h1")
		sent := map[intent.EndpointID]intent.Endpoint{}
		take := func(us []api.Update) {
			g.Update(us)
			b := g.Flush()
			for _, e := range b.Endpoints {
				sent[e.ID] = e
			}
			for _, k := range b.Removed {
				if id, ok := k.(intent.EndpointID); ok {
					delete(sent, id)
				}
			}
			sharing(t, sent)
		}
		take(w.State())
		for step := 0; step < 100 && !t.Failed(); step++ {
			take(w.Step())
		}
	}
}

func TestGroupsFollowPoliciesAndProfiles(t *testing.T) {
	workload := func(name, profile string) api.Update {
		return rawUpdate("workloadendpoints/ns/h1-k8s-"+name+"-eth0", fmt.Sprintf(`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1-k8s-%[1]s-eth0","namespace":"ns","labels":{"app":"%[1]s"}},`+
			`"spec":{"orchestrator":"k8s","node":"h1","pod":"%[1]s","endpoint":"eth0","interfaceName":"cali%[1]s","ipNetworks":["10.0.0.1/32"],"profiles":["%[2]s"]}}`, name, profile))
	}
	policy := func(name, selector string) api.Update {
		return rawUpdate("globalnetworkpolicies/"+name, fmt.Sprintf(`{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"%s"},"spec":{"selector":"%s","types":["Ingress"]}}`, name, selector))
	}
	g := New("h1")
	for _, step := range []struct {
		name string
		then api.Update
		want int
	}{
		{"one endpoint", workload("a", "p"), 1},
		{"two that are asked by the same", workload("b", "p"), 1},
		{"a policy for both", policy("all", "all()"), 1},
		{"a policy for one", policy("one", "app == 'a'"), 2},
		{"it is for both", policy("one", "all()"), 1},
		{"another profile", workload("b", "q"), 2},
	} {
		g.Update([]api.Update{step.then})
		g.Flush()
		if n := len(g.groups); n != step.want {
			t.Errorf("%s: %d groups, want %d", step.name, n, step.want)
		}
	}
}
