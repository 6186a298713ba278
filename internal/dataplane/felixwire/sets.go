package felixwire

import (
	"fmt"
	"slices"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// ofTunnels are sets that no rule of policy names. Drivers know other hosts by HostMetadataUpdate.
var ofTunnels = []intent.SetID{intent.SetVXLANPeers, intent.SetIPIPPeers, intent.SetWireGuardPeers}

// OfPolicy reports whether a set is one that rules name.
func OfPolicy(id intent.SetID) bool { return !slices.Contains(ofTunnels, id) }

// Set returns the message of a set with all its members.
func Set(s intent.IPSet) *pb.ToDataplane {
	kind := pb.IPSetUpdate_NET
	if s.Kind == intent.SetPorts {
		kind = pb.IPSetUpdate_IP_AND_PORT
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: &pb.IPSetUpdate{Id: string(s.ID), Type: kind, Members: members(s.Members)}}}
}

// Delta returns the message of a change of a set.
func Delta(d intent.MemberDelta) *pb.ToDataplane {
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: &pb.IPSetDeltaUpdate{
		Id: string(d.Set), AddedMembers: members(d.Added), RemovedMembers: members(d.Removed),
	}}}
}

// names are those of protocols with ports.
var names = map[uint8]string{tcp: "tcp", udp: "udp", sctp: "sctp"}

// RemoveSet returns the message that a set is no more.
func RemoveSet(id intent.SetID) *pb.ToDataplane {
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: string(id)}}}
}

// members are sorted, so that one state is one message.
func members(list []intent.Member) (out []string) {
	for _, m := range list {
		if m.Proto == 0 {
			out = append(out, m.Prefix.String())
			continue
		}
		name, is := names[m.Proto]
		if !is {
			name = fmt.Sprint(m.Proto) // no resource has such a port
		}
		out = append(out, fmt.Sprintf("%s,%s:%d", m.Prefix.Addr(), name, m.Port))
	}
	slices.Sort(out)
	return out
}
