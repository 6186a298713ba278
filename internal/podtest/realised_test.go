package podtest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
)

// kubectl runs a command with the rights of an administrator.
func (c *cluster) kubectl(args ...string) (string, error) {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), kubetest.Program(c.T, "kubectl"), append([]string{"--kubeconfig", c.s.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// realisedAs waits until the condition Realised of a policy begins with a text, of the policy's generation.
func (c *cluster) realisedAs(path, want string) {
	c.Helper()
	eventually(c.T, path+": "+want, func() (string, bool) {
		is, _ := reportedOn(c.T, c.s, path, "Realised")
		return is, strings.HasPrefix(is, want)
	})
}

// policiesAreRealised has agents of some nodes say that all policies are in force, and waits until one of each kind that has a status says so, with what else it says.
func (c *cluster) policiesAreRealised(nodes ...string) {
	c.Helper()
	c.report(holds, nodes...)
	spec := `"spec":{"order":1,"selector":"app == 'none'","types":["Ingress"]}}`
	const clusterWide = "/apis/policy.networking.k8s.io/"
	paths := []string{clusterWide + "v1alpha2/clusternetworkpolicies/names", clusterWide + "v1alpha1/adminnetworkpolicies/default", clusterWide + "v1alpha1/baselineadminnetworkpolicies/default"}
	for _, kind := range resources.PolicyKinds {
		k, _ := api.LookupKind(kind)
		at, namespace := k.Plural+"/said", ""
		if k.Namespaced {
			at, namespace = k.Plural+"/"+c.ns+"/said", "/namespaces/"+c.ns
		}
		body := spec
		if kind == api.KindStagedKubernetesNetworkPolicy {
			body = `"spec":{"podSelector":{}}}`
		}
		c.put(at, fmt.Sprintf(`{"kind":%q,"metadata":{"name":"said"},%s`, kind, body))
		paths = append(paths, "/apis/"+string(c.group)+namespace+"/"+k.Plural+"/said")
	}
	var v status.Versions
	for _, prefix := range resources.PolicyPrefixes() {
		all, err := c.store.List(c.Context(), prefix)
		if err != nil {
			c.Fatal(err)
		}
		for _, u := range all.Items {
			v.Set(status.VersionOf(u))
		}
	}
	text, err := json.Marshal(status.Summary{Policies: v})
	if err != nil {
		c.Fatal(err)
	}
	for _, n := range nodes {
		if err := datastore.Put(c.Context(), c.store, api.Update{Key: api.Root + "felix/v2/no-region/host/" + n + "/summary", Value: text}); err != nil {
			c.Fatal(err)
		}
	}
	for _, path := range paths {
		eventually(c.T, path+" says where it is in force", func() (string, bool) {
			is, _ := reportedOn(c.T, c.s, path, "Realised")
			return is, strings.Contains(is, fmt.Sprintf("False NotAllNodes: realised on %d of %d nodes; not on f2: its agent has not reported since ", len(nodes), len(nodes)+1))
		})
	}
	if is, _ := reportedOn(c.T, c.s, paths[0], "twill.net/Translated"); !strings.HasPrefix(is, "2 True Translated: ") {
		c.Errorf("what else it said is %q", is)
	}
}

// TestKubectlWaitsUntilAPolicyIsInForceEverywhere: with two agents, of which one is frozen when the policy changes.
func TestKubectlWaitsUntilAPolicyIsInForceEverywhere(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	c := newCluster(t, s, form.V3)
	a, b := newNode(t, s, "a"), newNode(t, s, "b")
	for _, n := range []*node{a, b} {
		n.agent(n.account("agent"))
	}
	c.start()
	a.ready()
	b.ready()
	for _, n := range []*node{a, b} { // else the policy is in force on all nodes that there are once the first says so
		eventually(t, "what "+n.name+" says of policies", func() (string, bool) {
			_, err := c.store.Get(t.Context(), api.Root+"felix/v2/no-region/host/"+n.name+"/summary")
			return fmt.Sprint(err), err == nil
		})
	}
	const path = "/apis/projectcalico.org/v3/globalnetworkpolicies/web"
	policy := func(app string) {
		s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: web}\nspec: {selector: app == '"+app+"', types: [Ingress]}\n")
	}
	wait := func(timeout string) (string, error) {
		return c.kubectl("wait", "--for=condition=Realised", "globalnetworkpolicies.projectcalico.org/web", "--timeout="+timeout)
	}
	policy("web")
	if out, err := wait("60s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.realisedAs(path, "1 True AllNodes: realised on 2 of 2 nodes")

	machinetest.Freeze(t, b.process.Pid)
	policy("db")
	c.realisedAs(path, "2 False NotAllNodes: realised on 1 of 2 nodes; not on b")
	if out, err := wait("1s"); err == nil || !strings.Contains(out, "timed out") {
		t.Errorf("an agent is frozen, and kubectl says %s", out)
	}
	if err := b.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if out, err := wait("60s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.realisedAs(path, "2 True AllNodes: realised on 2 of 2 nodes")
}
