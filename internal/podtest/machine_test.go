package podtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
)

// launcher makes a pod of this node as KubeVirt makes one that runs a virtual machine, of which uid is that of the instance.
func (n *node) launcher(ns, name, machine, uid string, labels ...string) {
	n.t.Helper()
	n.s.Apply(n.t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s
  labels: {app: vm, kubevirt.io: virt-launcher, vm.kubevirt.io/name: %[4]s%[6]s}
  ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: %[4]s, uid: %[5]s, controller: true}]
spec: {serviceAccountName: sa, nodeName: %[3]s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`, name, ns, n.name, machine, uid, strings.Join(append([]string{""}, labels...), ", ")))
}

// end detaches a pod, and deletes it.
func (p plugin) end(ns, name string, of pod) {
	p.t.Helper()
	if text, err := p.call("DEL", ns, name, "c-"+name, of.NS); err != nil {
		p.t.Errorf("DEL %s: %v\n%s", name, err, text)
	}
	now := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
	if err := p.s.Admin().Call(p.t.Context(), http.MethodDelete, "/api/v1/namespaces/"+ns+"/pods/"+name, now, nil); err != nil {
		p.t.Fatal(err)
	}
}

// machines are two nodes with a machine that runs on none.
type machines struct {
	s        *kubetest.Server
	a, b     *node
	one, two plugin // of a and b
	ns, uid  string // of machine vm's instance
}

func newMachines(t *testing.T) *machines {
	t.Helper()
	s := kubetest.Start(t)
	s.DefineKubeVirt(t)
	a, b := linked(t, s, "vm-one", "vm-two")
	a.define()
	s.Clear(t, "projectcalico.org/v3", "ippools", "ipamblocks", "blockaffinities", "ipamhandles", "bgpconfigurations")
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.71.0.0/24, blockSize: 26, nodeSelector: all()}\n")
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	account := a.account("node")
	for _, n := range []*node{a, b} {
		n.whole(account)
		n.ready()
	}
	return &machines{s: s, a: a, b: b, one: a.plugin(), two: b.plugin(), ns: ns, uid: s.Machine(t, ns, "vm")}
}

// TestAVirtualMachineKeepsItsAddressOverItsPods: its pod is deleted, and made again on another node. KubeVirt itself does not run here.
func TestAVirtualMachineKeepsItsAddressOverItsPods(t *testing.T) {
	m := newMachines(t)
	a, b, one, two, ns, uid := m.a, m.b, m.one, m.two, m.ns, m.uid
	client := one.add(ns, "client", "app: client")

	a.launcher(ns, "virt-launcher-vm-first", "vm", uid)
	first := one.attach(ns, "virt-launcher-vm-first")
	client.await(t, first, true)
	b.launcher(ns, "virt-launcher-vm-early", "vm", uid)
	if text, err := two.call("ADD", ns, "virt-launcher-vm-early", "c-early", netnstest.New(t)); err == nil || !strings.Contains(text, "is still that of its pod virt-launcher-vm-first on node vm-one") {
		t.Errorf("ADD of another pod of it: %v\n%s", err, text)
	}
	one.end(ns, "virt-launcher-vm-first", first)
	next := two.attach(ns, "virt-launcher-vm-early")
	if next.addr != first.addr {
		t.Errorf("on another node it has %s, had %s", next.addr, first.addr)
	}
	client.await(t, next, true) // by a route to that very address
	next.await(t, client, true)
	if text := a.cli("ipam", "show", "--ip="+first.addr.String()); !strings.Contains(text, "k8s-pod-network.vmi."+ns+".vm\n") || !strings.Contains(text, "virt-launcher-vm-early") {
		t.Errorf("twill ipam show:\n%s", text)
	}

	// Whoever may make a pod cannot have the address by saying so.
	a.launcher(ns, "virt-launcher-forged", "vm", "00000000-0000-0000-0000-000000000000")
	if text, err := one.call("ADD", ns, "virt-launcher-forged", "c-forged", netnstest.New(t)); err == nil || !strings.Contains(text, "and that one has uid "+uid) {
		t.Errorf("ADD of a pod with another owner: %v\n%s", err, text)
	}
	two.end(ns, "virt-launcher-vm-early", next)
	if text := a.cli("ipam", "show", "--ip="+first.addr.String()); !strings.Contains(text, "is in use") {
		t.Errorf("while it is stopped:\n%s", text)
	}
}

// TestALiveMigrationTakesTheAddressWithIt: the pod to which a machine comes has its address, and no packet comes to it until KubeVirt says that the
// machine runs there.
func TestALiveMigrationTakesTheAddressWithIt(t *testing.T) {
	m := newMachines(t)
	atSource, atTarget := m.one.add(m.ns, "client", "app: client"), m.two.add(m.ns, "other", "app: client")
	m.a.launcher(m.ns, "virt-launcher-vm-source", "vm", m.uid)
	source := m.one.attach(m.ns, "virt-launcher-vm-source")
	m.s.Runs(t, m.ns, "vm", "vm-one")
	atTarget.await(t, source, true)

	m.b.launcher(m.ns, "virt-launcher-vm-target", "vm", m.uid, "kubevirt.io/migrationJobUID: m")
	target := m.two.attach(m.ns, "virt-launcher-vm-target")
	if target.addr != source.addr {
		t.Fatalf("the target has %s, the source %s", target.addr, source.addr)
	}
	m.b.patch("/api/v1/namespaces/"+m.ns+"/pods/virt-launcher-vm-target/status", map[string]any{ // as the kubelet does
		"status": map[string]any{"podIP": target.addr.String(), "podIPs": []any{map[string]any{"ip": target.addr.String()}}, "phase": "Running"},
	})
	// What comes after that is known: the agents have seen the status.
	m.two.add(m.ns, "later", "app: client").await(t, source, true)
	atSource.await(t, source, true)
	atTarget.await(t, source, true)
	source.await(t, atTarget, true)
	if m.b.hasRoute(target.addr.String() + " dev cali") {
		t.Errorf("the target has a route before its machine has come:\n%s", m.b.Run("ip", "route", "show"))
	}
	atTarget.await(t, target, false)

	m.s.Runs(t, m.ns, "vm", "vm-two")
	atTarget.await(t, target, true)
	m.one.end(m.ns, "virt-launcher-vm-source", source)
	atSource.await(t, target, true)
	target.await(t, atSource, true)
	text := m.a.cli("ipam", "show", "--ip="+target.addr.String())
	if !strings.Contains(text, "virt-launcher-vm-target") || strings.Contains(text, "virt-launcher-vm-source") {
		t.Errorf("twill ipam show:\n%s", text)
	}
}
