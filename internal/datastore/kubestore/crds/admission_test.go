package crds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
)

// right is what somebody may do, in the cluster.
type right struct{ resources, names, verbs string }

// asUser is a client of a new account that may write policies of all kinds, as RBAC asks of the kinds themselves, and has some rights more.
func asUser(t *testing.T, s *kubetest.Server, namespace, name string, rights ...right) *kubetest.Client {
	t.Helper()
	rights = append(rights, right{"networkpolicies globalnetworkpolicies stagednetworkpolicies stagedglobalnetworkpolicies stagedkubernetesnetworkpolicies", "", "create update patch delete"})
	var rules strings.Builder
	quoted := func(words string) string { return "['" + strings.Join(strings.Fields(words), "', '") + "']" }
	for _, r := range rights {
		fmt.Fprintf(&rules, "- {apiGroups: [projectcalico.org], resources: %s, verbs: %s", quoted(r.resources), quoted(r.verbs))
		if r.names != "" {
			rules.WriteString(", resourceNames: " + quoted(r.names))
		}
		rules.WriteString("}\n")
	}
	s.Apply(t, fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s-%[2]s}
rules:
%[3]s---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-%[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s-%[2]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, name, namespace, rules.String()))
	c := s.As(s.Token(t, namespace, name))
	inForce(t, func() bool {
		var answer struct{ Status struct{ Allowed bool } }
		ask := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{
			"resourceAttributes": map[string]any{"group": "projectcalico.org", "resource": "networkpolicies", "verb": "create"},
		}}
		if err := c.Call(t.Context(), "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ask, &answer); err != nil {
			t.Fatal(err)
		}
		return answer.Status.Allowed
	})
	return c
}

// inForce waits until the server judges by what was applied: it learns of it by a watch.
func inForce(t *testing.T, judged func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !judged() {
		select {
		case <-look.C:
		case <-t.Context().Done():
			t.Fatal("what was applied is not in force")
		}
	}
}

// tieredCluster has tiers, and who may write policies of which.
func tieredCluster(t *testing.T, s *kubetest.Server) string {
	t.Helper()
	s.Apply(t, documents(t, crds.TieredRBAC()))
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: sec}\nspec: {order: 5}\n---\napiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: app}\nspec: {order: 6}\n")
	ns := s.Namespace(t)
	nobody := asUser(t, s, ns, "nobody")
	inForce(t, func() bool {
		return strings.Contains(request(t, nobody, "POST", np(ns)+"?dryRun=All", "application/yaml", policy("NetworkPolicy", "x", "{}")), "may not get tier")
	})
	return ns
}

const v3 = "/apis/projectcalico.org/v3/"

func np(namespace string) string { return v3 + "namespaces/" + namespace + "/networkpolicies" }

func policy(kind, name, spec string) string {
	return "apiVersion: projectcalico.org/v3\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

// TestWhoWritesAPolicyMayWriteToItsTier has users with some of the rights that upstream's tiered RBAC asks for create policies.
func TestWhoWritesAPolicyMayWriteToItsTier(t *testing.T) {
	s := cluster(t)
	ns := tieredCluster(t, s)
	all := "tier.networkpolicies tier.globalnetworkpolicies tier.stagednetworkpolicies tier.stagedglobalnetworkpolicies tier.stagedkubernetesnetworkpolicies"
	users := map[string]*kubetest.Client{
		"admin":  s.Admin(),
		"nobody": asUser(t, s, ns, "nobody"),
		"tier":   asUser(t, s, ns, "tier", right{"tiers", "sec", "get"}, right{all, "sec.*", "*"}),
		"name":   asUser(t, s, ns, "name", right{"tiers", "sec", "get"}, right{"tier.networkpolicies", "sec.web", "create"}),
		"blind":  asUser(t, s, ns, "blind", right{all, "sec.*", "*"}),
		"reader": asUser(t, s, ns, "reader", right{"tiers", "sec", "get"}, right{all, "sec.*", "get list watch update"}),
		"every":  asUser(t, s, ns, "every", right{"tiers", "", "get"}, right{all, "", "create"}),
		"plain":  asUser(t, s, ns, "plain", right{"tiers", "default", "get"}, right{all, "default.*", "create"}),
		"global": asUser(t, s, ns, "global", right{"tiers", "sec", "get"}, right{"tier.globalnetworkpolicies", "sec.*", "create"}),
	}
	for _, tt := range []struct{ user, kind, name, spec, want string }{
		{"admin", "NetworkPolicy", "web", "{tier: sec}", ""},
		{"nobody", "NetworkPolicy", "web", "{tier: sec}", "may not get tier sec"},
		{"nobody", "NetworkPolicy", "web", "{}", "may not get tier default"},
		{"tier", "NetworkPolicy", "web", "{tier: sec}", ""},
		{"tier", "NetworkPolicy", "sec.web", "{tier: sec}", ""},
		{"tier", "GlobalNetworkPolicy", "web", "{tier: sec}", ""},
		{"tier", "StagedNetworkPolicy", "web", "{tier: sec}", ""},
		{"tier", "StagedGlobalNetworkPolicy", "web", "{tier: sec}", ""},
		{"tier", "StagedKubernetesNetworkPolicy", "web", "{podSelector: {}}", "may not get tier default"},
		{"tier", "NetworkPolicy", "web", "{tier: app}", "may not get tier app"},
		{"tier", "NetworkPolicy", "web", "{tier: ''}", "may not get tier default"},
		{"tier", "NetworkPolicy", "web", "{}", "may not get tier default"},
		{"name", "NetworkPolicy", "web", "{tier: sec}", ""},
		{"name", "NetworkPolicy", "sec.web", "{tier: sec}", ""},
		{"name", "NetworkPolicy", "other", "{tier: sec}", "may not create tier.networkpolicies sec.*, nor sec.other"},
		{"name", "GlobalNetworkPolicy", "web", "{tier: sec}", "may not create tier.globalnetworkpolicies sec.*"},
		{"blind", "NetworkPolicy", "web", "{tier: sec}", "may not get tier sec"},
		{"reader", "NetworkPolicy", "web", "{tier: sec}", "may not create tier.networkpolicies sec.*"},
		{"every", "NetworkPolicy", "web", "{tier: app}", ""},
		{"every", "StagedKubernetesNetworkPolicy", "web", "{podSelector: {}}", ""},
		{"plain", "NetworkPolicy", "web", "{}", ""},
		{"plain", "NetworkPolicy", "default.web", "{tier: default}", ""},
		{"plain", "StagedKubernetesNetworkPolicy", "web", "{podSelector: {}}", ""},
		{"plain", "GlobalNetworkPolicy", "web", "{tier: sec}", "may not get tier sec"},
		{"global", "GlobalNetworkPolicy", "web", "{tier: sec}", ""},
		{"global", "NetworkPolicy", "web", "{tier: sec}", "may not create tier.networkpolicies sec.*"},
	} {
		t.Run(tt.user+" "+tt.kind+" "+tt.name+" "+tt.spec, func(t *testing.T) {
			path, _ := collection(tt.kind, ns)
			got := request(t, users[tt.user], "POST", path+"?dryRun=All", "application/yaml", policy(tt.kind, tt.name, tt.spec))
			if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestWhoChangesAPolicyMayWriteToBothTiers has users change, move and delete policies, by each verb.
func TestWhoChangesAPolicyMayWriteToBothTiers(t *testing.T) {
	s := cluster(t)
	ns := tieredCluster(t, s)
	const kind = "tier.networkpolicies"
	sec := asUser(t, s, ns, "sec", right{"tiers", "sec", "get"}, right{kind, "sec.*", "update delete"})
	app := asUser(t, s, ns, "app", right{"tiers", "app sec", "get"}, right{kind, "app.*", "update patch delete"})
	both := asUser(t, s, ns, "both", right{"tiers", "app sec", "get"}, right{kind, "app.* sec.*", "patch"})
	maker := asUser(t, s, ns, "maker", right{"tiers", "sec", "get"}, right{kind, "sec.*", "create"})
	s.Apply(t, policy("NetworkPolicy", "web, namespace: "+ns, "{tier: sec, order: 1}"))
	const merge = "application/merge-patch+json"
	path := np(ns) + "/web?dryRun=All"
	applied := policy("NetworkPolicy", "web", "{tier: sec, order: 3}")
	for _, tt := range []struct {
		name         string
		user         *kubetest.Client
		method, path string
		kind, body   string
		want         string
	}{
		{"a patch", sec, "PATCH", path, merge, `{"spec":{"order":2}}`, ""},
		{"a patch by who may patch", both, "PATCH", path, merge, `{"spec":{"order":2}}`, ""},
		{"a patch of a stranger", app, "PATCH", path, merge, `{"spec":{"order":2}}`, "may not update tier.networkpolicies sec.*"},
		{"a patch by who may create", maker, "PATCH", path, merge, `{"spec":{"order":2}}`, "may not update tier.networkpolicies sec.*"},
		{"an apply", sec, "PATCH", path + "&fieldManager=a&force=true", "application/apply-patch+yaml", applied, ""},
		{"an apply of a stranger", app, "PATCH", path + "&fieldManager=a&force=true", "application/apply-patch+yaml", applied, "may not update tier.networkpolicies sec.*"},
		{"an apply that creates", sec, "PATCH", np(ns) + "/new?dryRun=All&fieldManager=a", "application/apply-patch+yaml", policy("NetworkPolicy", "new", "{tier: sec}"), "may not create tier.networkpolicies sec.*"},
		{"labels alone, of a stranger", app, "PATCH", path, merge, `{"metadata":{"labels":{"a":"b"}}}`, "may not update tier.networkpolicies sec.*"},
		{"out of a tier, into one that is not seen", sec, "PATCH", path, merge, `{"spec":{"tier":"app"}}`, "may not get tier app"},
		{"out of a tier of others", app, "PATCH", path, merge, `{"spec":{"tier":"app"}}`, "may not update tier.networkpolicies sec.*"},
		{"out of a tier into the default one", both, "PATCH", path, merge, `{"spec":{"tier":null}}`, "may not get tier default"},
		{"from tier to tier", both, "PATCH", path, merge, `{"spec":{"tier":"app"}}`, ""},
		{"a deletion of a stranger", app, "DELETE", path, "", "", "may not delete tier.networkpolicies sec.*"},
		{"a deletion by who may patch", both, "DELETE", path, "", "", "may not delete tier.networkpolicies sec.*"},
		{"a deletion", sec, "DELETE", path, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := request(t, tt.user, tt.method, tt.path, tt.kind, tt.body)
			if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBuiltinTiersStay(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{}) // they stay
	s.Apply(t, documents(t, slices.Concat(crds.Definitions(form.V3), crds.BuiltinTiers())))
	const tiers, merge = v3 + "tiers", "application/merge-patch+json"
	for _, name := range []string{"default", "kube-admin", "kube-baseline", "app"} {
		s.Apply(t, policy("Tier", name, "{}"))
	}
	inForce(t, func() bool { return request(t, s.Admin(), "DELETE", tiers+"/default?dryRun=All", "", "") != "" })
	for name, other := range map[string]string{"default": "Pass", "kube-admin": "Deny", "kube-baseline": "Deny"} {
		if got := request(t, s.Admin(), "DELETE", tiers+"/"+name, "", ""); !strings.Contains(got, "the built-in tier "+name+" cannot be deleted") {
			t.Errorf("%s is deleted: %q", name, got)
		}
		if got := request(t, s.Admin(), "PATCH", tiers+"/"+name, merge, `{"spec":{"order":3}}`); !strings.Contains(got, "of the built-in tier "+name) {
			t.Errorf("the order of %s is changed: %q", name, got)
		}
		if got := request(t, s.Admin(), "PATCH", tiers+"/"+name, merge, `{"spec":{"defaultAction":"`+other+`"}}`); !strings.Contains(got, "of the built-in tier "+name) {
			t.Errorf("what %s does at its end is changed: %q", name, got)
		}
		if got := request(t, s.Admin(), "PATCH", tiers+"/"+name, merge, `{"metadata":{"labels":{"a":"b"}}}`); got != "" {
			t.Errorf("a label of %s: %s", name, got)
		}
	}
	if got := request(t, s.Admin(), "DELETE", tiers+"/app", "", ""); got != "" {
		t.Errorf("a tier of users: %s", got)
	}
}
