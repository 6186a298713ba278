package explain_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/clitest"
)

// reports writes what a node says of an endpoint into the datastore.
func reports(c *clitest.CLI, key, value string) {
	c.T.Helper()
	if _, err := c.Store.Create(c.T.Context(), api.Update{Key: api.Root + "felix/" + key, Value: []byte(value)}); err != nil {
		c.T.Fatal(err)
	}
}

func TestWhySaysWhatNodesDoNotHaveInForce(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Want(0, rejecting, "apply", "-f", "-")
	reports(c, "v2/region-west/host/h1/workload/k8s/prod%2fweb/endpoint/eth0", `{"status":"error","reason":"interface eth7 is not a workload's, and is not touched"}`)
	reports(c, "v2/no-region/host/h2/workload/k8s/prod%2Fdb/endpoint/eth0", `{"status":"up","chains":"too many ports have rules of their own"}`)
	reports(c, "v2/no-region/host/h9/workload/k8s/prod%2Fdb/endpoint/eth0", `{"status":"error","reason":"of another node"}`)
	reports(c, "v1/host/h1/endpoint/h1", `{"status":"down","reason":"no interface has its addresses"}`)
	report := "Not in force, as nodes report it; until it is, packets may fare otherwise than this answer says:\n" +
		"  workloadendpoint/prod/h1-k8s-web-eth0 on h1: error: interface eth7 is not a workload's, and is not touched\n"
	slow := "Asked rule by rule, not by look-ups; the verdicts are the same (docs/compiled.md says what to do):\n" +
		"  workloadendpoint/prod/h2-k8s-db-eth0 on h2: too many ports have rules of their own\n"
	out := c.Want(3, "", "why", "prod/web", "prod/db", "tcp/80")
	if clitest.Contains(t, out, report, slow); strings.Contains(out, "another node") || strings.Contains(out, "h2-k8s-db-eth0 on h2: up") {
		t.Errorf("it says also of others\n%s", out)
	}
	clitest.Contains(t, c.Want(3, "", "why", "host/h1", "203.0.113.9", "tcp/80", "-4"), "  hostendpoint/h1 on h1: down: no interface has its addresses\n")
	if _, out, _ := c.Run("", "why", "--files", clitest.Prod, "prod/web", "prod/db", "tcp/80"); strings.Contains(out, "Not in force") {
		t.Errorf("of files no node reports\n%s", out)
	}
}

func TestWhySaysWhatSummariesOfNodesHave(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	reports(c, "v2/region-west/host/h1/summary", `{"notUp":{"/calico/felix/v2/region-west/host/h1/workload/k8s/prod%2Fweb/endpoint/eth0":{"status":"error","reason":"interface eth7 is not a workload's"}}}`)
	reports(c, "v2/no-region/host/h2/summary", `{"failed":{"/calico/resources/v3/projectcalico.org/networkpolicies/prod/db":"over its budget"}}`)
	reports(c, "v2/no-region/host/h9/summary", `{"failed":{"/calico/resources/v3/projectcalico.org/networkpolicies/prod/db":"of another node"}}`)
	reports(c, "v2/no-region/host/h8/summary", `nonsense`)
	out := c.Want(0, "", "why", "prod/web", "prod/db", "tcp/5432")
	if clitest.Contains(t, out, "workloadendpoint/prod/h1-k8s-web-eth0 on h1: error: interface eth7 is not a workload's", "networkpolicy/prod/db on h2: error: over its budget"); strings.Contains(out, "another node") {
		t.Errorf("it says also of others\n%s", out)
	}
}

func TestWhySaysWhichPolicyThisHostDoesNotHaveInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	report := agent.Report{Node: "h2", Failed: []string{"NetworkPolicy/prod/db: over its budget: 9000 kernel rules, 8192 at most", "NetworkPolicy/other/db: over its budget: of no concern"}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(report) })}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	t.Setenv("TWILL_SOCKET", path)
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	out := c.Want(0, "", "why", "prod/web", "prod/db", "tcp/5432")
	if clitest.Contains(t, out, "ALLOWED", "  networkpolicy/prod/db on h2: error: over its budget: 9000 kernel rules, 8192 at most\n"); strings.Contains(out, "no concern") {
		t.Errorf("a policy that is not on the way\n%s", out)
	}
	report.Node = "h7"
	if out := c.Want(0, "", "why", "prod/web", "prod/db", "tcp/5432"); strings.Contains(out, "budget") {
		t.Errorf("the way does not lead by this host\n%s", out)
	}
}
