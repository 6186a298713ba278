package config

import "testing"

// TestSettingsByUpstreamsNames: settings by upstream's names and in its forms, and no password.
func TestSettingsByUpstreamsNames(t *testing.T) {
	r := New("h1", Layer{Name: "file", Values: map[string]string{"etcdPassword": "secret", "interfacePrefix": "tap", "nftablesRefreshInterval": "1m30s", "routeRefreshInterval": "7"}})
	got := Upstream(r.Resolve().Values)
	for name, want := range map[string]string{
		"InterfacePrefix": "tap", "NftablesRefreshInterval": "90", "RouteRefreshInterval": "7", "DefaultEndpointToHostAction": "Drop", "VxlanVNI": "4096", "Ipv6Support": "true",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for name, value := range got {
		if value == "secret" || name == "EtcdPassword" || name == "EtcdEndpoints" {
			t.Errorf("%s is passed on", name)
		}
	}
}
