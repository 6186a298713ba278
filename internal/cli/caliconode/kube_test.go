package caliconode

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubetest"
)

// TestMain ends the API server that tests have in common.
func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// defined is the API server, with the definitions of all kinds.
func defined(t *testing.T) *kubetest.Server {
	t.Helper()
	srv := kubetest.Start(t)
	all, err := crds.Documents(crds.Definitions(form.V3))
	if err != nil {
		t.Fatal(err)
	}
	srv.Apply(t, all)
	return srv
}

// TestStartupOnKubernetes: what kubeadm left is read, settings of one node are not made, and a Node keeps the name that Kubernetes has for it.
func TestStartupOnKubernetes(t *testing.T) {
	alone(t)
	srv := defined(t)
	srv.Apply(t, `
apiVersion: v1
kind: Node
metadata: {name: h1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kubeadm-config, namespace: kube-system}
data:
  ClusterConfiguration: |
    networking:
      podSubnet: 10.244.0.0/16
`)
	for name, value := range map[string]string{"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": srv.Kubeconfig, "CALICO_API_GROUP": string(form.V3), "IP": "198.51.100.7/24", "CLUSTER_TYPE": "k8s", "CALICO_K8S_NODE_REF": "h1"} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if _, code, out := call(ctx, "calico-node", "-startup"); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
	}
	s, err := stores.Open(ctx, datastore.Config{Type: "kubernetes", Kubeconfig: srv.Kubeconfig, Group: string(form.V3), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for key, want := range map[string]string{
		"ippools/default-ipv4-ippool": `"10.244.0.0/16"`, "clusterinformations/default": `"twill,k8s,kubeadm,kdd"`, "felixconfigurations/default": `"reportingInterval":"0s"`,
		"bgpconfigurations/default": "default", "nodes/h1": `"198.51.100.7/24"`,
	} {
		if u, err := s.Get(ctx, api.ResourcesPrefix+key); err != nil || !strings.Contains(string(u.Value), want) {
			t.Errorf("%s: %s, %v; want %s", key, u.Value, err, want)
		}
	}
	if u, err := s.Get(ctx, api.ResourcesPrefix+"felixconfigurations/node.h1"); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("settings of one node: %s, %v", u.Value, err)
	}
	if u, err := s.Get(ctx, api.IPAMConfigKey); err != nil || !strings.Contains(string(u.Value), "Enabled") {
		t.Errorf("how addresses are given out: %s, %v", u.Value, err)
	}
}

// TestAStartOnKubernetesThatMayListAndNotWatch ends all the same: it need not learn of changes.
func TestAStartOnKubernetesThatMayListAndNotWatch(t *testing.T) {
	alone(t)
	srv := defined(t)
	srv.Apply(t, `
apiVersion: v1
kind: Node
metadata: {name: h1}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: blind, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: blind}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list, create, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: blind}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: blind}
subjects: [{kind: ServiceAccount, name: blind, namespace: kube-system}]
`)
	for name, value := range map[string]string{"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": srv.KubeconfigFor(t, "kube-system", "blind"), "CALICO_API_GROUP": string(form.V3), "IP": "198.51.100.7/24", "CALICO_K8S_NODE_REF": "h1"} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, code, out := call(ctx, "calico-node", "-startup"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
}
