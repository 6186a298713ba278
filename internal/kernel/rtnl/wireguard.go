package rtnl

import "github.com/vishvananda/netlink"

// AddWireGuard makes a device of the kernel's own WireGuard, which is down and has no key. It is a kernel.UnsupportedError where the kernel has none.
func (h *Handle) AddWireGuard(name string) error {
	return wrap(h.nl.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}), "add %s", name)
}
