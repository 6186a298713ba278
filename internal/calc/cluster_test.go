package calc

import (
	"testing"

	"github.com/twillnet/twill/api"
)

func TestWhatTheClusterHasIsCounted(t *testing.T) {
	g := New("h1")
	check := func(what string, want Cluster) {
		t.Helper()
		if got := g.Cluster(); got != want {
			t.Errorf("%s: got  %+v\nwant %+v", what, got, want)
		}
	}
	update := func(key, doc string) {
		u := api.Update{Key: api.ResourcesPrefix + key}
		if doc != "" {
			u.Value = []byte(doc)
		}
		g.Update([]api.Update{u})
	}
	check("nothing", Cluster{})
	keys := map[string]string{
		"clusterinformations/default":         `{"spec":{"clusterGUID":"0123","clusterType":"twill","calicoVersion":"v3.30.0"}}`,
		"nodes/h1":                            `{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`,
		"nodes/h2":                            `{"spec":{}}`,
		"workloadendpoints/a/h1-cni-w1-eth0":  `{"spec":{"node":"h1","ipNetworks":["10.0.0.1/32"],"interfaceName":"cali1"}}`,
		"workloadendpoints/a/h9-cni-w2-eth0":  `{"spec":{"node":"h9","ipNetworks":["10.0.0.2/32"]}}`,
		"hostendpoints/eth0":                  `{"spec":{"node":"h2","interfaceName":"eth0"}}`,
		"networksets/a/s":                     `{"spec":{"nets":["10.1.0.0/16"]}}`,
		"networkpolicies/a/default.p":         `{"spec":{"selector":"all()"}}`,
		"stagednetworkpolicies/a/default.p":   `{"spec":{"selector":"all()","stagedAction":"Set"}}`,
		"globalnetworkpolicies/default.p":     `{"spec":{"selector":"all()"}}`,
		"profiles/p":                          `{"spec":{}}`,
		"workloadendpoints/a/h9-cni-bad-eth0": `nonsense`,
	}
	for range 2 { // the second time each is there already
		for key, doc := range keys {
			update(key, doc)
		}
	}
	all := Cluster{GUID: "0123", Type: "twill", CalicoVersion: "v3.30.0", Hosts: 2, WorkloadEndpoints: 2, HostEndpoints: 1, Policies: 3, Profiles: 1}
	check("all", all)
	g.SetInSync()
	all.Known = true
	check("in sync", all)
	for range 2 {
		for key := range keys {
			update(key, "")
		}
	}
	check("all is gone", Cluster{GUID: "0123", Type: "twill", CalicoVersion: "v3.30.0", Known: true})
}
