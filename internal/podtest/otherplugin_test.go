package podtest

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/translate"
)

// TestPodsOfAnotherPluginAreProtected: as in clouds whose plugins name pods' interfaces so that Calico's agent finds them, with routes of their own.
func TestPodsOfAnotherPluginAreProtected(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "cloud")
	n.define()
	s.Clear(t, "twill.net/v1", "records")
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	s.Apply(t, strings.ReplaceAll(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]
`, "NS", ns))
	run := func(name, addr string) pod {
		p := n.runBy(translate.LinkName("azv", ns, name), ns, name, "app: "+name, addr)
		n.Run("ip", "route", "replace", addr+"/32", "dev", translate.LinkName("azv", ns, name), "proto", "boot")
		return p
	}
	web, client := run("web", "10.64.9.2"), run("client", "10.64.9.3") // before there is an agent
	n.start("agent", s.Kubeconfig, "FELIX_INTERFACEPREFIX=azv")
	n.ready()
	other := run("other", "10.64.9.4")

	client.await(t, web, true)
	other.await(t, web, false)
	web.await(t, other, true)
	if out := n.cli("get", "workloadendpoints", "-n", ns, "-o", "wide"); strings.Contains(out, "azv") { // of an administrator, who is no node of such a cluster
		t.Errorf("without the variable the command shows\n%s", out)
	}
}
