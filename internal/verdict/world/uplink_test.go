package world

import "testing"

// uplinkCases say nothing of the interface, as `twill why` does. The source of the expectation is the kernel's side: a host
// endpoint that names an interface is that interface's, whatever addresses it expects there (upstream: HostEndpoint, interfaceName).
var uplinkCases = []stageCase{
	{"an interface alone", byInterface, nakedHost, inbound, "Deny: no profile"},
	{"on the way out, too", byInterface, nakedHost, outbound, "Deny: no profile"},
	{"addresses that the Node does not say", byInterface, `HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, expectedIPs: [198.51.100.77]}`, inbound, "Deny: no profile"},
	{"addresses alone, that the Node does not say", byInterface, `HostEndpoint h1-some {node: h1, expectedIPs: [198.51.100.77]}`, inbound, "Deny: no profile"},
	{"a Node that says no address", byInterface, "Node h1 {}\n" + openHost, "203.0.113.9 > prod/web tcp 80", profileAllows},
	{"its profiles are asked", byInterface, `HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, profiles: [projectcalico-default-allow]}`, inbound, openProfile},
	{"its policies are asked", byInterface, "HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, labels: {hep: h1}}\n" + `GlobalNetworkPolicy a {selector: hep == "h1", ingress: [{action: Allow}]}`, inbound, "Allow: rule GlobalNetworkPolicy/a#0"},
	{"of several that it may be, one that denies", byInterface, "HostEndpoint h1-a {node: h1, interfaceName: eth1, profiles: [projectcalico-default-allow]}\n" + nakedHost, inbound, "Deny: no profile"},
	{"the one with an address of the Node", byInterface, "HostEndpoint h1-a {node: h1, interfaceName: eth1}\n" + openHost, inbound, openProfile},
	{"that for all interfaces may be it, too", byInterface, "HostEndpoint h1-all {node: h1, interfaceName: \"*\"}\nHostEndpoint h1-eth0 {node: h1, interfaceName: eth0, profiles: [projectcalico-default-allow]}", inbound, "Deny: no profile"},
	{"the interface of the address is excluded, as the Node says", excludes, excludedHost + "FelixConfiguration default {interfaceExclude: 'eth1,/^eth0$/'}", inbound, nothingAsked},
	{"another node's settings are not this one's", excludes, excludedHost + "FelixConfiguration node.h2 {interfaceExclude: eth0}", inbound, "Deny: no profile"},
	{"the node's own settings come first", excludes, excludedHost + "FelixConfiguration default {interfaceExclude: eth0}\nFelixConfiguration node.h1 {interfaceExclude: eth1}", inbound, "Deny: no profile"},
	{"an interface that has it, too, is not excluded", excludes, "Node h1 {bgp: {ipv4Address: 192.0.2.1}, interfaces: [{name: eth0, addresses: [192.0.2.1/24]}, {name: eth2, addresses: [192.0.2.1]}]}\nHostEndpoint h1-some {node: h1, expectedIPs: [192.0.2.1]}\nFelixConfiguration default {interfaceExclude: eth0}", inbound, "Deny: no profile"},
	{"kube-ipvs0 is excluded by default", excludes, "Node h1 {bgp: {ipv4Address: 192.0.2.1}, interfaces: [{name: kube-ipvs0, addresses: [192.0.2.1]}]}\nHostEndpoint h1-some {node: h1, expectedIPs: [192.0.2.1]}", inbound, nothingAsked},
	{"of one that names the interface and one that has its address the first by name", firstByName, "HostEndpoint h1-a {node: h1, expectedIPs: [192.0.2.1]}\n" + openHost, inbound, "Deny: no profile"},
	{"of one that names the interface and one that has its address the first, the former", firstByName, "HostEndpoint h1-z {node: h1, expectedIPs: [192.0.2.1]}\n" + openHost, inbound, openProfile},
	{"another node's is not", byInterface, `HostEndpoint h2-eth0 {node: h2, interfaceName: eth0}`, inbound, nothingAsked},
	{"what is forwarded", byInterface, "HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, labels: {hep: h1}}\n" + `GlobalNetworkPolicy a {selector: hep == "h1", applyOnForward: true, types: [Ingress]}`, transit, endOfDefault},
	{"a workload's packet that leaves its host", byInterface, "HostEndpoint h1-eth0 {node: h1, interfaceName: eth0, labels: {hep: h1}}\n" + `GlobalNetworkPolicy a {selector: hep == "h1", applyOnForward: true, types: [Egress]}`, "prod/web > prod/db tcp 80", endOfDefault},
}

const (
	byInterface = "upstream: interfaceName names the interface, whatever expectedIPs say"
	excludes    = "upstream: interfaceExclude: interfaces that no host endpoint has by an address"
	firstByName = "upstream: of host endpoints that match an interface, by name or by address, the first by name"
	nakedHost   = "HostEndpoint h1-eth0 {node: h1, interfaceName: eth0}\n"

	excludedHost = "Node h1 {bgp: {ipv4Address: 192.0.2.1}, interfaces: [{name: eth0, addresses: [192.0.2.1/24]}]}\nHostEndpoint h1-some {node: h1, expectedIPs: [192.0.2.1]}\n"
)

func TestAnAssumedInterfaceIsReported(t *testing.T) {
	for _, tt := range []struct {
		name, add, uplink, want string
	}{
		{"an interface that nothing says the packet goes by", nakedHost, "", "eth0"},
		{"the only one that denies", "HostEndpoint h1-a {node: h1, interfaceName: eth1, profiles: [projectcalico-default-allow]}\n" + nakedHost, "", "eth0"},
		{"one without a name", `HostEndpoint h1-some {node: h1, expectedIPs: [198.51.100.77]}`, "", "that with 198.51.100.77/32"},
		{"nothing, where an address of the Node says it", transitHost, "", ""},
		{"nothing, where all interfaces are one", transitAll, "", ""},
		{"nothing, where the question says it", nakedHost, "eth0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := New(append(updates(t, base), updates(t, tt.add)...))
			q := Query{Src: resolve(t, w, "203.0.113.9"), Dst: resolve(t, w, "host/h1"), Family: 4, Proto: 6, DstPort: 80, Uplink: tt.uplink}
			a := w.Judge(q)
			if len(a.Hops) != 1 || a.Allowed || a.Hops[0].AssumedInterface != tt.want {
				t.Errorf("allowed %v, hops %+v, want one that denies and assumes %q", a.Allowed, a.Hops, tt.want)
			}
		})
	}
}
