package resources_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestCreateAndReplaceWantAbsenceAndPresence(t *testing.T) {
	other := strings.Replace(clitest.Web, "name: web", "name: other", 1)
	newCLI(t).Follow(
		clitest.Step{Name: "what does not exist cannot be replaced", In: clitest.Web, Args: "replace -f -", Code: 1, Want: "twill: standard input: networkpolicy/prod/web does not exist; use create or apply"},
		clitest.Step{Name: "create", In: clitest.Web, Args: "create -f -", Code: 0, Want: "networkpolicy/prod/web created"},
		clitest.Step{
			Name: "what exists cannot be created, and then nothing is", In: other + "---\n" + clitest.DenyWeb, Args: "create -f -", Code: 1,
			Want: "twill: standard input: networkpolicy/prod/web exists already; use apply or replace to change it, or --skip-exists to leave it alone",
		},
		clitest.Step{Name: "unless it is to be skipped", In: clitest.DenyWeb + "---\n" + other, Args: "create -f - --skip-exists", Code: 0, Want: "networkpolicy/prod/web exists already, skipped\nnetworkpolicy/prod/other created"},
		clitest.Step{Name: "replace", In: clitest.DenyWeb, Args: "replace -f -", Code: 0, Want: "networkpolicy/prod/web replaced"},
		clitest.Step{Name: "replace by the same", In: clitest.DenyWeb, Args: "replace -f -", Code: 0, Want: "networkpolicy/prod/web unchanged"},
		clitest.Step{Name: "what is created is in a file", In: "", Args: "create networkpolicy web", Code: 2, Want: `twill: twill create takes no arguments, got "networkpolicy"`},
		clitest.Step{Name: "nothing to do is an error", In: "# nothing\n", Args: "apply -f -", Code: 1, Want: "twill: no resource in 1 file"},
		clitest.Step{Name: "unless that was expected", In: "# nothing\n", Args: "apply -f - --skip-empty", Code: 0, Want: ""},
	)
	for _, verb := range []string{"create", "apply", "replace", "delete"} {
		c := newCLI(t)
		clitest.Contains(t, c.Want(1, "# nothing\n", verb, "-f", "-"), "no resource in 1 file")
		clitest.Equal(t, c.Want(0, "# nothing\n", verb, "-f", "-", "--skip-empty"), "")
	}
}

func TestAnInterfaceThatIsNoWorkloadsIsWarnedOf(t *testing.T) {
	claim := func(link string) string {
		return "apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata: {name: h1-k8s-a-eth0, namespace: prod}\n" +
			"spec: {node: h1, orchestrator: k8s, pod: a, endpoint: eth0, ipNetworks: [10.0.0.1/32], interfaceName: " + link + "}\n"
	}
	const felix = "---\napiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: node.h1}\nspec: {interfacePrefix: tap}\n"
	const warning = "warning: standard input: workloadendpoint/prod/h1-k8s-a-eth0: spec.interfaceName: eth0 begins with none of interfacePrefix (cali): node h1 will refuse"
	for _, tt := range []struct{ name, stored, in, args, want string }{
		{"apply", "", claim("eth0"), "apply -f -", warning},
		{"apply, tried without a datastore", "", claim("eth0"), "apply -f - --dry-run=client", warning},
		{"create", "", claim("eth0"), "create -f -", warning},
		{"validate", "", claim("eth0"), "validate -f -", warning},
		{"the default prefix", "", claim("cali1"), "apply -f -", ""},
		{"a prefix that some node has", felix, claim("tap1"), "apply -f -", ""},
		{"a prefix that comes with it", "", claim("tap1") + felix, "apply -f -", ""},
		{"which validate reads, too", "", claim("tap1") + felix, "validate -f -", ""},
		{"no prefix makes lo a workload's", strings.Replace(felix, "tap", "lo", 1), claim("lo"), "apply -f -", "interfaceName: lo is the host's own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCLI(t)
			if tt.stored != "" {
				c.Want(0, tt.stored, "apply", "-f", "-")
			}
			code, _, errs := c.Run(tt.in, clitest.Words(tt.args)...)
			if code != 0 || (errs == "") != (tt.want == "") || !strings.Contains(errs, tt.want) {
				t.Errorf("exit %d, %s\nwant 0, %q", code, errs, tt.want)
			}
		})
	}
}

func TestReplaceRefusesWhatWasChangedMeanwhile(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Web, "apply", "-f", "-")
	_, seen, _ := c.Run("", "get", "np", "web", "-n", "prod", "-o", "yaml")
	first := c.Revision("networkpolicies/prod/web")
	c.Want(0, clitest.DenyWeb, "apply", "-f", "-")
	stale := fmt.Sprintf("networkpolicy/prod/web was changed by another writer: metadata.resourceVersion is %s now, not %s; get it again", c.Revision("networkpolicies/prod/web"), first)
	clitest.Contains(t, c.Want(1, seen, "replace", "-f", "-"), stale)
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), "Deny")
	clitest.Equal(t, c.Want(0, clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/web configured")
	_, seen, _ = c.Run("", "get", "np", "web", "-n", "prod", "-o", "yaml")
	clitest.Equal(t, c.Want(0, strings.Replace(seen, "Allow", "Deny", 1), "replace", "-f", "-"), "networkpolicy/prod/web replaced")
}

func TestReplaceKeepsWhatAnotherVersionWrote(t *testing.T) {
	c := newCLI(t)
	c.Raw("networkpolicies/prod/web", `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1"},"spec":{"selector":"all()","newer":7}}`)
	c.Want(0, clitest.Web, "replace", "-f", "-")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), `"newer":7`, `"uid":"u1"`, `app == \"web\"`)
}

func TestADryRunSaysWhatItWouldDoAndWritesNothing(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	before := c.Store.Revision()
	c.Follow(
		clitest.Step{Name: "create", In: clitest.Web, Args: "create -f - --dry-run", Code: 0, Want: "networkpolicy/prod/web created (dry run)"},
		clitest.Step{Name: "apply of something new", In: clitest.Web, Args: "apply -f - --dry-run=server", Code: 0, Want: "networkpolicy/prod/web created (dry run)"},
		clitest.Step{Name: "apply of a change names the fields", In: "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: security}\nspec: {order: 7, defaultAction: Pass}", Args: "apply -f - --dry-run", Code: 0, Want: "tier/security configured (dry run): spec.order 100 → 7"},
		clitest.Step{Name: "without a datastore", In: clitest.Web, Args: "apply -f - --dry-run=client", Code: 0, Want: "networkpolicy/prod/web is valid (dry run, datastore not asked)"},
		clitest.Step{Name: "patch", In: "", Args: "patch tier security -p '{spec: {order: 8}}' --dry-run", Code: 0, Want: "tier/security patched (dry run): spec.order 100 → 8"},
		clitest.Step{Name: "label", In: "", Args: "label node h1 rack=r7 --dry-run", Code: 0, Want: "node/h1 labeled (dry run): metadata.labels nothing → {\"rack\":\"r7\"}"},
		clitest.Step{Name: "delete", In: "", Args: "delete np db -n prod --dry-run", Code: 0, Want: "networkpolicy/prod/db deleted (dry run)"},
		clitest.Step{Name: "delete of what is not there", In: "", Args: "delete np nope -n prod --dry-run", Code: 1, Want: "twill: networkpolicy/prod/nope does not exist; --skip-not-exists makes that no error"},
		clitest.Step{Name: "a mistake is found all the same", In: clitest.DenyWeb, Args: "replace -f - --dry-run", Code: 1, Want: "twill: standard input: networkpolicy/prod/web does not exist; use create or apply"},
		clitest.Step{Name: "how is one of three", In: clitest.Web, Args: "apply -f - --dry-run=maybe", Code: 2, Want: "twill: apply: --dry-run=maybe: want server, client or none"},
	)
	// A tier goes once its policies are gone, and a dry run knows that they would be.
	clitest.Contains(t, c.Want(0, "", "delete", "-f", clitest.Prod, "--dry-run"), "tier/security deleted (dry run)")
	if now := c.Store.Revision(); now != before {
		t.Errorf("revision %d after %d: something was written", now, before)
	}
}

func TestAClientDryRunDoesNotAskTheDatastore(t *testing.T) {
	c := newCLI(t)
	c.Store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	c.Want(0, clitest.Web, "apply", "-f", "-", "--dry-run=client")
}

func TestAFailureAmidManySaysHowFarItCame(t *testing.T) {
	c := newCLI(t)
	c.Store.Fail(func(o memstore.Op) error {
		if strings.Contains(o.Key, "no-telnet") && o.Verb == "create" {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	clitest.Contains(t, c.Want(1, "", "apply", "-f", clitest.Prod), "globalnetworkpolicy/no-telnet: ", "not authorized", "3 of 7 resources were applied before this; the rest were not")
}

func TestLongWorkSaysHowFarItIs(t *testing.T) {
	var many bytes.Buffer
	for i := range 2500 {
		fmt.Fprintf(&many, "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: s%d}\nspec: {nets: [10.0.0.0/8]}\n", i)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCLI(t)
		c.Store.Fail(func(o memstore.Op) error {
			if o.Verb == "create" {
				<-time.After(9999 * time.Microsecond)
			}
			return nil
		})
		_, out, errs := c.Run(many.String(), "apply", "-f", "-")
		if n := strings.Count(out, "created\n"); n != 2500 {
			t.Errorf("%d created", n)
		}
		clitest.Equal(t, errs, "twill: 1000 of 2500 applied, 10s, about 15s left\ntwill: 2000 of 2500 applied, 20s, about 5s left")
		if out := c.Want(1, many.String(), "create", "-f", "-"); strings.Count(out, "\n") != 11 || !strings.Contains(out, "and 2490 more") {
			t.Errorf("of many mistakes of one sort the first are listed, not\n%.2000s", out)
		}
		if _, _, errs := c.Run(clitest.Web, "apply", "-f", "-"); errs != "" {
			t.Errorf("short work says %q", errs)
		}
	})
}

func TestARevisionThatIsGivenMustBeTheStoredOne(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Web, "apply", "-f", "-")
	seen := c.Want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml")
	again := strings.Replace(seen, "Allow", "Deny", 1)
	first := c.Revision("networkpolicies/prod/web")
	c.Want(0, strings.Replace(clitest.Web, "web\"", "db\"", 1), "apply", "-f", "-") // another writer
	stale := fmt.Sprintf("networkpolicy/prod/web was changed by another writer: metadata.resourceVersion is %s now, not %s", c.Revision("networkpolicies/prod/web"), first)
	other := "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: g}\n"
	for _, verb := range []string{"apply", "replace", "delete"} {
		in := again
		if verb != "replace" {
			in += other
		}
		clitest.Contains(t, c.Want(1, in, verb, "-f", "-"), stale)
		clitest.Contains(t, c.Stored("networkpolicies/prod/web"), `app == \"db\"`, "Allow")
		clitest.Contains(t, c.Stored("globalnetworksets/g"), "not found")
	}
	now := c.Want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml")
	clitest.Contains(t, c.Want(0, strings.Replace(now, "Allow", "Deny", 1), "apply", "-f", "-"), "configured")
	clitest.Contains(t, newCLI(t).Want(0, now, "apply", "-f", "-"), "created") // in another cluster
	c.Want(0, c.Want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml"), "delete", "-f", "-")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), "not found")
}
