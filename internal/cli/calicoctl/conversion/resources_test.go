package conversion

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
)

// TestResourcesOfVersion1: each kind as version 3 says it. Input and output are YAML in one line; metadata and spec alone.
func TestResourcesOfVersion1(t *testing.T) {
	for _, tt := range []struct {
		name, kind, metadata, spec string
		want                       string // kind metadata spec
	}{
		{"a peer of all nodes is called by its address", "bgpPeer", "scope: global, peerIP: 192.0.2.7", "asNumber: 64567", "BGPPeer {name: 192-0-2-7} {asNumber: 64567, peerIP: 192.0.2.7}"},
		{"a peer of a node by the node, too, whose name gets small letters", "bgpPeer", "scope: node, node: Rack_1, peerIP: '2001:db8::7'", "asNumber: '1.10'", "BGPPeer {name: rack-1.2001-0db8-0000-0000-0000-0000-0000-0007} {asNumber: 65546, node: rack-1, peerIP: '2001:db8::7'}"},
		{"a pool by its network", "ipPool", "cidr: 10.1.0.0/16", "ipip: {enabled: true, mode: cross-subnet}, nat-outgoing: true", "IPPool {name: 10-1-0-0-16} {cidr: 10.1.0.0/16, ipipMode: CrossSubnet, vxlanMode: Never, natOutgoing: true, nodeSelector: all(), allowedUses: [Workload, Tunnel], assignmentMode: Automatic, blockSize: 26}"},
		{"tunnels are those that are enabled, whatever their mode", "ipPool", "cidr: '2001:db8::/64'", "ipip: {mode: always}, disabled: true", "IPPool {name: 2001-db8---64} {cidr: '2001:db8::/64', ipipMode: Never, vxlanMode: Never, disabled: true, nodeSelector: all(), allowedUses: [Workload, Tunnel], assignmentMode: Automatic, blockSize: 122}"},
		{"a node's address has a length", "node", "name: n1", "bgp: {asNumber: 64512, ipv4Address: 192.0.2.1/24, ipv6Address: '2001:db8::1'}, orchRefs: [{nodeName: n1, orchestrator: k8s}]", "Node {name: n1} {bgp: {asNumber: 64512, ipv4Address: 192.0.2.1/24, ipv6Address: '2001:db8::1/128'}, orchRefs: [{nodeName: n1, orchestrator: k8s}]}"},
		{"a node without BGP", "node", "name: n1", "", "Node {name: n1} {}"},
		{"a host's endpoint is called by host and name; addresses of IPv4 are first", "hostEndpoint", "name: eth0, node: h1, labels: {a: b}", "interfaceName: eth0, expectedIPs: ['2001:db8::1', 192.0.2.1], profiles: [k8s_ns.a, b], ports: [{name: web, port: 80, protocol: tcp}]", "HostEndpoint {name: h1.eth0, labels: {a: b}} {node: h1, interfaceName: eth0, expectedIPs: [192.0.2.1, '2001:db8::1'], profiles: [kns.a, b], ports: [{name: web, port: 80, protocol: TCP}]}"},
		{"a name that had to be changed has a hash of what it was", "hostEndpoint", "name: ETH0, node: h1", "interfaceName: eth0", "HostEndpoint {name: h1.eth0-25ffb7d5} {node: h1, interfaceName: eth0}"},
		{
			"a pod is known by its namespace and name", "workloadEndpoint", "name: eth0, node: n-1, orchestrator: k8s, workload: prod.web-0, labels: {app: web, calico/k8s_ns: prod}", "interfaceName: cali1, ipNetworks: [10.0.0.1/32], mac: 'ee:ee:ee:ee:ee:ee', profiles: [k8s_ns.prod]",
			"WorkloadEndpoint {name: n--1-k8s-web--0-eth0, namespace: prod, labels: {app: web, projectcalico.org/namespace: prod}} {node: n-1, orchestrator: k8s, pod: web-0, endpoint: eth0, ipNetworks: [10.0.0.1/32], interfaceName: cali1, mac: 'ee:ee:ee:ee:ee:ee', profiles: [kns.prod]}",
		},
		{
			"another workload is in the namespace default", "workloadEndpoint", "name: eth0, node: n1, orchestrator: mesos, workload: A", "interfaceName: cali1, ipNetworks: ['2001:db8::1', 10.0.0.1], ipNATs: [{internalIP: 10.0.0.1, externalIP: 192.0.2.1}]",
			"WorkloadEndpoint {name: n1-mesos-a--6dcd4ce2-eth0, namespace: default} {node: n1, orchestrator: mesos, workload: a-6dcd4ce2, endpoint: eth0, ipNetworks: [10.0.0.1/32, '2001:db8::1/128'], ipNATs: [{internalIP: 10.0.0.1, externalIP: 192.0.2.1}], interfaceName: cali1}",
		},
		{
			"a policy is a global one of the tier default", "policy", "name: p, annotations: {a: b}", "order: 10, selector: calico/k8s_ns == 'calico/k8s_ns', ingress: [{action: deny, source: {selector: has(a)}}]",
			"GlobalNetworkPolicy {name: p, labels: {projectcalico.org/tier: default}, annotations: {a: b}} {tier: default, order: 10, selector: projectcalico.org/namespace == 'calico/k8s_ns', types: [Ingress], ingress: [{action: Deny, source: {selector: has(a)}, destination: {}}]}",
		},
		{"one without rules restricts ingress", "policy", "name: p", "selector: all()", "GlobalNetworkPolicy {name: p, labels: {projectcalico.org/tier: default}} {tier: default, selector: all(), types: [Ingress]}"},
		{"one of another tier, with a dot in its name", "policy", "name: a.b, tier: sec", "egress: [{action: pass}]", "GlobalNetworkPolicy {name: sec.a-b-69f6642c, labels: {projectcalico.org/tier: sec}} {tier: sec, types: [Egress], egress: [{action: Pass, source: {}, destination: {}}]}"},
		{"what is not tracked is also what is forwarded", "policy", "name: p", "selector: has(h), doNotTrack: true, types: [ingress, egress]", "GlobalNetworkPolicy {name: p, labels: {projectcalico.org/tier: default}} {tier: default, selector: has(h), doNotTrack: true, applyOnForward: true, types: [Ingress, Egress]}"},
		{
			"a single net is one more; bits of hosts are nothing", "profile", "name: p", "ingress: [{action: allow, protocol: udplite, notProtocol: 240, ipVersion: 4, source: {net: 10.0.0.1/8, nets: [192.0.2.0/24], notNet: 10.1.0.0/16, ports: [1, '2:3', a], notPorts: [4]}}]",
			"Profile {name: p} {ingress: [{action: Allow, protocol: UDPLite, notProtocol: 240, ipVersion: 4, source: {nets: [192.0.2.0/24, 10.0.0.0/8], notNets: [10.1.0.0/16], ports: [1, '2:3', a], notPorts: [4]}, destination: {}}]}",
		},
		{
			"tags are labels without a value", "profile", "name: k8s_ns.a, tags: [t], labels: {a: b}", "egress: [{action: allow, icmp: {type: 8, code: 0}, destination: {tag: t, selector: a == 'b' || c == 'd'}}]",
			"Profile {name: kns.a} {labelsToApply: {a: b, t: ''}, egress: [{action: Allow, icmp: {type: 8, code: 0}, source: {}, destination: {selector: \"(a == 'b' || c == 'd') && t == ''\"}}]}",
		},
		{"neither this nor that is not one or the other", "profile", "name: p", "ingress: [{action: allow, source: {notTag: t, notSelector: has(a)}}]", "Profile {name: p} {ingress: [{action: Allow, source: {notSelector: \"(has(a)) || t == ''\"}, destination: {}}]}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := one(document(t, tt.kind, tt.metadata, tt.spec))
			if err != nil {
				t.Fatal(err)
			}
			kind, rest, _ := strings.Cut(tt.want, " ")
			metadata, spec, _ := strings.Cut(rest, "} {")
			want := canonical(t, "{apiVersion: "+api.GroupVersion+", kind: "+kind+", metadata: "+metadata+"}, spec: {"+spec+"}")
			got, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if g := canonical(t, string(got)); g != want {
				t.Errorf("got  %s\nwant %s", g, want)
			}
		})
	}
}

// TestWhatIsWrongInVersion1 is named.
func TestWhatIsWrongInVersion1(t *testing.T) {
	for _, tt := range []struct{ name, kind, metadata, spec, want string }{
		{"an address that is none", "bgpPeer", "scope: global, peerIP: 192.0.2.256", "asNumber: 1", "error with field PeerIP = '192.0.2.256'"},
		{"a peer without a scope", "bgpPeer", "peerIP: 192.0.2.1", "asNumber: 1", "missing 'scope'"},
		{"a peer of all and of one", "bgpPeer", "scope: global, node: n1, peerIP: 192.0.2.1", "asNumber: 1", "of no node"},
		{"a peer of a node without its name", "bgpPeer", "scope: node, peerIP: 192.0.2.1", "asNumber: 1", "needs the name of the node"},
		{"a network that is none", "ipPool", "cidr: 10.0.0.0/33", "", "error with field CIDR = '10.0.0.0/33'"},
		{"a mode that is none", "ipPool", "cidr: 10.0.0.0/8", "ipip: {mode: sometimes}", "error with field Mode = 'sometimes'"},
		{"a node with BGP and no address", "node", "name: n1", "bgp: {asNumber: 1}", "node n1: spec.bgp has no address"},
		{"a field of version 3", "ipPool", "cidr: 10.0.0.0/8", "blockSize: 26", `ipPool: json: unknown field "blockSize"`},
		{"an action that is none", "policy", "name: p", "ingress: [{action: reject}]", "error with field Action = 'reject'"},
		{"a direction that is none", "policy", "name: p", "types: [both]", "invalid policy type: 'both'"},
		{"a protocol that is none", "policy", "name: p", "egress: [{protocol: gre}]", "error with field Protocol = 'gre'"},
		{"a tag that would be a selector", "policy", "name: p", "ingress: [{action: allow, source: {tag: \"a == '' || all()\"}}]", "error with field Tag = 'a == '' || all()'"},
		{"a tag of a profile that would be one", "profile", "name: p, tags: ['a b']", "", "error with field Tag = 'a b'"},
		{"a tag that is a label already", "profile", "name: p, tags: [a], labels: {a: b}", "", "Tag: 'a' and Label 'a == b' have the same value for Profile: p."},
		{"a pod that is in no namespace", "workloadEndpoint", "name: eth0, node: n1, orchestrator: k8s, workload: prod/web", "", "malformed k8s workload ID 'prod/web'"},
		{"a pod whose name begins with a dash", "workloadEndpoint", "name: eth0, node: n1, orchestrator: k8s, workload: prod.-web", "", "field must not begin with a '-'"},
		{"an endpoint of no node", "workloadEndpoint", "name: eth0, orchestrator: k8s, workload: prod.web", "", "spec.node is empty"},
		{"a kind of version 3", "NetworkPolicy", "name: p", "", "Unknown resource type (NetworkPolicy) and/or version (v1)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := one(document(t, tt.kind, tt.metadata, tt.spec))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want an error with %q", r, err, tt.want)
			}
		})
	}
}

// FuzzVersion1: what comes out is always a resource that can be read again.
func FuzzVersion1(f *testing.F) {
	for kind := range forms {
		f.Add([]byte(`{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"a","node":"b","cidr":"10.0.0.0/8","scope":"node","peerIP":"::1"},"spec":{"ingress":[{"source":{"tag":"a"}}]}}`))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := one(doc)
		if err != nil {
			return
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Decode(text); err != nil {
			t.Errorf("%s becomes %s: %v", doc, text, err)
		}
	})
}

func document(t *testing.T, kind, metadata, spec string) []byte {
	t.Helper()
	doc, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: " + kind + ", metadata: {" + metadata + "}, spec: {" + spec + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// canonical is a document with its members in the order of their names, without what is empty in rules.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, err := json.Marshal(withoutEmpty(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			if e = withoutEmpty(e); e == nil {
				delete(v, name)
			} else {
				v[name] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	}
	return v
}
