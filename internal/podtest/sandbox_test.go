package podtest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
)

// TestAPodWithANewSandboxHasItsNewAddressWhenThePluginReturns: the kubelet reports the address of the sandbox before until all of the pod's containers
// are started, and their images pulled.
func TestAPodWithANewSandboxHasItsNewAddressWhenThePluginReturns(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "n7")
	n.define()
	s.Clear(t, "projectcalico.org/v3", "globalnetworkpolicies", "ippools", "ipamblocks", "ipamhandles", "blockaffinities") // of tests before
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.67.0.0/24, blockSize: 26, nodeSelector: all()}\n")
	ns := guarded(t, s)
	n.agent(s.Kubeconfig)
	n.ready()
	p := n.plugin()
	path := "/api/v1/namespaces/" + ns + "/pods/web"
	reports := func(of pod) { // the kubelet
		n.patch(path+"/status", map[string]any{"status": map[string]any{
			"podIP": of.addr.String(), "podIPs": []any{map[string]any{"ip": of.addr.String()}}, "phase": "Running",
		}})
	}
	client, other := p.add(ns, "client", "app: client"), p.add(ns, "other", "app: other")
	old := p.add(ns, "web", "app: web")
	reports(old)
	other.await(t, old, false)
	client.await(t, old, true)

	if text, err := p.call("DEL", ns, "web", "c-web", old.NS); err != nil {
		t.Fatalf("DEL: %v\n%s", err, text)
	}
	if out := n.cli("get", "workloadendpoints", "-n", ns); strings.Contains(out, old.addr.String()) {
		t.Errorf("an address that was given back is an endpoint's until the kubelet says something else:\n%s", out)
	}
	web := p.attachAs(ns, "web", "c-web-again")
	if web.addr == old.addr {
		t.Fatalf("the new sandbox has the address of the old one, %s: the test shows nothing", old.addr)
	}
	probe := netnstest.Probe{From: client.NS, To: web.NS, Proto: "tcp", Dst: netip.AddrPortFrom(web.addr, 8080)}
	probe.WantReach(t) // no waiting
	back := netnstest.Probe{From: web.NS, To: client.NS, Proto: "tcp", Dst: netip.AddrPortFrom(client.addr, 8080)}
	back.WantReach(t)
	other.await(t, web, false)

	// The pod changes otherwise, and the kubelet still reports the old address.
	n.patch(path, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "open"}}})
	other.await(t, web, true)
	n.patch(path, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}})
	other.await(t, web, false)
	probe.WantReach(t)

	reports(web)
	n.patch(path, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "open"}}})
	other.await(t, web, true)
	back.WantReach(t)
}
