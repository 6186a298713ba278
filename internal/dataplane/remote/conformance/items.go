package conformance

import (
	"fmt"

	pb "github.com/twillnet/twill/api/dataplanepb"
)

// keyText is a key as people read it.
func keyText(k *pb.Key) string {
	switch x := k.GetKey().(type) {
	case *pb.Key_IpSet:
		return "set " + x.IpSet
	case *pb.Key_Policy:
		return fmt.Sprintf("policy %s %s/%s", x.Policy.GetKind(), x.Policy.GetNamespace(), x.Policy.GetName())
	case *pb.Key_Endpoint:
		return fmt.Sprintf("endpoint %s/%s (host: %t)", x.Endpoint.GetNamespace(), x.Endpoint.GetName(), x.Endpoint.GetHost())
	case *pb.Key_Route:
		return "route " + x.Route
	case *pb.Key_TunnelPeer:
		return fmt.Sprintf("tunnel peer %s %s", x.TunnelPeer.GetKind(), x.TunnelPeer.GetNode())
	case *pb.Key_Host:
		return "host settings"
	}
	return "nothing that has a name"
}

// keysOf are the keys of what an item is about.
func keysOf(m *pb.ToDriver) []string {
	var k *pb.Key
	switch x := m.GetItem().(type) {
	case *pb.ToDriver_IpSet:
		k = &pb.Key{Key: &pb.Key_IpSet{IpSet: x.IpSet.GetId()}}
	case *pb.ToDriver_Members:
		k = &pb.Key{Key: &pb.Key_IpSet{IpSet: x.Members.GetIpSet()}}
	case *pb.ToDriver_Policy:
		k = &pb.Key{Key: &pb.Key_Policy{Policy: x.Policy.GetId()}}
	case *pb.ToDriver_Endpoint:
		k = &pb.Key{Key: &pb.Key_Endpoint{Endpoint: x.Endpoint.GetId()}}
	case *pb.ToDriver_Route:
		k = &pb.Key{Key: &pb.Key_Route{Route: x.Route.GetDestination()}}
	case *pb.ToDriver_TunnelPeer:
		k = &pb.Key{Key: &pb.Key_TunnelPeer{TunnelPeer: &pb.PeerID{Node: x.TunnelPeer.GetNode(), Kind: x.TunnelPeer.GetKind()}}}
	case *pb.ToDriver_Host:
		k = &pb.Key{Key: &pb.Key_Host{Host: true}}
	case *pb.ToDriver_Removed:
		k = x.Removed
	default:
		return nil
	}
	return []string{keyText(k)}
}

func members(prefixes ...string) (out []*pb.Member) {
	for _, p := range prefixes {
		out = append(out, &pb.Member{Prefix: p})
	}
	return out
}

func set(id string, prefixes ...string) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_IpSet{IpSet: &pb.IPSet{Id: id, Members: members(prefixes...)}}}
}

func change(id string, added, removed []*pb.Member) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_Members{Members: &pb.MembersChange{IpSet: id, Added: added, Removed: removed}}}
}

func policyID(name string) *pb.PolicyID { return &pb.PolicyID{Kind: "GlobalNetworkPolicy", Name: name} }

// policy allows what comes from sets.
func policy(name string, sets ...string) *pb.ToDriver {
	return rules(name, &pb.Rule{Action: pb.Action_ALLOW, Source: &pb.Peer{IpSets: sets}})
}

func rules(name string, rules ...*pb.Rule) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: &pb.Policy{Id: policyID(name), Tier: "default", Ingress: rules}}}
}

func endpointID() *pb.EndpointID { return &pb.EndpointID{Namespace: "conformance", Name: "w"} }

// endpoint is of an interface that no host has.
func endpoint(policies ...string) *pb.ToDriver {
	tier := &pb.Tier{Name: "default"}
	for _, p := range policies {
		tier.Ingress = append(tier.Ingress, policyID(p))
	}
	return &pb.ToDriver{Item: &pb.ToDriver_Endpoint{Endpoint: &pb.Endpoint{
		Id: endpointID(), Label: "conformance/w", Link: "twconformance0", Addresses: []string{"192.0.2.10", "2001:db8::10"}, Stages: &pb.Stages{Normal: []*pb.Tier{tier}},
	}}}
}

func route(destination string, kind pb.Route_Kind) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_Route{Route: &pb.Route{Destination: destination, Kind: kind}}}
}

func removed(k *pb.Key) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_Removed{Removed: k}}
}

func setGoes(id string) *pb.ToDriver { return removed(&pb.Key{Key: &pb.Key_IpSet{IpSet: id}}) }

func policyGoes(name string) *pb.ToDriver {
	return removed(&pb.Key{Key: &pb.Key_Policy{Policy: policyID(name)}})
}

func endpointGoes() *pb.ToDriver {
	return removed(&pb.Key{Key: &pb.Key_Endpoint{Endpoint: endpointID()}})
}
