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
func (n *node) launcher(ns, name, machine, uid string) {
	n.t.Helper()
	n.s.Apply(n.t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s
  labels: {app: vm, kubevirt.io: virt-launcher, vm.kubevirt.io/name: %[4]s}
  ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: %[4]s, uid: %[5]s, controller: true}]
spec: {serviceAccountName: sa, nodeName: %[3]s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`, name, ns, n.name, machine, uid))
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

// TestAVirtualMachineKeepsItsAddressOverItsPods: its pod is deleted, and made again on another node. KubeVirt itself does not run here.
func TestAVirtualMachineKeepsItsAddressOverItsPods(t *testing.T) {
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
	one, two := a.plugin(), b.plugin()
	client := one.add(ns, "client", "app: client")
	uid := s.Machine(t, ns, "vm")

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
