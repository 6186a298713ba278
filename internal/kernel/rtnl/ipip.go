package rtnl

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// AddIPIP makes a device of no end of its own that is down: what it sends goes to the next hop of its route, in an IPv4 packet (RFC 2003).
// ErrExists: there is one of that name, or the kernel made it just now, with the module.
func (h *Handle) AddIPIP(name string) error {
	return wrap(h.nl.LinkAdd(&netlink.Iptun{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}, PMtuDisc: 1}), "add %s", name)
}

// Bare takes a link's addresses and its alias, and turns it off: for one that the kernel made and nobody can delete.
func (h *Handle) Bare(index int) error {
	addrs, err := h.Addrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if a.Link != index {
			continue
		}
		if err := h.DeleteAddr(a); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return errors.Join(h.SetUp(index, false), h.SetAlias(index, ""))
}
