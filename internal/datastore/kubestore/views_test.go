package kubestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
)

// follower awaits what a watch of a prefix brings.
type follower struct {
	t *testing.T
	w datastore.Watcher
	c map[string]string // what was brought so far, by key; "" is gone
}

func follow(t *testing.T, c datastore.Client, prefix string) *follower {
	t.Helper()
	snap, err := c.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), prefix, snap.Position)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return &follower{t, w, map[string]string{}}
}

// until reads until the value of a key contains a text; empty: until it is gone.
func (f *follower) until(key, contains string) {
	f.t.Helper()
	for {
		if v, ok := f.c[key]; ok && (v == "") == (contains == "") && strings.Contains(v, contains) {
			return
		}
		c, err := f.w.Next(f.t.Context())
		if err != nil {
			f.t.Fatalf("%s: want %q, have %q: %v", key, contains, f.c[key], err)
		}
		for _, u := range c.Updates {
			f.c[u.Key] = string(u.Value)
		}
	}
}

func call(t *testing.T, s *kubetest.Server, method, path string, in any) {
	t.Helper()
	if err := s.Admin().Call(context.WithoutCancel(t.Context()), method, path, in, nil); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

func TestWhatKubernetesHasIsSeenAsItChanges(t *testing.T) {
	s := cluster(t)
	for _, g := range groups {
		t.Run(string(g), func(t *testing.T) {
			ns := s.Namespace(t)
			c := open(t, s, g)
			f := follow(t, c, api.ResourcesPrefix)
			s.Apply(t, fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: %[1]s, labels: {role: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: %[1]s, labels: {app: web}}
spec:
  serviceAccountName: sa
  nodeName: n-1
  containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: %[1]s}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
`, ns))
			slice := api.ResourcesPrefix + "kubernetesendpointslices/" + ns + "/web-1"
			for _, address := range []string{"10.65.0.8", "10.65.0.9"} { // a service's endpoints come, and change
				s.Apply(t, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: "+ns+", labels: {kubernetes.io/service-name: web}}\n"+
					"addressType: IPv4\nendpoints: [{addresses: ["+address+"]}]\nports: [{port: 80, protocol: TCP}]\n")
				f.until(slice, address)
			}
			if err := s.Admin().Call(t.Context(), "DELETE", "/apis/discovery.k8s.io/v1/namespaces/"+ns+"/endpointslices/web-1", nil, nil); err != nil {
				t.Error(err)
			}
			f.until(slice, "")
			f.until(api.ResourcesPrefix+"profiles/ksa."+ns+".sa", `"pcsa.role":"web"`)
			f.until(api.ResourcesPrefix+"networkpolicies/"+ns+"/knp.default.web", `"types":["Ingress"]`)
			pod := "/api/v1/namespaces/" + ns + "/pods/web-0"
			wep := api.ResourcesPrefix + "workloadendpoints/" + ns + "/n--1-k8s-web--0-eth0"
			if _, err := c.Get(t.Context(), wep); !errors.Is(err, datastore.ErrNotFound) {
				t.Errorf("a pod without an address: %v", err)
			}
			// The plugin notes what it gave, and takes it back.
			stored, err := c.Create(t.Context(), api.Update{Key: wep, Value: []byte(`{"spec":{"ipNetworks":["10.65.0.7/32"],"containerID":"c1"}}`)})
			if err != nil || !strings.Contains(string(stored.Value), `"ipNetworks":["10.65.0.7/32"]`) || !strings.Contains(string(stored.Value), `"containerID":"c1"`) {
				t.Fatalf("%s, error %v", stored.Value, err)
			}
			f.until(wep, `"10.65.0.7/32"`)
			var o struct{ Metadata api.ObjectMeta }
			if err := s.Admin().Call(t.Context(), "GET", pod, nil, &o); err != nil || o.Metadata.Annotations["cni.projectcalico.org/podIPs"] != "10.65.0.7/32" {
				t.Errorf("annotations %v, error %v", o.Metadata.Annotations, err)
			}
			if err := c.Delete(t.Context(), wep, api.Revision{}); err != nil {
				t.Error(err)
			}
			f.until(wep, "")
			if _, err := c.Create(t.Context(), api.Update{Key: api.ResourcesPrefix + "profiles/kns." + ns, Value: []byte(`{}`)}); err == nil || !strings.Contains(err.Error(), "with kubectl") {
				t.Errorf("a namespace was written: %v", err)
			}
			if _, err := c.Create(t.Context(), api.Update{Key: api.ResourcesPrefix + "networkpolicies/" + ns + "/knp.default.x", Value: []byte(`{}`)}); err == nil {
				t.Error("a policy of Kubernetes was written")
			}
		})
	}
}

func TestANodeKeepsWhatCalicoAdds(t *testing.T) {
	s := cluster(t)
	s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {zone: a}}\n")
	t.Cleanup(func() { call(t, s, "DELETE", "/api/v1/nodes/n1", nil) })
	c := open(t, s, form.V3)
	key := api.ResourcesPrefix + "nodes/n1"
	u, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var n api.Node
	if err := json.Unmarshal(u.Value, &n); err != nil || n.Metadata.Labels["zone"] != "a" {
		t.Fatalf("%s, error %v", u.Value, err)
	}
	n.Spec.BGP = &api.NodeBGPSpec{IPv4Address: "192.0.2.1/24"}
	n.Metadata.Labels["rack"] = "r1"
	if u.Value, err = json.Marshal(n); err != nil {
		t.Fatal(err)
	}
	now, err := c.Update(t.Context(), u)
	if err != nil || !strings.Contains(string(now.Value), `"ipv4Address":"192.0.2.1/24"`) || !strings.Contains(string(now.Value), `"rack":"r1"`) {
		t.Fatalf("%s, error %v", now.Value, err)
	}
	if _, err := c.Update(t.Context(), u); !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("an update of what was read before: %v", err)
	}
	var o struct{ Metadata api.ObjectMeta }
	if err := s.Admin().Call(t.Context(), "GET", "/api/v1/nodes/n1", nil, &o); err != nil || o.Metadata.Labels["rack"] != "" {
		t.Errorf("labels of the Kubernetes node: %v, error %v", o.Metadata.Labels, err)
	}
}

func TestAServerThatWasPutBackIsNotWaitedFor(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	install(t, s, form.V3)
	c := open(t, s, form.V3)
	set := func(name string) api.Update {
		return api.Update{Key: api.ResourcesPrefix + "globalnetworksets/" + name, Value: []byte(`{"metadata":{},"spec":{}}`)}
	}
	if _, err := c.Create(t.Context(), set("before")); err != nil {
		t.Fatal(err)
	}
	backup := s.Backup(t)
	for i := range 20 {
		if _, err := c.Create(t.Context(), set(fmt.Sprint("later", i))); err != nil {
			t.Fatal(err)
		}
	}
	prefix := api.KeyPrefix(api.KindGlobalNetworkSet, "")
	snap, err := c.List(t.Context(), prefix)
	if err != nil || len(snap.Items) != 21 {
		t.Fatalf("%d items, error %v", len(snap.Items), err)
	}
	w, err := c.Watch(t.Context(), prefix, snap.Position)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s.Restore(t, backup)
	for err == nil {
		_, err = w.Next(t.Context())
	}
	for errors.Is(err, datastore.ErrUnavailable) && t.Context().Err() == nil { // it was away for longer than a watch waits
		if again, begun := c.Watch(t.Context(), prefix, snap.Position); begun == nil {
			_, err = again.Next(t.Context())
			again.Close()
		} else {
			err = begun
		}
	}
	if !errors.Is(err, datastore.ErrCompacted) {
		t.Errorf("the watch ended with %v", err)
	}
	if snap, err = c.List(t.Context(), prefix); err != nil || len(snap.Items) != 1 {
		t.Errorf("%d items, error %v", len(snap.Items), err)
	}
}

func TestWithoutDefinitionsNothingIsTakenForEmpty(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	c := open(t, s, "")
	if _, err := c.List(t.Context(), api.ResourcesPrefix); !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "twill kube crds") {
		t.Errorf("a cluster without definitions: %v", err)
	}
	install(t, s, form.V1)
	snap, err := c.List(t.Context(), api.KeyPrefix(api.KindNetworkPolicy, ""))
	if err != nil {
		t.Fatalf("once they are there: %v", err)
	}
	call(t, s, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/networkpolicies.crd.projectcalico.org", nil)
	for {
		if snap, err = c.List(t.Context(), api.KeyPrefix(api.KindNetworkPolicy, "")); err != nil || t.Context().Err() != nil {
			break
		}
	}
	if !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("a definition that went: %d items, error %v", len(snap.Items), err)
	}
}

func TestWhoMayReadOneKindFollowsIt(t *testing.T) {
	s := cluster(t)
	ns := s.Namespace(t)
	s.Apply(t, strings.ReplaceAll(`apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader-NS}
rules: [{apiGroups: [projectcalico.org], resources: [globalnetworksets], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader-NS}
subjects: [{kind: ServiceAccount, name: reader, namespace: NS}]
`, "NS", ns))
	c, err := kubestore.New(datastore.Config{Kubeconfig: s.KubeconfigFor(t, ns, "reader"), Group: string(form.V3), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	f := follow(t, c, api.KeyPrefix(api.KindGlobalNetworkSet, ""))
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: "+ns+"}\nspec: {nets: [192.0.2.0/24]}\n")
	f.until(api.KeyPrefix(api.KindGlobalNetworkSet, "")+ns, "192.0.2.0/24")
	if _, err := c.List(t.Context(), api.KeyPrefix(api.KindIPPool, "")); !errors.Is(err, datastore.ErrUnauthorized) || !strings.Contains(err.Error(), "ippools") {
		t.Errorf("another kind: %v", err)
	}
}

func TestAClosedStoreEndsItsWatches(t *testing.T) {
	c := open(t, cluster(t), form.V3)
	f := follow(t, c, api.KeyPrefix(api.KindGlobalNetworkSet, ""))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = f.w.Next(t.Context())
	}
	if !errors.Is(err, datastore.ErrUnavailable) {
		t.Error(err)
	}
}

// Where another datastore is kept up with Kubernetes, nothing else of the cluster counts, and nothing else need be there.
func TestViewsNeedNoDefinitions(t *testing.T) {
	for name, s := range map[string]*kubetest.Server{"with definitions": cluster(t), "without": kubetest.New(t, kubetest.Config{})} {
		t.Run(name, func(t *testing.T) {
			ns := s.Namespace(t)
			c, err := kubestore.New(datastore.Config{Kubeconfig: s.Kubeconfig, Views: true, RequestTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			f := follow(t, c, api.ResourcesPrefix)
			s.Apply(t, strings.ReplaceAll(`apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: NS}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec: {podSelector: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: NS, labels: {app: web}}
spec: {serviceAccountName: sa, nodeName: n-1, containers: [{name: c, image: i}]}
`, "NS", ns))
			wep := api.ResourcesPrefix + "workloadendpoints/" + ns + "/n--1-k8s-web--0-eth0"
			f.until(api.ResourcesPrefix+"profiles/ksa."+ns+".sa", `"labelsToApply"`)
			f.until(api.ResourcesPrefix+"networkpolicies/"+ns+"/knp.default.web", `"types":["Ingress"]`)
			f.until(wep, `"app":"web"`) // it has no address yet
			if _, err := c.Create(t.Context(), api.Update{Key: wep, Value: []byte(`{"spec":{"ipNetworks":["10.65.0.7/32"]}}`)}); err == nil {
				t.Error("a pod was written")
			}
			own := api.Update{Key: api.ResourcesPrefix + "networkpolicies/" + ns + "/own", Value: []byte(`{"metadata":{"name":"own","namespace":"` + ns + `"},"spec":{}}`)}
			if name == "with definitions" {
				if _, err := open(t, s, form.V3).Create(t.Context(), own); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Get(t.Context(), own.Key); !errors.Is(err, datastore.ErrNotFound) {
				t.Errorf("a policy of Calico's: %v", err)
			}
			if snap, err := c.List(t.Context(), api.KeyPrefix(api.KindNetworkPolicy, ns)); err != nil || len(snap.Items) != 1 {
				t.Errorf("%v, error %v", snap.Items, err)
			}
			call(t, s, "DELETE", "/api/v1/namespaces/"+ns+"/pods/web-0?gracePeriodSeconds=0", nil)
			f.until(wep, "")
		})
	}
	c, err := kubestore.New(datastore.Config{Kubeconfig: kubetest.New(t, kubetest.Config{}).Kubeconfig, Views: true, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Get(t.Context(), api.ResourcesPrefix+"globalnetworkpolicies/kcnp.x"); !errors.Is(err, datastore.ErrUnavailable) || strings.Contains(err.Error(), "crds") {
		t.Errorf("of a kind that is not served, nobody can say that an object is gone: %v", err)
	}
}
