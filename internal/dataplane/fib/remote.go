package fib

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// remote is by which interface each route to another host leads.
type remote struct {
	link map[netip.Prefix]string // empty: by none
	by   map[string]map[netip.Prefix]bool
	lost map[netip.Prefix]bool // unreachable, as the interface is not there or down, or there is none
}

// put notes the interface of a route, which is not lost until that is known; empty: none.
func (m remote) put(dst netip.Prefix, link string) {
	if was := m.link[dst]; was != "" {
		if delete(m.by[was], dst); len(m.by[was]) == 0 {
			delete(m.by, was)
		}
	}
	delete(m.link, dst)
	delete(m.lost, dst)
	if link != "" {
		m.link[dst] = link
		if m.by[link] == nil {
			m.by[link] = map[netip.Prefix]bool{}
		}
		m.by[link][dst] = true
	}
}

// toHost reports whether a route leads to another host.
func toHost(r intent.Route) bool { return r.Kind == intent.RouteTunnel || r.Kind == intent.RouteDirect }

// keyOf returns the key in the kernel of the route that the intent of a destination wants.
func (t *Table) keyOf(dst netip.Prefix) routeKey {
	if t.remote.lost[dst] {
		return routeKey{dst, kernel.RouteMetricNoWay}
	}
	if in := t.intents[dst]; toHost(in) {
		return routeKey{dst, kernel.HostsMetric(in.Via)}
	}
	if t.intents[dst].Kind == intent.RouteLink {
		return routeKey{dst, t.metric(dst)}
	}
	return routeKey{dst, kernel.RouteMetricAgent}
}

// linkOf returns the name of the interface of an intent; empty: there is none on the network of the next hop.
func (t *Table) linkOf(in intent.Route) string {
	if in.Kind == intent.RouteDirect {
		return t.remote.link[in.Dst]
	}
	return in.Link
}

// resolveRemote computes what the kernel should have for a route to another host. Without a way there it is unreachable: else its packets would
// follow the default route, as they are.
func (t *Table) resolveRemote(in intent.Route) {
	name, onLink := in.Link, true
	if in.Kind == intent.RouteDirect {
		name, onLink = t.towards(in.Via)
	}
	if !in.Via.IsValid() {
		name = ""
	}
	t.remote.put(in.Dst, name)
	l, way := t.links[name]
	way = way && l.Up
	if in.Via.IsValid() && !way {
		if !t.linksSeen { // a route of before a restart stays
			return
		}
		t.remote.lost[in.Dst] = true
	}
	key := t.keyOf(in.Dst)
	r := rtnl.Route{Dst: in.Dst, Protocol: kernel.RouteProtocolHosts, Metric: key.metric, Kind: rtnl.Unreachable}
	if way {
		r.Kind, r.Link, r.Gateway, r.OnLink = rtnl.Unicast, l.Index, in.Via, onLink
	}
	t.routes.Desire(key, r)
}

// towards returns the name of the interface that is on the network of an address, the smallest if there are several. If none is, it is the one
// with this host's own address, of which the Node says the network, and the address is on its link; empty: there is none.
func (t *Table) towards(a netip.Addr) (name string, onLink bool) {
	bits := -1
	for _, l := range t.links {
		for _, p := range networks(l, l.Up) {
			if p.Contains(a) && (p.Bits() > bits || p.Bits() == bits && l.Name < name) {
				name, bits = l.Name, p.Bits()
			}
		}
	}
	if name != "" {
		return name, false
	}
	for _, l := range t.links {
		if t.hasOwn(l, l.Up, a.Is4()) && (name == "" || l.Name < name) {
			name = l.Name
		}
	}
	return name, true
}

// hasOwn reports whether an interface that is there and up, and leads to other hosts, has this host's own address of a family.
func (t *Table) hasOwn(l ifmon.Link, there, four bool) bool {
	own := t.own[0]
	if !four {
		own = t.own[1]
	}
	return there && l.Up && l.Name != "lo" && slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == own })
}

// leadsElsewhere reports whether hosts may be reached by another interface than before a change of this one.
func (t *Table) leadsElsewhere(was ifmon.Link, known bool, c ifmon.Change) bool {
	return !slices.Equal(networks(was, known), networks(c.Link, !c.Gone)) ||
		t.hasOwn(was, known, true) != t.hasOwn(c.Link, !c.Gone, true) || t.hasOwn(was, known, false) != t.hasOwn(c.Link, !c.Gone, false)
}

// networks returns those that an interface is on, if it is there and up.
func networks(l ifmon.Link, there bool) (out []netip.Prefix) {
	if !there || !l.Up {
		return nil
	}
	for _, p := range l.Addrs {
		if !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p)
		}
	}
	return out
}

// rewire looks up again by which interface other hosts are reached, after the host's networks changed; the first time, also by tunnels.
func (t *Table) rewire(tunnels bool) {
	for dst, in := range t.intents {
		if in.Kind == intent.RouteDirect || tunnels && in.Kind == intent.RouteTunnel {
			t.resolve(dst)
		}
	}
}
