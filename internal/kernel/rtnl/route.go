package rtnl

import (
	"errors"
	"net"
	"net/netip"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a route of one table.
type Route struct {
	Dst     netip.Prefix // masked
	Kind    RouteKind
	Link    int        // the index of the link it leads to; 0 for a blackhole
	Gateway netip.Addr // the zero value: the destination is on the link
	Source  netip.Addr // what local processes send from; the zero value leaves it to the kernel
	OnLink  bool       // the gateway is on the link, although no route covers it
	// Global, of a route of IPv4 without a gateway: it is of global scope, and not of its link's. The kernel then takes one of the host's global addresses
	// as the source of what local processes send by it, and none of link scope; and what it leads to is a gateway only of routes with OnLink.
	Global   bool
	Protocol int  // who made it: see kernel.RouteProtocolAgent
	Metric   int  // 0 is the family's default, which for IPv6 the kernel shows as 1024
	Table    int  // 0 is main
	Hops     Hops // more than one next hop; Link, Gateway and OnLink are zero then
}

// RouteKind is what a route does with packets.
type RouteKind uint8

// Kinds of routes. A listed route of another kind is Other.
const (
	Unicast RouteKind = iota
	Blackhole
	Unreachable
	Throw // the table says nothing; the next rule decides
	Other
)

const defaultMetric6 = kernel.RouteMetricDefault6

// RouteFilter selects routes to list. Zero fields match all.
type RouteFilter struct {
	Protocol int
	Table    int // zero is main
	Link     int
	Match    func(Route) bool // nil: all
}

// Routes lists the routes of both families that match; but for Match the kernel does the matching.
func (h *Handle) Routes(f RouteFilter) ([]Route, error) {
	filter := &netlink.Route{Protocol: netlink.RouteProtocol(f.Protocol), Table: tableOf(f.Table), LinkIndex: f.Link}
	mask := netlink.RT_FILTER_TABLE
	if f.Protocol != 0 {
		mask |= netlink.RT_FILTER_PROTOCOL
	}
	if f.Link != 0 {
		mask |= netlink.RT_FILTER_OIF
	}
	var out []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var part []Route
		err := dump(func() error {
			part = part[:0]
			return h.nl.RouteListFilteredIter(family, filter, mask, func(r netlink.Route) bool {
				if is := fromRoute(r); f.Match == nil || f.Match(is) {
					part = append(part, is)
				}
				return true
			})
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // the family has no such table, and so no such routes
			return nil, wrap(err, "list routes")
		}
		out = append(out, part...)
	}
	return out, nil
}

// AddRoute adds a route. It is ErrExists if there is one with that destination, metric and table, whoever made it.
func (h *Handle) AddRoute(r Route) error { return h.one(func(b *Batch) { b.AddRoute(r) }) }

// ReplaceRoute is [Batch.ReplaceRoute] alone.
func (h *Handle) ReplaceRoute(r Route) error { return h.one(func(b *Batch) { b.ReplaceRoute(r) }) }

// AddRouteOver is AddRoute of a route of IPv6 whose gateway is on its link, although a route of somebody else's leads to the gateway by another link.
// The kernel refuses that (EINVAL; ip6_route_check_nh_onlink in net/ipv6/route.c) but looks only when the route is added: so long there is a route to
// the gateway alone.
func (h *Handle) AddRouteOver(r Route) error {
	gateway := Route{Dst: netip.PrefixFrom(r.Gateway, r.Gateway.BitLen()), Link: r.Link, Table: r.Table, Protocol: unix.RTPROT_BOOT, Metric: 1}
	err := h.AddRoute(gateway)
	if errors.Is(err, ErrExists) {
		return h.AddRoute(r)
	} else if err != nil {
		return err
	}
	err = h.AddRoute(r)
	if gone := h.DeleteRoute(gateway); gone != nil && !errors.Is(gone, ErrNotFound) {
		err = errors.Join(err, gone)
	}
	return err
}

// DeleteRoute removes a route of that protocol and no other; it is ErrNotFound if there is none.
func (h *Handle) DeleteRoute(r Route) error { return h.one(func(b *Batch) { b.DeleteRoute(r) }) }

func tableOf(t int) int {
	if t == 0 {
		return unix.RT_TABLE_MAIN
	}
	return t
}

func fromRoute(v netlink.Route) Route {
	r := Route{
		Link: v.LinkIndex, Protocol: int(v.Protocol), Metric: v.Priority, OnLink: v.Flags&unix.RTNH_F_ONLINK != 0,
		Gateway: fromIP(v.Gw), Source: fromIP(v.Src), Kind: kindOf(v.Type), Global: v.Scope == unix.RT_SCOPE_UNIVERSE && v.Via == nil,
	}
	if v.Table != unix.RT_TABLE_MAIN {
		r.Table = v.Table
	}
	if len(v.MultiPath) > 0 {
		hops := make([]Hop, 0, len(v.MultiPath))
		for _, h := range v.MultiPath {
			hops = append(hops, Hop{Link: h.LinkIndex, Gateway: fromIP(h.Gw), OnLink: h.Flags&unix.RTNH_F_ONLINK != 0})
		}
		r.Hops, r.Link, r.Gateway, r.OnLink = MakeHops(hops...), 0, netip.Addr{}, false
	}
	if p, ok := fromIPNet(v.Dst); ok {
		r.Dst = p
	} else if v.Family == unix.AF_INET6 {
		r.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	} else {
		r.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return canonical(r)
}

// canonical undoes what the kernel fills in by itself, and says of a scope only where it may be one or another.
func canonical(r Route) Route {
	if r.Dst.Addr().Is6() && r.Metric == defaultMetric6 {
		r.Metric = 0
	}
	if r.Kind != Unicast {
		r.Link = 0 // IPv6 shows lo
	}
	r.Global = r.Global && r.Kind == Unicast && r.Link != 0 && r.Dst.Addr().Is4() && !r.Gateway.IsValid() && r.Hops == Hops{}
	return r
}

func kindOf(t int) RouteKind {
	switch t {
	case unix.RTN_UNICAST:
		return Unicast
	case unix.RTN_BLACKHOLE:
		return Blackhole
	case unix.RTN_UNREACHABLE:
		return Unreachable
	case unix.RTN_THROW:
		return Throw
	}
	return Other
}

func fromIP(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a
}

// Neighbour is an entry that resolves an address on a link.
type Neighbour struct {
	Link      int
	Addr      netip.Addr
	MAC       string // empty for a proxy
	Permanent bool
	Proxy     bool // answer for the address in its stead (neighbour discovery)
}

// Neighbours lists the entries of both families, without proxies.
func (h *Handle) Neighbours() ([]Neighbour, error) {
	return h.neighbours((*netlink.Handle).NeighList)
}

// Proxies lists the addresses for which the host answers.
func (h *Handle) Proxies() ([]Neighbour, error) {
	return h.neighbours((*netlink.Handle).NeighProxyList)
}

func (h *Handle) neighbours(list func(h *netlink.Handle, link, family int) ([]netlink.Neigh, error)) ([]Neighbour, error) {
	loose, err := h.nonStrict()
	if err != nil {
		return nil, err
	}
	var out []Neighbour
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var part []Neighbour
		err := dump(func() error {
			ns, err := list(loose, 0, family)
			part = part[:0]
			for _, n := range ns {
				part = append(part, Neighbour{
					Link: n.LinkIndex, Addr: fromIP(n.IP), MAC: n.HardwareAddr.String(),
					Permanent: n.State&unix.NUD_PERMANENT != 0, Proxy: n.Flags&unix.NTF_PROXY != 0,
				})
			}
			return err
		})
		if err != nil {
			return nil, wrap(err, "list neighbours")
		}
		out = append(out, part...)
	}
	return out, nil
}

// SetNeighbour adds or changes an entry: there is one for each link and address.
func (h *Handle) SetNeighbour(n Neighbour) error { return h.one(func(b *Batch) { b.SetNeighbour(n) }) }

// DeleteNeighbour removes an entry.
func (h *Handle) DeleteNeighbour(n Neighbour) error {
	return h.one(func(b *Batch) { b.DeleteNeighbour(n) })
}
