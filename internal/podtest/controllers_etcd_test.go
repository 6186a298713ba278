package podtest

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/translate"
)

// newEtcdCluster is a cluster whose datastore is an etcd of its own. The API server has no definitions of ours.
func newEtcdCluster(t *testing.T, s *kubetest.Server) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "s")
	etcd, err := member.Start(t.Context(), member.Config{Dir: t.TempDir(), ListenClient: []string{endpoint}, Logger: slog.New(slog.DiscardHandler), StartTimeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	c := &cluster{T: t, s: s, twill: program(t, "twill"), env: []string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + endpoint}}
	out, err := exec.Command(c.twill, "kube", "controllers", "--with-etcd").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(t, string(out))
	store, err := stores.Open(t.Context(), datastore.Config{Endpoints: []string{endpoint}, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c.store, c.addresses, c.ns = store, ipam.New(store, ipam.Config{}), s.Namespace(t)
	c.kubeconfig = s.KubeconfigFor(t, "kube-system", "twill-kube-controllers")
	return c
}

// has reports whether etcd has a resource, with a text in it.
func (c *cluster) has(key, text string) bool {
	u, err := c.store.Get(c.Context(), api.ResourcesPrefix+key)
	return err == nil && strings.Contains(string(u.Value), text)
}

// TestControllersKeepEtcdAsKubernetesSays, with the rights of their role alone: policies and namespaces, labels of nodes, nodes that are gone, and history.
// Which of it they do changes with their configuration.
func TestControllersKeepEtcdAsKubernetesSays(t *testing.T) {
	s, log := audited(t)
	s.DefineClusterWidePolicies(t)
	c := newEtcdCluster(t, s)
	s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: e1, labels: {rack: r7}}\n")
	for _, name := range []string{"f1", "f2", "f3"} {
		s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
	}
	for _, name := range []string{"e1", "e2", "f1", "f2", "f3"} {
		c.put("nodes/"+name, `{"kind":"Node","metadata":{"name":"`+name+`"},"spec":{"orchRefs":[{"nodeName":"`+name+`","orchestrator":"k8s"}]}}`)
	}
	begin, err := c.store.List(t.Context(), api.KeyPrefix(api.KindNode, ""))
	if err != nil {
		t.Fatal(err)
	}
	configure := func(controllers string) {
		t.Helper()
		c.put("kubecontrollersconfigurations/default", `{"kind":"KubeControllersConfiguration","metadata":{"name":"default"},"spec":{"prometheusMetricsPort":0,"etcdV3CompactionPeriod":"1s","controllers":{`+controllers+`}}}`)
	}
	configure(`"node":{"reconcilerPeriod":"1s"},"policy":{},"namespace":{},"serviceAccount":{},"workloadEndpoint":{}`)
	r := c.start()
	policy := func(name string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + ", namespace: " + c.ns + "}\nspec: {podSelector: {matchLabels: {app: " + name + "}}}\n"
	}
	s.Apply(t, policy("web"))
	stored := func(name string) string { return "networkpolicies/" + c.ns + "/knp.default." + name }
	c.await("the policy", func() bool { return c.has(stored("web"), "web") })
	c.await("the namespace's profile", func() bool { return c.has("profiles/kns."+c.ns, c.ns) })
	c.await("a node's labels", func() bool { return c.has("nodes/e1", "r7") })
	c.await("the node that Kubernetes does not have", func() bool { return !c.has("nodes/e2", "") })
	c.policiesAreReportedOn()
	c.nodesAreReportedOn("f1", "f2", "f3")
	c.copiesFollow()

	c.await("history that is forgotten", func() bool {
		w, err := c.store.Watch(t.Context(), api.KeyPrefix(api.KindNode, ""), begin.Position)
		if err == nil {
			defer w.Close()
			_, err = w.Next(t.Context())
		}
		return errors.Is(err, datastore.ErrCompacted)
	})

	configure(`"loadBalancer":{}`)
	c.serveBalancers()

	// What is turned off is left as it is, and made up for when it is turned on.
	configure(`"namespace":{}`)
	c.await("the new settings", func() bool { return r.logged("{Controllers:[namespace] ") })
	s.Apply(t, policy("late"))
	c.put(stored("web"), "{}")
	configure(`"policy":{},"namespace":{}`)
	c.await("the policy that came meanwhile", func() bool { return c.has(stored("late"), "late") && c.has(stored("web"), "web") })
	c.roleIsRight(log)
}

// copiesFollow has an endpoint be given what its pod says, and policies, a pod and an account go.
func (c *cluster) copiesFollow() {
	c.Helper()
	c.s.Apply(c.T, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+c.ns+"}\n")
	c.s.Apply(c.T, `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: `+c.ns+`, labels: {app: shop}}
spec: {serviceAccountName: sa, nodeName: e1, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`)
	endpoint, account := "workloadendpoints/"+c.ns+"/e1-k8s-web-eth0", "profiles/ksa."+c.ns+".sa"
	c.put(endpoint, `{"kind":"WorkloadEndpoint","metadata":{"name":"e1-k8s-web-eth0","namespace":"`+c.ns+`","labels":{"projectcalico.org/orchestrator":"k8s"},"annotations":{"`+translate.AnnotationAwaitsLabels+`":"c1"}},`+
		`"spec":{"orchestrator":"k8s","node":"e1","pod":"web","endpoint":"eth0","interfaceName":"cali1","containerID":"c1","ipNetworks":["10.67.0.1/32"],"profiles":["kns.`+c.ns+`"]}}`)
	c.await("the labels and account of a pod", func() bool {
		return c.has(endpoint, `"app":"shop"`) && c.has(endpoint, `"serviceAccountName":"sa"`) && c.has(account, "")
	})
	if c.has(endpoint, translate.AnnotationAwaitsLabels) {
		c.Error("the endpoint has its labels, and whoever attaches the pod waits for them")
	}
	if _, err := c.store.Get(c.Context(), translate.KeyLabelsAreCopied); err != nil {
		c.Errorf("the datastore does not say that labels are copied: %v", err)
	}
	if err := c.store.Delete(c.Context(), api.ResourcesPrefix+endpoint, api.Revision{}); err != nil {
		c.Fatal(err)
	}
	c.remove("/api/v1/namespaces/" + c.ns + "/pods/web")
	c.remove("/api/v1/namespaces/" + c.ns + "/serviceaccounts/sa")
	c.await("the account's profile to go", func() bool { return !c.has(account, "") })
	const group = "/apis/policy.networking.k8s.io/"
	for path, key := range map[string]string{
		"/apis/networking.k8s.io/v1/namespaces/" + c.ns + "/networkpolicies/large": "networkpolicies/" + c.ns + "/knp.default.large",
		group + "v1alpha2/clusternetworkpolicies/names":                            "globalnetworkpolicies/kcnp.names",
		group + "v1alpha1/adminnetworkpolicies/default":                            "globalnetworkpolicies/kanp.adminnetworkpolicy.default",
		group + "v1alpha1/baselineadminnetworkpolicies/default":                    "globalnetworkpolicies/kbanp.baselineadminnetworkpolicy.default",
	} {
		c.await("the copy "+key, func() bool { return c.has(key, "") })
		c.remove(path)
		c.await("the copy "+key+" to go", func() bool { return !c.has(key, "") })
	}
}
