package rtnl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unique"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// MaxHops is how many next hops a route may have; more are left out.
const MaxHops = 16

// Hop is one of the next hops of a route.
type Hop struct {
	Link    int // its index
	Gateway netip.Addr
	OnLink  bool // the gateway is on the link, although no route of link scope covers it: see [Route]
}

// Hops are the next hops of a route, sorted, among which the kernel shares out flows. Values with the same hops are
// equal; the zero value has none. A hundred thousand routes by the same hops hold them once.
type Hops struct {
	h unique.Handle[[MaxHops]Hop]
}

// MakeHops makes a set of next hops, each once.
func MakeHops(hops ...Hop) Hops {
	hops = slices.Clone(hops)
	slices.SortFunc(hops, func(a, b Hop) int { return cmp.Or(a.Gateway.Compare(b.Gateway), cmp.Compare(a.Link, b.Link)) })
	hops = slices.Compact(hops)
	if len(hops) == 0 {
		return Hops{}
	}
	var all [MaxHops]Hop
	copy(all[:], hops)
	return Hops{unique.Make(all)}
}

// List returns the next hops.
func (h Hops) List() []Hop {
	if h == (Hops{}) {
		return nil
	}
	all := h.h.Value()
	n := slices.Index(all[:], Hop{})
	if n < 0 {
		n = MaxHops
	}
	return all[:n]
}

// parseHops reads the next hops of an event: struct rtnexthop of linux/rtnetlink.h, each with attributes.
func parseHops(b []byte) Hops {
	var out []Hop
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			break
		}
		h := Hop{Link: int(int32(binary.NativeEndian.Uint32(b[4:]))), OnLink: b[2]&unix.RTNH_F_ONLINK != 0}
		attrs, _ := nl.ParseRouteAttr(b[unix.SizeofRtNexthop:n])
		for _, a := range attrs {
			if a.Attr.Type == unix.RTA_GATEWAY {
				h.Gateway, _ = netip.AddrFromSlice(a.Value)
			}
		}
		out = append(out, h)
		b = b[min((n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return MakeHops(out...)
}

// Lookup returns the route by which the host sends to an address: its link, and its gateway if it has one. OnLink says whether a route needs that of
// which this gateway is the gateway, or else the address. It is
// ErrNotFound if there is none that leads to another host. Whether packets that go there are encrypted, and so are led into a device before, is no
// matter: it is the way of those that are.
func (h *Handle) Lookup(to netip.Addr) (Hop, error) {
	mark, err := h.EncryptedMark()
	if err != nil {
		return Hop{}, err
	}
	rs, err := h.routeGet(to, &netlink.RouteGetOptions{Mark: mark})
	if err != nil {
		return Hop{}, wrap(err, "look up %s", to)
	}
	for _, r := range rs {
		if r.Type == unix.RTN_UNICAST && r.LinkIndex != 0 {
			return h.reached(to, mark, Hop{Link: r.LinkIndex, Gateway: fromIP(r.Gw)})
		}
	}
	return Hop{}, wrap(unix.ESRCH, "look up %s", to)
}

// reached adds OnLink to a hop of IPv4: a gateway there needs it if the route by which the hop was found has it, or has no gateway and is of global scope.
func (h *Handle) reached(to netip.Addr, mark uint32, hop Hop) (Hop, error) {
	if to.Is6() {
		return hop, nil
	}
	rs, err := h.routeGet(to, &netlink.RouteGetOptions{Mark: mark, FIBMatch: true})
	if err != nil {
		return Hop{}, wrap(err, "look up %s", to)
	}
	for _, r := range rs {
		is := fromRoute(r)
		hop.OnLink = is.Global && !hop.Gateway.IsValid() || is.OnLink || slices.Contains(is.Hops.List(), Hop{Link: hop.Link, Gateway: hop.Gateway, OnLink: true})
	}
	return hop, nil
}

// RouteTo returns the route by which the host sends to an address, also one of its own: its Source is what it sends
// from. Nothing is sent. It is ErrNotFound if there is none.
func (h *Handle) RouteTo(to netip.Addr) (Route, error) {
	rs, err := h.routeGet(to, nil)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return Route{}, fmt.Errorf("route to %s: %w (%w)", to, ErrNotFound, err)
	case err != nil:
		return Route{}, wrap(err, "route to %s", to)
	case len(rs) == 0:
		return Route{}, wrap(unix.ESRCH, "route to %s", to)
	}
	r := fromRoute(rs[0])
	r.Global = false // of the answer, not of the route
	return r, nil
}

func (h *Handle) routeGet(to netip.Addr, options *netlink.RouteGetOptions) ([]netlink.Route, error) {
	loose, err := h.nonStrict()
	if err != nil {
		return nil, err
	}
	return loose.RouteGetWithOptions(to.AsSlice(), options)
}
