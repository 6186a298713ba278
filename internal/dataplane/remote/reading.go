package remote

import (
	"fmt"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/intent"
)

// Add is for drivers in Go: it adds an item to a batch, or returns an error if it means nothing. What is removed is in the order in which it is to go:
// drivers of this project want that reversed.
func Add(b *intent.Batch, m *pb.ToDriver) error {
	var r reading
	switch x := m.GetItem().(type) {
	case *pb.ToDriver_IpSet:
		b.IPSets = append(b.IPSets, r.set(x.IpSet))
	case *pb.ToDriver_Members:
		c := x.Members
		b.Members = append(b.Members, intent.MemberDelta{Set: intent.SetID(c.GetIpSet()), Added: r.members(c.GetAdded()), Removed: r.members(c.GetRemoved())})
	case *pb.ToDriver_Policy:
		b.Policies = append(b.Policies, r.policy(x.Policy))
	case *pb.ToDriver_Endpoint:
		b.Endpoints = append(b.Endpoints, r.endpoint(x.Endpoint))
	case *pb.ToDriver_Route:
		b.Routes = append(b.Routes, r.route(x.Route))
	case *pb.ToDriver_TunnelPeer:
		b.Peers = append(b.Peers, r.tunnelPeer(x.TunnelPeer))
	case *pb.ToDriver_Host:
		h := r.host(x.Host)
		b.Host = &h
	case *pb.ToDriver_Removed:
		b.Removed = append(b.Removed, r.key(x.Removed))
	default:
		return fmt.Errorf("an item of another kind than version %d has: %T", Version, x)
	}
	return r.err()
}
