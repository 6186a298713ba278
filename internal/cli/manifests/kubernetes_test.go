package manifests_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/explain"
)

const kubernetes = "testdata/kubernetes.yaml"

func TestWhyReadsKubernetesObjects(t *testing.T) {
	c := newCLI(t)
	for question, want := range map[string]string{
		"shop/web shop/db tcp/5432": "ALLOWED by networkpolicy/shop/knp.default.db rule 0",
		"shop/web shop/db tcp/80":   "DENIED by the end of tier default, ingress of shop/db",
		"shop/db shop/web tcp/80":   "ALLOWED by profile/kns.shop rule 0",
	} {
		code := 0
		if strings.HasPrefix(want, "DENIED") {
			code = explain.Denied
		}
		clitest.Contains(t, c.Want(code, "", append([]string{"why", "--files", kubernetes}, strings.Fields(question)...)...), want, "The same for ")
	}
	_, _, errs := c.Run("", "why", "--files", kubernetes, "shop/db", "shop/web", "tcp/80")
	clitest.Contains(t, errs, "pod shop/web has not started; assumed: node unscheduled, addresses 198.18.")
}

// Nobody stored a tier: kube-admin is asked before Kubernetes' own policies, and kube-baseline after them, where none is.
func TestWhyReadsClusterWidePolicies(t *testing.T) {
	c := newCLI(t)
	for question, want := range map[string]string{
		"shop/web shop/db tcp/5432": "DENIED by globalnetworkpolicy/kcnp.quarantine rule 0",  // the NetworkPolicy would allow it
		"shop/job shop/db tcp/5432": "ALLOWED by globalnetworkpolicy/kcnp.quarantine rule 1", // and would deny this
		"shop/job shop/db tcp/80":   "DENIED by the end of tier default, ingress of shop/db", // passed on by an AdminNetworkPolicy
		"shop/db shop/web tcp/80":   "DENIED by globalnetworkpolicy/kbanp.baselineadminnetworkpolicy.default rule 0",
		"shop/db shop/web tcp/443":  "ALLOWED by profile/kns.shop rule 0", // the baseline says nothing of it
	} {
		code := 0
		if strings.HasPrefix(want, "DENIED") {
			code = explain.Denied
		}
		clitest.Contains(t, c.Want(code, "", append([]string{"why", "--files", kubernetes, "--files", "testdata/clusterwide.yaml"}, strings.Fields(question)...)...), want)
	}
}

func TestKubernetesObjectsTogetherWithResources(t *testing.T) {
	c := newCLI(t)
	const ours = `
apiVersion: projectcalico.org/v3
kind: Profile
metadata: {name: kns.shop}
spec: {egress: [{action: Deny}]}
---
apiVersion: v1
kind: List
items:
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop}}
- apiVersion: v1
  kind: Pod
  metadata: {name: lone, namespace: shop, annotations: {cni.projectcalico.org/ipv4pools: '[]'}}
  spec: {nodeName: node-1}
  status: {podIP: 10.65.0.1}
`
	code, out, errs := c.Run(ours, "why", "--files", "-", "shop/lone", "192.0.2.1", "udp/53")
	if code != explain.Denied {
		t.Errorf("exit code %d", code)
	}
	clitest.Contains(t, out, "DENIED by profile/kns.shop rule 0 (Deny)") // and not by what the namespace's absence implies
	clitest.Contains(t, errs, "deployment shop/d is left out: it says nothing to policy",
		"pod shop/lone: annotation cni.projectcalico.org/ipv4pools is passed over: it has no effect here")
	double := ours + "---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n"
	_, _, errs = c.Run(double, "why", "--files", "-", "shop/lone", "192.0.2.1", "udp/53")
	clitest.Contains(t, errs, "Profile kns.shop", "is there already")
}

func TestWhatIsWrongInKubernetesObjects(t *testing.T) {
	c := newCLI(t)
	const wrong = "---\n# a comment\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: db, namespace: shop}\nspec: {podSelector: {}, ingress: [{from: [{}]}]}\n"
	clitest.Contains(t, c.Want(1, wrong, "translate", "-f", "-"), "NetworkPolicy shop/db: spec.ingress[0].from[0]: is empty")
	clitest.Contains(t, c.Want(1, strings.Replace(wrong, "ingress:", "ingres:", 1), "translate", "-f", "-"), "standard input: NetworkPolicy shop/db (line 2): spec.ingres: unknown field")
	clitest.Contains(t, c.Want(1, wrong, "apply", "-f", "-"), `apiVersion: is "networking.k8s.io/v1": want projectcalico.org/v3`)
}

func TestTranslate(t *testing.T) {
	c := newCLI(t)
	_, out, _ := c.Run("", "translate", "-f", kubernetes, "-o", "name")
	clitest.Equal(t, out, `profile/kns.shop
profile/ksa.shop.default
networkpolicy/shop/knp.default.db
kubernetesendpointslice/shop/db.db.0
workloadendpoint/shop/unscheduled-k8s-web-eth0
workloadendpoint/shop/unscheduled-k8s-db-eth0
`)
	// What is printed means the same as what was read.
	_, v3, _ := c.Run("", "translate", "-f", kubernetes)
	_, was, _ := c.Run("", "why", "--files", kubernetes, "shop/web", "shop/db", "tcp/5432")
	clitest.Equal(t, c.Want(0, v3, "why", "--files", "-", "shop/web", "shop/db", "tcp/5432"), was)
}

// TestWhySaysWhatOfAPolicyCouldNotBeTranslated: where such a policy decides, and where it only takes part. It is what a policy of Kubernetes
// looks like in a cluster.
func TestWhySaysWhatOfAPolicyCouldNotBeTranslated(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	const closed = "closed in part, since it cannot be translated: spec.ingress[0].from[0]: is empty"
	np := `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: half, namespace: prod, annotations: {twill.net/not-translated: "spec.ingress[0].from[0]: is empty"}}
spec: {order: 1, selector: app == "db", types: [Ingress], ingress: [{action: Deny, protocol: TCP, destination: {ports: [80]}}]}
`
	c.Want(0, np, "apply", "-f", "-")
	for question, code := range map[string]int{"tcp/80": explain.Denied, "tcp/5432": 0} {
		out := c.Want(code, "", "why", "prod/web", "prod/db", question, "-4")
		if strings.Count(out, closed) != 1 || !strings.Contains(out, "networkpolicy/prod/half: ") {
			t.Errorf("%s: want it once in\n%s", question, out)
		}
	}
	if out := c.Want(0, "", "why", "prod/db", "prod/web", "tcp/80", "-4"); strings.Contains(out, closed) {
		t.Errorf("it takes no part in\n%s", out)
	}
	clitest.Contains(t, c.Want(explain.Denied, "", "why", "prod/web", "prod/db", "tcp/80", "-o", "json"), `"notTranslated": "spec.ingress[0].from[0]: is empty"`)
}
