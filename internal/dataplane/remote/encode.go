package remote

import (
	"fmt"
	"net/netip"
	"time"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane/unsent"
	"github.com/twillnet/twill/internal/intent"
)

// encode returns the message of an item of [unsent.State].
func encode(v any) *pb.ToDriver {
	switch x := v.(type) {
	case intent.IPSet:
		return &pb.ToDriver{Item: &pb.ToDriver_IpSet{IpSet: encodeSet(x)}}
	case intent.MemberDelta:
		return &pb.ToDriver{Item: &pb.ToDriver_Members{Members: encodeMembers(x)}}
	case intent.Policy:
		return &pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: encodePolicy(x)}}
	case intent.Endpoint:
		return &pb.ToDriver{Item: &pb.ToDriver_Endpoint{Endpoint: encodeEndpoint(x)}}
	case intent.Route:
		return &pb.ToDriver{Item: &pb.ToDriver_Route{Route: encodeRoute(x)}}
	case intent.TunnelPeer:
		return &pb.ToDriver{Item: &pb.ToDriver_TunnelPeer{TunnelPeer: encodeTunnelPeer(x)}}
	case intent.HostSettings:
		return &pb.ToDriver{Item: &pb.ToDriver_Host{Host: encodeHost(x)}}
	case unsent.Gone:
		return &pb.ToDriver{Item: &pb.ToDriver_Removed{Removed: encodeKey(x.Key)}}
	}
	panic(fmt.Sprintf("remote: %T is no item", v))
}

// each maps a list; an empty one becomes nil.
func each[A, B any](list []A, f func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// text is an address or a prefix as the protocol has it: empty if there is none.
func text[T interface {
	IsValid() bool
	String() string
}](v T,
) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}

func encodeSet(s intent.IPSet) *pb.IPSet {
	return &pb.IPSet{Id: string(s.ID), Kind: pb.IPSet_Kind(s.Kind), Comment: s.Comment, Members: each(s.Members, encodeMember)}
}

func encodeMember(m intent.Member) *pb.Member {
	return &pb.Member{Prefix: text(m.Prefix), Protocol: uint32(m.Proto), Port: uint32(m.Port)}
}

func encodeMembers(d intent.MemberDelta) *pb.MembersChange {
	return &pb.MembersChange{IpSet: string(d.Set), Added: each(d.Added, encodeMember), Removed: each(d.Removed, encodeMember)}
}

func encodePolicyID(id intent.PolicyID) *pb.PolicyID {
	return &pb.PolicyID{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
}

func encodePolicy(p intent.Policy) *pb.Policy {
	return &pb.Policy{
		Id: encodePolicyID(p.ID), Tier: p.Tier, Ingress: each(p.Ingress, encodeRule), Egress: each(p.Egress, encodeRule), Closed: p.Closed,
	}
}

// actions are the protocol's, by intent's.
var actions = [...]pb.Action{intent.Deny: pb.Action_DENY, intent.Allow: pb.Action_ALLOW, intent.Pass: pb.Action_PASS, intent.Log: pb.Action_LOG}

func encodeRule(r intent.Rule) *pb.Rule {
	return &pb.Rule{
		Action: actions[r.Action], Void: r.Void, Reject: r.Reject, Family: uint32(r.Family), Protocol: uint32(r.Protocol), NotProtocol: uint32(r.NotProtocol),
		Icmp: encodeICMP(r.ICMP), NotIcmp: encodeICMP(r.NotICMP), Source: encodePeer(r.Src), Destination: encodePeer(r.Dst),
	}
}

func encodeICMP(i *intent.ICMP) *pb.ICMP {
	if i == nil {
		return nil
	}
	return &pb.ICMP{Type: uint32(i.Type), Code: uint32(i.Code), AnyCode: i.AnyCode}
}

func encodePeer(p intent.Peer) *pb.Peer {
	return &pb.Peer{
		Nets: each(p.Nets, text[netip.Prefix]), NotNets: each(p.NotNets, text[netip.Prefix]), IpSets: each(p.Sets, intent.SetID.String), NotIpSets: each(p.NotSets, intent.SetID.String),
		Ports: each(p.Ports, encodePorts), PortSets: each(p.PortSets, intent.SetID.String), NotPorts: each(p.NotPorts, encodePorts), NotPortSets: each(p.NotPortSets, intent.SetID.String),
	}
}

func encodePorts(r intent.PortRange) *pb.PortRange {
	return &pb.PortRange{Min: uint32(r.Min), Max: uint32(r.Max)}
}

func encodeEndpointID(id intent.EndpointID) *pb.EndpointID {
	return &pb.EndpointID{Host: id.Kind == intent.Host, Namespace: id.Namespace, Name: id.Name}
}

func encodeEndpoint(e intent.Endpoint) *pb.Endpoint {
	g := e.Policies()
	out := &pb.Endpoint{
		Id: encodeEndpointID(e.ID), Label: e.Label, Link: e.Link, Mac: e.MAC, Addresses: each(e.Addrs, text[netip.Addr]), Spoofable: each(e.Spoofable, text[netip.Prefix]),
		Nats: each(e.NATs, func(n intent.NAT) *pb.NAT { return &pb.NAT{External: text(n.External), Internal: text(n.Internal)} }),
		Qos:  encodeQoS(e.QoS), Stages: encodeStages(g.Stages), Profiles: each(g.Profiles, encodePolicyID), Closed: e.Closed,
	}
	if g.Staged != nil {
		out.Staged = encodeStages(g.Staged.Stages)
	}
	return out
}

func encodeQoS(q intent.QoS) *pb.QoS {
	limits := func(l intent.Limits) *pb.Limits {
		return &pb.Limits{PacketRate: l.PacketRate, PacketBurst: l.PacketBurst, Connections: l.Connections}
	}
	band := func(b intent.Bandwidth) *pb.Bandwidth {
		return &pb.Bandwidth{Rate: b.Rate, Burst: b.Burst, Peak: b.Peak, PeakBurst: b.PeakBurst}
	}
	out := &pb.QoS{
		In: limits(q.In), Out: limits(q.Out), BandwidthIn: band(q.Bandwidth[intent.Ingress]), BandwidthOut: band(q.Bandwidth[intent.Egress]),
	}
	if q.DSCP != 0 {
		code := uint32(q.DSCP) - 1
		out.Dscp = &code
	}
	return out
}

func encodeStages(s intent.Stages) *pb.Stages {
	return &pb.Stages{Untracked: each(s.Untracked, encodeTier), PreDnat: each(s.PreDNAT, encodeTier), Normal: each(s.Normal, encodeTier), Forward: each(s.Forward, encodeTier)}
}

func encodeTier(t intent.Tier) *pb.Tier {
	return &pb.Tier{Name: t.Name, Default: actions[t.Default], Ingress: each(t.Ingress, encodePolicyID), Egress: each(t.Egress, encodePolicyID)}
}

func encodeRoute(r intent.Route) *pb.Route {
	return &pb.Route{Destination: text(r.Dst), Kind: pb.Route_Kind(r.Kind), Move: pb.Route_Move(r.Move), Link: r.Link, Mac: r.MAC, Node: r.Node, Via: text(r.Via), Claims: each(r.Claims, encodeClaim)}
}

func encodeClaim(c intent.Claim) *pb.Route_Claim {
	return &pb.Route_Claim{Endpoint: encodeEndpointID(c.Endpoint), Link: c.Link, Mac: c.MAC, Move: pb.Route_Move(c.Move), Shared: c.Shared}
}

func encodeTunnelPeer(p intent.TunnelPeer) *pb.TunnelPeer {
	return &pb.TunnelPeer{Node: p.Node, Kind: pb.TunnelKind(p.Kind), Host: text(p.Host), Address: text(p.Addr), Mac: p.MAC, Key: p.Key}
}

func encodeHost(h intent.HostSettings) *pb.HostSettings {
	n, m, r, w := h.NAT, h.MTU, h.Routes, h.WireGuard
	return &pb.HostSettings{
		EndpointToHost: pb.HostSettings_ToHost(h.EndpointToHost), Prefixes: h.Prefixes, Exclude: h.Exclude, NoForwarding: h.NoForwarding, NoIpv6: h.NoIPv6,
		AllowVxlan: h.AllowVXLAN, AllowIpip: h.AllowIPIP, AllowInvalid: h.AllowInvalid,
		FailsafeIn: each(h.FailsafeIn, encodeFailsafe), FailsafeOut: each(h.FailsafeOut, encodeFailsafe), KeepDenied: h.KeepDenied, ReportAllowed: h.ReportAllowed,
		Log: &pb.LogSettings{Prefix: h.Log.Prefix, Rate: h.Log.Rate, PerSeconds: uint32(h.Log.Per / time.Second), Burst: h.Log.Burst},
		NatOutgoing: &pb.NATOutgoing{
			From: each(n.From, text[netip.Prefix]), Pool: each(n.Pool, text[netip.Prefix]), Address: text(n.Addr), Ports: encodePorts(n.Ports), Link: n.Link,
		},
		Inside: each(h.Inside, text[netip.Prefix]), Metadata: text(h.Metadata), Dns: h.DNS,
		Tunnels: each(h.Tunnels[:], func(t intent.Tunnel) *pb.Tunnel {
			return &pb.Tunnel{Host: text(t.Host), Address: text(t.Addr), Mac: t.MAC}
		}),
		Vxlan: &pb.VXLANSettings{Vni: uint32(h.VXLAN.VNI), Port: uint32(h.VXLAN.Port)},
		Wireguard: &pb.WireGuardSettings{
			On: w.On[:], Link: w.Link[:], Port: each(w.Port[:], number[uint16]), Priority: uint32(w.Priority), KeepAliveSeconds: uint64(w.KeepAlive / time.Second), Userspace: w.Userspace, Threads: w.Threads,
			Hosts: w.Hosts[:], InClear: each(w.InClear, encodeFailsafe), Tables: each(w.Tables, func(t intent.TableRange) *pb.TableRange {
				return &pb.TableRange{Min: uint32(t.Min), Max: uint32(t.Max)}
			}),
		},
		Mtu: &pb.MTUSettings{Links: m.Links, Own: each(m.Own[:], text[netip.Addr]), Tunnels: each(m.Tunnels[:], number[int]), Wanted: m.Wanted[:]},
		Kernel: &pb.KernelSettings{
			OwnTable: h.OwnTable, Compiled: h.Compiled, Checksums: uint32(h.Checksums),
			RefreshPolicy: uint64(h.Refresh.Policy.Milliseconds()), RefreshRoutes: uint64(h.Refresh.Routes.Milliseconds()), RefreshInterfaces: uint64(h.Refresh.Interfaces.Milliseconds()),
		},
		LocalSubnet: &pb.LocalSubnet{
			Pools: each(h.LocalSubnet.Pools, text[netip.Prefix]), Except: each(h.LocalSubnet.Except, text[netip.Prefix]), Again: uint64(h.LocalSubnet.Again.Milliseconds()),
		},
		Services: &pb.ServicePrefixes{
			Cluster: each(h.Services.Cluster, text[netip.Prefix]), External: each(h.Services.External, text[netip.Prefix]), Balancer: each(h.Services.Balancer, text[netip.Prefix]),
		},
		MarkMask:     h.MarkMask,
		ServiceLoops: pb.HostSettings_ServiceLoops(h.ServiceLoops),
		Iptables:     &pb.IPTablesSettings{Append: h.IPTables.Append, FilterReturn: h.IPTables.FilterReturn, MangleReturn: h.IPTables.MangleReturn, Reject: h.IPTables.Reject},
		Routes: &pb.RouteSettings{
			Off: r.Off, KeepExternal: r.KeepExternal, Source: each(r.Source[:], text[netip.Addr]), Metric: each(r.Metric[:], number[int]), Protocol: uint32(r.Protocol),
			Elevated: each(r.Elevated[:], number[int]), Settle: uint64(r.Settle.Milliseconds()),
		},
	}
}

func number[T ~int | ~uint16](n T) uint32 { return uint32(n) }

func encodeFailsafe(f intent.Failsafe) *pb.Failsafe {
	return &pb.Failsafe{Protocol: uint32(f.Protocol), Port: uint32(f.Port), Net: text(f.Net)}
}

func encodeKey(k intent.Key) *pb.Key {
	switch id := k.(type) {
	case intent.SetID:
		return &pb.Key{Key: &pb.Key_IpSet{IpSet: string(id)}}
	case intent.PolicyID:
		return &pb.Key{Key: &pb.Key_Policy{Policy: encodePolicyID(id)}}
	case intent.EndpointID:
		return &pb.Key{Key: &pb.Key_Endpoint{Endpoint: encodeEndpointID(id)}}
	case intent.RouteID:
		return &pb.Key{Key: &pb.Key_Route{Route: text(id.Prefix)}}
	case intent.PeerID:
		return &pb.Key{Key: &pb.Key_TunnelPeer{TunnelPeer: &pb.PeerID{Node: id.Node, Kind: pb.TunnelKind(id.Kind)}}}
	}
	return &pb.Key{Key: &pb.Key_Host{Host: true}}
}
