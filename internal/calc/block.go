package calc

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/ipset"
	"github.com/twillnet/twill/internal/calc/route"
	"github.com/twillnet/twill/internal/intent"
)

// block takes over which node a block belongs to, and who has borrowed addresses of it.
func (g *Graph) block(u api.Update) {
	if u.Value == nil {
		g.found(u.Key, nil)
		g.reach.SetBlock(u.Key, route.Block{})
		return
	}
	p, owner, _, err := api.BlockOwner(u)
	if err != nil {
		g.kept(u.Key, err, false) // a missing route allows nothing: the node is ready without it
		return
	}
	b := route.Block{CIDR: p}
	if owner.Type == api.OwnerHost {
		b.Owner = owner.Name
	}
	var problems []api.Problem
	if b.Lent, err = api.Borrowed(u, b.Owner); err != nil {
		reason := "; nothing leads to such an address if it is borrowed"
		if b.Lent == nil {
			b.Lent, reason = g.reach.Lent(u.Key), "; what was known of addresses that are borrowed stays in force"
		}
		problems = []api.Problem{{Key: u.Key, Reason: err.Error() + reason}}
	}
	g.found(u.Key, problems)
	g.reach.SetBlock(u.Key, b)
}

// pool is the part of an IPPool that hosts use, of one that counts.
type pool struct {
	cidr netip.Prefix
	nat  bool
	has  bool // workloads' addresses, floating ones among them
	bare bool // no tunnel leads to its addresses
}

// putPool takes over a pool, whose CIDR is valid: else it would not have been admitted; nil: it was deleted. What hosts do follows from those that count.
func (g *Graph) putPool(key string, r *api.IPPool) {
	g.dirtyHost, g.floats.all = true, true
	if g.ippools[key] = r; r == nil {
		delete(g.ippools, key)
	}
	old := g.pools
	g.pools = map[netip.Prefix]pool{}
	for _, r := range api.FirstOfEachCIDR(g.ippools) {
		for _, cidr := range prefixes([]string{r.Spec.CIDR}) {
			way := wayOf(cidr, r.Spec)
			g.pools[cidr] = pool{cidr, r.Spec.NATOutgoing, len(r.Spec.AllowedUses) == 0 || slices.Contains(r.Spec.AllowedUses, "Workload"), way.Mode == route.ByBGP}
			g.reach.SetPool(cidr, way)
			delete(old, cidr)
		}
	}
	for cidr := range old {
		g.reach.SetPool(cidr, route.Pool{})
	}
}

// wayOf is how packets to addresses of a pool reach other hosts. A pool has one mode at most: else it would not have been admitted.
func wayOf(cidr netip.Prefix, s api.IPPoolSpec) route.Pool {
	p := route.Pool{CIDR: cidr, Mode: modes[s.VXLANMode]}
	switch ipip := modes[s.IPIPMode]; {
	case p.Mode != route.ByBGP && cidr.Addr().Is6():
		p.By = intent.VXLAN6
	case p.Mode == route.ByBGP && ipip != route.ByBGP && cidr.Addr().Is4():
		p.Mode, p.By = ipip, intent.IPIP
	}
	return p
}

// modes are those of IPPools; any other value leaves a pool to BGP.
var modes = map[string]route.Mode{"Always": route.Always, "CrossSubnet": route.CrossSubnet}

// natOutgoing returns the pools whose packets are masqueraded, and the destinations for which they are not.
func (g *Graph) natOutgoing() intent.NATOutgoing {
	var n intent.NATOutgoing
	for _, p := range g.pools {
		n.Pool = append(n.Pool, p.cidr)
		if p.nat {
			n.From = append(n.From, p.cidr)
		}
	}
	if len(n.From) == 0 {
		return intent.NATOutgoing{}
	}
	s := g.config.Settings.NAT
	n.Addr, n.Ports, n.Link = s.Addr, intent.PortRange{Min: s.Ports[0], Max: s.Ports[1]}, s.Link
	if s.Exclusions == "IPPoolsAndHostIPs" {
		for _, as := range g.nodes {
			n.Pool = append(n.Pool, as...)
		}
	}
	n.From, n.Pool = ordered(n.From), ordered(n.Pool)
	return n
}

// localSubnet returns for which addresses of workloads the host answers on its networks. An address must be in a pool, which says that it is a workload's, and
// be no node's: else whoever may write an endpoint could take the address of a router.
func (g *Graph) localSubnet() (l intent.LocalSubnet) {
	if g.config.Settings.LocalSubnet != "PodsAndLoadBalancers" {
		return l
	}
	for _, p := range g.pools {
		if p.has && p.bare {
			l.Pools = append(l.Pools, p.cidr)
		}
	}
	for _, as := range g.nodes {
		for _, a := range as {
			if l.Has(a.Addr()) {
				l.Except = append(l.Except, a)
			}
		}
	}
	l.Pools, l.Except, l.Again = ordered(l.Pools), ordered(l.Except), g.config.Settings.LocalSubnetAgain
	return l
}

// ordered sorts prefixes, each once.
func ordered(ps []netip.Prefix) []netip.Prefix {
	slices.SortFunc(ps, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return slices.Compact(ps)
}

// inside returns all pools and all nodes' addresses, if an endpoint needs to know what is outside of them.
func (g *Graph) inside() (out []netip.Prefix) {
	if g.sent.marked == 0 {
		return nil
	}
	for _, p := range g.pools {
		out = append(out, p.cidr)
	}
	for _, as := range g.nodes {
		out = append(out, as...)
	}
	return ordered(out)
}

// putNode takes over a node's addresses; nil: it was deleted.
func (g *Graph) putNode(key, name string, r *api.Node) {
	g.dirtyHost = true
	delete(g.nodes, key)
	g.floats.ofNode(key, r)
	if r == nil {
		if old := g.hosts.Remove(key); old != nil {
			g.tally(key, -1)
			g.hostSets.Replaced(old, nil)
		}
		g.reach.SetNode(name, route.Node{})
		return
	}
	g.reach.SetNode(name, reachedBy(name, r))
	var texts []string
	if b := r.Spec.BGP; b != nil {
		texts = append(texts, b.IPv4Address, b.IPv6Address)
	}
	for _, a := range r.Spec.Addresses {
		texts = append(texts, a.Address)
	}
	for _, text := range texts {
		text, _, _ = strings.Cut(text, "/") // with the length of its network's prefix
		if a, err := netip.ParseAddr(text); err == nil {
			g.nodes[key] = append(g.nodes[key], netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		}
	}
	labels, old := maps.Clone(r.Metadata.Labels), g.hosts.Get(key)
	if old == nil {
		g.tally(key, 1)
	}
	g.hostSets.Replaced(old, g.hosts.Put(key, forced(labels, api.LabelNode, name), nil, ipset.Source{Addrs: ipset.Pack(g.nodes[key])}))
}
