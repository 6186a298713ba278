package caliconode

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
)

// HostLocal is where the plugin host-local notes the addresses of the network that upstream's manifests make: a file each.
var HostLocal = "/var/lib/cni/networks/k8s-pod-network"

// upgrade is calico-ipam -upgrade, which upstream's manifests run before each start of a node: it takes over addresses that host-local
// gave out. A host on which it gave none is all that Twill takes; of others nothing is changed.
func (c *command) upgrade() int {
	has, err := addressesOf(HostLocal)
	switch {
	case err != nil:
		return c.refuse("calico-ipam -upgrade: addresses of host-local: %v", err)
	case len(has) > 0:
		return c.refuse("calico-ipam -upgrade: host-local gave out %d addresses here, %s among them (%s), and Twill does not take them over: drain the node, see that the directory is empty, and start again; or let the network's ipam.type be host-local, with which Twill works (docs/cni.md)",
			len(has), has[0], HostLocal)
	}
	fmt.Fprintln(c.Out, "calico-ipam -upgrade: host-local has no addresses here; there is nothing to do")
	return 0
}

// addressesOf are the names of files that are addresses; other files are host-local's own.
func addressesOf(dir string) (out []string, err error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		if _, err := netip.ParseAddr(f.Name()); err == nil {
			out = append(out, f.Name())
		}
	}
	return out, err
}
