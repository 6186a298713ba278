package calctest

import (
	"encoding/base64"
	"fmt"
)

// wireguardEnd gives a node keys of WireGuard, at times those of the first node, and addresses.
func (w *Cluster) wireguardEnd(i int, node object) {
	status := object{}
	for f, field := range []string{"wireguardPublicKey", "wireguardPublicKeyV6"} {
		if w.maybe(0.7) {
			b := make([]byte, 32)
			if b[0], b[1] = byte(f), byte(i); w.maybe(0.1) {
				b[1] = 1
			}
			b[31] = 1
			status[field] = base64.StdEncoding.EncodeToString(b)
		}
	}
	node["status"] = status
	if w.maybe(0.5) {
		node["spec"].(object)["wireguard"] = object{"interfaceIPv4Address": fmt.Sprintf("10.65.7.%d", i)}
	}
}
