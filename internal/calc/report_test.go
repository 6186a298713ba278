package calc

import (
	"testing"

	"github.com/twillnet/twill/api"
)

// What is allowed is reported while somebody wants it: a setting, or a staged policy that would change something here.
func TestWhatIsAllowedIsReportedWhileSomebodyWantsIt(t *testing.T) {
	const staged, settings = "stagednetworkpolicies/ns/s", "felixconfigurations/default"
	policy := func(selector string) api.Update {
		return rawUpdate(staged, `{"kind":"StagedNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"s","namespace":"ns"},"spec":{"selector":"`+selector+`","types":["Ingress"]}}`)
	}
	felix := func(spec string) api.Update {
		return rawUpdate(settings, `{"kind":"FelixConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{`+spec+`}}`)
	}
	gone := func(key string) api.Update { return api.Update{Key: resourcesRoot + key} }
	g := New("h1")
	g.Update([]api.Update{rawUpdate("workloadendpoints/ns/h1-k8s-w-eth0", `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1-k8s-w-eth0","namespace":"ns","labels":{"app":"w"}},"spec":{"orchestrator":"k8s","node":"h1","pod":"w","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.0.0.1/32"]}}`)})
	sent := false
	for _, step := range []struct {
		name   string
		update api.Update
		want   bool
	}{
		{"at first", gone(staged), false},
		{"a staged policy of nobody here", policy("app == 'x'"), false},
		{"a staged policy", policy("app == 'w'"), true},
		{"that is not to be asked", felix(`"flowLogsPolicyEvaluationMode":"None"`), false},
		{"and all the same reported", felix(`"flowLogsPolicyEvaluationMode":"None","flowLogsLocalReporter":"Enabled"`), true},
		{"settings are as they were", gone(settings), true},
		{"the staged policy is gone", gone(staged), false},
	} {
		g.Update([]api.Update{step.update})
		if b := g.Flush(); b.Host != nil {
			sent = b.Host.ReportAllowed
		}
		if got := g.Intents().Host.ReportAllowed; got != step.want {
			t.Errorf("%s: reported %v, want %v", step.name, got, step.want)
		}
		if sent != step.want {
			t.Errorf("%s: batches say %v, want %v", step.name, sent, step.want)
		}
	}
}
