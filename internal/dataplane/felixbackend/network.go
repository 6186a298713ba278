package felixbackend

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// network is what a driver knows of hosts, pools, tunnels and routes. Most messages are made of several intents, so that those that differ from what
// was sent are found by comparing.
type network struct {
	node   string
	host   intent.HostSettings
	peers  map[intent.PeerID]intent.TunnelPeer
	routes map[intent.RouteID]intent.Route
	keys   [2]string // of this host's end of WireGuard, as the driver said, by family

	all   bool                               // hosts, pools and tunnels are to be looked at, and all routes
	dirty map[intent.RouteID]bool            // else these
	has   map[string]*pb.ToDataplane         // what the driver has of hosts, pools and tunnels
	known map[intent.RouteID]*pb.ToDataplane // of routes
}

func newNetwork(node string) network {
	return network{
		node: node, all: true, peers: map[intent.PeerID]intent.TunnelPeer{}, routes: map[intent.RouteID]intent.Route{}, dirty: map[intent.RouteID]bool{},
		has: map[string]*pb.ToDataplane{}, known: map[intent.RouteID]*pb.ToDataplane{},
	}
}

// take takes an item that is neither a set, a policy nor an endpoint.
func (n *network) take(item any) {
	switch x := item.(type) {
	case intent.HostSettings:
		n.host, n.all = x, true
	case intent.TunnelPeer:
		n.peers[x.ID()], n.all = x, true
	case intent.Route:
		n.routes[x.ID()], n.dirty[x.ID()] = x, true
		n.all = n.all || x.Kind == intent.RouteDirect // which says where a host is
	}
}

func (n *network) forget(k intent.Key) {
	switch id := k.(type) {
	case intent.HostID:
		n.host, n.all = intent.HostSettings{}, true
	case intent.PeerID:
		delete(n.peers, id)
		n.all = true
	case intent.RouteID:
		n.all = n.all || n.routes[id].Kind == intent.RouteDirect
		delete(n.routes, id)
		n.dirty[id] = true
	}
}

// flush adds what differs from what the driver has. Hosts and tunnels come before the routes that lead there, and go after them.
func (n *network) flush(b *batch) {
	if n.all {
		want := n.surroundings()
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if m := want[k]; !proto.Equal(m, n.has[k]) {
				n.has[k] = m
				b.first = append(b.first, proto.CloneOf(m)) // which gets a number
			}
		}
		for _, k := range slices.Backward(slices.Sorted(maps.Keys(n.has))) {
			if want[k] == nil {
				b.last = append(b.last, removal(n.has[k]))
				delete(n.has, k)
			}
		}
		for id := range n.routes {
			n.dirty[id] = true
		}
	}
	var gone []*pb.ToDataplane
	for _, id := range slices.SortedFunc(maps.Keys(n.dirty), func(a, b intent.RouteID) int { return strings.Compare(a.String(), b.String()) }) {
		r, there := n.routes[id]
		if !there {
			if n.known[id] != nil {
				gone = append(gone, &pb.ToDataplane{Payload: &pb.ToDataplane_RouteRemove{RouteRemove: &pb.RouteRemove{Dst: id.String()}}})
				delete(n.known, id)
			}
			continue
		}
		if m := n.route(r); !proto.Equal(m, n.known[id]) {
			n.known[id] = m
			b.routes = append(b.routes, proto.CloneOf(m))
		}
	}
	b.removed = append(gone, b.removed...)
	n.all = false
	clear(n.dirty)
}

// surroundings are messages about hosts, pools and tunnels, by keys that sort in the order in which they are sent.
func (n *network) surroundings() map[string]*pb.ToDataplane {
	out := map[string]*pb.ToDataplane{}
	w := n.host.MTU.Wanted
	enc := &pb.Encapsulation{IpipEnabled: w[intent.IPIP], VxlanEnabled: w[intent.VXLAN], VxlanEnabledV6: w[intent.VXLAN6]}
	hosts := map[string]*pb.HostMetadataUpdate{}
	at := func(node string, a netip.Addr) {
		if !a.IsValid() {
			return
		}
		if hosts[node] == nil {
			hosts[node] = &pb.HostMetadataUpdate{Hostname: node}
		}
		if a.Is4() {
			hosts[node].Ipv4Addr = a.String()
		} else {
			hosts[node].Ipv6Addr = a.String()
		}
	}
	for _, a := range n.host.MTU.Own {
		at(n.node, a)
	}
	for _, p := range n.peers {
		at(p.Node, p.Host)
	}
	for _, r := range n.routes {
		if r.Kind == intent.RouteDirect {
			at(r.Node, r.Via)
			enc.NoEncapEnabled = enc.GetNoEncapEnabled() || n.poolOf(r) == pb.IPPoolType_NO_ENCAP
		}
	}
	out["1"] = &pb.ToDataplane{Payload: &pb.ToDataplane_Encapsulation{Encapsulation: enc}}
	for node, m := range hosts {
		out["2 "+node] = &pb.ToDataplane{Payload: &pb.ToDataplane_HostMetadataUpdate{HostMetadataUpdate: m}}
	}
	for _, p := range n.host.NAT.Pool {
		id := strings.ReplaceAll(p.String(), "/", "-") // as upstream names pools
		out["3 "+id] = &pb.ToDataplane{Payload: &pb.ToDataplane_IpamPoolUpdate{IpamPoolUpdate: &pb.IPAMPoolUpdate{Id: id, Pool: &pb.IPAMPool{Cidr: p.String(), Masquerade: slices.Contains(n.host.NAT.From, p)}}}}
	}
	if s := n.host.Services; len(s.All()) > 0 || n.has[keyOfServices] != nil { // none is said once there was one
		out[keyOfServices] = &pb.ToDataplane{Payload: &pb.ToDataplane_GlobalBgpConfigUpdate{GlobalBgpConfigUpdate: &pb.GlobalBGPConfigUpdate{
			ServiceClusterCidrs: cidrs(s.Cluster), ServiceExternalCidrs: cidrs(s.External), ServiceLoadbalancerCidrs: cidrs(s.Balancer),
		}}}
	}
	n.tunnels(out)
	return out
}

// keyOfServices is that of the message about prefixes of services, which nothing takes back.
const keyOfServices = "1 services"

func cidrs(ps []netip.Prefix) (out []string) {
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// tunnels adds the ends of tunnels, this host's own among them.
func (n *network) tunnels(out map[string]*pb.ToDataplane) {
	ends := maps.Clone(n.peers)
	for k, t := range n.host.Tunnels {
		if t != (intent.Tunnel{}) {
			p := intent.TunnelPeer{Node: n.node, Kind: intent.TunnelKind(k), Host: t.Host, Addr: t.Addr, MAC: t.MAC}
			switch p.Kind {
			case intent.WireGuard:
				p.Key = n.keys[0]
			case intent.WireGuard6:
				p.Key = n.keys[1]
			}
			ends[p.ID()] = p
		}
	}
	for _, p := range ends {
		switch p.Kind {
		case intent.VXLAN, intent.VXLAN6:
			m, is := out["4 "+p.Node]
			if !is {
				m = &pb.ToDataplane{Payload: &pb.ToDataplane_VtepUpdate{VtepUpdate: &pb.VXLANTunnelEndpointUpdate{Node: p.Node}}}
				out["4 "+p.Node] = m
			}
			v := m.GetVtepUpdate()
			if p.Kind == intent.VXLAN {
				v.Mac, v.Ipv4Addr, v.ParentDeviceIp = p.MAC, text(p.Addr), text(p.Host)
			} else {
				v.MacV6, v.Ipv6Addr, v.ParentDeviceIpv6 = p.MAC, text(p.Addr), text(p.Host)
			}
		case intent.WireGuard:
			out["5 "+p.Node] = &pb.ToDataplane{Payload: &pb.ToDataplane_WireguardEndpointUpdate{WireguardEndpointUpdate: &pb.WireguardEndpointUpdate{Hostname: p.Node, PublicKey: p.Key, InterfaceIpv4Addr: text(p.Addr)}}}
		case intent.WireGuard6:
			out["6 "+p.Node] = &pb.ToDataplane{Payload: &pb.ToDataplane_WireguardEndpointV6Update{WireguardEndpointV6Update: &pb.WireguardEndpointV6Update{Hostname: p.Node, PublicKeyV6: p.Key, InterfaceIpv6Addr: text(p.Addr)}}}
		}
	}
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// removal is the end of what a message of surroundings says. Of Encapsulation there is always one.
func removal(m *pb.ToDataplane) *pb.ToDataplane {
	switch x := m.GetPayload().(type) {
	case *pb.ToDataplane_HostMetadataUpdate:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_HostMetadataRemove{HostMetadataRemove: &pb.HostMetadataRemove{Hostname: x.HostMetadataUpdate.GetHostname()}}}
	case *pb.ToDataplane_IpamPoolUpdate:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_IpamPoolRemove{IpamPoolRemove: &pb.IPAMPoolRemove{Id: x.IpamPoolUpdate.GetId()}}}
	case *pb.ToDataplane_VtepUpdate:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_VtepRemove{VtepRemove: &pb.VXLANTunnelEndpointRemove{Node: x.VtepUpdate.GetNode()}}}
	case *pb.ToDataplane_WireguardEndpointUpdate:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_WireguardEndpointRemove{WireguardEndpointRemove: &pb.WireguardEndpointRemove{Hostname: x.WireguardEndpointUpdate.GetHostname()}}}
	case *pb.ToDataplane_WireguardEndpointV6Update:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_WireguardEndpointV6Remove{WireguardEndpointV6Remove: &pb.WireguardEndpointV6Remove{Hostname: x.WireguardEndpointV6Update.GetHostname()}}}
	}
	panic("felixbackend: nothing ends this message")
}

// poolOf is the kind of pool that a route to another host must be of, so that a driver makes it: the intent says where packets go, and not why.
func (n *network) poolOf(r intent.Route) pb.IPPoolType {
	vxlan := intent.VXLAN
	if r.Dst.Addr().Is6() {
		vxlan = intent.VXLAN6
	}
	switch w := n.host.MTU.Wanted; {
	case r.Kind == intent.RouteTunnel && r.Link == intent.LinkIPIP:
		return pb.IPPoolType_IPIP
	case r.Kind == intent.RouteTunnel, r.Kind == intent.RouteDirect && w[vxlan]:
		return pb.IPPoolType_VXLAN
	case r.Kind == intent.RouteDirect && w[intent.IPIP] && r.Dst.Addr().Is4():
		return pb.IPPoolType_IPIP
	}
	return pb.IPPoolType_NO_ENCAP
}

// route says of the addresses of a route whose they are.
func (n *network) route(r intent.Route) *pb.ToDataplane {
	u := &pb.RouteUpdate{Dst: r.Dst.String(), DstNodeName: r.Node, Types: pb.RouteType_REMOTE_WORKLOAD, IpPoolType: n.poolOf(r)}
	for _, p := range n.host.NAT.From {
		u.NatOutgoing = u.GetNatOutgoing() || p.Overlaps(r.Dst)
	}
	peer := func(four, six intent.TunnelKind) string {
		if r.Dst.Addr().Is6() {
			four = six
		}
		return text(n.peers[intent.PeerID{Node: r.Node, Kind: four}].Host)
	}
	switch r.Kind {
	case intent.RouteLink, intent.RouteBlackhole:
		own := n.host.MTU.Own[0]
		if r.Dst.Addr().Is6() {
			own = n.host.MTU.Own[1]
		}
		u.Types, u.DstNodeName, u.DstNodeIp, u.IpPoolType = pb.RouteType_LOCAL_WORKLOAD, n.node, text(own), pb.IPPoolType_NONE
		u.LocalWorkload = r.Kind == intent.RouteLink
	case intent.RouteDirect:
		u.SameSubnet, u.DstNodeIp = true, text(r.Via)
	case intent.RouteEncrypted:
		u.TunnelType, u.DstNodeIp = &pb.TunnelType{Wireguard: true}, peer(intent.WireGuard, intent.WireGuard6)
	case intent.RouteTunnel:
		if r.Link == intent.LinkIPIP {
			u.TunnelType, u.DstNodeIp = &pb.TunnelType{Ipip: true}, text(r.Via)
		} else {
			u.TunnelType, u.DstNodeIp = &pb.TunnelType{Vxlan: true}, peer(intent.VXLAN, intent.VXLAN6)
		}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_RouteUpdate{RouteUpdate: u}}
}
