package felixwire

import (
	"net/netip"
	"strings"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// Shut is a policy of the agent's own, which denies everything: a host endpoint that must carry no traffic has no state that says so.
var Shut = intent.Policy{
	ID: intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "twill-closed"}, Tier: "twill-closed",
	Ingress: []intent.Rule{{Action: intent.Deny}}, Egress: []intent.Rule{{Action: intent.Deny}},
}

// WorkloadID names an endpoint as upstream does: by the parts of its name, which is node-orchestrator-workload-endpoint, with dashes in the parts doubled. A
// name that nobody made so stands for itself.
func WorkloadID(id intent.EndpointID) *pb.WorkloadEndpointID {
	parts := strings.Split(strings.ReplaceAll(id.Name, "--", "\x00"), "-")
	if len(parts) != 4 {
		return &pb.WorkloadEndpointID{WorkloadId: id.Namespace, EndpointId: id.Name}
	}
	for n := range parts {
		parts[n] = strings.ReplaceAll(parts[n], "\x00", "-")
	}
	return &pb.WorkloadEndpointID{OrchestratorId: parts[1], WorkloadId: id.Namespace + "/" + parts[2], EndpointId: parts[3]}
}

// Endpoint returns the message of an endpoint.
func Endpoint(e intent.Endpoint) *pb.ToDataplane {
	if e.ID.Kind == intent.Host {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_HostEndpointUpdate{HostEndpointUpdate: &pb.HostEndpointUpdate{Id: &pb.HostEndpointID{EndpointId: e.ID.Name}, Endpoint: hostEndpoint(e)}}}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &pb.WorkloadEndpointUpdate{Id: WorkloadID(e.ID), Endpoint: workloadEndpoint(e)}}}
}

// workloadEndpoint of one that is closed has another state than active, and no policy or profile that allows anything.
func workloadEndpoint(e intent.Endpoint) *pb.WorkloadEndpoint {
	w := &pb.WorkloadEndpoint{
		State: "active", Name: e.Link, Mac: e.MAC, AllowSpoofedSourcePrefixes: texts(e.Spoofable), QosControls: encodeQoS(e.QoS), QosPolicies: encodeDSCP(e.QoS.DSCP),
	}
	w.Ipv4Nets, w.Ipv6Nets = byVersion(e.Addrs, func(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() })
	for _, n := range e.NATs {
		x := &pb.NatInfo{ExtIp: n.External.String(), IntIp: n.Internal.String()}
		if n.External.Is4() {
			w.Ipv4Nat = append(w.Ipv4Nat, x)
		} else {
			w.Ipv6Nat = append(w.Ipv6Nat, x)
		}
	}
	if e.Closed != "" {
		w.State = "inactive"
		return w
	}
	g := e.Policies()
	w.ProfileIds, w.Tiers = profiles(g), encodeTiers(g.Normal)
	return w
}

func hostEndpoint(e intent.Endpoint) *pb.HostEndpoint {
	h := &pb.HostEndpoint{Name: e.Link, QosPolicies: encodeDSCP(e.QoS.DSCP)}
	h.ExpectedIpv4Addrs, h.ExpectedIpv6Addrs = byVersion(e.Addrs, netip.Addr.String)
	if e.Closed != "" {
		h.Tiers = encodeTiers([]intent.Tier{{Name: Shut.Tier, Ingress: []intent.PolicyID{Shut.ID}, Egress: []intent.PolicyID{Shut.ID}}})
		h.ForwardTiers = h.GetTiers()
		return h
	}
	g := e.Policies()
	h.ProfileIds, h.Tiers = profiles(g), encodeTiers(g.Normal)
	h.UntrackedTiers, h.PreDnatTiers, h.ForwardTiers = encodeTiers(g.Untracked), encodeTiers(g.PreDNAT), encodeTiers(g.Forward)
	return h
}

// byVersion are addresses of IPv4, and of IPv6.
func byVersion(all []netip.Addr, text func(netip.Addr) string) (four, six []string) {
	for _, a := range all {
		if a.Is4() {
			four = append(four, text(a))
		} else {
			six = append(six, text(a))
		}
	}
	return four, six
}

func profiles(g *intent.Group) (out []string) {
	for _, id := range g.Profiles {
		out = append(out, id.Name)
	}
	return out
}

func encodeTiers(list []intent.Tier) (out []*pb.TierInfo) {
	for _, t := range list {
		out = append(out, &pb.TierInfo{Name: t.Name, DefaultAction: t.Default.String(), IngressPolicies: policyIDs(t.Ingress), EgressPolicies: policyIDs(t.Egress)})
	}
	return out
}

func policyIDs(list []intent.PolicyID) (out []*pb.PolicyID) {
	for _, id := range list {
		out = append(out, policyID(id))
	}
	return out
}

func policyID(id intent.PolicyID) *pb.PolicyID {
	return &pb.PolicyID{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
}

func encodeQoS(q intent.QoS) *pb.QoSControls {
	if q.DSCP = 0; q == (intent.QoS{}) {
		return nil
	}
	in, out := q.Bandwidth[intent.Ingress], q.Bandwidth[intent.Egress]
	return &pb.QoSControls{
		IngressBandwidth: int64(in.Rate), IngressBurst: int64(in.Burst), IngressPeakrate: int64(in.Peak), IngressMinburst: int64(in.PeakBurst),
		EgressBandwidth: int64(out.Rate), EgressBurst: int64(out.Burst), EgressPeakrate: int64(out.Peak), EgressMinburst: int64(out.PeakBurst),
		IngressPacketRate: int64(q.In.PacketRate), IngressPacketBurst: int64(q.In.PacketBurst), IngressMaxConnections: int64(q.In.Connections),
		EgressPacketRate: int64(q.Out.PacketRate), EgressPacketBurst: int64(q.Out.PacketBurst), EgressMaxConnections: int64(q.Out.Connections),
	}
}

func encodeDSCP(d intent.DSCP) []*pb.QoSPolicy {
	if d == 0 {
		return nil
	}
	return []*pb.QoSPolicy{{Dscp: int32(d) - 1}}
}

// RemoveEndpoint returns the message that an endpoint is no more.
func RemoveEndpoint(id intent.EndpointID) *pb.ToDataplane {
	if id.Kind == intent.Host {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_HostEndpointRemove{HostEndpointRemove: &pb.HostEndpointRemove{Id: &pb.HostEndpointID{EndpointId: id.Name}}}}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: &pb.WorkloadEndpointRemove{Id: WorkloadID(id)}}}
}
