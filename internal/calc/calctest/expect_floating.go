package calctest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// floatingAsk is a floating address that a workload asks for.
type floatingAsk struct {
	external, internal, created, key string
	neutrons                         bool // OpenStack's
}

// floatingOf are the floating addresses that a workload has: those in pools for workloads that nobody has as its own, if it asked first. OpenStack's are
// before all others, also in no pool, and also where floating addresses are disabled.
func (x *expected) floatingOf(key string) (out []floatingAsk) {
	enabled := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.FloatingIPs }), "Disabled") == "Enabled"
	for _, a := range x.asks {
		addr, err := netip.ParseAddr(a.external)
		if a.key != key || err != nil || !a.neutrons && !(enabled && x.forWorkloads(addr)) || slices.Contains(x.taken(), addr) {
			continue
		}
		if !slices.ContainsFunc(x.asks, func(o floatingAsk) bool {
			if o.external != a.external || o.key == a.key || o.neutrons != a.neutrons {
				return o.external == a.external && o.neutrons && !a.neutrons
			}
			known := (o.created != "") == (a.created != "")
			return !known && o.created != "" || known && (o.created < a.created || o.created == a.created && o.key < a.key)
		}) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b floatingAsk) int {
		return netip.MustParseAddr(a.external).Compare(netip.MustParseAddr(b.external))
	})
	return out
}

func (x *expected) forWorkloads(a netip.Addr) bool {
	in := false
	for _, p := range x.pools {
		cidr, err := netip.ParsePrefix(p.Spec.CIDR)
		if err == nil && cidr.Contains(a) {
			if in = true; len(p.Spec.AllowedUses) > 0 && !slices.Contains(p.Spec.AllowedUses, "Workload") {
				return false
			}
		}
	}
	return in
}

// taken are the addresses that workloads and nodes have as their own.
func (x *expected) taken() (out []netip.Addr) {
	out = append(out, x.ownAddresses...)
	for _, n := range x.nodes {
		texts := []string{n.Spec.IPv4VXLANTunnelAddr, n.Spec.IPv6VXLANTunnelAddr}
		if n.Spec.BGP != nil {
			texts = append(texts, n.Spec.BGP.IPv4Address, n.Spec.BGP.IPv6Address, n.Spec.BGP.IPv4IPIPTunnelAddr)
		}
		for _, a := range n.Spec.Addresses {
			texts = append(texts, a.Address)
		}
		for _, t := range texts {
			if a, err := netip.ParseAddr(strings.Split(t, "/")[0]); err == nil {
				out = append(out, a)
			}
		}
	}
	return out
}

// floatingLines are the floating addresses of a workload.
func (x *expected) floatingLines(l expectedLocal) (out []string) {
	for _, a := range x.floatingOf(l.key) {
		out = append(out, fmt.Sprintf("%s floating %s for %s", l.id, a.external, netip.MustParseAddr(a.internal)))
	}
	return out
}
