// Package ifmon tells which network interfaces there are, whether they are up, and what addresses they have.
package ifmon

import "net/netip"

// Link is the state of one interface.
type Link struct {
	Index int
	Name  string
	Up    bool // administratively up and with a carrier: routes through it work
	Addrs []netip.Prefix
}

// Change is the present state of an interface by name; Gone if there is none.
type Change struct {
	Link
	Gone bool
}
