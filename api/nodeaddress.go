package api

import (
	"net/netip"
	"strings"
)

// AddressOf returns the address by which other hosts reach a node, with the length of its network, or of one address if none is said; the zero
// Prefix: it has none of the family. It is that of spec.bgp, else the first of type InternalIP, else the first of type ExternalIP.
func (n *Node) AddressOf(six bool) netip.Prefix {
	if n.Spec.BGP != nil && n.Spec.BGP.text(six) != "" {
		return n.BGPAddress(six)
	}
	for _, typ := range []string{"InternalIP", "ExternalIP"} {
		for _, a := range n.Spec.Addresses {
			if p := nodePrefix(a.Address, six); a.Type == typ && p.IsValid() {
				return p
			}
		}
	}
	return netip.Prefix{}
}

// BGPAddress returns the address of which a node has its BGP sessions: that of spec.bgp alone, in the form of AddressOf. A node without one of
// a family takes no part in BGP of it, whatever other addresses it has.
func (n *Node) BGPAddress(six bool) netip.Prefix {
	if n.Spec.BGP == nil {
		return netip.Prefix{}
	}
	return nodePrefix(n.Spec.BGP.text(six), six)
}

func (b *NodeBGPSpec) text(six bool) string {
	if six {
		return b.IPv6Address
	}
	return b.IPv4Address
}

// nodePrefix reads an address of a family, with or without the length of its network.
func nodePrefix(text string, six bool) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	if err != nil && !strings.Contains(text, "/") {
		var a netip.Addr
		if a, err = netip.ParseAddr(text); err == nil {
			p = netip.PrefixFrom(a, a.BitLen())
		}
	}
	if err != nil || p.Addr().Is4() == six {
		return netip.Prefix{}
	}
	return p
}
