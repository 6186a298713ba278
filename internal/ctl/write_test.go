package ctl

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// told is one command and all that it says.
type told struct {
	name, in, args string
	code           int
	want           string
}

func (c *cli) follow(steps ...told) {
	for _, s := range steps {
		c.t.Run(s.name, func(t *testing.T) {
			cc := &cli{t, c.store}
			equal(t, cc.want(s.code, s.in, words(s.args)...), s.want)
		})
	}
}

// words splits at blanks that are not in single quotes.
func words(text string) []string {
	var out []string
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

var denyWeb = strings.Replace(web, "Allow", "Deny", 1)

func TestCreateAndReplaceWantAbsenceAndPresence(t *testing.T) {
	other := strings.Replace(web, "name: web", "name: other", 1)
	newCLI(t).follow(
		told{"what does not exist cannot be replaced", web, "replace -f -", 1, "twill: standard input: networkpolicy/prod/web does not exist; use create or apply"},
		told{"create", web, "create -f -", 0, "networkpolicy/prod/web created"},
		told{
			"what exists cannot be created, and nothing beside it is", other + "---\n" + denyWeb, "create -f -", 1,
			"twill: standard input: networkpolicy/prod/web exists already; use apply or replace to change it, or --skip-exists to leave it alone",
		},
		told{"unless it is to be skipped", denyWeb + "---\n" + other, "create -f - --skip-exists", 0, "networkpolicy/prod/web exists already, skipped\nnetworkpolicy/prod/other created"},
		told{"replace", denyWeb, "replace -f -", 0, "networkpolicy/prod/web replaced"},
		told{"replace by the same", denyWeb, "replace -f -", 0, "networkpolicy/prod/web unchanged"},
		told{"nothing to do is an error", "# nothing\n", "apply -f -", 1, "twill: no resource in 1 file"},
		told{"unless that was expected", "# nothing\n", "apply -f - --skip-empty", 0, ""},
	)
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
				c.want(0, tt.stored, "apply", "-f", "-")
			}
			code, _, errs := c.run(tt.in, words(tt.args)...)
			if code != 0 || (errs == "") != (tt.want == "") || !strings.Contains(errs, tt.want) {
				t.Errorf("exit %d, %s\nwant 0, %q", code, errs, tt.want)
			}
		})
	}
}

func TestReplaceRefusesWhatWasChangedMeanwhile(t *testing.T) {
	c := newCLI(t)
	c.want(0, web, "apply", "-f", "-")
	_, seen, _ := c.run("", "get", "np", "web", "-n", "prod", "-o", "yaml")
	c.want(0, denyWeb, "apply", "-f", "-")
	contains(t, c.want(1, seen, "replace", "-f", "-"), "networkpolicy/prod/web was changed by another writer: metadata.resourceVersion is 7 now, not 2; get it again")
	contains(t, c.stored("networkpolicies/prod/web"), "Deny")
	equal(t, c.want(0, web, "apply", "-f", "-"), "networkpolicy/prod/web configured")
	_, seen, _ = c.run("", "get", "np", "web", "-n", "prod", "-o", "yaml")
	equal(t, c.want(0, strings.Replace(seen, "Allow", "Deny", 1), "replace", "-f", "-"), "networkpolicy/prod/web replaced")
}

func TestReplaceKeepsWhatAnotherVersionWrote(t *testing.T) {
	c := newCLI(t)
	c.raw("networkpolicies/prod/web", `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1"},"spec":{"selector":"all()","newer":7}}`)
	c.want(0, web, "replace", "-f", "-")
	contains(t, c.stored("networkpolicies/prod/web"), `"newer":7`, `"uid":"u1"`, `app == \"web\"`)
}

func TestADryRunSaysWhatItWouldDoAndWritesNothing(t *testing.T) {
	c := newCLI(t)
	c.want(0, "", "apply", "-f", prod)
	before := c.store.Revision()
	c.follow(
		told{"create", web, "create -f - --dry-run", 0, "networkpolicy/prod/web created (dry run)"},
		told{"apply of something new", web, "apply -f - --dry-run=server", 0, "networkpolicy/prod/web created (dry run)"},
		told{"apply of a change names the fields", "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: security}\nspec: {order: 7, defaultAction: Pass}", "apply -f - --dry-run", 0, "tier/security configured (dry run): spec.order 100 → 7"},
		told{"without a datastore", web, "apply -f - --dry-run=client", 0, "networkpolicy/prod/web is valid (dry run, datastore not asked)"},
		told{"patch", "", "patch tier security -p '{spec: {order: 8}}' --dry-run", 0, "tier/security patched (dry run): spec.order 100 → 8"},
		told{"label", "", "label node h1 rack=r7 --dry-run", 0, "node/h1 labeled (dry run): metadata.labels nothing → {\"rack\":\"r7\"}"},
		told{"delete", "", "delete np db -n prod --dry-run", 0, "networkpolicy/prod/db deleted (dry run)"},
		told{"delete of what is not there", "", "delete np nope -n prod --dry-run", 1, "twill: networkpolicy/prod/nope does not exist; --skip-not-exists makes that no error"},
		told{"a mistake is found all the same", denyWeb, "replace -f - --dry-run", 1, "twill: standard input: networkpolicy/prod/web does not exist; use create or apply"},
		told{"how is one of three", web, "apply -f - --dry-run=maybe", 2, "twill: apply: --dry-run=maybe: want server, client or none"},
	)
	// A tier goes once its policies are gone, and a dry run knows that they would be.
	contains(t, c.want(0, "", "delete", "-f", prod, "--dry-run"), "tier/security deleted (dry run)")
	if now := c.store.Revision(); now != before {
		t.Errorf("revision %d after %d: something was written", now, before)
	}
}

func TestAClientDryRunDoesNotAskTheDatastore(t *testing.T) {
	c := newCLI(t)
	c.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	c.want(0, web, "apply", "-f", "-", "--dry-run=client")
}

func TestAFailureAmidManySaysHowFarItCame(t *testing.T) {
	c := newCLI(t)
	c.store.Fail(func(o memstore.Op) error {
		if strings.Contains(o.Key, "no-telnet") && o.Verb == "create" {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	contains(t, c.want(1, "", "apply", "-f", prod), "globalnetworkpolicy/no-telnet: ", "not authorized", "3 of 7 resources were applied before this; the rest were not")
}

func TestLongWorkSaysHowFarItIs(t *testing.T) {
	var many bytes.Buffer
	for i := range 2500 {
		fmt.Fprintf(&many, "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: s%d}\nspec: {nets: [10.0.0.0/8]}\n", i)
	}
	c := newCLI(t)
	_, out, errs := c.run(many.String(), "apply", "-f", "-")
	if n := strings.Count(out, "created\n"); n != 2500 {
		t.Errorf("%d created", n)
	}
	equal(t, errs, "twill: 1000 of 2500 applied\ntwill: 2000 of 2500 applied")
	if said := c.want(1, many.String(), "create", "-f", "-"); strings.Count(said, "\n") != 11 || !strings.Contains(said, "and 2490 more") {
		t.Errorf("of many mistakes of one sort the first are listed, not\n%.2000s", said)
	}
	if _, _, errs = c.run(web, "apply", "-f", "-"); errs != "" {
		t.Errorf("short work says %q", errs)
	}
}

func TestARevisionThatIsGivenMustBeTheStoredOne(t *testing.T) {
	c := newCLI(t)
	c.want(0, web, "apply", "-f", "-")
	seen := c.want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml")
	again := strings.Replace(seen, "Allow", "Deny", 1)
	c.want(0, strings.Replace(web, "web\"", "db\"", 1), "apply", "-f", "-") // another writer
	other := "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: g}\n"
	for _, verb := range []string{"apply", "replace", "delete"} {
		in := again
		if verb != "replace" {
			in += other
		}
		contains(t, c.want(1, in, verb, "-f", "-"), "networkpolicy/prod/web was changed by another writer: metadata.resourceVersion is 7 now, not 2")
		contains(t, c.stored("networkpolicies/prod/web"), `app == \"db\"`, "Allow")
		contains(t, c.stored("globalnetworksets/g"), "not found")
	}
	now := c.want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml")
	contains(t, c.want(0, strings.Replace(now, "Allow", "Deny", 1), "apply", "-f", "-"), "configured")
	contains(t, newCLI(t).want(0, now, "apply", "-f", "-"), "created") // in another cluster
	c.want(0, c.want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml"), "delete", "-f", "-")
	contains(t, c.stored("networkpolicies/prod/web"), "not found")
}
