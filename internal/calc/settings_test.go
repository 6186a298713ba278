package calc

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// TestEachSettingReachesTheIntent stores one setting at a time, and sees what becomes different in the intent: that, and
// nothing else. Each field of the intent is in a line, so that a new one cannot be left out.
func TestEachSettingReachesTheIntent(t *testing.T) {
	none := hostFields(t, "")
	covered := map[string]bool{}
	for _, tt := range []struct {
		spec string
		want map[string]string
	}{
		{`"defaultEndpointToHostAction":"Accept"`, map[string]string{"EndpointToHost": fmt.Sprint(intent.ToHostAccept)}},
		{`"defaultEndpointToHostAction":"Return"`, map[string]string{"EndpointToHost": fmt.Sprint(intent.ToHostReturn)}},
		{`"chainInsertMode":"append"`, map[string]string{"IPTables.Append": "true"}},
		{`"iptablesFilterAllowAction":"Return"`, map[string]string{"IPTables.FilterReturn": "true"}},
		{`"iptablesMangleAllowAction":"RETURN"`, map[string]string{"IPTables.MangleReturn": "true"}},
		{`"iptablesFilterDenyAction":"Reject"`, map[string]string{"IPTables.Reject": "true"}},
		{`"interfacePrefix":"tap,cali"`, map[string]string{"Prefixes": "[cali tap]", "Metadata": "127.0.0.1:8775", "DNS": "true"}},
		{`"interfacePrefix":"tap,cali","metadataAddr":"None"`, map[string]string{"Prefixes": "[cali tap]", "DNS": "true"}},
		{`"interfacePrefix":"tap,cali","metadataPort":80`, map[string]string{"Prefixes": "[cali tap]", "Metadata": "127.0.0.1:80", "DNS": "true"}},
		{`"interfacePrefix":"tapX"`, map[string]string{"Prefixes": "[tapX]"}},
		{`"metadataAddr":"192.0.2.7"`, map[string]string{"Metadata": "192.0.2.7:8775", "DNS": "true"}},
		{`"metadataAddr":"192.0.2.7","metadataPort":81`, map[string]string{"Metadata": "192.0.2.7:81", "DNS": "true"}},
		{`"metadataAddr":"127.0.0.1"`, map[string]string{"Metadata": "127.0.0.1:8775"}},
		{`"metadataPort":81`, map[string]string{"DNS": "true"}},
		{`"interfaceExclude":"/^kube/,dummy0"`, map[string]string{"Exclude": "[/^kube/ dummy0]"}},
		{`"ipForwarding":"Disabled"`, map[string]string{"NoForwarding": "true"}},
		{`"localSubnetL2Reachability":"PodsAndLoadBalancers"`, map[string]string{"LocalSubnet.Pools": "[10.65.0.0/16]", "LocalSubnet.Again": "2m0s"}},
		{`"localSubnetL2Reachability":"PodsAndLoadBalancers","localSubnetL2ReachabilityRefreshInterval":"0"`, map[string]string{"LocalSubnet.Pools": "[10.65.0.0/16]"}},
		{`"serviceLoopPrevention":"Reject"`, map[string]string{"ServiceLoops": fmt.Sprint(intent.LoopsReject)}},
		{`"serviceLoopPrevention":"disabled"`, map[string]string{"ServiceLoops": fmt.Sprint(intent.LoopsPass)}},
		{`"ipv6Support":false`, map[string]string{"NoIPv6": "true"}},
		{`"allowVXLANPacketsFromWorkloads":true`, map[string]string{"AllowVXLAN": "true"}},
		{`"allowIPIPPacketsFromWorkloads":true`, map[string]string{"AllowIPIP": "true"}},
		{`"wireguardEnabled":true`, map[string]string{"WireGuard.On": "[true false]", "MTU.Wanted": "[false false false true false]"}},
		{`"wireguardEnabledV6":true`, map[string]string{"WireGuard.On": "[false true]", "MTU.Wanted": "[false false false false true]"}},
		{`"wireguardListeningPort":51900`, map[string]string{"WireGuard.Port": "[51900 51821]"}},
		{`"wireguardListeningPortV6":51900`, map[string]string{"WireGuard.Port": "[51820 51900]"}},
		{`"wireguardInterfaceName":"wg0"`, map[string]string{"WireGuard.Link": "[wg0 wg-v6.cali]"}},
		{`"wireguardInterfaceNameV6":"wg0"`, map[string]string{"WireGuard.Link": "[wireguard.cali wg0]"}},
		{`"wireguardRoutingRulePriority":7`, map[string]string{"WireGuard.Priority": "7"}},
		{`"wireguardKeepAlive":"25s"`, map[string]string{"WireGuard.KeepAlive": "25s"}},
		{`"wireguardUserspaceEnabled":false`, map[string]string{"WireGuard.Userspace": "false"}},
		{`"routeTableRanges":[{"min":5,"max":9},{"min":300,"max":400}]`, map[string]string{"WireGuard.Tables": "[{5 9} {300 400}]"}},
		{`"routeTableRange":{"min":5,"max":9}`, map[string]string{"WireGuard.Tables": "[{5 9}]"}},
		{`"wireguardHostEncryptionEnabled":true`, nil}, // without WireGuard: see TestWhatOfHostsIsEncrypted
		{`"wireguardThreadingEnabled":true`, map[string]string{"WireGuard.Threads": "true"}},
		{`"wireguardMTU":1400`, map[string]string{"MTU.Tunnels": "[0 0 0 1400 0]"}},
		{`"wireguardMTUV6":1300`, map[string]string{"MTU.Tunnels": "[0 0 0 0 1300]"}},
		{`"vxlanVNI":77`, map[string]string{"VXLAN.VNI": "77"}},
		{`"vxlanPort":8472`, map[string]string{"VXLAN.Port": "8472"}},
		{`"vxlanMTU":1400`, map[string]string{"MTU.Tunnels": "[1400 0 0 0 0]"}},
		{`"vxlanMTUV6":1300`, map[string]string{"MTU.Tunnels": "[0 1300 0 0 0]"}},
		{`"ipipMTU":1380`, map[string]string{"MTU.Tunnels": "[0 0 1380 0 0]"}},
		{`"featureDetectOverride":"ChecksumOffloadBroken=true"`, map[string]string{"Checksums": "1"}},
		{`"featureDetectOverride":"ChecksumOffloadBroken=false"`, map[string]string{"Checksums": "2"}},
		{`"routeSyncDisabled":true`, map[string]string{"Routes.Off": "true"}},
		{`"removeExternalRoutes":false`, map[string]string{"Routes.KeepExternal": "true"}},
		{`"deviceRouteSourceAddress":"192.0.2.1"`, map[string]string{"Routes.Source": "[192.0.2.1 invalid IP]"}},
		{`"deviceRouteSourceAddressIPv6":"2001:db8::1"`, map[string]string{"Routes.Source": "[invalid IP 2001:db8::1]"}},
		{`"ipv4NormalRoutePriority":1024`, map[string]string{"Routes.Metric": "[1024 0]"}},
		{`"ipv4ElevatedRoutePriority":100`, map[string]string{"Routes.Elevated": "[100 512]"}},
		{`"ipv6ElevatedRoutePriority":77`, map[string]string{"Routes.Elevated": "[512 77]"}},
		{`"liveMigrationRouteConvergenceTime":"7s"`, map[string]string{"Routes.Settle": "7s"}},
		{`"deviceRouteProtocol":80`, nil},
		{`"deviceRouteProtocol":99`, map[string]string{"Routes.Protocol": "99"}},
		{`"ipv6NormalRoutePriority":1000`, map[string]string{"Routes.Metric": "[0 1000]"}},
		{`"mtuIfacePattern":"^bond"`, map[string]string{"MTU.Links": "^bond"}},
		{`"nftablesMarkMask":4278190080`, map[string]string{"MarkMask": "4278190080"}},
		{`"iptablesMarkMask":4278190080`, nil},
		{`"nftablesMode":"Disabled","nftablesMarkMask":255,"iptablesMarkMask":4278190080`, map[string]string{"MarkMask": "4278190080"}},
		{`"disableConntrackInvalidCheck":true`, map[string]string{"AllowInvalid": "true"}},
		{`"failsafeInboundHostPorts":[{"protocol":"TCP","port":22,"net":"192.0.2.0/24"}]`, map[string]string{"FailsafeIn": "[{6 22 192.0.2.0/24}]"}},
		{`"failsafeOutboundHostPorts":[]`, map[string]string{"FailsafeOut": "[]"}},
		{`"flowRevocationEnabled":false`, map[string]string{"KeepDenied": "true"}},
		{`"nftablesTableOwnerEnabled":false`, map[string]string{"OwnTable": "false"}},
		{`"policyRendering":"Chains"`, map[string]string{"Compiled": "false"}},
		{`"flowLogsLocalReporter":"Enabled"`, map[string]string{"ReportAllowed": "true"}},
		{`"logPrefix":"%t"`, map[string]string{"Log.Prefix": "%t"}},
		{`"logActionRateLimit":"7/hour"`, map[string]string{"Log.Rate": "7", "Log.Per": "1h0m0s"}},
		{`"logActionRateLimitBurst":9`, map[string]string{"Log.Burst": "9"}},
		{`"nftablesRefreshInterval":"2s"`, map[string]string{"Refresh.Policy": "2s"}},
		{`"iptablesRefreshInterval":"2s"`, nil},
		{`"nftablesMode":"Disabled","nftablesRefreshInterval":"1s","iptablesRefreshInterval":"2s"`, map[string]string{"Refresh.Policy": "2s"}},
		{`"nftablesMode":"Disabled","ipsetsRefreshInterval":"3s"`, map[string]string{"Refresh.Policy": "3s"}},
		{`"ipsetsRefreshInterval":"3s"`, map[string]string{"Refresh.Policy": "3s"}},
		{`"routeRefreshInterval":"4s"`, map[string]string{"Refresh.Routes": "4s"}},
		{`"interfaceRefreshInterval":"5s"`, map[string]string{"Refresh.Interfaces": "5s"}},
		{`"natOutgoingAddress":"192.0.2.7"`, map[string]string{"NAT.Addr": "192.0.2.7"}},
		{`"natPortRange":"1000:2000"`, map[string]string{"NAT.Ports.Min": "1000", "NAT.Ports.Max": "2000"}},
		{`"natOutgoingExclusions":"IPPoolsAndHostIPs"`, map[string]string{"NAT.Pool": "[10.65.0.0/16 192.0.2.2/32]"}},
		{`"iptablesNATOutgoingInterfaceFilter":"eth+"`, map[string]string{"NAT.Link": "eth*"}},
	} {
		got := hostFields(t, tt.spec)
		maps.DeleteFunc(got, func(field, value string) bool { return none[field] == value })
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s changes %v, want %v", tt.spec, got, tt.want)
		}
		for field := range tt.want {
			covered[field] = true
		}
	}
	covered["WireGuard.Hosts"], covered["WireGuard.InClear"] = true, true                                      // Nodes have a say: TestWhatOfHostsIsEncrypted, TestIntentsAreWhatTheResourcesSay
	covered["NAT.From"] = true                                                                                 // the pools say it: TestPoolsSayWhoLeavesWithTheHostsAddress
	covered["Tunnels"] = true                                                                                  // so do they: TestHowOtherHostsAreReached
	covered["LocalSubnet.Except"] = true                                                                       // pools and Nodes say it: TestIntentsAreWhatTheResourcesSay
	covered["Services.Cluster"], covered["Services.External"], covered["Services.Balancer"] = true, true, true // BGPConfigurations say it: TestIntentsAreWhatTheResourcesSay
	covered["Inside"] = true                                                                                   // so do they, and Nodes: TestIntentsAreWhatTheResourcesSay
	covered["MTU.Own"], covered["MTU.Wanted"] = true, true                                                     // and so do Nodes and pools: TestIntentsAreWhatTheResourcesSay
	if all := slices.Sorted(maps.Keys(none)); !slices.Equal(all, slices.Sorted(maps.Keys(covered))) {
		t.Errorf("fields of intent.HostSettings are %v, and the lines have %v", all, slices.Sorted(maps.Keys(covered)))
	}
}

// hostFields are the fields of the intent for the host, by their path, of a node with a FelixConfiguration of that spec.
func hostFields(t *testing.T, spec string) map[string]string {
	t.Helper()
	g := New("h1")
	g.Update([]api.Update{
		poolUpdate("a", `"cidr":"10.65.0.0/16","natOutgoing":true`),
		{Key: api.ResourcesPrefix + "nodes/h2", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`)},
		{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{` + spec + `}}`)},
	})
	if problems := g.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	out := map[string]string{}
	flatten(out, "", reflect.ValueOf(*g.Flush().Host))
	return out
}

// flatten writes each field of a struct of package intent, and of those in it.
func flatten(out map[string]string, path string, v reflect.Value) {
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != reflect.TypeFor[intent.HostSettings]().PkgPath() {
		out[path] = fmt.Sprint(v.Interface())
		return
	}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if path != "" {
			name = path + "." + name
		}
		flatten(out, name, v.Field(i))
	}
}
