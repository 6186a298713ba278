package calc

import (
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// TestAPolicyThatEveryNodeIsToHaveReady has its sets here though no endpoint of this node needs it, until it says so no more.
func TestAPolicyThatEveryNodeIsToHaveReady(t *testing.T) {
	for kind, namespace := range map[string]string{
		api.KindNetworkPolicy: "ns", api.KindStagedNetworkPolicy: "ns", api.KindGlobalNetworkPolicy: "", api.KindStagedGlobalNetworkPolicy: "",
	} {
		t.Run(kind, func(t *testing.T) { keptReady(t, kind, namespace) })
	}
}

func keptReady(t *testing.T, kind, namespace string) {
	t.Helper()
	key := api.KeyPrefix(kind, namespace) + "p"
	policy := func(selector, hints string) api.Update {
		return api.Update{Key: key, Value: []byte(`{"kind":"` + kind + `","apiVersion":"projectcalico.org/v3","metadata":{"name":"p","namespace":"` + namespace + `"},"spec":{"selector":"` + selector +
			`","types":["Ingress"],"ingress":[{"action":"Allow","source":{"selector":"app == 'w'"}}]` + hints + `}}`)}
	}
	const hint = `,"performanceHints":["AssumeNeededOnEveryNode"]`
	endpoint := rawUpdate("workloadendpoints/ns/h1-k8s-w-eth0", `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1-k8s-w-eth0","namespace":"ns","labels":{"app":"w"}},"spec":{"orchestrator":"k8s","node":"h1","pod":"w","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.0.0.1/32"]}}`)
	gone := func(key string) api.Update { return api.Update{Key: resourcesRoot + key} }
	g := New("h1")
	for _, step := range []struct {
		name   string
		update api.Update
		want   int // policies, and sets
	}{
		{"nobody here has it", policy("app == 'x'", ""), 0},
		{"it is to be ready", policy("app == 'x'", hint), 1},
		{"with another selector", policy("app == 'w'", hint), 1},
		{"an endpoint has it", endpoint, 1},
		{"it need not be ready and is in use", policy("app == 'w'", ""), 1},
		{"it is to be ready again", policy("app == 'w'", hint), 1},
		{"the endpoint is gone", gone("workloadendpoints/ns/h1-k8s-w-eth0"), 1},
		{"it need not be ready", policy("app == 'w'", ""), 0},
		{"ready", policy("app == 'w'", hint), 1},
		{"it is gone", api.Update{Key: key}, 0},
	} {
		g.Update([]api.Update{step.update})
		g.Flush()
		if s := g.Intents(); len(s.Policies) != step.want || len(s.IPSets) != step.want {
			t.Errorf("%s: %d policies, %d sets; want %d", step.name, len(s.Policies), len(s.IPSets), step.want)
		}
	}
}

func TestTheShorterOfTwoIntervalsCounts(t *testing.T) {
	for _, tt := range []struct{ policy, sets, want time.Duration }{{0, 0, 0}, {5, 0, 5}, {0, 5, 5}, {5, 7, 5}, {7, 5, 5}} {
		if got := shorter(tt.policy, tt.sets); got != tt.want {
			t.Errorf("%d and %d: %d, want %d", tt.policy, tt.sets, got, tt.want)
		}
	}
}
