package resources_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/resources"
)

func TestApplySaysWhatItDid(t *testing.T) {
	c := newCLI(t)
	clitest.Equal(t, c.Want(0, "", "apply", "-f", clitest.Prod), `
node/h1 created
tier/security created
profile/kns.prod created
globalnetworkpolicy/no-telnet created
networkpolicy/prod/db created
workloadendpoint/prod/h1-k8s-web-eth0 created
workloadendpoint/prod/h2-k8s-db-eth0 created`)
	clitest.Contains(t, c.Want(0, "", "apply", "-f", clitest.Prod), "networkpolicy/prod/db unchanged", "tier/security unchanged")
	clitest.Equal(t, c.Want(0, clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/web created")
	clitest.Equal(t, c.Want(0, strings.Replace(clitest.Web, "Allow", "Deny", 1), "apply", "-f", "-"), "networkpolicy/prod/web configured")
	var got struct {
		Metadata api.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(c.Stored("networkpolicies/prod/web")), &got); err != nil {
		t.Fatal(err)
	}
	if m := got.Metadata; m.UID == "" || m.CreationTimestamp == "" || m.Labels[api.LabelTier] != "default" || m.Annotations[api.AnnotationMetadata] != `{"name":"web"}` {
		t.Errorf("stored metadata: %+v", m)
	}
}

func TestApplyKeepsWhatAnotherVersionWrote(t *testing.T) {
	c := newCLI(t)
	c.Raw("networkpolicies/prod/web", `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1"},"spec":{"selector":"all()","newer":7}}`)
	clitest.Equal(t, c.Want(0, clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/web configured")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), `"newer":7`, `"uid":"u1"`, `app == \"web\"`)
}

// TestWhatKubernetesKeepsInAnotherOrderIsUnchanged: its API server has members in the order of their names, and no status that says nothing.
func TestWhatKubernetesKeepsInAnotherOrderIsUnchanged(t *testing.T) {
	c := newCLI(t)
	const policy = `"spec":{"ingress":[{"action":"Allow"}],"selector":"app == \"web\"","tier":"default","types":["Ingress"]}}`
	c.Raw("tiers/late", `{"apiVersion":"projectcalico.org/v3","kind":"Tier","metadata":{"creationTimestamp":"2026-11-23T18:26:07Z","generation":1,"name":"late"},"spec":{"defaultAction":"Deny","order":7}}`)
	c.Raw("networkpolicies/prod/web", `{"apiVersion":"projectcalico.org/v3","kind":"NetworkPolicy","metadata":{"annotations":{"projectcalico.org/metadata":"{\"name\":\"web\"}"},"labels":{"projectcalico.org/tier":"default"},"name":"web","namespace":"prod"},`+policy)
	both := clitest.Tier("late", "order: 7, defaultAction: Deny") + "---\n" + clitest.Web
	for range 2 {
		clitest.Equal(t, c.Want(0, both, "apply", "-f", "-"), "tier/late unchanged\nnetworkpolicy/prod/web unchanged")
	}
	clitest.Equal(t, c.Want(0, both, "diff", "-f", "-"), "")
	clitest.Equal(t, c.Want(0, clitest.Tier("late", "order: 8, defaultAction: Deny"), "apply", "-f", "-"), "tier/late configured")
}

func TestApplyTriesAgainWhenAnotherWriterWasFirst(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Web, "apply", "-f", "-")
	c.Outrun(2)
	clitest.Equal(t, c.Want(0, strings.Replace(clitest.Web, "Allow", "Deny", 1), "apply", "-f", "-"), "networkpolicy/prod/web configured")
	c.Outrun(1000)
	clitest.Contains(t, c.Want(1, clitest.Web, "apply", "-f", "-"), datastore.ErrConflict.Error())
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), "Deny")
}

func TestApplyChecksWhatOnlyTheStoreKnows(t *testing.T) {
	c := newCLI(t)
	lost := strings.Replace(clitest.Web, "spec: {", "spec: {tier: nowhere, ", 1)
	clitest.Contains(t, c.Want(1, lost, "apply", "-f", "-"), "networkpolicy/prod/web: spec.tier", `tier "nowhere" does not exist; create it first`)
	pool := func(name, cidr string) string {
		return "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: " + name + "}\nspec: {cidr: " + cidr + "}\n---\n"
	}
	c.Want(0, pool("a", "10.0.0.0/16"), "apply", "-f", "-")
	clitest.Contains(t, c.Want(1, pool("b", "10.0.1.0/24"), "apply", "-f", "-"), "spec.cidr", "overlaps 10.0.0.0/16 of pool a")
	clitest.Contains(t, c.Want(1, clitest.Web+"---\n"+pool("a", "10.1.0.0/16"), "apply", "-f", "-"), "spec.cidr", "cannot be changed from 10.0.0.0/16")
	if _, err := c.Store.Get(t.Context(), api.ResourcesPrefix+"networkpolicies/prod/web"); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("web was written although a pool is wrong: %v", err)
	}
}

// TestAPoolThatOverlapsAnotherCanBeChanged: only who makes one is asked about others. It may be there since something else made it.
func TestAPoolThatOverlapsAnotherCanBeChanged(t *testing.T) {
	c := newCLI(t)
	pool := func(name, spec string) string {
		return "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n---\n"
	}
	c.Want(0, pool("a", "cidr: 10.0.0.0/16"), "apply", "-f", "-")
	c.Raw("ippools/b", `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"b"},"spec":{"cidr":"10.0.1.0/24","blockSize":26,"nodeSelector":"all()","ipipMode":"Never","vxlanMode":"Never"}}`)
	c.Want(0, pool("b", "cidr: 10.0.1.0/24, disabled: true"), "apply", "-f", "-")
	c.Want(0, "", "patch", "ippool", "b", "-p", `{"spec":{"natOutgoing":true}}`)
	clitest.Contains(t, c.Want(1, "", "patch", "ippool", "b", "-p", `{"spec":{"disabled":false}}`), "spec.cidr", "overlaps")
	c.Want(0, pool("a", "cidr: 10.0.0.0/16, disabled: true")+pool("b", "cidr: 10.0.1.0/24"), "apply", "-f", "-")
	clitest.Contains(t, c.Want(1, pool("c", "cidr: 10.0.1.128/25"), "apply", "-f", "-"), "spec.cidr", "overlaps")
	clitest.Contains(t, c.Want(1, pool("d", "cidr: 10.9.0.0/16")+pool("e", "cidr: 10.9.0.0/24"), "apply", "-f", "-"), "spec.cidr", "overlaps")
}

// A value that means nothing stays in force as what it was; the way to put it right must not be to delete it first.
func TestApplyPutsRightWhatMeansNothing(t *testing.T) {
	for _, value := range []string{`[]`, `null`, `"x"`, `{"spec":"x"}`, `{"kind":"Tier"}`} {
		c := newCLI(t)
		for _, r := range []struct{ tail, doc string }{
			{"ippools/a", "kind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/16}\n"},
			{"nodes/a", "kind: Node\nmetadata: {name: a}\nspec: {bgp: {ipv4Address: 192.0.2.1/24}}\n"},
			{"bgpconfigurations/default", "kind: BGPConfiguration\nmetadata: {name: default}\nspec: {asNumber: 65000}\n"},
			{"bgppeers/a", "kind: BGPPeer\nmetadata: {name: a}\nspec: {peerIP: 192.0.2.9, asNumber: 65000}\n"},
			{"felixconfigurations/default", "kind: FelixConfiguration\nmetadata: {name: default}\nspec: {}\n"},
		} {
			c.Raw(r.tail, value)
			c.Want(0, "apiVersion: projectcalico.org/v3\n"+r.doc, "apply", "-f", "-")
			if s, err := api.Admit(api.Update{Key: api.ResourcesPrefix + r.tail, Value: []byte(c.Stored(r.tail))}); err != nil || len(s.Problems) > 0 {
				t.Errorf("%s was %s, and is %s: %v, %v", r.tail, value, c.Stored(r.tail), err, s.Problems)
			}
		}
	}
}

func TestApplyNamesAFullDatastore(t *testing.T) {
	c := newCLI(t)
	c.Store.Fail(func(o memstore.Op) error {
		if o.Verb == "create" || o.Verb == "update" {
			return fmt.Errorf("%w (etcd's quota): compact", datastore.ErrFull)
		}
		return nil
	})
	clitest.Contains(t, c.Want(1, clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/web", "datastore is full, and can only be read (etcd's quota): compact")
}

func TestOldNamesOfPoliciesAreFound(t *testing.T) {
	old := `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","namespace":"prod"},"spec":{"tier":"default","selector":"all()"}}`
	c := newCLI(t)
	c.Raw("networkpolicies/prod/default.web", old)
	clitest.Equal(t, c.Want(0, "", "get", "np", "-n", "prod", "-o", "name"), "networkpolicy/prod/web")
	clitest.Equal(t, c.Want(0, clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/web configured")
	clitest.Contains(t, c.Stored("networkpolicies/prod/default.web"), `app == \"web\"`)
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), "not found")

	c = newCLI(t)
	c.Raw("networkpolicies/prod/default.web", old)
	clitest.Contains(t, c.Want(1, strings.Replace(clitest.Web, "name: web", "name: default.web", 1), "apply", "-f", "-"), "an old version stored networkpolicy/prod/web under this name")
	clitest.Contains(t, c.Want(1, "", "delete", "np", "default.web", "-n", "prod"), "does not exist")
	clitest.Equal(t, c.Want(0, "", "delete", "np", "web", "-n", "prod"), "networkpolicy/prod/web deleted")
}

func TestAPolicyMayBeCalledDefaultDotFoo(t *testing.T) {
	c := newCLI(t)
	dotted := strings.Replace(clitest.Web, "name: web", "name: default.web", 1)
	clitest.Equal(t, c.Want(0, dotted+"---\n"+clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/default.web created\nnetworkpolicy/prod/web created")
	clitest.Equal(t, c.Want(0, dotted+"---\n"+clitest.Web, "apply", "-f", "-"), "networkpolicy/prod/default.web unchanged\nnetworkpolicy/prod/web unchanged")
	clitest.Equal(t, c.Want(0, "", "delete", "np", "web", "-n", "prod"), "networkpolicy/prod/web deleted")
	clitest.Contains(t, c.Want(1, "", "delete", "np", "web", "-n", "prod"), "does not exist")
	clitest.Equal(t, c.Want(0, "", "get", "np", "-A", "-o", "name"), "networkpolicy/prod/default.web")
}

func TestGetTables(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	for _, tt := range []struct{ name, args, want string }{
		{"policies of a namespace", "get np -n prod", `
NAME  TIER     ORDER  TYPES    RULES        SELECTOR     AGE
db    default  100    Ingress  2 in, 0 out  app == "db"  1s`},
		{"tiers stand in their order, with the built-in ones", "get tiers", `
NAME           ORDER     DEFAULT  AGE
security       100       Pass     1s
kube-admin     1000      Pass     1s
default        1000000   Deny     1s
kube-baseline  10000000  Pass     1s`},
		{"endpoints of all namespaces", "get wep -A", `
NAMESPACE  NAME             WORKLOAD  NODE  NETWORKS                  INTERFACE  PROFILES  AGE
prod       h1-k8s-web-eth0  web       h1    10.65.0.1/32,fd65::1/128  caliweb    kns.prod  1s
prod       h2-k8s-db-eth0   db        h2    10.65.0.2/32,fd65::2/128  calidb     kns.prod  1s`},
		{"several kinds, one table each", "get profiles,gnp", `
NAME                                 RULES        LABELS TO APPLY  AGE
profile/kns.prod                     1 in, 1 out                   1s
profile/projectcalico-default-allow  1 in, 1 out                   <unknown>

NAME                           TIER      ORDER  TYPES           RULES        SELECTOR  AGE
globalnetworkpolicy/no-telnet  security  10     Ingress,Egress  1 in, 1 out  all()     1s`},
		{"wide has labels, and what is wrong", "get nodes h1 -o wide", `
NAME  IPV4          IPV6  AGE  LABELS  WRONG
h1    192.0.2.1/24        1s`},
		{"names", "get tier,np -n prod -o name", "tier/security\ntier/kube-admin\ntier/default\ntier/kube-baseline\nnetworkpolicy/prod/db"},
		{"nothing", "get np", "nothing found in namespace default; -A shows all namespaces"},
		{"nothing of a kind without namespaces", "get ippools", "nothing found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.Equal(t, clitest.Ageless(c.Want(0, "", strings.Fields(tt.args)...)), tt.want)
		})
	}
}

func TestATableSaysToWhatAPolicyApplies(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {namespaceSelector: env == \"a\", serviceAccountSelector: has(b)}", "apply", "-f", "-")
	clitest.Contains(t, c.Want(0, "", "get", "gnp"), `all(); namespaces env == "a"; service accounts has(b)`)
}

func TestGetSuggests(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	clitest.Equal(t, c.Want(1, "", "get", "np", "db"), "twill: networkpolicy/db does not exist in namespace default; it does with -n prod")
	clitest.Equal(t, c.Want(1, "", "get", "gnp", "telnet"), "twill: globalnetworkpolicy/telnet does not exist; there are no-telnet")
	clitest.Equal(t, c.Want(1, "", "get", "ippool", "x"), "twill: ippool/x does not exist; there are no ippools")
}

func TestGetIsAppliedAgainUnchanged(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	for _, format := range []string{"yaml", "json"} {
		docs := c.Want(0, "", "get", "np,gnp,profiles,wep,nodes,tiers", "-A", "-o", format)
		if strings.Contains(docs, api.AnnotationMetadata) {
			t.Errorf("users see the annotation that holds the name:\n%s", docs)
		}
		for l := range strings.Lines(c.Want(0, docs, "apply", "-f", "-")) {
			builtin := strings.Contains(l, "tier/kube-") || strings.Contains(l, "tier/default")
			if fresh := builtin && strings.Contains(l, "created"); !fresh && !strings.Contains(l, "unchanged") {
				t.Errorf("%s: %s", format, l)
			}
		}
	}
	clitest.Contains(t, c.Want(0, "", "get", "np", "db", "-n", "prod", "-o", "yaml"), "kind: NetworkPolicy", "name: db")
	clitest.Contains(t, c.Want(0, "", "get", "profile", api.ProfileDefaultAllow, "-o", "yaml"), "action: Allow")
}

func TestGetShowsWhatIsWrong(t *testing.T) {
	c := newCLI(t)
	c.Raw("networkpolicies/prod/bad", `{"metadata":{"name":"bad","namespace":"prod"},"spec":{"selector":"app = 1"}}`)
	c.Raw("networkpolicies/prod/worse", `{`)
	c.Raw("tiers/default", `{"metadata":{"name":"default"},"spec":{"order":7}}`)
	clitest.Contains(t, c.Want(0, "", "get", "np", "-A"), "networkpolicy/prod/bad: spec.selector", "networkpolicy/prod/worse: ", "not JSON")
	clitest.Contains(t, c.Want(0, "", "get", "tiers"), "default        1000000", "tier/default: the stored order and default action are ignored")
	clitest.Contains(t, c.Want(1, "", "get", "np", "-A", "-o", "yaml"), "name: bad", "networkpolicies/prod/worse: not JSON")
	clitest.Contains(t, c.Want(1, strings.ReplaceAll(clitest.Web, "web", "worse"), "apply", "-f", "-"), "not JSON; delete it and create it again")
	clitest.Equal(t, c.Want(0, "", "delete", "np", "worse", "-n", "prod"), "networkpolicy/prod/worse deleted")
}

func TestWithANodeGoWhatWasMadeForIt(t *testing.T) {
	c := newCLI(t)
	c.Raw("nodes/h1", "{}")
	c.Raw("hostendpoints/h1-auto-hep", `{"metadata":{"labels":{"projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"node":"h1","interfaceName":"*"}}`)
	c.Raw("hostendpoints/h2-auto-hep", `{"metadata":{"labels":{"projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"node":"h2","interfaceName":"*"}}`)
	c.Raw("hostendpoints/h1-eth0", `{"spec":{"node":"h1","interfaceName":"eth0"}}`)
	clitest.Equal(t, c.Want(1, "", "delete", "node", "h1"), "twill: node/h1 is not deleted, since this hangs on it; --cascade deletes it, too:\n  hostendpoint/h1-eth0")
	clitest.Equal(t, c.Want(0, "", "get", "hep", "-o", "name"), "hostendpoint/h1-auto-hep\nhostendpoint/h1-eth0\nhostendpoint/h2-auto-hep")
	c.Want(0, "", "delete", "hep", "h1-eth0")
	clitest.Equal(t, c.Want(0, "", "delete", "node", "h1", "--dry-run"), "hostendpoint/h1-auto-hep deleted (dry run)\nnode/h1 deleted (dry run)")
	clitest.Equal(t, c.Want(0, "", "delete", "node", "h1"), "hostendpoint/h1-auto-hep deleted\nnode/h1 deleted")
	clitest.Equal(t, c.Want(0, "", "get", "hep", "-o", "name"), "hostendpoint/h2-auto-hep")
}

func TestANamespaceIsDeletedWithAllThatIsInItOnlyIfAskedFor(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t)) // prod has endpoints with addresses
	c.Put("networkpolicies/prod/web", `{"metadata":{},"spec":{}}`)
	c.Put("networkpolicies/production/web", `{"metadata":{},"spec":{}}`)
	was := clitest.Everything(t, c.Store)
	out := c.Want(1, "", "delete", "namespace", "prod")
	clitest.Contains(t, out, "namespace/prod is not deleted, since this hangs on it; --cascade deletes it, too:", "workloadendpoint/prod/n1-k8s-web-eth0", "networkpolicy/prod/web", "address 10.65.0.1")
	clitest.Contains(t, c.Want(0, "", "delete", "ns", "prod", "--cascade", "--dry-run"), "networkpolicy/prod/web deleted (dry run)", "address 10.65.0.1 released (dry run)")
	clitest.Contains(t, c.Want(2, "", "delete", "ns", "prod", "-n", "x"), "leave -n out")
	if !maps.Equal(clitest.Everything(t, c.Store), was) {
		t.Error("something is deleted")
	}
	clitest.Contains(t, c.Want(0, "", "delete", "namespaces", "prod", "--cascade"), "workloadendpoint/prod/n1-k8s-web-eth0 deleted", "address 10.65.0.1 released", "networkpolicy/prod/web deleted")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), "not found")
	if got := c.Stored("networkpolicies/production/web"); got != `{"metadata":{},"spec":{}}` {
		t.Error(got)
	}
	clitest.Contains(t, c.Want(1, "", "delete", "ns", "prod", "--cascade"), "namespace/prod does not exist")
	c.Want(0, "", "delete", "ns", "prod", "--ignore-not-found")
}

func TestANodeIsDeletedWithAllThatHangsOnItOnlyIfAskedFor(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t)) // n1 has two endpoints and their addresses
	if datastore.Put(t.Context(), c.Store, api.Update{Key: api.ResourcesPrefix + "nodes/n1", Value: []byte("{}")}) != nil {
		t.Fatal("no node")
	}
	out := c.Want(1, "", "delete", "node", "n1")
	clitest.Contains(t, out, "node/n1 is not deleted", "--cascade", "workloadendpoint/prod/n1-k8s-web-eth0", "address 10.65.0.1")
	clitest.Contains(t, c.Want(0, "", "delete", "node", "n1", "--cascade", "--dry-run"), "address 10.65.0.1 released (dry run)", "node/n1 deleted (dry run)")
	report := fmt.Sprintf(`{"expires":%q}`, time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
	if err := datastore.Put(t.Context(), c.Store, api.Update{Key: "/calico/felix/v2/no-region/host/n1/status", Value: []byte(report)}); err != nil {
		t.Fatal(err)
	}
	clitest.Contains(t, c.Want(1, "", "delete", "node", "n1", "--cascade"), "its agent lives", "--force")
	clitest.Contains(t, c.Want(0, "", "get", "wep", "-n", "prod", "-o", "name"), "n1-k8s-web-eth0")
	clitest.Contains(t, c.Want(0, "", "delete", "node", "n1", "--cascade", "--force"),
		"workloadendpoint/prod/n1-k8s-web-eth0 deleted", "address 10.65.0.1 released", "block 10.65.0.0/28 given up", "node/n1 deleted")
	clitest.Contains(t, c.Want(1, "", "delete", "node", "n1", "--cascade"), "node/n1 does not exist")
	c.Want(0, "", "delete", "node", "n1", "--cascade", "--ignore-not-found")

	// What others leave of a node that they delete.
	other := clitest.WithAddresses(newCLI(t))
	if err := other.Store.Delete(t.Context(), api.ResourcesPrefix+"nodes/n1", api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
		t.Fatal(err)
	}
	clitest.Contains(t, other.Want(1, "", "delete", "node", "n1"), "does not exist, and something is left of it, which --cascade deletes", "n1-k8s-web-eth0")
	clitest.Contains(t, other.Want(0, "", "delete", "node", "n1", "--cascade"), "n1-k8s-web-eth0 deleted")
}

func TestDelete(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	for _, tier := range []string{"default", "kube-admin", "kube-baseline"} {
		clitest.Equal(t, c.Want(1, "", "delete", "tier", tier), "twill: tier/"+tier+" is built in and cannot be deleted")
	}
	clitest.Equal(t, c.Want(1, "", "delete", "profile", api.ProfileDefaultAllow), "twill: profile/projectcalico-default-allow is built in and cannot be deleted")
	clitest.Equal(t, c.Want(1, "", "delete", "tier", "security"), "twill: tier/security holds 1 policy; delete first: globalnetworkpolicy/no-telnet")
	clitest.Equal(t, c.Want(1, "", "delete", "np", "nope", "-n", "prod"), "twill: networkpolicy/prod/nope does not exist; --skip-not-exists makes that no error")
	for _, flag := range []string{"--ignore-not-found", "--skip-not-exists", "-s"} {
		clitest.Equal(t, c.Want(0, "", "delete", "np", "nope", "-n", "prod", flag), "")
	}
	clitest.Equal(t, c.Want(0, "", "delete", "np", "db", "-n", "prod"), "networkpolicy/prod/db deleted")
	out := c.Want(0, "", "delete", "-f", clitest.Prod, "--ignore-not-found")
	if strings.Index(out, "no-telnet deleted") > strings.Index(out, "tier/security deleted") {
		t.Errorf("a tier goes after its policies:\n%s", out)
	}
	snap, err := c.Store.List(t.Context(), api.Root)
	if left := len(snap.Items) - len(resources.Ensured()); err != nil || left != 0 {
		t.Errorf("%d resources are left, %v", left, err)
	}
}

func TestValidate(t *testing.T) {
	c := newCLI(t)
	c.Store.Fail(func(memstore.Op) error { t.Error("validate asks the store"); return nil })
	clitest.Equal(t, c.Want(0, "", "validate", "-f", clitest.Prod), "testdata/prod.yaml: 7 resources valid")
	clitest.Equal(t, c.Want(0, clitest.Web, "validate", "-f", "-"), "standard input: 1 resource valid")
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"a field nobody knows", strings.Replace(clitest.Web, "ingress", "ingres", 1), []string{"NetworkPolicy prod/web (line 1): spec.ingres", "did you mean ingress?"}},
		{
			"a value out of range, in the second document", clitest.Web + "---\n" + strings.NewReplacer("name: web", "name: two", "action: Allow", "action: Alow").Replace(clitest.Web),
			[]string{"NetworkPolicy prod/two (line 6): spec.ingress[0].action", "Alow"},
		},
		{"a selector that does not parse", strings.Replace(clitest.Web, `app == "web"`, `app = "web"`, 1), []string{"spec.selector"}},
		{"ports without a protocol", strings.Replace(clitest.Web, "action: Allow", "action: Allow, destination: {ports: [1]}", 1), []string{"spec.ingress[0]"}},
		{"the same twice", clitest.Web + "---\n" + clitest.Web, []string{"NetworkPolicy prod/web (line 6): is there already: standard input (line 1)"}},
		{"no resource", "# nothing\n", []string{"no resource in 1 file"}},
		{"no kind of ours", "apiVersion: projectcalico.org/v3\nkind: Policy\n", []string{"standard input: Policy (line 1): kind"}},
		{"not YAML", "a: [", []string{"standard input: document 1 (line 1)"}},
	} {
		t.Run(tt.name, func(t *testing.T) { clitest.Contains(t, c.Want(1, tt.text, "validate", "-f", "-"), tt.want...) })
	}
}

func TestDirectoriesAreReadOneLevelOrAll(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", clitest.Web)
	write("notes.txt", "nothing of ours")
	write("below/b.yml", strings.Replace(clitest.Web, "name: web", "name: b", 1))
	c := newCLI(t)
	clitest.Equal(t, c.Want(0, "", "validate", "-f", dir), dir+"/a.yaml: 1 resource valid")
	clitest.Equal(t, c.Want(0, "", "validate", "-f", dir, "-R"), dir+"/a.yaml: 1 resource valid\n"+dir+"/below/b.yml: 1 resource valid")
	for _, verb := range []string{"create", "apply", "replace", "delete"} {
		if out := c.Want(0, "", verb, "-f", dir, "-R"); !strings.Contains(out, "/web ") || !strings.Contains(out, "/b ") {
			t.Errorf("%s -R says\n%s", verb, out)
		}
	}
	clitest.Contains(t, c.Want(1, "", "validate", "-f", filepath.Join(dir, "none")), "no such file")
}
