package api

import (
	"strings"
	"testing"
	"time"
)

func TestBGPConfigurationsAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, meta, spec, want string }{
		{"the default", "default", "{asNumber: 65000, nodeToNodeMeshEnabled: false}", ""},
		{"a dotted AS number", "default", "{asNumber: '1.10'}", ""},
		{"that of a node", "node.h1", "{listenPort: 1790, bindMode: NodeIP, ignoredInterfaces: ['eth*', lo0]}", ""},
		{"another name, as upstream takes it", "mine", "{}", ""},
		{"a mesh of another name", "mine", "{nodeToNodeMeshEnabled: true}", "spec.nodeToNodeMeshEnabled"},
		{"what we do anyway", "default", "{serviceLoadBalancerAggregation: Enabled, programClusterRoutes: Enabled}", ""},
		{"single addresses of services", "default", "{serviceLoadBalancerAggregation: Disabled}", ""},
		{"neither", "default", "{serviceLoadBalancerAggregation: Perhaps}", "spec.serviceLoadBalancerAggregation"},
		{"routes by the agent", "default", "{programClusterRoutes: Disabled}", "spec.programClusterRoutes"},
		{"something else", "default", "{programClusterRoutes: Sometimes}", "spec.programClusterRoutes"},
		{"AS 0", "default", "{asNumber: 0}", "spec.asNumber"},
		{"a mesh of one node", "node.h1", "{nodeToNodeMeshEnabled: true}", "spec.nodeToNodeMeshEnabled"},
		{"an AS number of one node, which its Node says", "node.h1", "{asNumber: 65000}", "spec.asNumber"},
		{"a mesh password of one node", "node.h1", "{nodeMeshPassword: {secretKeyRef: {name: a, key: b}}}", "spec.nodeMeshPassword"},
		{"a bind mode that is none", "default", "{bindMode: All}", "spec.bindMode"},
		{"an interface that is none", "default", "{ignoredInterfaces: ['a b']}", "spec.ignoredInterfaces[0]"},
		{"a password without a key", "default", "{nodeMeshPassword: {secretKeyRef: {name: a, key: ''}}}", "spec.nodeMeshPassword.secretKeyRef.key"},
		{"a key that leaves its folder", "default", "{nodeMeshPassword: {secretKeyRef: {name: a, key: '../b'}}}", "spec.nodeMeshPassword.secretKeyRef.key"},
		{"a restart time beyond twelve bits", "default", "{nodeMeshMaxRestartTime: 2h}", "spec.nodeMeshMaxRestartTime"},
		{"half a second", "default", "{nodeMeshMaxRestartTime: 1500ms}", "spec.nodeMeshMaxRestartTime"},
		{"a named community", "default", "{communities: [{name: a, value: '1:2'}], prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: [a, '1:2:3']}]}", ""},
		{"a community that nobody named", "default", "{prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: [a]}]}", "spec.prefixAdvertisements[0].communities[0]"},
		{"a community too large", "default", "{communities: [{name: a, value: '70000:2'}]}", "spec.communities[0].value"},
		{"a community twice", "default", "{communities: [{name: a, value: '1:2'}, {name: a, value: '1:3'}]}", "spec.communities[1].name"},
		{"no communities", "default", "{prefixAdvertisements: [{cidr: 10.0.0.0/8}]}", "spec.prefixAdvertisements[0].communities"},
		{"an advertisement that is not masked", "default", "{prefixAdvertisements: [{cidr: 10.0.0.1/8, communities: ['1:2']}]}", "spec.prefixAdvertisements[0].cidr"},
		{"services that are not masked", "default", "{serviceClusterIPs: [{cidr: 10.0.0.1/8}]}", "spec.serviceClusterIPs[0].cidr"},
	} {
		t.Run(tt.name, func(t *testing.T) { judge(t, KindBGPConfiguration, "name: "+tt.meta, tt.spec, tt.want) })
	}
}

func TestBGPPeersAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"an address", "{peerIP: 192.0.2.1, asNumber: 65000}", ""},
		{"an address with a port", "{peerIP: '192.0.2.1:1790', asNumber: 65000}", ""},
		{"an IPv6 address with a port", "{peerIP: '[2001:db8::1]:1790', asNumber: 65000}", ""},
		{"other nodes", "{nodeSelector: all(), peerSelector: has(rr)}", ""},
		{"nodes by global()", "{nodeSelector: global(), peerSelector: has(rr)}", "spec.nodeSelector"},
		{"other nodes by global()", "{nodeSelector: all(), peerSelector: global()}", "spec.peerSelector"},
		{"all that can be said", "{node: h1, peerIP: 192.0.2.1, asNumber: 1, localASNumber: 2, nextHopMode: Keep, sourceAddress: None, maxRestartTime: 5s, keepaliveTime: 10s, numAllowedLocalASNumbers: 1, ttlSecurity: 1, filters: [a], reversePeering: Manual}", ""},
		{"a gateway", "{peerIP: '192.0.2.1:1790', asNumber: 1, reachableBy: 198.51.100.1}", ""},
		{"a gateway that is no address", "{peerIP: 192.0.2.1, asNumber: 1, reachableBy: 198.51.100.1/24}", "spec.reachableBy"},
		{"a gateway of the other family", "{peerIP: 192.0.2.1, asNumber: 1, reachableBy: '2001:db8::1'}", "spec.reachableBy"},
		{"a peer that is its own gateway", "{peerIP: 192.0.2.1, asNumber: 1, reachableBy: 192.0.2.1}", "spec.reachableBy"},
		{"a gateway to nodes", "{peerSelector: all(), reachableBy: 192.0.2.1}", "spec.reachableBy"},
		{"neither address nor selector", "{node: h1}", "spec.peerIP"},
		{"both", "{peerIP: 192.0.2.1, asNumber: 1, peerSelector: all()}", "spec.peerSelector"},
		{"no AS number, as upstream takes it", "{peerIP: 192.0.2.1}", ""},
		{"a name as address", "{peerIP: tor1, asNumber: 1}", "spec.peerIP"},
		{"port 0", "{peerIP: '192.0.2.1:0', asNumber: 1}", "spec.peerIP"},
		{"node and nodeSelector", "{node: h1, nodeSelector: all(), peerIP: 192.0.2.1, asNumber: 1}", "spec.nodeSelector"},
		{"a selector that is none", "{peerSelector: 'a =='}", "spec.peerSelector"},
		{"a next hop mode that is none", "{peerIP: 192.0.2.1, asNumber: 1, nextHopMode: self}", "spec.nextHopMode"},
		{"both ways to say next hop", "{peerIP: 192.0.2.1, asNumber: 1, nextHopMode: Self, keepOriginalNextHop: true}", "spec.keepOriginalNextHop"},
		{"TTL security over no hops", "{peerIP: 192.0.2.1, asNumber: 1, ttlSecurity: 0}", "spec.ttlSecurity"},
		{"too many local AS numbers", "{peerIP: 192.0.2.1, asNumber: 1, numAllowedLocalASNumbers: 256}", "spec.numAllowedLocalASNumbers"},
		{"a filter twice", "{peerIP: 192.0.2.1, asNumber: 1, filters: [a, a]}", "spec.filters[1]"},
		{"keepalives each tenth of a second", "{peerIP: 192.0.2.1, asNumber: 1, keepaliveTime: 100ms}", "spec.keepaliveTime"},
	} {
		t.Run(tt.name, func(t *testing.T) { judge(t, KindBGPPeer, "name: p", tt.spec, tt.want) })
	}
}

func TestBFDIsConfiguredByAnAnnotation(t *testing.T) {
	for _, tt := range []struct {
		text string
		want BFD
		ok   bool
	}{
		{"off", BFD{}, true},
		{"300ms", BFD{300 * time.Millisecond, 3}, true},
		{"1sx5", BFD{time.Second, 5}, true},
		{"50msx2", BFD{50 * time.Millisecond, 2}, true},
		{"1mx255", BFD{time.Minute, 255}, true},
		{text: "on"},
		{text: ""},
		{text: "300"},
		{text: "49ms"},
		{text: "61s"},
		{text: "-1s"},
		{text: "100.0005ms"},
		{text: "300msx1"},
		{text: "300msx256"},
		{text: "300msx"},
		{text: "300ms x 3"},
		{text: "x3"},
	} {
		if got, err := ParseBFD(tt.text); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %+v, %v", tt.text, got, err)
		}
		want := ""
		if !tt.ok {
			want = `metadata.annotations["twill.net/bfd"]`
		}
		meta := "name: default, annotations: {twill.net/bfd: '" + tt.text + "'}"
		judge(t, KindBGPConfiguration, meta, "{}", want)
		judge(t, KindBGPPeer, meta, "{peerSelector: all()}", want)
	}
	judge(t, KindBGPPeer, "name: a, annotations: {twill.net/bdf: 'off'}", "{peerSelector: all()}", `metadata.annotations["twill.net/bdf"]`)
	judge(t, KindBGPPeer, "name: a, annotations: {example.org/bfd: 'yes'}", "{peerSelector: all()}", "")
}

func TestBGPFiltersAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, rule, want string }{
		{"no condition", "action: Accept", ""},
		{"all conditions", "action: Accept, cidr: 10.0.0.0/8, matchOperator: In, prefixLength: {min: 16, max: 24}, source: RemotePeers, peerType: eBGP, communities: {values: ['1:2']}, asPathPrefix: [1, 2], operations: [{addCommunity: {value: '1:2:3'}}, {prependASPath: {prefix: [1]}}]", ""},
		{"no action", "source: RemotePeers", "action"},
		{"a source that is none", "action: Accept, source: Local", "source"},
		{"a peer type that is none", "action: Accept, peerType: ibgp", "peerType"},
		{"no operator", "action: Accept, cidr: 10.0.0.0/8", "matchOperator"},
		{"no prefix", "action: Accept, matchOperator: In", "cidr"},
		{"lengths without a prefix", "action: Accept, prefixLength: {min: 1}", "cidr"},
		{"a prefix of the other family", "action: Accept, cidr: 'fd00::/8', matchOperator: In", "cidr"},
		{"a prefix that is not masked", "action: Accept, cidr: 10.0.0.1/8, matchOperator: In", "cidr"},
		{"lengths the wrong way", "action: Accept, cidr: 10.0.0.0/8, matchOperator: In, prefixLength: {min: 24, max: 16}", "prefixLength"},
		{"a length beyond the family", "action: Accept, cidr: 10.0.0.0/8, matchOperator: In, prefixLength: {max: 33}", "prefixLength"},
		{"two communities", "action: Accept, communities: {values: ['1:2', '1:3']}", "communities.values"},
		{"a community that is none", "action: Accept, communities: {values: [x]}", "communities.values[0]"},
		{"AS 0 in a path", "action: Accept, asPathPrefix: [0]", "asPathPrefix"},
		{"operations of a Reject", "action: Reject, operations: [{addCommunity: {value: '1:2'}}]", "operations"},
		{"an operation that does nothing", "action: Accept, operations: [{}]", "operations[0]"},
		{"an operation that does two things", "action: Accept, operations: [{addCommunity: {value: '1:2'}, prependASPath: {prefix: [1]}}]", "operations[0]"},
		{"a path of nothing", "action: Accept, operations: [{prependASPath: {prefix: []}}]", "operations[0].prependASPath.prefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want != "" {
				want = "spec.exportV4[1]." + want
			}
			judge(t, KindBGPFilter, "name: f", "{exportV4: [{action: Reject}, {"+tt.rule+"}]}", want)
		})
	}
}

func TestWhatBGPDoesNotHonourIsRefusedByName(t *testing.T) {
	for _, tt := range []struct{ kind, spec, path string }{
		{KindBGPConfiguration, "{ipv4NormalRoutePriority: 5}", "spec.ipv4NormalRoutePriority"},
		{KindBGPConfiguration, "{ipv6NormalRoutePriority: 5}", "spec.ipv6NormalRoutePriority"},
		{KindBGPConfiguration, "{localWorkloadPeeringIPV4: 192.0.2.1}", "spec.localWorkloadPeeringIPV4"},
		{KindBGPConfiguration, "{localWorkloadPeeringIPV6: '2001:db8::1'}", "spec.localWorkloadPeeringIPV6"},
		{KindBGPPeer, "{localWorkloadSelector: all()}", "spec.localWorkloadSelector"},
		{KindBGPFilter, "{exportV4: [{action: Accept, priority: 5}]}", "spec.exportV4[0].priority"},
		{KindBGPFilter, "{exportV4: [{action: Accept, operations: [{setPriority: {value: 5}}]}]}", "spec.exportV4[0].operations[0].setPriority"},
	} {
		_, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: " + tt.kind + "\nmetadata: {name: a}\nspec: " + tt.spec))
		if err == nil || !strings.Contains(err.Error(), tt.path) || !strings.Contains(err.Error(), "Calico has this field") {
			t.Errorf("%s %s: %v", tt.kind, tt.spec, err)
		}
	}
}

func TestFilterRulesCloseByThemselves(t *testing.T) {
	for _, tt := range []struct{ name, rule, want string }{
		{"an understood rule stays", `{"action":"Accept","cidr":"10.0.0.0/8","matchOperator":"In"}`, "Accept 10.0.0.0/8"},
		{"an unknown field makes an Accept void", `{"action":"Accept","phase":"full"}`, "void"},
		{"a field not honoured makes an Accept void", `{"action":"Accept","priority":5}`, "void"},
		{"an interface of what peers tell makes an Accept void", `{"action":"Accept","interface":"eth0"}`, "void"},
		{"an interface of what peers tell makes a Reject wider", `{"action":"Reject","interface":"eth0","source":"RemotePeers"}`, "Reject  RemotePeers"},
		{"an unknown field leaves a Reject", `{"action":"Reject","cidr":"10.0.0.0/8","matchOperator":"In","phase":"full"}`, "Reject 10.0.0.0/8"},
		{"a prefix that is none makes a Reject wider", `{"action":"Reject","cidr":"ten","matchOperator":"In","source":"RemotePeers"}`, "Reject  RemotePeers"},
		{"an unknown operator makes an Accept void", `{"action":"Accept","cidr":"10.0.0.0/8","matchOperator":"Near"}`, "void"},
		{"an unknown action rejects", `{"action":"Shred","cidr":"10.0.0.0/8","matchOperator":"In"}`, "Reject 10.0.0.0/8"},
		{"a rule that is no object rejects all", `7`, "Reject "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "bgpfilters/f", `{"kind":"BGPFilter","spec":{"importV4":[`+tt.rule+`,{"action":"Accept"}]}}`)
			rules := s.Resource.(*BGPFilter).Spec.ImportV4
			got := strings.TrimSuffix(rules[0].Action+" "+rules[0].CIDR+" "+rules[0].Source, " ")
			if rules[0].Void {
				got = "void"
			}
			if got != tt.want || rules[1].Void || rules[1].Action != "Accept" {
				t.Errorf("%q, beside it %+v; want %q", got, rules[1], tt.want)
			}
			if _, err := EncodeStored(s.Resource); (err != nil) != rules[0].Void {
				t.Errorf("stored again: %v", err)
			}
		})
	}
}

// What upstream takes and what is of no use is taken and warned of, and stays visible while it is stored.
func TestWhatIsOfNoUseIsWarnedOf(t *testing.T) {
	for _, tt := range []struct{ name, key, doc, path string }{
		{"a BGP configuration that no node goes by", "bgpconfigurations/mine", `{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"mine"},"spec":{}}`, "metadata.name"},
		{"that of a node without a name", "bgpconfigurations/node.", `{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"node."},"spec":{}}`, "metadata.name"},
		{"a peer without an AS number", "bgppeers/a", `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"peerIP":"192.0.2.1"}}`, "spec.asNumber"},
		{"peers that say it themselves", "bgppeers/a", `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"peerSelector":"all()"}}`, ""},
		{"that of a node", "bgpconfigurations/node.a", `{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"node.a"},"spec":{}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(tt.doc))
			if err != nil || len(docs) != 1 {
				t.Fatal(err)
			}
			got := ""
			for _, w := range docs[0].Warnings {
				got = w.Path
			}
			if got != tt.path {
				t.Errorf("a user hears of %q, want %q", got, tt.path)
			}
			st, err := DecodeStored(Update{Key: ResourcesPrefix + tt.key, Value: []byte(tt.doc)})
			if err != nil {
				t.Fatal(err)
			}
			got = ""
			for _, p := range st.Problems {
				got = p.Field
			}
			if got != tt.path {
				t.Errorf("the problem of what is stored is at %q, want %q", got, tt.path)
			}
		})
	}
}
