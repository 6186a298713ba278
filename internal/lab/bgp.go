package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// bgpResources make one of three or more hosts a route reflector; fewer have a mesh, which needs no resource.
func (s *Spec) bgpResources() string {
	if len(s.Hosts) < 3 {
		return ""
	}
	return `---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: reflectors}
spec: {nodeSelector: all(), peerSelector: has(route-reflector)}
`
}

// reflects reports whether a host with workloads is the reflector: where there are three, and no dedicated one.
func (s *Spec) reflects(h Host) bool {
	dedicated := slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Reflector })
	return !dedicated && len(s.Hosts) >= 3 && s.Hosts[1].Name == h.Name
}

// awaitRoutes waits until each host has the routes that the others advertise, and no others of theirs.
func (l *Lab) awaitRoutes(ctx context.Context, hosts []Host) error {
	return until(ctx, func(context.Context) error { return l.routed(hosts) })
}

// bgpTable is what one host advertises and has learned.
type bgpTable struct {
	host       Host
	advertised []netip.Prefix
	learned    map[netip.Prefix]netip.Addr // to next hops
	made       map[netip.Prefix]bool       // what its agent leads to other hosts: the speaker leaves that alone
	others     map[netip.Prefix]bool       // what a BGPFilter may have it advertise, too: what is in no pool
}

func (l *Lab) routed(hosts []Host) error {
	var tables []bgpTable
	for _, h := range hosts {
		if h.Reflector {
			continue // it advertises nothing, and has no routes
		}
		t, err := l.table(h)
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}
	var errs []error
	for _, a := range tables {
		for _, b := range tables {
			if a.host.Name != b.host.Name {
				errs = append(errs, b.knows(a))
			}
		}
	}
	return errors.Join(errs...)
}

// knows reports a route that a host lacks of another, or has although it was withdrawn.
func (t bgpTable) knows(other bgpTable) error {
	for _, dst := range other.advertised {
		if via := t.learned[dst]; via != other.host.V4 && via != other.host.V6 && !t.made[dst] {
			return fmt.Errorf("%s has not learned %s from %s", t.host.Name, dst, other.host.Name)
		}
	}
	for dst, via := range t.learned {
		if (via == other.host.V4 || via == other.host.V6) && !slices.Contains(other.advertised, dst) && !other.others[dst] {
			return fmt.Errorf("%s still has %s, which %s does not tell", t.host.Name, dst, other.host.Name)
		}
	}
	return nil
}

func (l *Lab) table(h Host) (bgpTable, error) {
	t := bgpTable{host: h, learned: map[netip.Prefix]netip.Addr{}, made: map[netip.Prefix]bool{}}
	p, err := open(l.Spec.hostNS(h))
	if err != nil {
		return t, err
	}
	defer p.close()
	agents, err := p.agentsRoutes()
	if err != nil {
		return t, err
	}
	for _, r := range agents {
		covered := slices.ContainsFunc(agents, func(o rtnl.Route) bool {
			return o.Dst != r.Dst && o.Dst.Bits() < r.Dst.Bits() && o.Dst.Contains(r.Dst.Addr())
		})
		if !covered && l.inPool(r.Dst) {
			t.advertised = append(t.advertised, r.Dst)
		}
	}
	if t.others, err = p.others(); err != nil {
		return t, err
	}
	maps.DeleteFunc(t.others, func(dst netip.Prefix, _ bool) bool { return l.inPool(dst) })
	tunnelled, err := p.nl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolHosts})
	if err != nil {
		return t, err
	}
	for _, r := range tunnelled {
		t.made[r.Dst] = true
	}
	for _, protocol := range []int{kernel.RouteProtocolSpeaker, kernel.RouteProtocolPriority, kernel.RouteProtocolBIRD} {
		learned, err := p.nl.Routes(rtnl.RouteFilter{Protocol: protocol})
		if err != nil {
			return t, err
		}
		for _, r := range learned {
			t.learned[r.Dst] = r.Gateway
		}
	}
	return t, nil
}

// agentsRoutes are those of the agent for addresses on this host, whatever protocol settings give those to workloads.
func (p *place) agentsRoutes() ([]rtnl.Route, error) {
	links, err := p.nl.Links()
	if err != nil {
		return nil, err
	}
	workloads := map[int]bool{}
	for _, l := range links {
		workloads[l.Index] = strings.HasPrefix(l.Name, "cali")
	}
	return p.nl.Routes(rtnl.RouteFilter{Match: func(r rtnl.Route) bool {
		speakers := kernel.SpeakerRoute(r.Protocol, r.Metric) || r.Protocol == kernel.RouteProtocolBIRD
		return r.Protocol == kernel.RouteProtocolAgent || r.Dst.IsSingleIP() && workloads[r.Link] && r.Protocol > kernel.RouteProtocolKernel && !speakers
	}})
}

// others are routes of a host that neither its agent nor its speaker made, and the networks of its addresses.
func (p *place) others() (map[netip.Prefix]bool, error) {
	routes, err := p.nl.Routes(rtnl.RouteFilter{Match: func(r rtnl.Route) bool {
		return !kernel.SpeakerRoute(r.Protocol, r.Metric) && !slices.Contains([]int{kernel.RouteProtocolAgent, kernel.RouteProtocolHosts, kernel.RouteProtocolBIRD}, r.Protocol)
	}})
	if err != nil {
		return nil, err
	}
	addrs, err := p.nl.Addrs()
	if err != nil {
		return nil, err
	}
	out := map[netip.Prefix]bool{}
	for _, r := range routes {
		out[r.Dst] = true
	}
	for _, a := range addrs {
		out[a.Prefix.Masked()] = true
	}
	return out, nil
}

func (l *Lab) inPool(dst netip.Prefix) bool {
	for _, cidr := range pools {
		if netip.MustParsePrefix(cidr).Contains(dst.Addr()) {
			return true
		}
	}
	return false
}
