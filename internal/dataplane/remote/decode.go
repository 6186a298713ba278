package remote

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// reading collects what in a message means nothing, so that the rest of it can be read first.
type reading struct{ errs []error }

func (r *reading) err() error { return errors.Join(r.errs...) }

func (r *reading) wrong(what string, value any) {
	r.errs = append(r.errs, fmt.Errorf("%s %v means nothing", what, value))
}

func parsed[T any](r *reading, what, s string, parse func(string) (T, error)) (v T) {
	if s == "" {
		return v
	}
	v, err := parse(s)
	if err != nil {
		r.wrong(what, fmt.Sprintf("%q", s))
	}
	return v
}

func (r *reading) addr(s string) netip.Addr     { return parsed(r, "address", s, netip.ParseAddr) }
func (r *reading) prefix(s string) netip.Prefix { return parsed(r, "prefix", s, netip.ParsePrefix) }

// small is a number that must fit; if it does not, that is an error, and not another number.
func small[T uint8 | uint16](r *reading, what string, n uint32) T {
	if uint32(T(n)) != n {
		r.wrong(what, n)
	}
	return T(n)
}

func (r *reading) members(list []*pb.Member) []intent.Member {
	return each(list, func(m *pb.Member) intent.Member {
		return intent.Member{Prefix: r.prefix(m.GetPrefix()), Proto: small[uint8](r, "protocol", m.GetProtocol()), Port: small[uint16](r, "port", m.GetPort())}
	})
}

func (r *reading) set(s *pb.IPSet) intent.IPSet {
	if _, known := pb.IPSet_Kind_name[int32(s.GetKind())]; !known {
		r.wrong("kind of set", s.GetKind())
	}
	return intent.IPSet{ID: intent.SetID(s.GetId()), Kind: intent.SetKind(s.GetKind()), Comment: s.GetComment(), Members: r.members(s.GetMembers())}
}

func (r *reading) policyID(id *pb.PolicyID) intent.PolicyID {
	return intent.PolicyID{Kind: id.GetKind(), Namespace: id.GetNamespace(), Name: id.GetName()}
}

func (r *reading) action(a pb.Action) intent.Action {
	for i, x := range actions {
		if x == a {
			return intent.Action(i)
		}
	}
	r.wrong("action", a)
	return intent.Deny
}

func (r *reading) policy(p *pb.Policy) intent.Policy {
	return intent.Policy{ID: r.policyID(p.GetId()), Tier: p.GetTier(), Ingress: each(p.GetIngress(), r.rule), Egress: each(p.GetEgress(), r.rule), Closed: p.GetClosed()}
}

func (r *reading) rule(x *pb.Rule) intent.Rule {
	if f := x.GetFamily(); f != 0 && f != 4 && f != 6 {
		r.wrong("family", f)
	}
	return intent.Rule{
		Action: r.action(x.GetAction()), Void: x.GetVoid(), Reject: x.GetReject(), Family: intent.Family(x.GetFamily()),
		Protocol: small[uint8](r, "protocol", x.GetProtocol()), NotProtocol: small[uint8](r, "protocol", x.GetNotProtocol()),
		ICMP: r.icmp(x.GetIcmp()), NotICMP: r.icmp(x.GetNotIcmp()), Src: r.peer(x.GetSource()), Dst: r.peer(x.GetDestination()),
	}
}

func (r *reading) icmp(i *pb.ICMP) *intent.ICMP {
	if i == nil {
		return nil
	}
	return &intent.ICMP{Type: small[uint8](r, "ICMP type", i.GetType()), Code: small[uint8](r, "ICMP code", i.GetCode()), AnyCode: i.GetAnyCode()}
}

func setID(s string) intent.SetID { return intent.SetID(s) }

func (r *reading) peer(p *pb.Peer) intent.Peer {
	return intent.Peer{
		Nets: each(p.GetNets(), r.prefix), NotNets: each(p.GetNotNets(), r.prefix), Sets: each(p.GetIpSets(), setID), NotSets: each(p.GetNotIpSets(), setID),
		Ports: each(p.GetPorts(), r.ports), PortSets: each(p.GetPortSets(), setID), NotPorts: each(p.GetNotPorts(), r.ports), NotPortSets: each(p.GetNotPortSets(), setID),
	}
}

func (r *reading) ports(p *pb.PortRange) intent.PortRange {
	return intent.PortRange{Min: small[uint16](r, "port", p.GetMin()), Max: small[uint16](r, "port", p.GetMax())}
}

func (r *reading) endpointID(id *pb.EndpointID) intent.EndpointID {
	out := intent.EndpointID{Namespace: id.GetNamespace(), Name: id.GetName()}
	if id.GetHost() {
		out.Kind = intent.Host
	}
	return out
}

func (r *reading) endpoint(e *pb.Endpoint) intent.Endpoint {
	var staged *intent.Stages
	if e.GetStaged() != nil {
		s := r.stages(e.GetStaged())
		staged = &s
	}
	return intent.Endpoint{
		ID: r.endpointID(e.GetId()), Label: e.GetLabel(), Link: e.GetLink(), MAC: e.GetMac(), Addrs: each(e.GetAddresses(), r.addr), Spoofable: each(e.GetSpoofable(), r.prefix),
		NATs: each(e.GetNats(), func(n *pb.NAT) intent.NAT {
			return intent.NAT{External: r.addr(n.GetExternal()), Internal: r.addr(n.GetInternal())}
		}),
		QoS: r.qos(e.GetQos()), Group: intent.NewGroup(r.stages(e.GetStages()), staged, each(e.GetProfiles(), r.policyID)), Closed: e.GetClosed(),
	}
}

func (r *reading) qos(q *pb.QoS) intent.QoS {
	limits := func(l *pb.Limits) intent.Limits {
		return intent.Limits{PacketRate: l.GetPacketRate(), PacketBurst: l.GetPacketBurst(), Connections: l.GetConnections()}
	}
	band := func(b *pb.Bandwidth) intent.Bandwidth {
		return intent.Bandwidth{Rate: b.GetRate(), Burst: b.GetBurst(), Peak: b.GetPeak(), PeakBurst: b.GetPeakBurst()}
	}
	out := intent.QoS{
		In: limits(q.GetIn()), Out: limits(q.GetOut()), Bandwidth: [2]intent.Bandwidth{intent.Ingress: band(q.GetBandwidthIn()), intent.Egress: band(q.GetBandwidthOut())},
	}
	if q != nil && q.Dscp != nil {
		if q.GetDscp() > 63 {
			r.wrong("DSCP", q.GetDscp())
		}
		out.DSCP = intent.DSCP(q.GetDscp() + 1)
	}
	return out
}

func (r *reading) stages(s *pb.Stages) intent.Stages {
	return intent.Stages{Untracked: each(s.GetUntracked(), r.tier), PreDNAT: each(s.GetPreDnat(), r.tier), Normal: each(s.GetNormal(), r.tier), Forward: each(s.GetForward(), r.tier)}
}

func (r *reading) tier(t *pb.Tier) intent.Tier {
	return intent.Tier{Name: t.GetName(), Default: r.action(t.GetDefault()), Ingress: each(t.GetIngress(), r.policyID), Egress: each(t.GetEgress(), r.policyID)}
}

func (r *reading) route(x *pb.Route) intent.Route {
	if _, known := pb.Route_Kind_name[int32(x.GetKind())]; !known || x.GetDestination() == "" {
		r.wrong("route", x)
	}
	return intent.Route{Dst: r.prefix(x.GetDestination()), Kind: intent.RouteKind(x.GetKind()), Move: r.move(x.GetMove()), Link: x.GetLink(), MAC: x.GetMac(), Node: x.GetNode(), Via: r.addr(x.GetVia()), Claims: each(x.GetClaims(), r.claim)}
}

func (r *reading) claim(x *pb.Route_Claim) intent.Claim {
	return intent.Claim{Endpoint: r.endpointID(x.GetEndpoint()), Link: x.GetLink(), MAC: x.GetMac(), Move: r.move(x.GetMove()), Shared: x.GetShared()}
}

func (r *reading) move(m pb.Route_Move) intent.Move {
	if _, known := pb.Route_Move_name[int32(m)]; !known {
		r.wrong("move", m)
	}
	return intent.Move(m)
}

func (r *reading) tunnelKind(k pb.TunnelKind) intent.TunnelKind {
	if _, known := pb.TunnelKind_name[int32(k)]; !known {
		r.wrong("kind of tunnel", k)
		return 0
	}
	return intent.TunnelKind(k)
}

func (r *reading) tunnelPeer(p *pb.TunnelPeer) intent.TunnelPeer {
	return intent.TunnelPeer{Node: p.GetNode(), Kind: r.tunnelKind(p.GetKind()), Host: r.addr(p.GetHost()), Addr: r.addr(p.GetAddress()), MAC: p.GetMac(), Key: p.GetKey()}
}

// list fills an array, one element for each kind or family; elements that are missing stay zero.
func list[A, B any](r *reading, what string, into []B, from []A, f func(A) B) {
	if len(from) > len(into) {
		r.wrong("number of "+what, len(from))
		return
	}
	for i, a := range from {
		into[i] = f(a)
	}
}

func (r *reading) failsafe(f *pb.Failsafe) intent.Failsafe {
	return intent.Failsafe{Protocol: small[uint8](r, "protocol", f.GetProtocol()), Port: small[uint16](r, "port", f.GetPort()), Net: r.prefix(f.GetNet())}
}

func (r *reading) host(h *pb.HostSettings) intent.HostSettings {
	n, l := h.GetNatOutgoing(), h.GetLog()
	out := intent.HostSettings{
		EndpointToHost: intent.ToHost(h.GetEndpointToHost()), Prefixes: h.GetPrefixes(), Exclude: h.GetExclude(), NoForwarding: h.GetNoForwarding(), NoIPv6: h.GetNoIpv6(),
		AllowVXLAN: h.GetAllowVxlan(), AllowIPIP: h.GetAllowIpip(), AllowInvalid: h.GetAllowInvalid(), FailsafeIn: each(h.GetFailsafeIn(), r.failsafe), FailsafeOut: each(h.GetFailsafeOut(), r.failsafe),
		KeepDenied: h.GetKeepDenied(), ReportAllowed: h.GetReportAllowed(),
		Log: intent.LogSettings{Prefix: l.GetPrefix(), Rate: l.GetRate(), Per: time.Duration(l.GetPerSeconds()) * time.Second, Burst: l.GetBurst()},
		NAT: intent.NATOutgoing{
			From: each(n.GetFrom(), r.prefix), Pool: each(n.GetPool(), r.prefix), Addr: r.addr(n.GetAddress()), Ports: r.ports(n.GetPorts()), Link: n.GetLink(),
		},
		Inside: each(h.GetInside(), r.prefix), Metadata: parsed(r, "address and port", h.GetMetadata(), netip.ParseAddrPort), DNS: h.GetDns(),
		VXLAN: intent.VXLANSettings{VNI: int(h.GetVxlan().GetVni()), Port: small[uint16](r, "port", h.GetVxlan().GetPort())},
	}
	services, subnet := h.GetServices(), h.GetLocalSubnet()
	out.LocalSubnet = intent.LocalSubnet{
		Pools: each(subnet.GetPools(), r.prefix), Except: each(subnet.GetExcept(), r.prefix), Again: time.Duration(min(subnet.GetAgain(), 1<<40)) * time.Millisecond,
	}
	out.Services = intent.ServicePrefixes{Cluster: each(services.GetCluster(), r.prefix), External: each(services.GetExternal(), r.prefix), Balancer: each(services.GetBalancer(), r.prefix)}
	out.ServiceLoops = intent.ServiceLoops(h.GetServiceLoops())
	if _, known := pb.HostSettings_ServiceLoops_name[int32(h.GetServiceLoops())]; !known {
		r.wrong("action for loops of services", h.GetServiceLoops())
	}
	if _, known := pb.HostSettings_ToHost_name[int32(h.GetEndpointToHost())]; !known {
		r.wrong("action to host", h.GetEndpointToHost())
	}
	list(r, "tunnels", out.Tunnels[:], h.GetTunnels(), func(t *pb.Tunnel) intent.Tunnel {
		return intent.Tunnel{Host: r.addr(t.GetHost()), Addr: r.addr(t.GetAddress()), MAC: t.GetMac()}
	})
	r.rest(&out, h)
	return out
}

// rest is the settings with one value for each family or kind of tunnel.
func (r *reading) rest(out *intent.HostSettings, h *pb.HostSettings) {
	same := func(b bool) bool { return b }
	w, m, x, k, i := h.GetWireguard(), h.GetMtu(), h.GetRoutes(), h.GetKernel(), h.GetIptables()
	out.IPTables = intent.IPTablesSettings{Append: i.GetAppend(), FilterReturn: i.GetFilterReturn(), MangleReturn: i.GetMangleReturn(), Reject: i.GetReject()}
	if out.MarkMask = h.GetMarkMask(); out.MarkMask != 0 && bits.OnesCount32(out.MarkMask) < kernel.MarksNeeded {
		r.wrong("mask of marks", out.MarkMask)
	}
	out.OwnTable, out.Compiled, out.Checksums = k.GetOwnTable(), k.GetCompiled(), intent.Checksums(small[uint8](r, "checksums", k.GetChecksums()))
	every := func(ms uint64) time.Duration { return time.Duration(min(ms, 1<<40)) * time.Millisecond }
	out.Refresh = intent.Refresh{Policy: every(k.GetRefreshPolicy()), Routes: every(k.GetRefreshRoutes()), Interfaces: every(k.GetRefreshInterfaces())}
	out.WireGuard = intent.WireGuardSettings{
		Priority: int(w.GetPriority()), KeepAlive: time.Duration(w.GetKeepAliveSeconds()) * time.Second, Userspace: w.GetUserspace(), Threads: w.GetThreads(),
		InClear: each(w.GetInClear(), r.failsafe), Tables: each(w.GetTables(), func(t *pb.TableRange) intent.TableRange {
			return intent.TableRange{Min: int(t.GetMin()), Max: int(t.GetMax())}
		}),
	}
	list(r, "families", out.WireGuard.Hosts[:], w.GetHosts(), same)
	list(r, "families", out.WireGuard.On[:], w.GetOn(), same)
	list(r, "families", out.WireGuard.Link[:], w.GetLink(), func(s string) string { return s })
	list(r, "families", out.WireGuard.Port[:], w.GetPort(), func(n uint32) uint16 { return small[uint16](r, "port", n) })
	out.MTU.Links = m.GetLinks()
	list(r, "families", out.MTU.Own[:], m.GetOwn(), r.addr)
	list(r, "tunnels", out.MTU.Tunnels[:], m.GetTunnels(), func(n uint32) int { return int(n) })
	list(r, "tunnels", out.MTU.Wanted[:], m.GetWanted(), same)
	out.Routes = intent.RouteSettings{Off: x.GetOff(), KeepExternal: x.GetKeepExternal(), Protocol: int(x.GetProtocol())}
	list(r, "families", out.Routes.Source[:], x.GetSource(), r.addr)
	out.Routes.Settle = every(x.GetSettle())
	list(r, "families", out.Routes.Elevated[:], x.GetElevated(), func(n uint32) int { return int(n) })
	list(r, "families", out.Routes.Metric[:], x.GetMetric(), func(n uint32) int { return int(n) })
}

// key returns nil if the message names none.
func (r *reading) key(k *pb.Key) intent.Key {
	switch id := k.GetKey().(type) {
	case *pb.Key_IpSet:
		return intent.SetID(id.IpSet)
	case *pb.Key_Policy:
		return r.policyID(id.Policy)
	case *pb.Key_Endpoint:
		return r.endpointID(id.Endpoint)
	case *pb.Key_Route:
		return intent.RouteID{Prefix: r.prefix(id.Route)}
	case *pb.Key_TunnelPeer:
		return intent.PeerID{Node: id.TunnelPeer.GetNode(), Kind: r.tunnelKind(id.TunnelPeer.GetKind())}
	case *pb.Key_Host:
		return intent.HostID("")
	}
	r.wrong("key", k)
	return nil
}
