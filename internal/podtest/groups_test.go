package podtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubetest"
)

// newMoverOfV1 has a cluster that keeps its resources as Calico did before projectcalico.org/v3 was custom resources.
func newMoverOfV1(t *testing.T) *mover {
	s := kubetest.New(t, kubetest.Config{})
	m := &mover{cluster: newCluster(t, s, form.V1), pods: map[string]pod{}}
	m.env = m.in(form.V1)
	m.n = newNode(t, s, "n1")
	s.Apply(t, strings.ReplaceAll(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]
`, "NS", m.ns))
	for key, value := range map[string]string{
		"clusterinformations/default":      `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"clusterGUID":"a0","clusterType":"k8s","datastoreReady":true}}`,
		"felixconfigurations/default":      `{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"logSeverityScreen":"Info"}}`,
		"tiers/default":                    `{"kind":"Tier","metadata":{"name":"default"},"spec":{"order":1000000,"defaultAction":"Deny"}}`,
		"tiers/early":                      `{"kind":"Tier","metadata":{"name":"early"},"spec":{"order":10,"defaultAction":"Pass"}}`,
		"globalnetworksets/others":         `{"kind":"GlobalNetworkSet","metadata":{"name":"others","labels":{"a":"b"}},"spec":{"nets":["198.51.100.0/24"]}}`,
		"globalnetworkpolicies/early.rack": `{"kind":"GlobalNetworkPolicy","metadata":{"name":"early.rack"},"spec":{"tier":"early","order":3,"selector":"app == 'web'","types":["Ingress"],"ingress":[{"action":"Deny","source":{"selector":"a == 'b'"}}]}}`,
		"networkpolicies/" + m.ns + "/own": `{"kind":"NetworkPolicy","metadata":{"name":"own","namespace":"` + m.ns + `"},"spec":{"tier":"default","selector":"app == 'client'","types":["Egress"],"egress":[{"action":"Allow"}]}}`,
		"hostendpoints/h":                  `{"kind":"HostEndpoint","metadata":{"name":"h","labels":{"host":"n1"}},"spec":{"node":"n1","interfaceName":"eth9","expectedIPs":["192.0.2.1"]}}`,
		"bgppeers/tor":                     `{"kind":"BGPPeer","metadata":{"name":"tor"},"spec":{"peerIP":"192.0.2.9","asNumber":64600,"nodeSelector":"rack == 'r1'"}}`,
		"ipamconfigurations/default":       `{"kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":{"strictAffinity":true,"autoAllocateBlocks":true,"maxBlocksPerHost":7}}`,
	} {
		m.put(key, value)
	}
	m.attach()
	return m
}

// TestAClusterMovesFromCalicosOlderFormToTheNewOne: of one API server, from crd.projectcalico.org/v1 to projectcalico.org/v3. The agent wants the same before and
// after, packets go as they did, addresses are given back where they are now, and a policy that is made there is in force.
func TestAClusterMovesFromCalicosOlderFormToTheNewOne(t *testing.T) {
	m := newMoverOfV1(t)
	m.says(true, m.env, []string{"datastore", "lock"})
	cmd := exec.Command(m.twill, "datastore", "export")
	cmd.Env = append(os.Environ(), m.env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	m.export = filepath.Join(t.TempDir(), "cluster.jsonl")
	if err := os.WriteFile(m.export, out, 0o600); err != nil {
		t.Fatal(err)
	}
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

	to, err := stores.Open(t.Context(), datastore.Config{Type: "kubernetes", Kubeconfig: m.s.Kubeconfig, Group: string(form.V3), QPS: 1000, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if got := m.intents(to); !reflect.DeepEqual(got, want) {
		a, _ := json.MarshalIndent(got, "", " ")
		b, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("intents are\n%s\nwant\n%s", a, b)
	}
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
