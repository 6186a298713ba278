package world

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	w := New(append(updates(t, base), updates(t, `WorkloadEndpoint prod/h1-k8s-web-eth1 {workload: web, pod: web, node: h1, orchestrator: k8s, endpoint: eth1, interfaceName: cali9, ipNetworks: [10.0.0.5/32]}`)...))
	for _, tt := range []struct{ name, ask, want string }{
		{"by the pod's name", "prod/db", "prod/h2-k8s-db-eth0 on h2"},
		{"by the resource's name", "prod/h1-k8s-web-eth0", "prod/h1-k8s-web-eth0 on h1"},
		{"by an address", "10.0.0.2", "prod/h2-k8s-db-eth0 on h2"},
		{"by an IPv6 address in another spelling", "fd00:0::2", "prod/h2-k8s-db-eth0 on h2"},
		{"a host by its name", "h1", "host/h1 on h1"},
		{"a host by its name in full", "host/h1", "host/h1 on h1"},
		{"a host by an address", "198.51.100.2", "host/h2 on h2"},
		{"an address of nobody", "203.0.113.1", "203.0.113.1 on "},
		{"two endpoints of one pod are ambiguous", "prod/web", "prod/web: ambiguous; say one of prod/h1-k8s-web-eth0, prod/h1-k8s-web-eth1"},
		{"a wrong namespace gets a suggestion", "test/db", "test/db: no such workload, host or address; known are prod/db"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := w.Resolve(tt.ask)
			got := p.Endpoint + " on " + p.Node
			if p.Endpoint == "" {
				got = p.Name + " on " + p.Node
			}
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Resolve(%s) = %s, want %s", tt.ask, got, tt.want)
			}
		})
	}
}

// TestAFloatingAddressIsOfTheFirstPoolOfItsCIDR by name: another one with the CIDR does not count.
func TestAFloatingAddressIsOfTheFirstPoolOfItsCIDR(t *testing.T) {
	for _, tt := range []struct{ name, workloads, services string }{{"prod/web", "a", "b"}, {"10.9.0.1", "b", "a"}} {
		w := New(updates(t, `FelixConfiguration default {floatingIPs: Enabled}
			WorkloadEndpoint prod/h1-k8s-web-eth0 {workload: web, pod: web, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 10.9.0.1}]}
			IPPool `+tt.workloads+` {cidr: 10.9.0.0/24}
			IPPool `+tt.services+` {cidr: 10.9.0.0/24, allowedUses: [LoadBalancer]}`))
		if p, err := w.Resolve("10.9.0.1"); err != nil || (p.Endpoint != "") != (tt.name == "prod/web") {
			t.Errorf("with pool %s for workloads: %+v, %v", tt.workloads, p, err)
		}
	}
}

// TestFloatingAddressesOfOpenStackAreThere without a pool and a setting, and go before those that pods ask for.
func TestFloatingAddressesOfOpenStackAreThere(t *testing.T) {
	w := New(updates(t, `WorkloadEndpoint os/h1-openstack-vm-port {workload: vm, node: h1, orchestrator: openstack, endpoint: port, interfaceName: tap1, ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 10.9.0.1}]}
		WorkloadEndpoint a/h1-k8s-web-eth0 {workload: web, pod: web, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.0.0.2/32], ipNATs: [{internalIP: 10.0.0.2, externalIP: 10.9.0.1}, {internalIP: 10.0.0.2, externalIP: 10.9.0.2}]}
		IPPool a {cidr: 10.9.0.0/24, allowedUses: [LoadBalancer]}`))
	for a, want := range map[string]string{"10.9.0.1": "os/h1-openstack-vm-port", "10.9.0.2": ""} {
		if p, err := w.Resolve(a); err != nil || p.Endpoint != want {
			t.Errorf("%s is that of %q, %v, want %q", a, p.Endpoint, err, want)
		}
	}
}

func TestAnAnswerHasTheWholeWay(t *testing.T) {
	w := New(append(updates(t, base), updates(t, `Tier sec {order: 1}
GlobalNetworkPolicy a {tier: sec, selector: app == "db", ingress: [{action: Log}, {action: Pass, protocol: TCP}]}
NetworkPolicy prod/b {selector: app == "db", ingress: [{action: Deny, protocol: TCP, destination: {ports: [80]}}]}`)...))
	a := ask(t, w, "prod/web > prod/db tcp 80")
	if len(a.Hops) != 2 || a.Allowed || a.Hops[0].Direction != "Egress" || a.Hops[1].Direction != "Ingress" || !a.Hops[0].Allowed {
		t.Fatalf("hops = %+v, want an egress that allows and an ingress that denies", a.Hops)
	}
	b, err := json.Marshal(a.Hops[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"name":"sec","outcome":"pass"`, `"logged":[0]`, `"rule":1`, `"name":"default","outcome":"deny"`,
		`"text":"Deny, protocol TCP, destination.ports [80]"`, `"fields":["protocol","destination.ports"]`, `"endpoint":"prod/h2-k8s-db-eth0"`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s\nlacks %s", b, want)
		}
	}
}
