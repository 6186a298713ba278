package get_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// says has a node's agent say that policies are in force as they are stored, except for some.
func says(t *testing.T, c *clitest.CLI, node string, except map[string]string, late ...string) {
	t.Helper()
	var v status.Versions
	for _, kind := range resources.PolicyKinds {
		all, err := c.Store.List(t.Context(), api.KeyPrefix(kind, ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range all.Items {
			v.Set(status.VersionOf(u))
		}
	}
	for _, key := range late {
		v.Set(status.VersionOf(api.Update{Key: key}))
	}
	text, err := json.Marshal(status.Summary{Policies: v.Without(except), Failed: except})
	if err != nil {
		t.Fatal(err)
	}
	prefix := api.Root + "felix/v2/no-region/host/" + node
	for key, value := range map[string]string{"/summary": string(text), "/status": `{"ready":true}`, "/last_reported_status": `{"time":"2026-01-02T03:04:05Z"}`} {
		if err := datastore.Put(t.Context(), c.Store, api.Update{Key: prefix + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
}

func policy(name string) string {
	return fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: %s}\nspec: {selector: all()}\n", name)
}

func TestGetSaysOnHowManyNodesAPolicyIsInForce(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	c.Want(0, policy("a")+"---\n"+policy("b"), "apply", "-f", "-")
	if out := c.Want(0, "", "get", "gnp", "-o", "wide"); strings.Contains(out, "REALISED") {
		t.Errorf("no agent has said anything:\n%s", out)
	}
	key := api.KeyPrefix(api.KindGlobalNetworkPolicy, "") + "default.b"
	if _, err := c.Store.Get(t.Context(), key); err != nil {
		key = api.KeyPrefix(api.KindGlobalNetworkPolicy, "") + "b"
	}
	says(t, c, "h1", nil)
	says(t, c, "h2", map[string]string{key: "over its budget"})
	want := func(lines ...string) {
		t.Helper()
		out := c.Want(0, "", "get", "gnp", "-o", "wide")
		for _, line := range lines {
			name, rest, _ := strings.Cut(line, " ")
			found := false
			for got := range strings.Lines(out) {
				found = found || strings.HasPrefix(got, name+" ") && strings.Contains(got, " "+rest+" ")
			}
			if !found {
				t.Errorf("want %q in\n%s", line, out)
			}
		}
	}
	want("NAME REALISED", "a 2/2", "b 1/2, not h2")

	c.Want(0, strings.Replace(policy("a"), "all()", "has(x)", 1), "apply", "-f", "-")
	want("a 0/2, not h1 h2")
	for _, n := range []string{"h3", "h4"} {
		says(t, c, n, nil)
	}
	c.Want(0, strings.Replace(policy("a"), "all()", "has(y)", 1), "apply", "-f", "-")
	want("a 0/4, not h1 h2 h3 …")

	// What is staged is judged.
	c.Want(0, strings.Replace(policy("s"), "Global", "StagedGlobal", 1), "apply", "-f", "-")
	says(t, c, "h1", nil)
	if out := c.Want(0, "", "get", "sgnp", "-o", "wide"); !strings.Contains(out, "REALISED") || !strings.Contains(out, " 1/4, not ") {
		t.Errorf("staged policies:\n%s", out)
	}
}

func TestApplyWaitsUntilAllNodesSayThatItIsInForce(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	c.Want(2, policy("a"), "apply", "-f", "-", "--wait", "--dry-run")
	out := c.Want(1, policy("a"), "apply", "-f", "-", "--wait", "--wait-timeout", "1ms")
	if !strings.Contains(out, "created") || !strings.Contains(out, "no agent has said") {
		t.Errorf("without agents:\n%s", out)
	}
	says(t, c, "h1", nil)
	c.Want(0, policy("a"), "apply", "-f", "-", "--wait", "--wait-timeout", "1ms")

	out = c.Want(1, policy("b"), "apply", "-f", "-", "--wait", "--wait-timeout", "1ms")
	if !strings.Contains(out, "globalnetworkpolicy/b is in force on 0 of 1 nodes") || !strings.Contains(out, "not on h1: its agent has not said so yet") {
		t.Errorf("an agent that is late:\n%s", out)
	}
	// What nobody enforces is not waited for.
	c.Want(0, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: s}\nspec: {nets: [10.0.0.0/8]}\n", "apply", "-f", "-", "--wait", "--wait-timeout", "1ms")
}
