package doctor_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
)

// ofCluster is what a cluster has whose datastore upstream keeps in custom resources, and an account that may not read all of it.
const ofCluster = `apiVersion: v1
kind: Node
metadata: {name: h1, annotations: {projectcalico.org/IPv4Address: 192.0.2.1/24}}
---
apiVersion: v1
kind: Node
metadata: {name: h2, annotations: {projectcalico.org/IPv4Address: 192.0.2.2/24}}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: default-ipv4-ippool}
spec: {cidr: 10.65.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Always, natOutgoing: true, nodeSelector: all(), allowedUses: [Workload, Tunnel]}
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: default}
spec: {bpfEnabled: true, bpfLogLevel: Debug}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: true, nodeMeshPassword: {secretKeyRef: {name: bgp, key: mesh}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: some}
rules:
- {apiGroups: [crd.projectcalico.org, "", networking.k8s.io, discovery.k8s.io], resources: [RESOURCES], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: some}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: some}
subjects: [{kind: ServiceAccount, name: some, namespace: kube-system}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: some, namespace: kube-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: none, namespace: kube-system}
`

// allowed are the resources that the account may read: not tiers, nor Secrets.
const allowed = "nodes, namespaces, pods, serviceaccounts, services, networkpolicies, endpointslices, ippools, felixconfigurations, bgpconfigurations, bgppeers, bgpfilters, clusterinformations, " +
	"globalnetworkpolicies, globalnetworksets, networksets, hostendpoints, ipreservations, kubecontrollersconfigurations, caliconodestatuses, ipamblocks, ipamhandles, blockaffinities, ipamconfigs, ipamconfigurations, " +
	"stagedglobalnetworkpolicies, stagednetworkpolicies, stagedkubernetesnetworkpolicies"

// TestAClusterOfCalicosIsReadByItsAPIServer, and what an account may not read is named.
func TestAClusterOfCalicosIsReadByItsAPIServer(t *testing.T) {
	if storetest.IsPoor() {
		return // it has a store of its own
	}
	clitest.ClearStoreEnv(t)
	s := kubetest.New(t, kubetest.Config{})
	call := func(code int, args ...string) string {
		var out, errs bytes.Buffer
		if got := cli.Execute(t.Context(), clitest.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &errs}), args); got != code {
			t.Fatalf("twill %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &errs)
		}
		return out.String()
	}
	definitions := slices.DeleteFunc(strings.Split(call(0, "kube", "crds", "--group", "crd.projectcalico.org/v1"), "\n---\n"), func(d string) bool { return strings.Contains(d, "ValidatingAdmissionPolicy") })
	s.Apply(t, strings.Join(definitions, "\n---\n"))
	s.Apply(t, strings.Replace(ofCluster, "RESOURCES", allowed, 1))
	ns, dir := netnstest.New(t), t.TempDir()
	t.Setenv("DATASTORE_TYPE", "kubernetes")
	look := func(kubeconfig string, want ...string) {
		t.Helper()
		t.Setenv("KUBECONFIG", kubeconfig)
		var out string
		ns.Do(func() {
			out = call(1, "doctor", "--take-over", "--node", "h1", "--socket", filepath.Join(dir, "none"), "--data-dir", dir, "--conf-dir", dir, "--felix-config", filepath.Join(dir, "felix.cfg"))
		})
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
				t.Errorf("%q is not in:\n%s", w, out)
			}
		}
	}
	look(s.Kubeconfig, "blocks bgp the password of the session with 192.0.2.2 (mesh), mesh of bgp, cannot be read: there is no Secret kube-system/bgp", "same kernel VXLAN (default-ipv4-ippool)",
		"same node Node h1", "1. Put right what blocks", "2. kubectl cordon h1", "changes resources FelixConfiguration default: spec.bpfEnabled has no effect")
	look(s.KubeconfigFor(t, "kube-system", "some"), "blocks store tiers cannot be listed: ", "blocks bgp the password of the session with 192.0.2.2 (mesh), mesh of bgp, cannot be read: ", "same node Node h1")
	look(s.KubeconfigFor(t, "kube-system", "none"), "blocks store ", "forbidden")
}
