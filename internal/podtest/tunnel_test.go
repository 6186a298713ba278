package podtest

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kubetest"
)

// TestPodsReachEachOtherThroughATunnel: two agents with the rights of their role alone and no BGP, on a network that knows no addresses of pods.
func TestPodsReachEachOtherThroughATunnel(t *testing.T) {
	s := kubetest.Start(t)
	a, b := linked(t, s, "left", "right")
	a.define()
	s.Clear(t, "projectcalico.org/v3", "ippools", "ipamblocks", "blockaffinities", "ipamhandles")
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.69.0.0/24, blockSize: 26, nodeSelector: all(), vxlanMode: Always}\n")
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	account := a.account("agent")
	for n, address := range map[*node]string{a: "192.0.2.1/24", b: "192.0.2.2/24"} { // who runs agents alone says where their nodes are
		n.annotate("projectcalico.org/IPv4Address", address)
		n.agent(account)
		n.ready()
	}
	const vxlan, ipip = "projectcalico.org/IPv4VXLANTunnelAddr", "projectcalico.org/IPv4IPIPTunnelAddr"
	ends := func(has, hasNot string) {
		t.Helper()
		for _, n := range []*node{a, b} {
			n.await("having "+has+" alone", func(context.Context) bool {
				end, err := netip.ParseAddr(n.annotation(has))
				return err == nil && netip.MustParsePrefix("10.69.0.0/24").Contains(end) && n.annotation(hasNot) == ""
			})
		}
	}
	ends(vxlan, ipip)
	web := a.plugin().add(ns, "web", "app: web")
	client := b.plugin().add(ns, "client", "app: client")
	for n, to := range map[*node]pod{a: client, b: web} {
		n.await("with a route through the tunnel", func(context.Context) bool {
			return strings.Contains(n.Run("ip", "route", "show", to.block()), " dev vxlan.calico ")
		})
	}
	client.await(t, web, true)
	web.await(t, client, true)

	// An end that somebody takes away comes back as it was, and what others write into the Node stays.
	end := a.annotation(vxlan)
	a.annotate("example.com/owner", "infra")
	a.annotate(vxlan, nil)
	a.await("having its end again", func(context.Context) bool { return a.annotation(vxlan) == end })
	if got := a.annotation("example.com/owner") + " " + a.annotation("projectcalico.org/IPv4Address"); got != "infra 192.0.2.1/24" {
		t.Errorf("the Node has %q", got)
	}
	client.await(t, web, true)

	// Another tunnel has other ends, whether or not this kernel has its device; without one there are none, and their addresses are free.
	mode := func(of map[string]any) { a.patch(pools+"/pods", map[string]any{"spec": of}) }
	mode(map[string]any{"vxlanMode": "Never", "ipipMode": "Always"})
	ends(ipip, vxlan)
	mode(map[string]any{"ipipMode": "Never"})
	for _, n := range []*node{a, b} {
		n.await("without an end", func(ctx context.Context) bool {
			return n.annotation(ipip) == "" && s.Admin().Call(ctx, "GET", "/apis/projectcalico.org/v3/ipamhandles/ipip-tunnel-addr-"+n.name, nil, nil) != nil
		})
	}
	client.await(t, web, false)
}

// annotate sets an annotation of the Node of Kubernetes, or with nil removes it.
func (n *node) annotate(name string, value any) {
	n.t.Helper()
	n.patch("/api/v1/nodes/"+n.name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
}
