package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// The next hop of all containers; the agent answers for it on the host's end of each link.
var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

func gatewayOf(a netip.Addr) (gateway netip.Addr, world netip.Prefix) {
	if a.Is4() {
		return gateway4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return gateway6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// tableOf is the routing table, in the container, of a link of which main has no default route. Link indices are small.
func tableOf(link int) int { return 10_000 + link }

// configure sets addresses and routes of the container's end, and sets it up.
func (e *linkPair) configure(addrs []netip.Addr, c *conf) error {
	far := e.containerLink
	err := e.inside.SetUp(far.Index, true)
	if err == nil {
		e.apart, err = e.gatewaysElsewhere()
	}
	if err != nil {
		return err
	}
	done := map[netip.Addr]bool{}
	for _, a := range addrs {
		own := netip.PrefixFrom(a, a.BitLen())
		if err := e.inside.AddAddr(rtnl.Addr{Link: far.Index, Prefix: own}); err != nil {
			return err
		}
		gateway, _ := gatewayOf(a)
		if e.apart[gateway] {
			if err := e.inside.AddSourceRule(rtnl.SourceRule{From: own, Table: tableOf(far.Index)}); err != nil && !errors.Is(err, rtnl.ErrExists) {
				return err
			}
		}
		if done[gateway] {
			continue
		}
		done[gateway] = true
		err := e.inside.SetNeighbour(rtnl.Neighbour{Link: far.Index, Addr: gateway, MAC: e.hostLink.MAC, Permanent: true})
		for _, r := range e.routes(a, c) {
			err = errors.Join(err, e.addRoute(r))
		}
		if err != nil {
			return err
		}
	}
	return e.waitUsable(far.Index, addrs)
}

// gatewaysElsewhere returns the gateways, one for a family, that the container reaches over another link already, or has a default route beside.
func (e *linkPair) gatewaysElsewhere() (map[netip.Addr]bool, error) {
	routes, err := e.inside.Routes(rtnl.RouteFilter{})
	out := map[netip.Addr]bool{}
	for _, r := range routes {
		gateway, world := gatewayOf(r.Dst.Addr())
		if r.Link != e.containerLink.Index && (r.Dst == world || r.Dst == netip.PrefixFrom(gateway, gateway.BitLen())) {
			out[gateway] = true
		}
	}
	return out, err
}

// routes returns what the container routes over this link, in the family of one of its addresses. If it has other ways out, main gets what the
// configuration asks for, and a table of the link's own the rest, for packets from its addresses: else an answer would leave by another
// link, whose host's end drops what is not from that one's addresses.
func (e *linkPair) routes(a netip.Addr, c *conf) []rtnl.Route {
	gateway, world := gatewayOf(a)
	link, table := e.containerLink.Index, 0
	if e.apart[gateway] {
		table = tableOf(link)
	}
	out := []rtnl.Route{{Dst: netip.PrefixFrom(gateway, gateway.BitLen()), Link: link, Table: table}}
	if table != 0 {
		out = append(out, rtnl.Route{Dst: world, Link: link, Gateway: gateway, OnLink: true, Table: table})
	}
	for _, dst := range c.destinations(world, table == 0) {
		out = append(out, rtnl.Route{Dst: dst, Link: link, Gateway: gateway, OnLink: true})
	}
	return out
}

func (e *linkPair) addRoute(r rtnl.Route) error {
	err := e.inside.AddRoute(r)
	if errors.Is(err, rtnl.ErrExists) {
		return fmt.Errorf("the container has a route to %s over another interface, and this one's network asks for it, too (include_default_routes, or a route of its ipam): %w", r.Dst, err)
	}
	return err
}

// unroute removes the rules by which the container routes over a link that is about to go: the routes go with it.
func (e *linkPair) unroute(l rtnl.Link) error {
	if e.inside == nil || l.Peer == 0 {
		return nil
	}
	links, err := e.inside.Links()
	if err != nil || !slices.ContainsFunc(links, func(in rtnl.Link) bool { return in.Index == l.Peer && in.Peer == l.Index }) {
		return err
	}
	return e.inside.DeleteRules(tableOf(l.Peer))
}
