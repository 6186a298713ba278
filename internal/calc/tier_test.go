package calc

import (
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

const resourcesRoot = "/calico/resources/v3/projectcalico.org/"

func rawUpdate(key, json string) api.Update {
	return api.Update{Key: resourcesRoot + key, Value: []byte(json)}
}

func TestATierThatCannotBeReadComesAfterAllKnownOnesAndEndsInDeny(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{
		rawUpdate("tiers/t", `{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"t"},"spec":{"order":"soon","defaultAction":"Pass"}}`),
		rawUpdate("globalnetworkpolicies/a", `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"tier":"t","types":["Ingress"]}}`),
		rawUpdate("globalnetworkpolicies/b", `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"b"},"spec":{"tier":"default","types":["Ingress"]}}`),
		rawUpdate("workloadendpoints/ns/h1-k8s-w-eth0", `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1-k8s-w-eth0","namespace":"ns"},"spec":{"orchestrator":"k8s","node":"h1","pod":"w","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.0.0.1/32"]}}`),
	})
	g.Flush()
	es := g.Intents().Endpoints
	if len(es) != 1 || len(es[0].Policies().Normal) != 2 {
		t.Fatalf("endpoints %+v, want one with two tiers", es)
	}
	if last := es[0].Policies().Normal[1]; last.Name != "t" || last.Default != intent.Deny {
		t.Errorf("last tier is %+v, want t, which ends in Deny", last)
	}
}

// TestPoliciesOfOneOrderGoByOneString: "name/namespace/kind" as upstream compares it, so that "a-b/…" is before "a/…", and "a//…" of a
// global policy before "a/prod/…". What has no order is last.
func TestPoliciesOfOneOrderGoByOneString(t *testing.T) {
	policy := func(plural, name, order string) api.Update {
		return rawUpdate(plural+"/"+name, `{"spec":{`+order+`"types":["Ingress"]}}`)
	}
	all := []api.Update{
		policy("networkpolicies", "prod/a-b", `"order":5,`),
		policy("globalnetworkpolicies", "a.b", `"order":5,`),
		policy("globalnetworkpolicies", "a", `"order":5,`),
		policy("networkpolicies", "prod/a", `"order":5,`),
		policy("globalnetworkpolicies", "b", `"order":5,`),
		policy("globalnetworkpolicies", "0", ""),
		policy("networkpolicies", "prod/0", ""),
	}
	const want = "NetworkPolicy/prod/a-b GlobalNetworkPolicy/a.b GlobalNetworkPolicy/a NetworkPolicy/prod/a GlobalNetworkPolicy/b GlobalNetworkPolicy/0 NetworkPolicy/prod/0"
	for range 2 {
		g := New("h1")
		g.Update(append([]api.Update{workloadUpdate("10.65.0.1/32")}, all...))
		var got []string
		for _, id := range only(t, g).Policies().Normal[0].Ingress {
			got = append(got, id.String())
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
		slices.Reverse(all)
	}
}
