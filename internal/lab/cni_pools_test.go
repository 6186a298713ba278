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
