package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func TestCriteria(t *testing.T) {
	g := newGround(t)
	g.criterion(t, "a host without a default route serves its workloads", g.noDefaultRoute)
	g.criterion(t, "a host reaches its workloads under a policy that denies all", g.hostReaches)
	g.criterion(t, "labels of a namespace on a workload itself join no selection", g.ownNamespaceLabels)
	g.criterion(t, "defaultEndpointToHostAction decides about a workload and its host, at once", g.toHost)
	g.criterion(t, "a policy named default.foo is stored as upstream does", g.defaultFoo)
	g.criterion(t, "a policy that upstream stored as default.foo without annotation is foo", g.legacyFoo)
	g.criterion(t, "an interface that nobody has programmed carries nothing", g.unprogrammed)
}

func (g *ground) noDefaultRoute(t *testing.T) {
	host, err := open(g.Spec.hostNS(g.Spec.Hosts[0]))
	must(t, err)
	defer host.close()
	routes, err := host.nl.Routes(rtnl.RouteFilter{})
	must(t, err)
	for _, r := range routes {
		if r.Dst.Bits() == 0 {
			t.Fatalf("the host has a default route: %+v", r)
		}
	}
	g.put(t, api.KindFelixConfiguration, "", "default", `{"defaultEndpointToHostAction":"Accept"}`)
	g.want(t, "a -> b yes", "a -> h1:8080 yes")
	a := g.Spec.Workloads[0]
	for _, gateway := range []netip.Addr{gateway4, gateway6.WithZone(uplink)} {
		await(t, fmt.Sprintf("a reaches its gateway %s", gateway), func() bool { return dial(t, g.Spec.workloadNS(a), netip.AddrPortFrom(gateway, hostPort), patience) })
	}
}

func (g *ground) hostReaches(t *testing.T) {
	g.put(t, api.KindGlobalNetworkPolicy, "", "deny-all", `{"selector":"all()","types":["Ingress","Egress"]}`)
	g.want(t, "h1 -> a yes", "h1 -> c yes", "a -> b no", "a -> c no", "c -> d no", "a -> h1:8080 no")
	g.put(t, api.KindFelixConfiguration, "", "default", `{"defaultEndpointToHostAction":"Accept"}`)
	g.want(t, "h1 -> a yes", "a -> h1:8080 no") // its egress is asked before the setting
}

func (g *ground) ownNamespaceLabels(t *testing.T) {
	a := g.Spec.Workloads[0]
	k := key(api.KindWorkloadEndpoint, "demo", a.endpointName())
	const labels = `"labels":{`
	was := g.value(t, k)
	if !strings.Contains(was, labels) {
		t.Fatalf("no labels in %s", was)
	}
	g.putRaw(t, k, strings.Replace(was, labels,
		labels+`"pcns.team":"other","pcns.projectcalico.org/name":"other","pcsa.role":"boss","projectcalico.org/namespace":"other","projectcalico.org/serviceaccount":"boss",`, 1))
	for _, peer := range []string{
		`{"namespaceSelector":"team == \"other\""}`,
		`{"namespaceSelector":"projectcalico.org/name == \"other\""}`,
		`{"selector":"pcns.team == \"other\""}`,
		`{"selector":"app in {\"a\",\"c\"}","namespaceSelector":"projectcalico.org/namespace == \"other\" || team == \"other\""}`,
	} {
		// The selector of demo's policy is of its own namespace, and demo has none of these.
		c := "yes"
		if !strings.Contains(peer, "namespaceSelector") {
			c = "no"
		}
		g.put(t, api.KindNetworkPolicy, "demo", "b", `{"selector":"app == \"b\"","ingress":[{"action":"Allow","source":`+peer+`}]}`)
		g.want(t, "c -> b "+c, "a -> b no")
	}
	for _, peer := range []string{`{"serviceAccounts":{"selector":"role == \"boss\""}}`, `{"serviceAccounts":{"names":["boss"]}}`} {
		g.put(t, api.KindGlobalNetworkPolicy, "", "b", `{"selector":"app == \"b\"","order":1,"ingress":[{"action":"Deny","source":`+peer+`},{"action":"Allow"}]}`)
		g.want(t, "c -> b yes", "a -> b yes")
	}
	must(t, g.store.Delete(t.Context(), key(api.KindGlobalNetworkPolicy, "", "b"), api.Revision{}))
	must(t, g.store.Delete(t.Context(), key(api.KindNetworkPolicy, "demo", "b"), api.Revision{}))
	g.put(t, api.KindGlobalNetworkPolicy, "", "isolate", `{"selector":"app in {\"a\",\"c\"}","namespaceSelector":"team == \"other\"","types":["Ingress"]}`)
	g.put(t, api.KindNetworkPolicy, "other", "isolate", `{"selector":"all()","types":["Ingress"]}`)
	g.want(t, "b -> a yes", "b -> c no", "b -> d no", "d -> a yes")
}

func (g *ground) toHost(t *testing.T) {
	setting := func(name, action string) string {
		return "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: " + name + "}\nspec: {defaultEndpointToHostAction: " + action + "}\n"
	}
	g.want(t, "a -> h1:8080 no", "h1 -> a yes")
	g.does(t, setting("default", "Accept"), "apply", "-f", "-")
	g.want(t, "a -> h1:8080 yes", "c -> h1:8080 yes")
	g.does(t, setting("node.h1", "Drop"), "apply", "-f", "-")
	g.want(t, "a -> h1:8080 no", "c -> h1:8080 no", "a -> b yes")
	g.does(t, setting("node.h1", "Return"), "apply", "-f", "-")
	g.want(t, "a -> h1:8080 yes")
	g.does(t, "", "delete", "felixconfiguration", "node.h1")
	g.does(t, setting("default", "Drop"), "apply", "-f", "-")
	g.want(t, "a -> h1:8080 no")
	g.does(t, "", "delete", "felixconfiguration", "default")
	g.want(t, "a -> h1:8080 no", "h1 -> a yes")
}

func (g *ground) defaultFoo(t *testing.T) {
	out := g.does(t, "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: default.foo, namespace: demo}\nspec: {selector: app == \"b\", types: [Ingress]}\n", "apply", "-f", "-")
	if !strings.Contains(out, "default.foo") {
		t.Errorf("apply says %q", out)
	}
	g.want(t, "a -> b no", "b -> a yes")
	k := "/calico/resources/v3/projectcalico.org/networkpolicies/demo/default.foo"
	for _, want := range []string{
		`"annotations":{"projectcalico.org/metadata":"{\"name\":\"default.foo\"}"}`,
		`"labels":{"projectcalico.org/tier":"default"}`, `"name":"default.foo"`, `"tier":"default"`,
	} {
		if v := g.value(t, k); !strings.Contains(v, want) {
			t.Errorf("stored %s\nwithout %s", v, want)
		}
	}
	for _, args := range [][]string{{"get", "networkpolicy", "default.foo", "-n", "demo", "-o", "yaml"}, {"get", "networkpolicies", "-n", "demo", "-o", "yaml"}} {
		if out = g.does(t, "", args...); !strings.Contains(out, "name: default.foo") || strings.Contains(out, api.AnnotationMetadata) {
			t.Errorf("twill %v:\n%s", args, out)
		}
	}
	if out, code := g.twill(t, "", "get", "networkpolicy", "foo", "-n", "demo"); code == 0 {
		t.Errorf("there is a policy foo too:\n%s", out)
	}
	g.does(t, "", "delete", "networkpolicy", "default.foo", "-n", "demo")
	if _, err := g.store.Get(t.Context(), k); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("after delete: %v", err)
	}
	g.want(t, "a -> b yes")
}

func (g *ground) legacyFoo(t *testing.T) {
	k := g.put(t, api.KindNetworkPolicy, "demo", "default.foo", `{"tier":"default","selector":"app == \"b\"","types":["Ingress"]}`)
	g.want(t, "a -> b no", "b -> a yes")
	if out := g.does(t, "", "get", "networkpolicies", "-n", "demo", "-o", "name"); !strings.Contains(out, "/foo") {
		t.Errorf("it lists as %q", out)
	}
	if out, code := g.twill(t, "", "get", "networkpolicy", "default.foo", "-n", "demo"); code == 0 {
		t.Errorf("it is there as default.foo too:\n%s", out)
	}
	g.does(t, "", "get", "networkpolicy", "foo", "-n", "demo")
	g.does(t, "", "delete", "networkpolicy", "foo", "-n", "demo")
	if _, err := g.store.Get(t.Context(), k); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("after delete: %v", err)
	}
	g.want(t, "a -> b yes")
}

// unprogrammed has all that a workload has, and even routes, but no endpoint.
func (g *ground) unprogrammed(t *testing.T) {
	g.put(t, api.KindFelixConfiguration, "", "default", `{"defaultEndpointToHostAction":"Accept"}`)
	x := Workload{Namespace: "demo", Name: "x", Host: "h1", Port: 80, V4: netip.MustParseAddr("10.65.1.99"), V6: netip.MustParseAddr("fd65:0:0:1::99")}
	host, err := open(g.Spec.hostNS(g.Spec.Hosts[0]))
	must(t, err)
	defer host.close()
	must(t, g.makeWorkload(x))
	t.Cleanup(func() { g.remove(t, x) })
	must(t, host.address(x.link(), netip.PrefixFrom(gateway4, 32), netip.PrefixFrom(gateway6, 64)))
	must(t, host.route(x.link(), netip.PrefixFrom(x.V4, 32), netip.Addr{}))
	must(t, host.route(x.link(), netip.PrefixFrom(x.V6, 128), netip.Addr{}))
	ls := &listeners{}
	defer ls.Close()
	for _, at := range []netip.Addr{x.V4, x.V6} {
		must(t, ls.open(g.Spec.workloadNS(x), netip.AddrPortFrom(at, x.Port)))
	}
	g.Spec.Workloads = append(g.Spec.Workloads, x)
	defer func() { g.Spec.Workloads = g.Spec.Workloads[:len(g.Spec.Workloads)-1] }()
	closed := []string{"x -> a no", "a -> x no", "x -> h1:8080 no", "h1 -> x no"}
	g.want(t, append(closed, "a -> h1:8080 yes")...)

	// The same with an endpoint: what closed it was that alone.
	g.does(t, x.resource(), "apply", "-f", "-")
	g.want(t, "x -> a yes", "a -> x yes", "x -> h1:8080 yes", "h1 -> x yes")
	must(t, g.store.Delete(t.Context(), key(api.KindWorkloadEndpoint, "demo", x.endpointName()), api.Revision{}))
	// Its routes by hand are gone with the agent's own, or were not: either way nothing passes.
	g.want(t, closed...)
}

func (g *ground) remove(t *testing.T, w Workload) {
	host, err := open(g.Spec.hostNS(g.Spec.Hosts[0]))
	must(t, err)
	defer host.close()
	l, err := host.nl.Link(w.link())
	must(t, err)
	must(t, host.nl.DeleteLink(l.Index))
}
