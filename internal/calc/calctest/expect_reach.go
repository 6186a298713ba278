package calctest

import (
	"crypto/sha1" //nolint:gosec // the hardware addresses of tunnels are made of it; nothing secret
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// expectedBlock is a block of addresses: whose it is, and which addresses others have of it.
type expectedBlock struct {
	key   string
	cidr  netip.Prefix
	owner string
	lent  map[netip.Addr]string
}

// block reads one.
func (x *expected) block(u api.Update) {
	var b struct {
		CIDR        netip.Prefix
		Affinity    *string
		Allocations []*int
		Attributes  []struct {
			Secondary  map[string]string
			ReleasedAt string
		}
	}
	if json.Unmarshal(u.Value, &b) != nil {
		return
	}
	out := expectedBlock{key: u.Key, cidr: b.CIDR, lent: map[netip.Addr]string{}}
	if b.Affinity != nil {
		out.owner, _ = strings.CutPrefix(*b.Affinity, "host:")
	}
	for a, i := b.CIDR.Addr(), 0; i < len(b.Allocations); a, i = a.Next(), i+1 {
		if at := b.Allocations[i]; at != nil && *at >= 0 && *at < len(b.Attributes) && b.Attributes[*at].ReleasedAt == "" {
			out.lent[a] = b.Attributes[*at].Secondary["node"]
		}
	}
	x.blocks = append(x.blocks, out)
}

// expectedEnd is a node's end of a tunnel; an empty addr: it has none.
type expectedEnd struct{ host, addr, mac, key string }

// kinds are those of tunnels: VXLAN of IPv4 and of IPv6, IPIP, which is that of pools with a mode for it, and WireGuard of IPv4 and of IPv6.
const kinds, ipip, wireguard = 5, 2, 3

// network is a node's address of a family, with the length of its network: of BGP, else an internal or external one.
func network(n *api.Node, family int) string {
	best, rank := "", 0
	weigh := func(text string, r int) {
		if text != "" && strings.Contains(text, ":") == (family == 1) && r > rank {
			best, rank = text, r
		}
	}
	for _, a := range n.Spec.Addresses {
		weigh(a.Address, map[string]int{"ExternalIP": 1, "InternalIP": 2}[a.Type])
	}
	if n.Spec.BGP != nil {
		weigh(n.Spec.BGP.IPv4Address, 3)
		weigh(n.Spec.BGP.IPv6Address, 3)
	}
	if best != "" && !strings.Contains(best, "/") {
		best += [2]string{"/32", "/128"}[family]
	}
	return best
}

// end is a node's for a kind, and its network.
func (x *expected) end(name string, f int) (e expectedEnd, net string) {
	n := x.nodes[name]
	if n == nil {
		return e, ""
	}
	net = network(n, [kinds]int{0, 1, 0, 0, 1}[f])
	e.host, _, _ = strings.Cut(net, "/")
	if f >= wireguard {
		e.key = [2]string{n.Status.WireguardPublicKey, n.Status.WireguardPublicKeyV6}[f-wireguard]
		if e.addr = "invalid IP"; n.Spec.Wireguard != nil {
			if a := [2]string{n.Spec.Wireguard.InterfaceIPv4Address, n.Spec.Wireguard.InterfaceIPv6Address}[f-wireguard]; a != "" {
				e.addr = a
			}
		}
		return e, net
	}
	if f == ipip {
		if n.Spec.BGP != nil {
			e.addr = n.Spec.BGP.IPv4IPIPTunnelAddr
		}
		return e, net
	}
	e.addr = [2]string{n.Spec.IPv4VXLANTunnelAddr, n.Spec.IPv6VXLANTunnelAddr}[f]
	sum := sha1.Sum([]byte(name + [2]string{"", "-v6"}[f])) //nolint:gosec // see above
	e.mac = "66"
	for _, b := range sum[:5] {
		e.mac += ":" + hex.EncodeToString([]byte{b})
	}
	if own := [2]string{n.Spec.VXLANTunnelMACAddr, n.Spec.VXLANTunnelMACAddrV6}[f]; own != "" {
		e.mac = own
	}
	return e, net
}

// works reports whether a node may have its end of a tunnel: no node before it, by name, says that it has the same.
func (x *expected) works(name string, f int) bool {
	e, _ := x.end(name, f)
	if f >= wireguard {
		for other := range x.nodes {
			if o, _ := x.end(other, f); other < name && o.key == e.key {
				return false
			}
		}
		return e.key != "" && e.host != ""
	}
	for other := range x.nodes {
		if o, _ := x.end(other, f); other < name && o.addr != "" && (o.addr == e.addr || o.mac == e.mac && e.mac != "") {
			return false
		}
	}
	return e.addr != "" && e.host != ""
}

// tunnels is whether this node has a tunnel.
func (x *expected) tunnels(f int) bool {
	if f >= wireguard { // also before it has a key
		e, _ := x.end(x.node, f)
		return e.host != "" && x.asked(f)
	}
	return x.works(x.node, f) && x.asked(f)
}

// asked is whether this node should have a tunnel.
func (x *expected) asked(f int) bool {
	if f >= wireguard {
		return setting(x, flag(func(s api.FelixConfigurationSpec) *bool {
			return [2]*bool{s.WireguardEnabled, s.WireguardEnabledV6}[f-wireguard]
		}), false)
	}
	on := f == 1 || setting(x, flag(func(s api.FelixConfigurationSpec) *bool {
		if f == ipip {
			return s.IPIPEnabled
		}
		return s.VXLANEnabled
	}), true)
	return on && slices.ContainsFunc(x.pools, func(p *api.IPPool) bool {
		mode, kind := modeOf(p)
		return mode != "" && kind == f
	})
}

// peers are the other nodes at the ends of the tunnels, as lines, and the set of their hosts.
func (x *expected) peers() (out []string) {
	all := [3]map[string]bool{}
	for f := range kinds {
		if !x.tunnels(f) {
			out = append(out, fmt.Sprintf("tunnel %d none", f))
			continue
		}
		set := []int{0, 0, 1, 2, 2}[f]
		if all[set] == nil {
			all[set] = map[string]bool{}
			for _, text := range x.external() {
				all[set][text] = true
			}
		}
		e, _ := x.end(x.node, f)
		out = append(out, fmt.Sprintf("tunnel %d %s %s %s", f, e.host, e.addr, e.mac))
		for name := range x.nodes {
			if e, _ := x.end(name, f); name != x.node && x.works(name, f) {
				out = append(out, fmt.Sprintf("peer %s %d %s %s %s", name, f, e.host, e.addr, e.mac+e.key))
				all[set][e.host] = true
			}
		}
	}
	for i, hosts := range all {
		if hosts != nil {
			out = append(out, fmt.Sprint([]string{"vxlan", "ipip", "wireguard"}[i], "-peers ", slices.Sorted(maps.Keys(hosts))))
		}
	}
	return out
}

// external are the hosts that are no Nodes, as settings say.
func (x *expected) external() []string {
	return setting(x, func(s api.FelixConfigurationSpec) ([]string, bool) {
		if s.ExternalNodesList == nil {
			return nil, false
		}
		return *s.ExternalNodesList, true
	}, nil)
}

// encrypted is whether addresses of a node are reached by WireGuard or not at all.
func (x *expected) encrypted(dst netip.Prefix, node string) bool {
	w := wireguard
	if dst.Addr().Is6() {
		w++
	}
	clear := setting(x, flag(func(s api.FelixConfigurationSpec) *bool { return s.WireguardAllowUnencrypted }), false)
	return x.asked(w) && (!clear || x.tunnels(w) && x.works(node, w))
}

// modeOf is the mode of a pool and its kind of tunnel; empty: none.
func modeOf(p *api.IPPool) (mode string, kind int) {
	for i, m := range []string{p.Spec.VXLANMode, p.Spec.IPIPMode} {
		if six := netip.MustParsePrefix(p.Spec.CIDR).Addr().Is6(); m == "Always" || m == "CrossSubnet" {
			switch {
			case i == 1:
				return m, ipip
			case six:
				return m, 1
			}
			return m, 0
		}
	}
	return "", 0
}

// mode is that of the smallest pool that a prefix is in.
func (x *expected) mode(p netip.Prefix) (mode string, kind int) {
	bits := -1
	for _, pool := range x.pools {
		if cidr := netip.MustParsePrefix(pool.Spec.CIDR); cidr.Contains(p.Addr()) && cidr.Bits() <= p.Bits() && cidr.Bits() > bits {
			bits = cidr.Bits()
			mode, kind = modeOf(pool)
		}
	}
	return mode, kind
}

// plain is how addresses of a pool without a tunnel are reached: straight, if settings say so, and else by BGP.
func (x *expected) plain(block netip.Prefix) string {
	in := slices.ContainsFunc(x.pools, func(p *api.IPPool) bool {
		cidr := netip.MustParsePrefix(p.Spec.CIDR)
		return cidr.Contains(block.Addr()) && cidr.Bits() <= block.Bits()
	})
	routes := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.ProgramClusterRoutes }), "")
	if in && (routes == "Enabled" || routes == "EnabledNoEncapOnly") {
		return "straight"
	}
	return ""
}

// way is one of several routes to a destination: that of the smallest rank is taken, and then of the first block.
type way struct {
	rank int
	key  string
	text string
}

// ways are the routes to blocks, as text, by destination: own ones lead nowhere, and others to their hosts as the pools say.
func (x *expected) ways() map[netip.Prefix]string {
	all := map[netip.Prefix][]way{}
	add := func(b expectedBlock, dst netip.Prefix, node string) {
		mode, f := x.mode(b.cidr)
		if node == x.node && dst == b.cidr && b.owner == x.node && !b.cidr.IsSingleIP() {
			all[dst] = append(all[dst], way{1, b.key, "blackhole"})
		}
		if node == "" || node == x.node {
			return
		}
		if x.encrypted(dst, node) {
			all[dst] = append(all[dst], way{4, b.key, "encrypted to " + node})
			return
		}
		if mode == "" {
			if f = 0; dst.Addr().Is6() {
				f = 1
			}
			mode = x.plain(b.cidr)
		}
		to, _ := x.end(node, f)
		_, here := x.end(x.node, f)
		net, err := netip.ParsePrefix(here)
		if host, herr := netip.ParseAddr(to.host); mode != "Always" && mode != "" && err == nil && herr == nil && net.Masked().Contains(host) {
			all[dst] = append(all[dst], way{3, b.key, "direct " + to.host})
			return
		}
		if mode == "" || mode == "straight" {
			return
		}
		text := "unreachable"
		if x.tunnels(f) && x.works(node, f) {
			text = "tunnel " + to.addr
			if f == ipip {
				text = "tunnel " + to.host
			}
		}
		all[dst] = append(all[dst], way{2, b.key, text})
	}
	for _, b := range x.blocks {
		if node := b.lent[b.cidr.Addr()]; b.cidr.IsSingleIP() && node != "" {
			add(b, b.cidr, node)
		} else {
			add(b, b.cidr, b.owner)
		}
		for a, node := range b.lent {
			if dst := netip.PrefixFrom(a, a.BitLen()); node != b.owner && dst != b.cidr {
				add(b, dst, node)
			}
		}
	}
	return nearest(all)
}

// nearest returns the text of the first way to each destination.
func nearest(all map[netip.Prefix][]way) map[netip.Prefix]string {
	out := map[netip.Prefix]string{}
	for dst, ws := range all {
		out[dst] = slices.MinFunc(ws, func(a, b way) int {
			if a.rank != b.rank {
				return a.rank - b.rank
			}
			return strings.Compare(a.key, b.key)
		}).text
	}
	return out
}
