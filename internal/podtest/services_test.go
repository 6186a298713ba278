package podtest

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kubetest"
)

// ask asks the node's speaker; an error also says that a session is down.
func (n *node) ask(ctx context.Context, what string) (string, error) {
	out, err := exec.CommandContext(ctx, n.twill, "bgp", what, "--socket", filepath.Join(filepath.Dir(n.socket), "bgp.sock")).Output()
	return string(out), err
}

// learned reports whether a node has learned a route from a peer.
func (n *node) learned(ctx context.Context, dst, from string) bool {
	out, err := n.ask(ctx, "routes")
	if err != nil {
		return false // it starts
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == dst && slices.Contains(f, from) {
			return true
		}
	}
	return false
}

// awaitRoute waits until a node has learned a route from a peer, or has none from it any more.
func (n *node) awaitRoute(dst, from string, there bool) {
	n.t.Helper()
	what := "knowing " + dst + " from " + from
	if !there {
		what = "without " + dst + " from " + from
	}
	n.await(what, func(ctx context.Context) bool { return n.learned(ctx, dst, from) == there })
}

// TestAServicesAddressIsAdvertisedWhereItIsServed follows a service of the API server whose endpoints come and go.
func TestAServicesAddressIsAdvertisedWhereItIsServed(t *testing.T) {
	s := kubetest.Start(t)
	a, b := linked(t, s, "one", "two")
	a.define()
	s.Clear(t, "projectcalico.org/v3", "ippools", "bgpconfigurations")
	ns := s.Namespace(t)
	slice := func(endpoint string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: " + ns + ", labels: {kubernetes.io/service-name: web}}\n" +
			"addressType: IPv4\nendpoints: [" + endpoint + "]\nports: [{port: 80, protocol: TCP}]\n"
	}
	s.Apply(t, "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: "+ns+"}\nspec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80, protocol: TCP}]}\n---\n"+
		slice("{addresses: [10.69.0.2], nodeName: one}"))
	a.patch("/api/v1/namespaces/"+ns+"/services/web/status", map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "203.0.113.9"}}}}})
	account := a.account("node")
	for _, n := range []*node{a, b} {
		n.whole(account)
	}
	const all, web, ofA, ofB = "203.0.113.0/24", "203.0.113.9/32", "192.0.2.1", "192.0.2.2"

	// The configuration comes later: from then on services are followed.
	b.await("with a session", func(ctx context.Context) bool {
		peers, err := b.ask(ctx, "peers")
		return err == nil && strings.Contains(peers, ofA)
	})
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\nmetadata: {name: default}\nspec: {serviceLoadBalancerIPs: [{cidr: "+all+"}]}\n")
	b.awaitRoute(web, ofA, true)
	b.awaitRoute(all, ofA, true)
	a.awaitRoute(all, ofB, true)
	if a.learned(t.Context(), web, ofB) {
		t.Error("a node without an endpoint advertises the address")
	}

	s.Apply(t, slice("{addresses: [10.69.0.66], nodeName: two}"))
	a.awaitRoute(web, ofB, true)
	b.awaitRoute(web, ofA, false)
	s.Apply(t, slice("{addresses: [10.69.0.66], nodeName: two, conditions: {ready: false}}"))
	a.awaitRoute(web, ofB, false)

	a.patch("/apis/projectcalico.org/v3/bgpconfigurations/default", map[string]any{"spec": map[string]any{"serviceLoadBalancerAggregation": "Disabled"}})
	b.awaitRoute(all, ofA, false)
	s.Apply(t, slice("{addresses: [10.69.0.66], nodeName: two}"))
	a.awaitRoute(web, ofB, true)
	b.patch("/api/v1/nodes/two", map[string]any{"metadata": map[string]any{"labels": map[string]any{"node.kubernetes.io/exclude-from-external-load-balancers": "true"}}})
	a.awaitRoute(web, ofB, false)
}
