package kubemirror_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubemirror"
	"github.com/twillnet/twill/internal/kubetest"
)

// role is all that a mirror may do in the API server.
const role = `apiVersion: v1
kind: ServiceAccount
metadata: {name: mirror, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mirror-NS}
rules:
- {apiGroups: [""], resources: [namespaces, serviceaccounts, pods], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch]}
- {apiGroups: [policy.networking.k8s.io], resources: [clusternetworkpolicies, adminnetworkpolicies, baselineadminnetworkpolicies], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mirror-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mirror-NS}
subjects: [{kind: ServiceAccount, name: mirror, namespace: NS}]
`

// clusterWide defines a kind of cluster-wide policies, of which objects may say anything.
const clusterWide = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: adminnetworkpolicies.policy.networking.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}}
spec:
  group: policy.networking.k8s.io
  names: {kind: AdminNetworkPolicy, plural: adminnetworkpolicies, singular: adminnetworkpolicy}
  scope: Cluster
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// patience bounds what a test waits for. A kind that is defined later is found within half a minute.
const patience = 2 * time.Minute

// world is a mirror between an API server and an etcd.
type world struct {
	*testing.T
	s      *kubetest.Server
	ns     string // of this test
	etcd   *member.Member
	socket string
	store  datastore.Client // to look at what etcd holds, and to change it
}

func newWorld(t *testing.T, s *kubetest.Server) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{T: t, s: s, socket: filepath.Join(dir, "s")}
	w.ns = w.s.Namespace(t)
	w.s.Apply(t, strings.ReplaceAll(role, "NS", w.ns))
	w.startEtcd()
	t.Cleanup(func() { w.etcd.Close() })
	w.store = w.open(datastore.Config{Endpoints: []string{"unix://" + w.socket}})
	from := w.open(datastore.Config{Type: "kubernetes", Kubeconfig: w.s.KubeconfigFor(t, w.ns, "mirror"), Views: true})
	to := w.open(datastore.Config{Endpoints: []string{"unix://" + w.socket}})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = kubemirror.New(kubemirror.Config{From: from, To: to, Log: w.log()}).Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

func (w *world) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (w *world) startEtcd() {
	w.Helper()
	var err error
	if w.etcd, err = member.Start(w.Context(), member.Config{Dir: w.TempDir(), ListenClient: []string{"unix://" + w.socket}, StartTimeout: patience, Logger: w.log()}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) open(cfg datastore.Config) datastore.Client {
	w.Helper()
	cfg.Progress, cfg.RequestTimeout = 2*time.Second, time.Minute
	c, err := stores.Open(w.Context(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// key is that of a resource of this test, in which NS is its namespace.
func (w *world) key(of string) string {
	return api.ResourcesPrefix + strings.ReplaceAll(of, "NS", w.ns)
}

// until waits until a key of etcd contains all of some texts; none: until it is gone.
func (w *world) until(of string, contains ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		u, err := w.store.Get(ctx, w.key(of))
		found := err == nil && len(contains) > 0 || errors.Is(err, datastore.ErrNotFound) && len(contains) == 0
		for _, text := range contains {
			found = found && strings.Contains(string(u.Value), strings.ReplaceAll(text, "NS", w.ns))
		}
		if found {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			w.Fatalf("%s: want %q, have %s, error %v", of, contains, u.Value, err)
		}
	}
}

// write changes etcd, as somebody else does.
func (w *world) write(of, value string) {
	w.Helper()
	if err := datastore.Put(w.Context(), w.store, api.Update{Key: w.key(of), Value: []byte(strings.ReplaceAll(value, "NS", w.ns))}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) erase(of string) {
	w.Helper()
	if err := w.store.Delete(w.Context(), w.key(of), api.Revision{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) apply(manifests string) {
	w.Helper()
	w.s.Apply(w.T, strings.ReplaceAll(manifests, "NS", w.ns))
}

func (w *world) call(method, path string, in, out any) {
	w.Helper()
	if err := w.s.Admin().Call(w.Context(), method, strings.ReplaceAll(path, "NS", w.ns), in, out); err != nil {
		w.Fatal(err)
	}
}

const (
	policy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec: {podSelector: {matchLabels: {app: APP}}, policyTypes: [Ingress]}
`
	pod = `apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: NS, labels: {role: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: NS, labels: {app: APP}}
spec: {serviceAccountName: sa, nodeName: n-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]}
`
	// As the CNI plugin writes it.
	attached = `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"n--1-k8s-web--0-eth0","namespace":"NS","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z",
		"labels":{"projectcalico.org/namespace":"NS","projectcalico.org/orchestrator":"k8s"},"annotations":{"twill.net/cni-network":"k8s-pod-network"}},
		"spec":{"orchestrator":"k8s","node":"n-1","containerID":"c1","pod":"web-0","endpoint":"eth0","ipNetworks":["10.65.0.7/32"],"profiles":["kns.NS"],"interfaceName":"cali0","mac":"0a:00:00:00:00:01"}}`
	endpointKey = "workloadendpoints/NS/n--1-k8s-web--0-eth0"
	policyKey   = "networkpolicies/NS/knp.default.web"
	podPath     = "/api/v1/namespaces/NS/pods/web-0?gracePeriodSeconds=0"
	policyPath  = "/apis/networking.k8s.io/v1/namespaces/NS/networkpolicies/web"
)

func app(manifest, name string) string { return strings.ReplaceAll(manifest, "APP", name) }

func TestEtcdFollowsKubernetes(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	w.write(endpointKey, attached)
	w.until("profiles/kns.NS", `"pcns.kubernetes.io/metadata.name":"NS"`)
	w.apply(app(policy, "web") + "---\n" + app(pod, "web"))
	w.until(policyKey, "app == 'web'", `"types":["Ingress"]`)
	w.until("profiles/ksa.NS.sa", `"pcsa.role":"web"`)
	w.until(endpointKey, `"app":"web"`, `"projectcalico.org/serviceaccount":"sa"`, `"serviceAccountName":"sa"`, `"profiles":["kns.NS","ksa.NS.sa"]`,
		`"name":"http"`, `"ipNetworks":["10.65.0.7/32"]`, `"containerID":"c1"`, `"twill.net/cni-network":"k8s-pod-network"`)
	w.apply(app(policy, "db") + "---\n" + app(pod, "db") + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: NS, labels: {team: a}}\n")
	w.until(policyKey, `app == 'db'`)
	w.until(endpointKey, `"app":"db"`)
	w.until("profiles/kns.NS", `"pcns.team":"a"`)
	// What goes: the policy at once, the endpoint never here, and the account's profile once no endpoint names it.
	w.call("DELETE", policyPath, nil, nil)
	w.until(policyKey)
	w.call("DELETE", podPath, nil, nil)
	w.call("DELETE", "/api/v1/namespaces/NS/serviceaccounts/sa", nil, nil)
	w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: mark, namespace: NS}\n") // once that is there, what came before was seen
	w.until("profiles/ksa.NS.mark", `"spec"`)
	w.until("profiles/ksa.NS.sa", `"pcsa.role":"web"`)
	w.until(endpointKey, `"app":"db"`)
	w.erase(endpointKey)
	w.until("profiles/ksa.NS.sa")
}

func TestANamespaceOfKubernetesGoesAfterItsEndpoints(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	mark, other := w.ns, "x"+w.ns // the latter nobody else cleans up
	w.ns = other
	w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS}\n---\n" + app(policy, "web"))
	w.write(endpointKey, attached)
	w.until("profiles/kns.NS", `"action":"Allow"`)
	w.until(policyKey, "app == 'web'")
	w.call("DELETE", "/api/v1/namespaces/NS", nil, nil)
	var ns map[string]any // without its controllers, Kubernetes waits for them
	w.call("GET", "/api/v1/namespaces/NS", nil, &ns)
	ns["spec"] = map[string]any{"finalizers": []string{}}
	w.call("PUT", "/api/v1/namespaces/NS/finalize", ns, nil)
	w.call("DELETE", policyPath, nil, nil)
	w.ns = mark // as above
	w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS, labels: {team: a}}\n---\n" + app(policy, "web"))
	w.until("profiles/kns.NS", `"pcns.team":"a"`)
	w.until(policyKey, "app == 'web'")
	w.ns = other
	w.until("profiles/kns.NS", `"action":"Allow"`)
	w.until(policyKey, "app == 'web'")
	w.erase(endpointKey)
	w.until(policyKey)
	w.until("profiles/kns.NS")
}

func TestNothingGoesWhileTheAPIServerIsAway(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	w.apply(app(policy, "web"))
	w.until(policyKey, "app == 'web'")
	w.until("profiles/kns.NS", `"action":"Allow"`)
	w.s.Kill(t)
	w.write("networkpolicies/NS/knp.default.foreign", `{}`)
	w.write("networkpolicies/NS/own", `{}`)
	w.write(policyKey, `{}`)
	w.until(policyKey, "app == 'web'") // what it said last holds
	w.until("networkpolicies/NS/knp.default.foreign", "{}")
	w.s.Restart(t)
	w.until("networkpolicies/NS/knp.default.foreign")
	w.call("DELETE", policyPath, nil, nil)
	w.until(policyKey)
	w.until("networkpolicies/NS/own", "{}")
}

func TestALostEtcdIsRebuiltFromKubernetes(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	w.apply(app(policy, "web") + "---\n" + app(pod, "web"))
	w.until(policyKey, "app == 'web'")
	for range 100 { // an etcd that has come as far as the lost one is found out by the resync alone
		w.write("networkpolicies/NS/own", "{}")
	}
	w.etcd.Close()
	w.startEtcd()
	for _, key := range []string{"profiles/kns.NS", "profiles/kns.kube-system", "profiles/ksa.NS.sa", policyKey} {
		w.until(key, `"spec"`)
	}
	w.erase(policyKey)
	w.until(policyKey, "app == 'web'")
}

// One that means nothing denies, and goes with its object, as does its kind; that it comes later is seen.
func TestClusterWidePoliciesOfKubernetesAreKept(t *testing.T) {
	w := newWorld(t, kubetest.New(t, kubetest.Config{}))
	w.until("profiles/kns.NS", `"action":"Allow"`)
	const key = "globalnetworkpolicies/kanp.adminnetworkpolicy.strange"
	w.write(key, "{}")
	w.write("profiles/kns.NS", `{}`) // once that is put right, what came before was seen
	w.until("profiles/kns.NS", `"action":"Allow"`)
	w.until(key, "{}") // nobody can say that it is gone
	w.s.Apply(t, clusterWide)
	w.s.Apply(t, `apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: strange}
spec: {priority: high, subject: {namespaces: {}}, egress: [{action: Pass, to: [{namespaces: {}}]}, {action: Allow, to: [{namespaces: {}}]}]}
`)
	w.until(key, `"egress":[{"action":"Deny"}]`)
	w.call("DELETE", "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies/strange", nil, nil)
	w.until(key)
}
