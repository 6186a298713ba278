package fib

import (
	"net/netip"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// remote is by which interface each route to another host leads.
type remote struct {
	link map[netip.Prefix]string // empty: by none
	by   map[string]map[netip.Prefix]bool
}

// put notes the interface of a route; empty: none.
func (m remote) put(dst netip.Prefix, link string) {
	if was := m.link[dst]; was != "" {
		if delete(m.by[was], dst); len(m.by[was]) == 0 {
			delete(m.by, was)
		}
	}
	delete(m.link, dst)
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

// resolveRemote computes what the kernel should have for a route to another host.
func (t *Table) resolveRemote(in intent.Route) {
	if !in.Via.IsValid() { // else its packets would follow the default route, as they are
		t.routes.Desire(t.keyOf(in.Dst), rtnl.Route{
			Dst: in.Dst, Kind: rtnl.Unreachable, Protocol: kernel.RouteProtocolHosts, Metric: kernel.RouteMetricHosts,
		})
		return
	}
	name := in.Link
	if in.Kind == intent.RouteDirect {
		name = t.towards(in.Via)
	}
	t.remote.put(in.Dst, name)
	l, ok := t.links[name]
	if !ok || !l.Up {
		return
	}
	key := t.keyOf(in.Dst)
	t.routes.Desire(key, rtnl.Route{
		Dst: in.Dst, Link: l.Index, Gateway: in.Via, OnLink: in.Kind == intent.RouteTunnel,
		Protocol: kernel.RouteProtocolHosts, Metric: key.metric,
	})
}

// towards returns the name of the interface that is on the network of an address, the smallest if there are several; empty: none is.
func (t *Table) towards(a netip.Addr) (name string) {
	bits := -1
	for _, l := range t.links {
		for _, p := range networks(l, l.Up) {
			if p.Contains(a) && (p.Bits() > bits || p.Bits() == bits && l.Name < name) {
				name, bits = l.Name, p.Bits()
			}
		}
	}
	return name
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

// rewire looks up again by which interface other hosts are reached, after the host's networks changed.
func (t *Table) rewire() {
	for dst, in := range t.intents {
		if in.Kind == intent.RouteDirect {
			t.resolve(dst)
		}
	}
}
