package doctor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// ofCalico is a host on which upstream's agent made all that it can make.
func ofCalico(t *testing.T) *netnstest.NS {
	t.Helper()
	ns := netnstest.New(t)
	ns.Veth("eth0", "eth0p")
	ns.Addr("eth0", "192.0.2.1/24")
	ns.Veth("cali1", "web")
	ns.Veth("vxlan.calico", "vxp")
	for _, ipt := range []string{"iptables-legacy", "ip6tables-nft"} {
		ns.Run(ipt, "-N", "cali-FORWARD")
		ns.Run(ipt, "-A", "FORWARD", "-m", "comment", "--comment", "cali:a", "-j", "cali-FORWARD")
	}
	ns.Run("nft", "add table ip calico")
	ns.Run("ipset", "create", "cali40s:clients", "hash:net")
	ns.Route("10.65.2.0/26 via 192.0.2.2 proto bird")
	return ns
}

type outlook struct {
	Node, Stage string
	Findings    []struct{ Check, Grade, Found, When, Do string }
	Next, Back  []string
}

// look calls twill doctor --take-over in a namespace.
func look(t *testing.T, c *clitest.CLI, ns *netnstest.NS, code int, args ...string) (o outlook, lines string) {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"doctor", "--take-over", "-o", "json", "--node", "h1", "--socket", filepath.Join(dir, "none"), "--data-dir", dir, "--felix-config", filepath.Join(dir, "felix.cfg"), "--env-file", filepath.Join(dir, "none.env")}, args...)
	var got int
	var out, errs string
	ns.Do(func() { got, out, errs = c.Run("", args...) })
	if got != code {
		t.Errorf("exit code %d, want %d\n%s%s", got, code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	for _, f := range o.Findings {
		lines += f.Grade + " " + f.Check + ": " + f.Found + "\n"
	}
	return o, lines
}

const resources = `apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h1}
spec: {bgp: {ipv4Address: 192.0.2.1/24}}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h2}
spec: {bgp: {ipv4Address: 192.0.2.2/24}}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16}
---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeMeshPassword: {secretKeyRef: {name: bgp, key: mesh}}}
---
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata: {name: h1-k8s-web-eth0, namespace: default}
spec: {node: h1, orchestrator: k8s, pod: web, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.65.0.5]}
`

// TestAHostOfCalicosIsJudged on a real kernel, with a process, an environment, files and a datastore.
func TestAHostOfCalicosIsJudged(t *testing.T) {
	clitest.ClearStoreEnv(t)
	ns, c, dir := ofCalico(t), newCLI(t), t.TempDir()
	c.Want(0, resources, "apply", "-f", "-")
	c.Raw("dreams/x", `{"kind":"Dream"}`)
	_, stop := ns.Called("calico-node", "FELIX_LOGSEVERITYSCREEN=Debug", "CLUSTER_TYPE=k8s", "USE_POD_CIDR=true", "ETCD_ENDPOINTS=http://192.0.2.9:2379")
	conf := filepath.Join(dir, "10-calico.conflist")
	if err := os.WriteFile(conf, []byte(`{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	at := []string{"--etcd", "http://192.0.2.9:2379", "--conf-dir", dir, "--bin-dir", dir, "--secrets-dir", dir}
	o, lines := look(t, c, ns, 1, at...)
	for _, want := range []string{
		"blocks bgp: the password of the session with 192.0.2.2 (mesh), mesh of bgp, cannot be read: ",
		"changes agent: calico-node (pid ",
		"changes settings: variables of the environment of Calico's agent that have no effect: USE_POD_CIDR\n",
		"changes settings: logSeverityScreen is Debug by environment of calico-node, and Twill would have Info (default)\n",
		"changes addresses: 10.65.0.5: each is an endpoint's, and not allocated",
		"changes cni: " + conf + ": runtimes call calico, which is Calico's binary now",
		"changes rules: what Calico made in the kernel is removed: 1 chain of iptables-legacy, ip (filter); 1 chain of iptables-nft, ip6 (filter); table ip calico; 1 ipset: cali40s:clients; " +
			"1 route: 10.65.2.0/26 via 192.0.2.2 dev eth0 proto 12; devices vxlan.calico\n",
		"changes rules: Calico's rules stay in force beside ours",
		"same node: Node h1\n", "same kernel: Linux ", "same workloads: 1 workload here with their interfaces", "same bgp: 1 session of BGP, AS 64512: h2\n",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is not in:\n%s", want, lines)
		}
	}
	if !storetest.IsPoor() && !strings.Contains(lines, "changes resources: 1 resource of a kind that Twill does not know, dreams, have no effect") {
		t.Errorf("a kind that is not known is passed over:\n%s", lines)
	}
	if strings.Contains(lines, "blocks rules") || o.Node != "h1" || o.Stage != "upstream" || !strings.HasPrefix(o.Next[0], "1. Put right what blocks (1 finding") || len(o.Back) > 0 {
		t.Errorf("%+v", o)
	}
	stop()
	ns.Run("ip6tables-nft", "-P", "FORWARD", "DROP")
	if _, lines = look(t, c, ns, 1, at...); !strings.Contains(lines, "blocks rules: the policy of chain FORWARD of filter in iptables-nft (IPv6) is DROP") || !strings.Contains(lines, "same agent: no agent runs") {
		t.Errorf("a host that drops:\n%s", lines)
	}
	if err := os.MkdirAll(filepath.Join(dir, "bgp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bgp", "mesh"), []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, lines = look(t, c, ns, 0, append(at, "--force")...); !strings.Contains(lines, "changes rules: the policy of chain FORWARD") || !strings.Contains(lines, "same bgp: the password of mesh") {
		t.Errorf("what is provided for, and a password that is found:\n%s", lines)
	}
}

// TestADatastoreThatDoesNotAnswerIsAFinding, and so is one that refuses a kind.
func TestADatastoreThatDoesNotAnswerIsAFinding(t *testing.T) {
	clitest.ClearStoreEnv(t)
	ns, c := netnstest.New(t), newCLI(t)
	c.Want(0, resources, "apply", "-f", "-")
	refuse := func(prefix string) {
		c.Store.Fail(func(o memstore.Op) error {
			if o.Verb == "list" && strings.HasPrefix(o.Key, prefix) {
				return fmt.Errorf("%s is forbidden", prefix)
			}
			return nil
		})
	}
	refuse(api.ResourcesPrefix)
	want := "blocks store: "
	if _, lines := look(t, c, ns, 1); !strings.Contains(lines, want) || !strings.Contains(lines, "is forbidden") {
		t.Errorf("%q is not in:\n%s", want, lines)
	}
	refuse(api.IPAMPrefix)
	if _, lines := look(t, c, ns, 1); !strings.Contains(lines, "blocks addresses: addresses cannot be checked: ") {
		t.Errorf("addresses that cannot be read:\n%s", lines)
	}
	refuse(api.Root + "felix/")
	if _, lines := look(t, c, ns, 1); !strings.Contains(lines, "changes cluster: which nodes Twill has is not known: ") {
		t.Errorf("reports that cannot be read:\n%s", lines)
	}
}

func TestTheOutlookIsPrintedForPeople(t *testing.T) {
	clitest.ClearStoreEnv(t)
	ns, c, dir := netnstest.New(t), newCLI(t), t.TempDir()
	c.Want(0, resources, "apply", "-f", "-")
	args := []string{"doctor", "--take-over", "--node", "laptop", "--socket", filepath.Join(dir, "none"), "--data-dir", dir, "--conf-dir", dir}
	var out, wide, both string
	ns.Do(func() {
		out = c.Want(0, "", args...)
		wide = c.Want(0, "", append(args, "-o", "wide")...)
		both = c.Want(2, "", append(args, "--fix", "leftovers")...)
	})
	clitest.Contains(t, out, "GRADE    CHECK      FOUND\n", "same     node       this machine (laptop) is no node of the datastore, and nothing of Calico's is here", "0 block, 1 change, 3 stay the same\n",
		"What to do next on laptop (docs/takeover.md):\n  1. Run this as root on each host that is to be taken over.\n", "do: twill ipam check")
	clitest.Contains(t, wide, "WHEN", "DO\n", "when Twill starts")
	clitest.Contains(t, both, "take-over")
}

// TestAnAgentThatAnswersNothingIsNotTakenForNone.
func TestAnAgentThatAnswersNothingIsNotTakenForNone(t *testing.T) {
	clitest.ClearStoreEnv(t)
	ns, c := netnstest.New(t), newCLI(t)
	c.Want(0, resources, "apply", "-f", "-")
	o, lines := look(t, c, ns, 1, "--socket", agentThatSays(t, t.TempDir(), "no JSON"))
	if want := "blocks agent: whether Twill's agent runs is not known: "; !strings.Contains(lines, want) || o.Stage != "unknown" {
		t.Errorf("%q is not in:\n%s%+v", want, lines, o)
	}
}

// TestTheEnvironmentOfTwillsUnitsCounts where it is not set here, and is forgotten afterwards: it is that of the agent that will run.
func TestTheEnvironmentOfTwillsUnitsCounts(t *testing.T) {
	clitest.ClearStoreEnv(t)
	ns, c := ofCalico(t), newCLI(t)
	c.Want(0, resources, "apply", "-f", "-")
	_, stop := ns.Called("calico-node", "FELIX_LOGSEVERITYSCREEN=Debug", "ETCD_ENDPOINTS=http://192.0.2.9:2379")
	defer stop()
	file := filepath.Join(t.TempDir(), "node.env")
	if err := os.WriteFile(file, []byte("# of an operator\n; and another\n\nFELIX_LOGSEVERITYSCREEN='Debug'\nETCD_ENDPOINTS=\"http://192.0.2.9:2379\"\nTWILL_BGP=off\nno assignment\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := []string{"--etcd", "http://192.0.2.9:2379", "--conf-dir", dir, "--bin-dir", dir, "--secrets-dir", dir}
	differs := "logSeverityScreen is Debug by environment of calico-node, and Twill would have Info"
	if _, lines := look(t, c, ns, 1, at...); !strings.Contains(lines, differs) || !strings.Contains(lines, "same bgp: 1 session") && !strings.Contains(lines, "blocks bgp") {
		t.Errorf("without the file:\n%s", lines)
	}
	_, lines := look(t, c, ns, 0, append(at, "--env-file", file)...) // and without BGP it needs no password
	if strings.Contains(lines, differs) {
		t.Errorf("with the file:\n%s", lines)
	}
	for _, name := range []string{"FELIX_LOGSEVERITYSCREEN", "TWILL_BGP"} {
		if v, set := os.LookupEnv(name); set {
			t.Errorf("%s is %q afterwards", name, v)
		}
	}
	t.Setenv("FELIX_LOGSEVERITYSCREEN", "Warning")
	if _, lines := look(t, c, ns, 0, append(at, "--env-file", file)...); !strings.Contains(lines, "and Twill would have Warning") {
		t.Errorf("what is set here does not go first:\n%s", lines)
	}
	if code, _, errs := c.Run("", "doctor", "--take-over", "--env-file", dir); code != 1 || !strings.Contains(errs, "read the environment of Twill's units") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
