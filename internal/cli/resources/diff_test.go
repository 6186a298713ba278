package resources_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// wouldBe is what diff -o json says of a resource.
type wouldBe struct {
	Resource, What string
	Changes        []struct {
		Path     string
		Was, Now any
	}
	Before, After map[string]any
}

func TestDiffSaysWhatApplyThenDoes(t *testing.T) {
	pool := "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.99.0.0/16}\n"
	configuration := "apiVersion: projectcalico.org/v3\nkind: IPAMConfiguration\nmetadata: {name: default}\nspec: {strictAffinity: true}\n"
	labeled := "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: db, namespace: prod, labels: {a: b}}\nspec: {tier: security, order: 7, selector: all(), ingress: [{action: Deny}]}\n"
	for _, tt := range []struct{ name, in, changed string }{
		{"nothing", clitest.Tier("security", "order: 100, defaultAction: Pass"), ""},
		{"a field", clitest.Tier("security", "order: 7, defaultAction: Pass"), "tier/security configured spec.order"},
		{"many fields, and a label", labeled, "networkpolicy/prod/db configured metadata.labels.a metadata.labels.projectcalico.org/tier spec.ingress spec.order spec.selector spec.tier"},
		{"something new", clitest.Web, "networkpolicy/prod/web created"},
		{"new, and of a tier that comes with it", strings.Replace(clitest.Web, "spec: {", "spec: {tier: fresh, ", 1) + "---\n" + clitest.Tier("fresh", "order: 3"), "tier/fresh created, networkpolicy/prod/web created"},
		{"a pool", pool, "ippool/p created"},
		{"the configuration of address management", configuration, "ipamconfiguration/default created"},
		{"what another version wrote stays", strings.Replace(strings.Replace(clitest.Web, "web", "newer", 1), "Allow", "Deny", 1), "networkpolicy/prod/newer configured metadata.labels spec.ingress spec.order spec.selector"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCLI(t)
			c.Want(0, "", "apply", "-f", clitest.Prod)
			c.Raw("networkpolicies/prod/newer", strings.Replace(newer, `"name":"web"`, `"name":"newer"`, 1))
			revision := c.Store.Revision()
			code, out, errs := c.Run(tt.in, "diff", "-f", "-", "-o", "json")
			var found []wouldBe
			if err := json.Unmarshal([]byte(out), &found); err != nil {
				t.Fatalf("exit %d: %v\n%s%s", code, err, out, errs)
			}
			if now := c.Store.Revision(); now != revision {
				t.Errorf("revision %d after %d: something was written", now, revision)
			}
			var lines []string
			for _, f := range found {
				line := []string{f.Resource, f.What}
				for _, ch := range f.Changes {
					line = append(line, ch.Path)
				}
				lines = append(lines, strings.Join(line, " "))
			}
			clitest.Equal(t, strings.Join(lines, ", "), tt.changed)
			if want := min(len(found), 1); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			applied := c.Want(0, tt.in, "apply", "-f", "-")
			for _, f := range found {
				clitest.Contains(t, applied, f.Resource+" "+f.What)
				if got := document(t, c, f.Resource, f.Before == nil); !reflect.DeepEqual(got, f.After) {
					t.Errorf("%s is\n%v\nand diff said\n%v", f.Resource, got, f.After)
				}
			}
			if n := strings.Count(applied, "\n") - strings.Count(applied, " unchanged\n"); n != len(found) {
				t.Errorf("apply changed %d resources, and diff said %d:\n%s", n, len(found), applied)
			}
			clitest.Equal(t, c.Want(0, tt.in, "diff", "-f", "-"), "")
		})
	}
}

// document is a resource as it is stored, without its revision; of a fresh one also without what nobody can know before.
func document(t *testing.T, c *clitest.CLI, resource string, fresh bool) map[string]any {
	t.Helper()
	parts := strings.Split(resource, "/")
	args := []string{"get", parts[0], parts[len(parts)-1], "-o", "json"}
	if len(parts) == 3 {
		args = append(args, "-n", parts[1])
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(c.Want(0, "", args...)), &doc); err != nil {
		t.Fatal(err)
	}
	meta := doc["metadata"].(map[string]any)
	delete(meta, "resourceVersion")
	if fresh {
		delete(meta, "uid")
		delete(meta, "creationTimestamp")
	}
	return doc
}

func TestDiffIsForPeopleAndPatch(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	out := c.Want(1, clitest.Tier("security", "order: 7, defaultAction: Pass")+"---\n"+clitest.Web, "diff", "-f", "-")
	clitest.Contains(t, out, "--- stored/tier/security\n+++ applied/tier/security\n@@ ", "   defaultAction: Pass\n-  order: 100\n+  order: 7\n",
		"--- /dev/null\n+++ applied/networkpolicy/prod/web\n", "+  selector: app == \"web\"\n")
	if strings.Contains(out, "\x1b") || strings.Contains(out, "+  uid") {
		t.Errorf("no terminal has colours, and nobody knows a uid before:\n%s", out)
	}
}

func TestWhatApplyRefusesIsNoDifference(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Web, "apply", "-f", "-")
	seen := c.Want(0, "", "get", "np", "web", "-n", "prod", "-o", "yaml")
	c.Want(0, strings.Replace(clitest.Web, "Allow", "Deny", 1), "apply", "-f", "-")
	for _, tt := range []struct{ name, in, want string }{
		{"what was changed since", seen, "was changed by another writer"},
		{"a tier that does not exist", strings.Replace(clitest.Web, "spec: {", "spec: {tier: nowhere, ", 1), `tier "nowhere" does not exist`},
		{"a field that is none", strings.Replace(clitest.Web, "selector", "slector", 1), "spec.slector"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := c.On(t)
			clitest.Contains(t, c.Want(1, tt.in, "apply", "-f", "-"), tt.want)
			clitest.Contains(t, c.Want(2, tt.in, "diff", "-f", "-"), tt.want)
		})
	}
	c.Store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	clitest.Contains(t, c.Want(2, clitest.Web, "diff", "-f", "-"), "No datastore answers")
	clitest.Contains(t, c.Want(2, "", "diff"), "no file given")
}
