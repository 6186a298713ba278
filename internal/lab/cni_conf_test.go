package lab

import (
	"net/netip"
	"testing"
)

// cniPools are the pools of a caller.
const cniPools = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: four}
spec: {cidr: 10.66.0.0/16}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: "fd66::/48"}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: asked}
spec: {cidr: 10.67.0.0/24, assignmentMode: Manual}
`

func namedPools(t *testing.T, r *caller) {
	for _, pools := range []string{`["10.67.0.0/24"]`, `["asked"]`} {
		l, c := r.list("net", `{"type": "calico-ipam", "ipv4_pools": `+pools+`}`), r.container()
		r.add(l, c)
		if len(c.addrs) != 1 || !netip.MustParsePrefix("10.67.0.0/24").Contains(c.addrs[0]) {
			t.Errorf("of %s: %v", pools, c.addrs)
		}
		r.del(l, c)
	}
}

func withMTU(t *testing.T, r *caller) {
	l, c := r.list("net", both+`, "mtu": 1380`), r.container()
	got := r.add(l, c)
	defer r.del(l, c)
	for where, mtu := range map[string]int{"the container": c.Link("eth0").MTU, "the host": r.link(got.Interfaces[0].Name).MTU} {
		if mtu != 1380 {
			t.Errorf("in %s the MTU is %d", where, mtu)
		}
	}
}
