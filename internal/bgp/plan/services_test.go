package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// of adds services and slices to a world, which are lines of kind, namespace/name and the rest of a document.
func of(t *testing.T, w *plan.Resources, text string) *plan.Resources {
	t.Helper()
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(f) < 3 {
			continue
		}
		kind, prefix := api.KindKubernetesService, ""
		if f[0] == "Slice" {
			service, _, _ := strings.Cut(f[1], "-")
			_, service, _ = strings.Cut(service, "/")
			kind, prefix = api.KindKubernetesEndpointSlice, fmt.Sprintf(`"metadata":{"labels":{"kubernetes.io/service-name":%q}},`, service)
		}
		w.Update(api.Update{Key: api.KeyPrefix(kind, "") + f[1], Value: []byte("{" + prefix + f[2] + "}")})
	}
	return w
}

const (
	served   = three + "BGPConfiguration default {serviceClusterIPs: [{cidr: 10.96.0.0/16}], serviceExternalIPs: [{cidr: 198.51.100.0/24}], serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}, {cidr: 'fd00:113::/112'}]}\n"
	single   = three + "BGPConfiguration default {serviceLoadBalancerAggregation: Disabled, serviceClusterIPs: [{cidr: 10.96.0.0/16}], serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}]}\n"
	exact    = three + "BGPConfiguration default {serviceExternalIPs: [{cidr: 198.51.100.9/32}, {cidr: 198.51.100.8/32}]}\n"
	prefixes = "10.96.0.0/16 198.51.100.0/24 203.0.113.0/24 fd00:113::/112"

	local   = `Service ns/s "spec":{"type":"LoadBalancer","clusterIPs":["10.96.0.9"],"externalIPs":["198.51.100.9"],"externalTrafficPolicy":"Local"},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"},{"ip":""}]}}` + "\n"
	cluster = `Service ns/c "spec":{"type":"LoadBalancer","clusterIPs":["10.96.0.7"],"externalIPs":["198.51.100.9"],"externalTrafficPolicy":"Cluster"},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"}]}}` + "\n"
	onH1    = `Slice ns/s-1 "addressType":"IPv4","endpoints":[{"addresses":["10.65.0.1"],"nodeName":"h1"},{"addresses":["10.65.0.2"],"nodeName":"h2","conditions":{"ready":false}}]` + "\n"
)

// TestWhichAddressesOfServicesANodeAdvertises: facts are upstream's, see confd's routes.go, but where it says otherwise.
func TestWhichAddressesOfServicesANodeAdvertises(t *testing.T) {
	for _, tt := range []struct{ name, world, services, node, want string }{
		{"prefixes alone", served, "", "h1", prefixes},
		{"a service for all nodes is in its prefix", served, cluster + strings.ReplaceAll(onH1, "ns/s", "ns/c"), "h1", prefixes},
		{"one that only nodes with an endpoint serve", served, local + onH1, "h1", "10.96.0.0/16 10.96.0.9/32 198.51.100.0/24 198.51.100.9/32 203.0.113.0/24 203.0.113.9/32 fd00:113::/112"},
		{"not where it is not ready", served, local + onH1, "h2", prefixes},
		{"nor where there is none", served, local + onH1, "h3", prefixes},
		{"nor a slice of a service of another namespace", served, local + strings.ReplaceAll(onH1, "ns/s", "other/s"), "h1", prefixes},
		{"nor without the service", served, onH1, "h1", prefixes},
		{"of each family by its own endpoints", served, strings.Replace(local, `{"ip":""}`, `{"ip":"fd00:113::9"}`, 1) + strings.Replace(onH1, "IPv4", "IPv6", 1), "h1", "10.96.0.0/16 198.51.100.0/24 203.0.113.0/24 fd00:113::/112 fd00:113::9/128"},
		{"no address outside of a prefix", served, strings.ReplaceAll(strings.ReplaceAll(local, "203.0.113.9", "203.0.114.9"), "198.51.100.9", "198.51.101.9") + onH1, "h1", "10.96.0.0/16 10.96.0.9/32 198.51.100.0/24 203.0.113.0/24 fd00:113::/112"},
		{"no address that is none", served, strings.ReplaceAll(local, "203.0.113.9", "203.0.113") + onH1, "h1", "10.96.0.0/16 10.96.0.9/32 198.51.100.0/24 198.51.100.9/32 203.0.113.0/24 fd00:113::/112"},
		{"none of a service without an address of its own", served, strings.ReplaceAll(local, "10.96.0.9", "None") + onH1, "h1", prefixes},
		{"none of a name elsewhere", served, strings.Replace(local, "LoadBalancer", "ExternalName", 1) + onH1, "h1", prefixes},
		{"an endpoint that does not say whether it is ready", served, local + strings.Replace(onH1, `"ready":false`, "", 1), "h2", "10.96.0.0/16 10.96.0.9/32 198.51.100.0/24 198.51.100.9/32 203.0.113.0/24 203.0.113.9/32 fd00:113::/112"},
		{"a node that Kubernetes calls otherwise", served + "Node h3 {bgp: {ipv4Address: 192.0.2.3/24}, orchRefs: [{nodeName: k3, orchestrator: k8s}]}\n", local + strings.Replace(onH1, "h1", "k3", 1), "h3", "10.96.0.0/16 10.96.0.9/32 198.51.100.0/24 198.51.100.9/32 203.0.113.0/24 203.0.113.9/32 fd00:113::/112"},
		{"a node that is excluded advertises none", strings.Replace(served, "rack: a}", "rack: a, node.kubernetes.io/exclude-from-external-load-balancers: 'true'}", 1), local + onH1, "h1", ""},
		{"the label is said to be false", strings.Replace(served, "rack: a}", "rack: a, node.kubernetes.io/exclude-from-external-load-balancers: 'false'}", 1), "", "h1", prefixes},

		{"load balancers one by one: those that somebody serves, from all nodes", single, cluster + strings.ReplaceAll(onH1, "ns/s", "ns/c"), "h3", "10.96.0.0/16 203.0.113.7/32"},
		{"and not while nobody does", single, cluster + strings.ReplaceAll(strings.Replace(onH1, `"nodeName":"h1"`, `"conditions":{"ready":false}`, 1), "ns/s", "ns/c"), "h3", "10.96.0.0/16"},
		{"and those of Local where they are served", single, local + cluster + onH1, "h1", "10.96.0.0/16 10.96.0.9/32 203.0.113.9/32"},

		{"an address that is a prefix, of no service", exact, "", "h1", ""},
		{"of a service for all nodes", exact, cluster, "h1", "198.51.100.9/32"},
		{"of a service that is not served here", exact, local + onH1, "h2", ""},
		{"of two services, of which one says all nodes", exact, local + cluster + onH1, "h2", "198.51.100.9/32"},
		{"and of IPv6, beside a prefix", strings.NewReplacer("198.51.100.9/32", "fd00:113::9/128", "198.51.100.8/32", "198.51.100.0/24").Replace(exact), local, "h1", "198.51.100.0/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := of(t, world(t, tt.world), tt.services).Plan(tt.node)
			var got []string
			for _, o := range p.Originate {
				got = append(got, o.String())
				if !p.IsForeign(o) {
					t.Errorf("routes to %s would be installed", o)
				}
				four := slices.IndexFunc(p.Sessions, func(s plan.Session) bool { return s.Peer.Is4() == o.Addr().Is4() })
				if four < 0 {
					continue // h3 has no session of IPv6
				}
				if r, ok := plan.Decide(p.Sessions[four].Export, plan.Route{Dst: o}); !ok || !r.Accept {
					t.Errorf("%s is not exported: %v", o, r)
				}
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// TestLearnedRoutesToServicesAreNotPassedOnAsThisNodes: where this node would be the next hop, it would get packets for services that it
// does not serve. A reflector passes on what its clients serve.
func TestLearnedRoutesToServicesAreNotPassedOnAsThisNodes(t *testing.T) {
	const tor = "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009}\n"
	excluded := strings.Replace(served, "rack: a}", "rack: a, node.kubernetes.io/exclude-from-external-load-balancers: 'true'}", 1)
	reflects := strings.NewReplacer("192.0.2.1/24,", "192.0.2.1/24, routeReflectorClusterID: 244.0.0.1,", "192.0.2.2/24,", "192.0.2.2/24, routeReflectorClusterID: 244.0.0.1,")
	for _, tt := range []struct {
		name, world, node, peer, dst string
		accept                       bool
	}{
		{"by a node that is excluded", excluded + tor, "h1", "192.0.2.9", "203.0.113.9/32", false},
		{"nor a whole prefix", excluded + tor, "h1", "192.0.2.9", "203.0.113.0/24", false},
		{"by one that does not serve the address", exact + tor, "h2", "192.0.2.9", "198.51.100.9/32", false},
		{"nor one of a prefix that it advertises", served + tor, "h2", "192.0.2.9", "203.0.113.9/32", false},
		{"if the next hop stays, it is the node that serves it", served + strings.Replace(tor, "}", ", nextHopMode: Keep}", 1), "h2", "192.0.2.9", "203.0.113.9/32", true},
		{"to an internal peer the next hop stays", excluded + tor, "h1", "192.0.2.3", "203.0.113.9/32", true},
		{"but where it is to be this node", served + strings.Replace(tor, "65009}", "64512, nextHopMode: Self}", 1), "h2", "192.0.2.9", "203.0.113.9/32", false},
		{"nor as part of a pool for load balancers", served + tor + "IPPool lb {cidr: 203.0.113.0/24, allowedUses: [LoadBalancer]}\n", "h2", "192.0.2.9", "203.0.113.9/32", false},
		{"all addresses are not those of services", strings.Replace(exact, "198.51.100.8/32", "0.0.0.0/0", 1) + tor + "IPPool p {cidr: 10.65.0.0/16}\n", "h2", "192.0.2.9", "10.65.1.0/26", true},
		{"a reflector passes it on", reflects.Replace(excluded + tor), "h1", "192.0.2.9", "203.0.113.9/32", true},
		{"also what it does not serve", reflects.Replace(exact + tor), "h2", "192.0.2.9", "198.51.100.9/32", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, route := of(t, world(t, tt.world), local+onH1).Plan(tt.node), prefix(tt.dst)
			s, there := p.Session(netip.MustParseAddr(tt.peer))
			if !there || !p.IsForeign(route) {
				t.Fatalf("session %t, others' %t", there, p.IsForeign(route))
			}
			if r, _ := plan.Decide(s.Export, plan.Route{Dst: route, Learned: true}); r.Accept != tt.accept {
				t.Errorf("accepted %t by %q, want %t", r.Accept, r.Name, tt.accept)
			}
		})
	}
}

func TestServicesThatGoAreForgotten(t *testing.T) {
	w := of(t, world(t, served), local+onH1)
	if len(w.Plan("h1").Originate) != 7 || !w.Services("h1") || plan.New().Services("h1") {
		t.Fatalf("%v", w.Plan("h1").Originate)
	}
	service, slice := api.KeyPrefix(api.KindKubernetesService, "")+"ns/s", api.KeyPrefix(api.KindKubernetesEndpointSlice, "")+"ns/s-1"
	w.Update(api.Update{Key: slice, Value: []byte("nonsense")})
	if p := w.Plan("h1"); len(p.Originate) != 7 || len(p.Problems) != 1 {
		t.Errorf("what cannot be read has replaced what could: %v, %v", p.Originate, p.Problems)
	}
	for _, key := range []string{slice, service} {
		w.Update(api.Update{Key: key})
		if got := w.Plan("h1").Originate; len(got) != 4 {
			t.Errorf("without %s: %v", key, got)
		}
	}
	for _, key := range []string{service, slice} {
		if !slices.ContainsFunc(plan.ServicePrefixes(), func(p string) bool { return strings.HasPrefix(key, p) }) {
			t.Errorf("%s is not followed", key)
		}
	}
}
