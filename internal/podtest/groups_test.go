package podtest

import (
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
)

// newMoverOfV1 has a cluster that keeps its resources as Calico did before projectcalico.org/v3 was custom resources.
func newMoverOfV1(t *testing.T) *mover {
	s := kubetest.New(t, kubetest.Config{})
	m := &mover{cluster: newCluster(t, s, form.V1), pods: map[string]pod{}}
	m.env = m.in(form.V1)
	m.n = newNode(t, s, "n1")
	guard(t, s, m.ns)
	m.holds(map[string]string{
		"felixconfigurations/default":      `{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"logSeverityScreen":"Info"}}`,
		"tiers/early":                      `{"kind":"Tier","metadata":{"name":"early"},"spec":{"order":10,"defaultAction":"Pass"}}`,
		"globalnetworkpolicies/early.rack": `{"kind":"GlobalNetworkPolicy","metadata":{"name":"early.rack"},"spec":{"tier":"early","order":3,"selector":"app == 'web'","types":["Ingress"],"ingress":[{"action":"Deny","source":{"selector":"a == 'b'"}}]}}`,
		"networkpolicies/" + m.ns + "/own": `{"kind":"NetworkPolicy","metadata":{"name":"own","namespace":"` + m.ns + `"},"spec":{"tier":"default","selector":"app == 'client'","types":["Egress"],"egress":[{"action":"Allow"}]}}`,
		"ipamconfigurations/default":       `{"kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":{"strictAffinity":true,"autoAllocateBlocks":true,"maxBlocksPerHost":7}}`,
	})
	m.attach()
	return m
}

// TestAClusterMovesFromCalicosOlderFormToTheNewOne: of one API server, from crd.projectcalico.org/v1 to projectcalico.org/v3. The agent wants the same before and
// after, packets go as they did, addresses are given back where they are now, and a policy that is made there is in force.
func TestAClusterMovesFromCalicosOlderFormToTheNewOne(t *testing.T) {
	m := newMoverOfV1(t)
	m.exports()
	want := m.intents(m.store)
	if len(want.Endpoints) != 4 || len(want.Policies) < 3 {
		t.Fatalf("before, the agent has the endpoints %+v and %d policies", want.Endpoints, len(want.Policies))
	}
	definitions, ok := m.run(nil, "kube", "crds", "--group", string(form.V3))
	if !ok {
		t.Fatal(definitions)
	}
	m.s.Apply(t, definitions)
	m.says(true, m.in(form.V3), []string{"datastore", "import", "-f", m.export}, "the datastore is locked")
	m.says(true, m.in(form.V3), []string{"datastore", "import", "-f", m.export, "--dry-run"}, "1 key would be imported, ")

	to := m.open(form.V3)
	m.sameIntents(to, want)
	m.sameAddresses(to)

	m.says(true, m.env, []string{"version"}, "locked")
	m.agentMoves()
	m.pods["other"].await(t, m.pods["late"], true)
	late := `{"kind":"GlobalNetworkPolicy","metadata":{"name":"early.late"},"spec":{"tier":"early","selector":"app == 'late'","types":["Ingress"],"ingress":[{"action":"Deny"}]}}`
	if _, err := to.Create(t.Context(), api.Update{Key: api.ResourcesPrefix + "globalnetworkpolicies/early.late", Value: []byte(late)}); err != nil {
		t.Fatal(err)
	}
	m.pods["other"].await(t, m.pods["late"], false)
}
