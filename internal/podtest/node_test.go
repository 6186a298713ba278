package podtest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kubetest"
)

const pools = "/apis/projectcalico.org/v3/ippools"

// awaitPool waits until there is a pool: a node may have to make it.
func (n *node) awaitPool() {
	n.t.Helper()
	var list struct{ Items []any }
	n.await("a pool", func(ctx context.Context) bool {
		return n.s.Admin().Call(ctx, "GET", "/apis/"+string(n.group)+"/ippools", nil, &list) == nil && len(list.Items) > 0
	})
}

// await waits until something is so.
func (n *node) await(what string, is func(context.Context) bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for !is(ctx) {
		select {
		case <-look.C:
		case <-ctx.Done():
			n.t.Fatalf("%s: not %s", n.name, what)
		}
	}
}

// hasRoute reports whether the node's kernel has a route that begins with these words.
func (n *node) hasRoute(words string) bool {
	return strings.Contains("\n"+n.Run("ip", "route", "show"), "\n"+words)
}

// annotation is what the Node of Kubernetes says.
func (n *node) annotation(name string) string {
	n.t.Helper()
	var o struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := n.s.Admin().Call(n.t.Context(), "GET", "/api/v1/nodes/"+n.name, nil, &o); err != nil {
		n.t.Fatal(err)
	}
	return o.Metadata.Annotations[name]
}

// linked are two nodes with a link between them, on which they have the addresses .1 and .2 of 192.0.2.0/24.
func linked(t *testing.T, s *kubetest.Server, one, two string) (a, b *node) {
	t.Helper()
	a, b = newNode(t, s, one), newNode(t, s, two)
	a.VethTo(b.NS, "eth0", "eth0")
	a.Addr("eth0", "192.0.2.1/24")
	b.Addr("eth0", "192.0.2.2/24")
	return a, b
}

func TestPodsOfTwoNodesReachEachOther(t *testing.T) {
	s := kubetest.Start(t)
	a, b := linked(t, s, "here", "there")
	a.define()
	s.Clear(t, "projectcalico.org/v3", "ippools", "ipamblocks", "blockaffinities", "ipamhandles", "bgpconfigurations")
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.68.0.0/24, blockSize: 26, nodeSelector: all()}\n")
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	policy := strings.ReplaceAll(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]
`, "NS", ns)
	s.Apply(t, policy)
	account := a.account("node")
	for _, n := range []*node{a, b} {
		n.whole(account)
		n.ready()
	}
	web := a.plugin().add(ns, "web", "app: web")
	p := b.plugin()
	client, other := p.add(ns, "client", "app: client"), p.add(ns, "other", "app: other")

	client.await(t, web, true) // over the routes that BGP made, and as the policy says
	other.await(t, web, false)
	web.await(t, other, true)
	routes := map[*node]string{a: client.block() + " via 192.0.2.2 dev eth0 proto bgp", b: web.block() + " via 192.0.2.1 dev eth0 proto bgp"}
	for n, words := range routes {
		if !n.hasRoute(words) {
			t.Errorf("%s has no route %s:\n%s", n.name, words, n.Run("ip", "route", "show"))
		}
	}
	if got := a.annotation("projectcalico.org/IPv4Address"); got != "192.0.2.1/24" {
		t.Errorf("the Node's address is %q", got)
	}

	// Without the API server all stays as it was.
	s.Kill(t)
	client.await(t, web, true)
	other.await(t, web, false)
	for n, words := range routes {
		if !n.hasRoute(words) {
			t.Errorf("%s has lost the route %s:\n%s", n.name, words, n.Run("ip", "route", "show"))
		}
	}

	// Once it is back, what changes is seen: by policy, and by BGP.
	s.Restart(t)
	s.Apply(t, strings.ReplaceAll(policy, "app: client", "app: other"))
	other.await(t, web, true)
	client.await(t, web, false)
	a.patch(pools+"/pods", map[string]any{"spec": map[string]any{"disableBGPExport": true}})
	b.await("without the route", func(context.Context) bool { return !b.hasRoute(routes[b]) })
	other.await(t, web, false)
	a.patch(pools+"/pods", map[string]any{"spec": map[string]any{"disableBGPExport": false}})
	other.await(t, web, true)
}

// TestANodeThatTheClusterLacksWaitsForIt: only the cluster makes nodes. That this one may not make what each cluster has, as tiers, does not
// keep it from writing its address.
func TestANodeThatTheClusterLacksWaitsForIt(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "late")
	n.define()
	if err := s.Admin().Call(t.Context(), http.MethodDelete, "/api/v1/nodes/late", nil, nil); err != nil {
		t.Fatal(err)
	}
	n.Veth("eth0", "router")
	n.Addr("eth0", "192.0.2.5/24")
	n.whole(n.account("agent"))
	n.await("saying that it may not make tiers", func(context.Context) bool { return n.logged("make the datastore ready for use") })
	n.await("saying that there is no such Node", func(context.Context) bool {
		return n.logged("is a node of Kubernetes: the cluster adds and removes those")
	})
	s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: late}\n")
	n.await("having its address", func(context.Context) bool { return n.annotation("projectcalico.org/IPv4Address") == "192.0.2.5/24" })
}
