package translate

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unscheduled is the node on which [Place] puts pods that have none.
const unscheduled = "unscheduled"

// Place gives pods that have not started the node and addresses that they lack, so that questions about manifests can be
// asked before there is a cluster: 198.18.0.0/15 (RFC 2544, section C.2.2) and 2001:db8::/32 (RFC 3849) belong to nobody.
// It says whom it gave what. Pods that have an address already, are in a host's network, or have ended stay as they are.
func Place(objects []Object) (notes []string) {
	taken := map[uint32]bool{}
	for _, o := range objects {
		p, ok := o.object.(*corev1.Pod)
		if !ok || p.Spec.HostNetwork || ended(p) || NoEndpoint(p) == "" {
			continue
		}
		var reasons []string
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = unscheduled
			reasons = append(reasons, "node "+unscheduled)
		}
		if len(podIPs(p)) == 0 {
			v4, v6 := spare(o.Name(), taken)
			p.Status.PodIPs = []corev1.PodIP{{IP: v4.String()}, {IP: v6.String()}}
			reasons = append(reasons, fmt.Sprintf("addresses %s and %s", v4, v6))
		}
		notes = append(notes, fmt.Sprintf("pod %s has not started; assumed: %s", o.Name(), strings.Join(reasons, ", ")))
	}
	return notes
}

// spare is a pair of addresses that depends on the name, so that a manifest more does not change those of others.
func spare(name string, taken map[uint32]bool) (v4, v6 netip.Addr) {
	h := fnv.New32a()
	h.Write([]byte(name))
	n := h.Sum32() % (1 << 17)
	for taken[n] || n == 0 {
		n = (n + 1) % (1 << 17)
	}
	taken[n] = true
	v4 = netip.AddrFrom4([4]byte{198, byte(18 + n>>16), byte(n >> 8), byte(n)})
	return v4, netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
}
