package speaker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// cluster is hosts of 192.0.2.0/24, h1 and up, on one bridge, each with a speaker that has the plan of the same
// resources.
func cluster(t *testing.T, n int, resources string) []*host {
	t.Helper()
	t.Parallel()
	w := plan.New()
	for i := range n {
		resources = fmt.Sprintf("kind: Node\nmetadata: {name: h%d}\nspec: {bgp: {ipv4Address: 192.0.2.%d/24}}\n---\n", i+1, i+1) + resources
	}
	docs, err := api.Decode([]byte(strings.ReplaceAll(resources, "kind:", "apiVersion: projectcalico.org/v3\nkind:")))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		key, _ := api.Key(d.Resource)
		value, err := api.EncodeStored(d.Resource)
		if err != nil {
			t.Fatal(err)
		}
		w.Update(api.Update{Key: key, Value: value})
	}
	var hosts []*host
	for i := range n {
		h := &host{NS: netnstest.New(t), t: t}
		if hosts = append(hosts, h); i == 0 {
			if err := h.Rtnl().AddBridge("br0"); err != nil {
				t.Fatal(err)
			}
			h.Up("br0")
			h.Addr("br0", "192.0.2.1/24")
			continue
		}
		port := fmt.Sprintf("p%d", i)
		hosts[0].VethTo(h.NS, port, "eth0")
		if err := hosts[0].Rtnl().SetMaster(hosts[0].Link(port).Index, hosts[0].Link("br0").Index); err != nil {
			t.Fatal(err)
		}
		h.Addr("eth0", fmt.Sprintf("192.0.2.%d/24", i+1))
	}
	for i, h := range hosts {
		h.agent(fmt.Sprintf("10.65.%d.0/26", i+1))
		h.start(w.Plan(fmt.Sprintf("h%d", i+1)))
	}
	return hosts
}

// TestAReflectorIsNamedByItsAddress: it has a session with each node, although no BGPPeer is for it, and reflects.
func TestAReflectorIsNamedByItsAddress(t *testing.T) {
	hosts := cluster(t, 3, `
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false, asNumber: 65000}
---
kind: IPPool
metadata: {name: p}
spec: {cidr: 10.65.0.0/16}
---
kind: Node
metadata: {name: h2}
spec: {bgp: {ipv4Address: 192.0.2.2/24, routeReflectorClusterID: 244.0.0.1}}
---
kind: BGPPeer
metadata: {name: rr}
spec: {peerIP: 192.0.2.2}
`)
	hosts[1].up("192.0.2.1", "192.0.2.3")
	hosts[0].wantRoute("10.65.3.0/26 via 192.0.2.3")
	hosts[2].wantRoute("10.65.1.0/26 via 192.0.2.1")
}
