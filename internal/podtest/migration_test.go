package podtest

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
)

// mover is a cluster whose datastore is an etcd, and whose API server is to be it.
type mover struct {
	*cluster
	n    *node
	p    plugin
	pods map[string]pod

	export string // the file
}

// run runs a command with an environment, and returns what it said, and whether that was no error.
func (m *mover) run(env []string, args ...string) (string, bool) {
	m.Helper()
	cmd := exec.Command(m.twill, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// says runs a command that must be right, or not, and say something.
func (m *mover) says(ok bool, env, args []string, texts ...string) {
	m.Helper()
	out, is := m.run(env, args...)
	if is != ok {
		m.Fatalf("twill %s: right is %v:\n%s", strings.Join(args, " "), is, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			m.Errorf("twill %s: want %q in:\n%s", strings.Join(args, " "), text, out)
		}
	}
}

// in is the environment in which the API server is the datastore.
func (m *mover) in(g form.Group) []string {
	return []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + m.s.Kubeconfig, "CALICO_API_GROUP=" + string(g)}
}

// newMover has a node with an agent on etcd, three pods, of which one is protected from another, and controllers that copy what Kubernetes says of them.
func newMover(t *testing.T) *mover {
	s := kubetest.New(t, kubetest.Config{})
	m := &mover{cluster: newEtcdCluster(t, s), pods: map[string]pod{}}
	m.n = newNode(t, s, "n1")
	guard(t, s, m.ns)
	m.holds(map[string]string{
		"nodes/n1": `{"kind":"Node","metadata":{"name":"n1","labels":{"rack":"r1","gone":"x"},"annotations":{"projectcalico.org/kube-labels":"{\"gone\":\"x\"}"}},` +
			`"spec":{"bgp":{"ipv4Address":"192.0.2.1/24","asNumber":64600},"orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}]}}`,
		"ippools/pods":                          `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pods"},"spec":{"cidr":"10.69.0.0/24","blockSize":26,"nodeSelector":"all()","natOutgoing":true}}`,
		"kubecontrollersconfigurations/default": `{"kind":"KubeControllersConfiguration","metadata":{"name":"default"},"spec":{"prometheusMetricsPort":0,"controllers":{"policy":{},"namespace":{},"serviceAccount":{},"workloadEndpoint":{}}}}`,
		"felixconfigurations/default":           `{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"logSeverityScreen":"Info","ofLaterVersions":"x"}}`,
		"globalnetworkpolicies/rack":            `{"kind":"GlobalNetworkPolicy","metadata":{"name":"rack","labels":{"projectcalico.org/tier":"default"}},"spec":{"order":3,"selector":"app == 'web'","types":["Ingress"],"ingress":[{"action":"Deny","source":{"selector":"a == 'b'"}}]}}`,
		"networkpolicies/" + m.ns + "/own":      `{"kind":"NetworkPolicy","metadata":{"name":"own","namespace":"` + m.ns + `","labels":{"projectcalico.org/tier":"default"}},"spec":{"selector":"app == 'client'","types":["Egress"],"egress":[{"action":"Allow"}]}}`,
		"ipamconfigurations/default":            `{"kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":{"strictAffinity":true,"autoAllocateBlocks":true}}`,
	})
	if _, err := m.store.Create(t.Context(), api.Update{Key: api.IPAMConfigKey, Value: []byte(`{"strict_affinity":false,"auto_allocate_blocks":true}`)}); err != nil {
		t.Fatal(err)
	}
	controllers := m.start()
	m.await("copies", func() bool {
		return m.has("profiles/ksa."+m.ns+".sa", "") && m.has("networkpolicies/"+m.ns+"/knp.default.web", "")
	})
	m.attach()
	_ = controllers.cmd.Process.Kill()
	return m
}

// holds puts resources into the datastore that is to be left, and those that each of the tests has.
func (m *mover) holds(more map[string]string) {
	m.Helper()
	for _, all := range []map[string]string{more, {
		"clusterinformations/default": `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"clusterGUID":"a0","clusterType":"k8s","datastoreReady":true}}`,
		"tiers/default":               `{"kind":"Tier","metadata":{"name":"default"},"spec":{"order":1000000,"defaultAction":"Deny"}}`,
		"globalnetworksets/others":    `{"kind":"GlobalNetworkSet","metadata":{"name":"others","labels":{"a":"b"}},"spec":{"nets":["198.51.100.0/24"]}}`,
		"hostendpoints/h":             `{"kind":"HostEndpoint","metadata":{"name":"h","labels":{"host":"n1"}},"spec":{"node":"n1","interfaceName":"eth9","expectedIPs":["192.0.2.1"]}}`,
		"bgppeers/tor":                `{"kind":"BGPPeer","metadata":{"name":"tor"},"spec":{"peerIP":"192.0.2.9","asNumber":64600,"nodeSelector":"rack == 'r1'"}}`,
	}} {
		for key, value := range all {
			m.put(key, value)
		}
	}
}

// exports locks the datastore that is to be left, exports it into m.export, and returns what is in that file.
func (m *mover) exports() string {
	m.Helper()
	m.says(true, m.env, []string{"datastore", "lock"})
	cmd := exec.Command(m.twill, "datastore", "export")
	cmd.Env = append(os.Environ(), m.env...)
	out, err := cmd.Output()
	m.export = filepath.Join(m.TempDir(), "cluster.jsonl")
	if err == nil {
		err = os.WriteFile(m.export, out, 0o600)
	}
	if err != nil {
		m.Fatal(err)
	}
	return string(out)
}

// open opens the API server as a datastore.
func (m *mover) open(g form.Group) datastore.Client {
	m.Helper()
	to, err := stores.Open(m.Context(), datastore.Config{Type: "kubernetes", Kubeconfig: m.s.Kubeconfig, Group: string(g), QPS: 1000, RequestTimeout: time.Minute})
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = to.Close() })
	return to
}

// attach starts the node's agent on the datastore that is to be left, and attaches three pods.
func (m *mover) attach() {
	m.Helper()
	m.n.start("agent", m.s.Kubeconfig, m.env...)
	m.n.ready()
	m.p = m.n.plugin()
	for _, name := range []string{"web", "client", "other"} {
		m.add(name)
	}
	m.protects()
}

// add has the plugin attach a pod, of which the kubelet then says which address it has.
func (m *mover) add(name string) {
	m.Helper()
	p := m.p.add(m.ns, name, "app: "+name)
	m.pods[name] = p
	m.n.patch("/api/v1/namespaces/"+m.ns+"/pods/"+name+"/status", map[string]any{"status": map[string]any{
		"podIP": p.addr.String(), "podIPs": []any{map[string]any{"ip": p.addr.String()}}, "phase": "Running",
	}})
}

// protects asks packets.
func (m *mover) protects() {
	m.Helper()
	m.pods["client"].await(m.n.t, m.pods["web"], true)
	m.pods["other"].await(m.n.t, m.pods["web"], false)
}

// intents are all that the node's agent wants to be in force, as a datastore says, but for MACs, which no pod says.
func (m *mover) intents(s datastore.Store) calc.State {
	m.Helper()
	snap, err := s.List(m.Context(), api.Root)
	if err != nil {
		m.Fatal(err)
	}
	g := calc.New("n1")
	g.Update(snap.Sorted())
	g.SetInSync()
	g.Flush()
	all := g.Intents()
	for i := range all.Endpoints {
		all.Endpoints[i].MAC = ""
	}
	for i := range all.Routes {
		all.Routes[i].MAC = ""
	}
	return all
}

// TestAClusterMovesFromEtcdToTheAPIServer: what is refused is named before anything is written; what is imported in either form gives the
// node's agent the same intents; and with the agent on the API server packets and addresses are as they were.
func TestAClusterMovesFromEtcdToTheAPIServer(t *testing.T) {
	m := newMover(t)
	out := m.exports()
	m.says(true, m.env, []string{"version"}, "locked")
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	cmd := exec.Command(m.twill, "datastore", "migrate", "export")
	cmd.Env = append(os.Environ(), m.env...)
	inParts, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	upstreams := write(filepath.Join(t.TempDir(), "cluster.yaml"), string(inParts))
	want := m.intents(m.store)
	if len(want.Endpoints) != 4 || len(want.Policies) < 4 {
		t.Fatalf("on etcd the agent has the endpoints %+v and %d policies", want.Endpoints, len(want.Policies))
	}
	m.says(false, m.in(""), []string{"datastore", "import", "-f", m.export}, "twill kube crds | kubectl apply")
	for _, g := range []form.Group{form.V1, form.V3} {
		t.Logf("in the form of %s", g)
		definitions, ok := m.run(nil, "kube", "crds", "--group", string(g))
		if !ok {
			t.Fatal(definitions)
		}
		m.s.Apply(t, definitions)
		m.refusals(g, out, func(text string) string { return write(filepath.Join(t.TempDir(), "other"), text) })
		lines := strings.SplitAfter(out, "\n")
		n := len(lines) / 2
		half := strings.Join(lines[:n], "")
		m.says(false, m.in(g), []string{"datastore", "import", "-f", write(filepath.Join(t.TempDir(), "cut"), half)}, "it was cut off after "+strconv.Itoa(n)+" keys")
		half += `{"keys":` + strconv.Itoa(n) + "}\n"
		m.says(true, m.in(g), []string{"datastore", "import", "-f", write(filepath.Join(t.TempDir(), "half"), half)}) // as after a failure
		m.says(true, m.in(g), []string{"datastore", "import", "-f", m.export}, "there already", "left out", "the datastore is locked")
		m.says(true, m.in(g), []string{"datastore", "import", "-f", m.export, "--dry-run"}, "1 key would be imported, ")
		m.moved(g, want)
		m.says(true, m.in(g), []string{"datastore", "migrate", "import", "-f", upstreams, "--dry-run"}, "1 key would be imported, ") // all of it is there, and says the same
	}
	m.agentMoves()
}

// refusals says what is in the way, and writes nothing.
func (m *mover) refusals(g form.Group, export string, file func(string) string) {
	m.Helper()
	line := func(key, value string) string {
		text, err := json.Marshal(map[string]any{"key": api.ResourcesPrefix + key, "value": []byte(value)})
		if err != nil {
			m.Fatal(err)
		}
		return string(text) + "\n"
	}
	entries := export[:strings.LastIndex(export, `{"keys":`)]
	bad := entries + line("nodes/n9", `{"kind":"Node","metadata":{"name":"n9"}}`) + line("profiles/mine", `{"kind":"Profile","metadata":{"name":"mine"}}`) +
		line("workloadendpoints/"+m.ns+"/n1-k8s-web-net1", `{"kind":"WorkloadEndpoint","metadata":{"name":"n1-k8s-web-net1","namespace":"`+m.ns+`"}}`) +
		line("networkpolicies/nowhere/a", `{"kind":"NetworkPolicy","metadata":{"name":"a","namespace":"nowhere"},"spec":{}}`) +
		line("laterkinds/a", `{}`) + line("globalnetworksets/wrong", `{"kind":"GlobalNetworkSet","metadata":{"name":"wrong"},"spec":{"nets":7}}`)
	bad += `{"keys":` + strconv.Itoa(strings.Count(bad, "\n")) + "}\n"
	m.says(false, m.in(g), []string{"datastore", "import", "-f", file(bad)}, "nothing was written",
		"node/n9 is no node of the cluster", "profile/mine has no place", "workloadendpoint/"+m.ns+"/n1-k8s-web-net1 has no place", "there is no such namespace", "laterkinds/a is of a kind",
		"globalnetworkset/wrong is refused: ")
	m.says(true, m.in(g), []string{"datastore", "import", "-f", file(export), "--dry-run"}, "would be imported, ", "nothing is written")
	for _, kind := range []string{"clusterinformations", "globalnetworksets", "ipamblocks"} {
		var list struct{ Items []any }
		if err := m.s.Admin().Call(m.Context(), "GET", "/apis/"+string(g)+"/"+kind, nil, &list); err != nil || len(list.Items) > 0 {
			m.Errorf("%s: %v were written, error %v", kind, list.Items, err)
		}
	}
}

// moved compares what the API server holds with etcd, and what an agent makes of it.
func (m *mover) moved(g form.Group, want calc.State) {
	m.Helper()
	to := m.open(g)
	m.sameIntents(to, want)
	m.sameAddresses(to)
	var n api.Node
	u, err := to.Get(m.Context(), api.ResourcesPrefix+"nodes/n1")
	if err != nil || json.Unmarshal(u.Value, &n) != nil || n.Spec.BGP == nil || n.Spec.BGP.IPv4Address != "192.0.2.1/24" || n.Metadata.Labels["rack"] != "r1" || n.Metadata.Labels["gone"] != "" {
		m.Errorf("the node is %s, error %v", u.Value, err)
	}
	u, err = to.Get(m.Context(), api.ResourcesPrefix+"felixconfigurations/default")
	if err != nil || !strings.Contains(string(u.Value), `"ofLaterVersions":"x"`) {
		m.Errorf("settings are %s, error %v", u.Value, err)
	}
	u, err = to.Get(m.Context(), api.ResourcesPrefix+"globalnetworksets/others")
	if err != nil {
		m.Fatal(err)
	}
	u.Value = []byte(strings.Replace(string(u.Value), "198.51.100.0/24", "198.51.100.0/25", 1))
	if u, err = to.Update(m.Context(), u); err != nil {
		m.Fatal(err)
	}
	m.says(false, m.in(g), []string{"datastore", "import", "-f", m.export}, `globalnetworkset/others is there already, and is another: spec.nets[0] 198.51.100.0/25 → 198.51.100.0/24`)
	if err := to.Delete(m.Context(), u.Key, api.Revision{}); err != nil {
		m.Fatal(err)
	}
	m.says(true, m.in(g), []string{"datastore", "import", "-f", m.export}, "2 keys imported, ")
}

// sameIntents wants an agent to make the same of another datastore.
func (m *mover) sameIntents(to datastore.Store, want calc.State) {
	m.Helper()
	if got := m.intents(to); !reflect.DeepEqual(got, want) {
		a, _ := json.MarshalIndent(got, "", " ")
		b, _ := json.MarshalIndent(want, "", " ")
		m.Errorf("intents are\n%s\nwant\n%s", a, b)
	}
}

// sameAddresses wants another datastore to have all of address management.
func (m *mover) sameAddresses(to datastore.Store) {
	m.Helper()
	was, err := m.store.List(m.Context(), api.IPAMPrefix)
	if err != nil || len(was.Items) < 5 { // a block, its affinity, three handles
		m.Fatalf("%d keys of address management, error %v", len(was.Items), err)
	}
	for _, u := range was.Items {
		have, err := to.Get(m.Context(), u.Key)
		var a, b any
		if err != nil || json.Unmarshal(u.Value, &a) != nil || json.Unmarshal(have.Value, &b) != nil || !reflect.DeepEqual(a, b) {
			m.Errorf("%s: %s, want %s, error %v", u.Key, have.Value, u.Value, err)
		}
	}
}

// agentMoves starts the node's agent on the API server: its pods keep their addresses and what protects them, and can be detached.
func (m *mover) agentMoves() {
	m.Helper()
	if err := m.n.process.Signal(os.Interrupt); err != nil {
		m.Fatal(err)
	}
	_, _ = m.n.process.Wait()
	m.says(true, m.in(form.V3), []string{"datastore", "unlock"})
	m.n.start("agent", m.s.Kubeconfig, m.in(form.V3)...)
	m.n.ready()
	m.protects()
	m.says(true, m.in(form.V3), []string{"ipam", "check"})
	m.add("late")
	for name, p := range m.pods {
		if name != "late" && p.addr == m.pods["late"].addr {
			m.Errorf("%s and a new pod have %s", name, p.addr)
		}
	}
	netnstest.Probe{From: m.pods["late"].NS, To: m.pods["web"].NS, Proto: "tcp", Dst: netip.AddrPortFrom(m.pods["web"].addr, 8080)}.WantBlocked(m.T)
	const handle = "/apis/projectcalico.org/v3/ipamhandles/k8s-pod-network.c-web"
	if err := m.s.Admin().Call(m.Context(), "GET", handle, nil, nil); err != nil {
		m.Error(err)
	}
	slowly := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 600}
	if err := m.s.Admin().Call(m.Context(), "DELETE", "/api/v1/namespaces/"+m.ns+"/pods/web", slowly, nil); err != nil {
		m.Fatal(err)
	}
	if text, err := m.p.call("DEL", m.ns, "web", "c-web", m.pods["web"].NS); err != nil {
		m.Errorf("DEL: %v\n%s", err, text)
	}
	if err := m.s.Admin().Call(m.Context(), "GET", handle, nil, nil); err == nil {
		m.Error("the address of a pod that was attached before is not given back")
	}
}
