package plan_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// defaults are keys that are there without any resource.
var defaults = map[string]string{
	"bgp/v1/global/as_num": "64512", "bgp/v1/global/loglevel": "info", "bgp/v1/global/node_mesh": `{"enabled":true}`,
}

// keysOf are those of a node's plan, without what all begin with; a secret is NAME/KEY after its value.
func keysOf(w *plan.Resources, node string) map[string]string {
	out := map[string]string{}
	for key, k := range w.Keys(w.Plan(node)) {
		if out[strings.TrimPrefix(key, "/calico/")] = k.Value; k.Secret != nil {
			out[strings.TrimPrefix(key, "/calico/")] += " with " + k.Secret.Name + "/" + k.Secret.Key
		}
	}
	return out
}

// TestKeysAreThoseOfCalicosConfd is about what each resource adds; the names are of upstream's first data model, which its templates read.
func TestKeysAreThoseOfCalicosConfd(t *testing.T) {
	const self = "Node h1 {bgp: {ipv4Address: 192.0.2.1/24}}\n"
	host := map[string]string{
		"bgp/v1/host/h1/ip_addr_v4": "192.0.2.1", "bgp/v1/host/h1/network_v4": "192.0.2.0/24", "bgp/v1/host/h1/ip_addr_v6": "", "bgp/v1/host/h1/rr_cluster_id": "",
	}
	peer := func(ip, as, changes string) string {
		fields := map[string]any{
			"ip": ip, "as_num": as, "local_as_num": "0", "rr_cluster_id": "", "password": nil, "source_addr": "UseNodeIP", "restart_time": "", "keepalive_time": "", "port": 0.0, "keep_next_hop": false,
			"next_hop_mode": "Auto", "calico_node": false, "num_allow_local_as": 0.0, "ttl_security": 0.0, "filters": []any{}, "reachable_by": "", "passive_mode": false, "local_bgp_peer": false,
		}
		if err := json.Unmarshal([]byte(changes), &fields); err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(fields)
		return string(b)
	}
	for _, tt := range []struct {
		name, world string
		want        map[string]string // in addition to defaults and host; "" of one of these: it is not there
	}{
		{"nothing but the node", self, nil},
		{"a node of both families, with a number and a cluster", self + "Node h2 {bgp: {ipv6Address: '2001:db8::2/64', asNumber: 4200000001, routeReflectorClusterID: 244.0.0.1}}", map[string]string{
			"bgp/v1/host/h2/ip_addr_v4": "", "bgp/v1/host/h2/ip_addr_v6": "2001:db8::2", "bgp/v1/host/h2/network_v6": "2001:db8::/64", "bgp/v1/host/h2/as_num": "4200000001", "bgp/v1/host/h2/rr_cluster_id": "244.0.0.1",
		}},
		{"an address without a length", self + "Node h2 {bgp: {ipv4Address: 192.0.2.2}}", map[string]string{
			"bgp/v1/host/h2/ip_addr_v4": "192.0.2.2", "bgp/v1/host/h2/network_v4": "192.0.2.2/32", "bgp/v1/host/h2/ip_addr_v6": "", "bgp/v1/host/h2/rr_cluster_id": "",
		}},
		{"WireGuard's addresses", self + "Node h2 {wireguard: {interfaceIPv4Address: 10.65.9.1, interfaceIPv6Address: 'fd00:65::1'}}", map[string]string{
			"bgp/v1/host/h2/ip_addr_v4": "", "bgp/v1/host/h2/ip_addr_v6": "", "bgp/v1/host/h2/rr_cluster_id": "", "bgp/v1/host/h2/wireguard_addr_v4": "10.65.9.1", "bgp/v1/host/h2/wireguard_addr_v6": "fd00:65::1",
		}},
		{"the configuration of all", self + "BGPConfiguration default {asNumber: 65000, nodeToNodeMeshEnabled: false, logSeverityScreen: Debug, listenPort: 1790, bindMode: NodeIP, ignoredInterfaces: [a, b*], nodeMeshMaxRestartTime: 90s}", map[string]string{
			"bgp/v1/global/as_num": "65000", "bgp/v1/global/node_mesh": `{"enabled":false}`, "bgp/v1/global/loglevel": "debug", "bgp/v1/global/listen_port": "1790", "bgp/v1/global/bind_mode": "NodeIP",
			"bgp/v1/global/ignored_interfaces": "a,b*", "bgp/v1/global/node_mesh_restart_time": "90",
		}},
		{"that of a node; what is less than info is none", self + "BGPConfiguration node.h1 {logSeverityScreen: Error, listenPort: 1791}", map[string]string{"bgp/v1/host/h1/loglevel": "none", "bgp/v1/host/h1/listen_port": "1791"}},
		{"communities by name and by value", self + "BGPConfiguration default {communities: [{name: wide, value: '1:2:3'}], prefixAdvertisements: [{cidr: 10.65.0.0/16, communities: [wide, '1:2', '1:2']}]}", map[string]string{
			"bgp/v1/global/prefix_advertisements/ip_v4": `[{"cidr":"10.65.0.0/16","communities":["1:2","1:2:3"]}]`, "bgp/v1/global/prefix_advertisements/ip_v6": `[]`,
		}},
		{"services: BIRD advertises them, and installs no routes to them", self + "BGPConfiguration default {serviceClusterIPs: [{cidr: 10.96.0.0/12}, {cidr: 'fd00:96::/112'}], serviceExternalIPs: [{cidr: 198.51.100.0/24}], serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}]}", map[string]string{
			"bgp/v1/global/svc_cluster_ips": "10.96.0.0/12,fd00:96::/112", "bgp/v1/global/svc_external_ips": "198.51.100.0/24", "bgp/v1/global/svc_loadbalancer_ips": "203.0.113.0/24",
			"staticroutes/10.96.0.0-12": "10.96.0.0/12", "staticroutes/198.51.100.0-24": "198.51.100.0/24", "staticroutes/203.0.113.0-24": "203.0.113.0/24", "staticroutesv6/fd00:96::-112": "fd00:96::/112",
			"rejectcidrs/10.96.0.0-12": "10.96.0.0/12", "rejectcidrs/198.51.100.0-24": "198.51.100.0/24", "rejectcidrs/203.0.113.0-24": "203.0.113.0/24", "rejectcidrsv6/fd00:96::-112": "fd00:96::/112",
		}},
		{"a pool", self + "IPPool p {cidr: 10.65.0.0/16, natOutgoing: true, disableBGPExport: true}", map[string]string{
			"v1/ipam/v4/pool/10.65.0.0-16": `{"cidr":"10.65.0.0/16","ipip":"","ipip_mode":"","vxlan_mode":"","masquerade":true,"ipam":true,"disabled":false,"disableBGPExport":true,"assignment_mode":"Automatic"}`,
		}},
		{"pools with encapsulation: their routes are the agent's", self + "IPPool i {cidr: 10.66.0.0/16, ipipMode: CrossSubnet, disabled: true}\nIPPool v {cidr: 'fd00:67::/48', vxlanMode: Always, assignmentMode: Manual}", map[string]string{
			"v1/ipam/v4/pool/10.66.0.0-16": `{"cidr":"10.66.0.0/16","ipip":"tunl0","ipip_mode":"cross-subnet","vxlan_mode":"","masquerade":false,"ipam":false,"disabled":true,"disableBGPExport":false,"assignment_mode":"Automatic"}`,
			"v1/ipam/v6/pool/fd00:67::-48": `{"cidr":"fd00:67::/48","ipip":"","ipip_mode":"","vxlan_mode":"always","masquerade":false,"ipam":true,"disabled":false,"disableBGPExport":false,"assignment_mode":"Manual"}`,
			"rejectcidrs/10.66.0.0-16":     "10.66.0.0/16",
			"rejectcidrsv6/fd00:67::-48":   "fd00:67::/48",
		}},
		{"a peer of all nodes", self + "BGPPeer g {peerIP: 192.0.2.9, asNumber: 65009}", map[string]string{"bgp/v1/global/peer_v4/192.0.2.9": peer("192.0.2.9", "65009", "{}")}},
		{"a peer of this node, with all that it can say", self + "BGPFilter f {}\nBGPPeer here {node: h1, peerIP: '192.0.2.9:1179', asNumber: 65009, localASNumber: 65500, sourceAddress: None, maxRestartTime: 30s, keepaliveTime: 7s, nextHopMode: Keep, numAllowedLocalASNumbers: 2, ttlSecurity: 1, filters: [f], reachableBy: 192.0.2.254, password: {secretKeyRef: {name: a, key: b}}}", map[string]string{
			"bgp/v1/host/h1/peer_v4/192.0.2.9-1179":       peer("192.0.2.9", "65009", `{"port": 1179, "local_as_num": "65500", "source_addr": "None", "restart_time": "30", "keepalive_time": "7", "keep_next_hop": true, "next_hop_mode": "Keep", "num_allow_local_as": 2, "ttl_security": 1, "filters": ["f"], "reachable_by": "192.0.2.254"}`) + " with a/b",
			"resources/v3/projectcalico.org/bgpfilters/f": "FILTER",
		}},
		{"a peer of another node is not there", self + "BGPPeer here {node: h2, peerIP: 192.0.2.9, asNumber: 65009}", nil},
		{"nodes that a selector names", self + "Node h2 {labels: {rr: one}} {bgp: {ipv4Address: 192.0.2.2/24, routeReflectorClusterID: 244.0.0.1}}\nBGPPeer s {nodeSelector: all(), peerSelector: has(rr)}", map[string]string{
			"bgp/v1/host/h2/ip_addr_v4": "192.0.2.2", "bgp/v1/host/h2/network_v4": "192.0.2.0/24", "bgp/v1/host/h2/ip_addr_v6": "", "bgp/v1/host/h2/rr_cluster_id": "244.0.0.1",
			"bgp/v1/host/h1/peer_v4/192.0.2.2": peer("192.0.2.2", "64512", `{"rr_cluster_id": "244.0.0.1", "calico_node": true, "passive_mode": true}`),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := maps.Clone(defaults)
			maps.Copy(want, host)
			maps.Copy(want, tt.want)
			got := keysOf(world(t, tt.world), "h1")
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if value, ok := got[key]; !ok || !same(value, want[key]) {
					t.Errorf("%s is %q (%t), want %q", key, value, ok, want[key])
				}
			}
			for key, value := range got {
				if _, ok := want[key]; !ok {
					t.Errorf("%s is %q, and should not be", key, value)
				}
			}
		})
	}
}

// same reports whether values are equal, whatever the order of an object's fields. FILTER is any BGPFilter.
func same(got, want string) bool {
	if want == "FILTER" {
		return strings.Contains(got, `"spec":{`)
	}
	object, secret, _ := strings.Cut(got, " with ")
	wanted, wantedSecret, _ := strings.Cut(want, " with ")
	var a, b map[string]any
	if json.Unmarshal([]byte(object), &a) != nil || json.Unmarshal([]byte(wanted), &b) != nil {
		return got == want
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y) && secret == wantedSecret
}

// TestKeysDoNotOpenWhatIsClosed: what cannot be read must not make a session that has less than was meant.
func TestKeysDoNotOpenWhatIsClosed(t *testing.T) {
	w := world(t, three+"BGPConfiguration default {nodeMeshPassword: {secretKeyRef: {name: mesh, key: k}}}\nBGPFilter f {importV4: [{action: Reject}]}\nBGPPeer p {node: h1, peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}")
	const peer, filter, mesh = "bgp/v1/host/h1/peer_v4/192.0.2.9", "resources/v3/projectcalico.org/bgpfilters/f", "bgp/v1/global/node_mesh"
	got := keysOf(w, "h1")
	if got["bgp/v1/global/node_mesh_password"] != " with mesh/k" || got[mesh] != `{"enabled":true}` || got[peer] == "" || got[filter] == "" {
		t.Errorf("%v", got)
	}
	w.Update(api.Update{Key: api.ResourcesPrefix + "bgpfilters/f", Value: []byte(`{"metadata":{"name":"f"},"spec":{"importV4":[{"action":"Accept","unknownMatch":1}]}}`)})
	if got := keysOf(w, "h1"); got[filter] != "" {
		t.Errorf("a rule that accepts and was not understood is offered: %s", got[filter])
	}
	fresh := plan.New()
	for _, u := range []api.Update{
		{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)},
		{Key: api.ResourcesPrefix + "nodes/h2", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`)},
		{Key: api.ResourcesPrefix + "bgpconfigurations/default", Value: []byte(`{"spec":{"nodeMeshPassword":7}}`)},
		{Key: api.ResourcesPrefix + "bgppeers/p", Value: []byte(`{"spec":{"node":"h1","peerIP":"192.0.2.9","asNumber":65009,"password":7}}`)},
	} {
		fresh.Update(u)
	}
	if got := keysOf(fresh, "h1"); got[mesh] != `{"enabled":false}` || got[peer] != "" {
		t.Errorf("sessions whose passwords cannot be read: mesh %s, peer %q", got[mesh], got[peer])
	}
}

// TestBlockKeys are those of upstream's address management.
func TestBlockKeys(t *testing.T) {
	for block, want := range map[string]string{"10.65.1.0/26": "/calico/ipam/v2/host/h1/ipv4/block/10.65.1.0-26", "fd00:65::/122": "/calico/ipam/v2/host/h1/ipv6/block/fd00:65::-122"} {
		if key, value := plan.BlockKey("h1", prefix(block)); key != want || value != `{"state":"confirmed"}` {
			t.Errorf("%s: %s = %s, want %s", block, key, value, want)
		}
	}
}
