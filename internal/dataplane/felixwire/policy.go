// Package felixwire writes intents as messages of upstream's protocol between an agent and a dataplane (api/felixpb), for all who speak it.
//
// In: intents. Out: messages, and an error for a rule that they cannot say. It keeps nothing.
package felixwire

import (
	"errors"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// Stages are those at which host endpoints ask a policy, if not where most are.
type Stages struct{ Untracked, PreDNAT bool }

// IsProfile reports whether an id is a profile's, for which the protocol has messages of its own.
func IsProfile(id intent.PolicyID) bool { return id.Kind == "Profile" }

// Policy returns the message of a policy or a profile. The error names a rule that the protocol cannot say; what the message has in its place allows less, or
// denies more.
func Policy(p intent.Policy, s Stages) (*pb.ToDataplane, error) {
	in, inErr := Rules(p.ID, intent.Ingress, p.Ingress)
	out, outErr := Rules(p.ID, intent.Egress, p.Egress)
	err := errors.Join(inErr, outErr)
	if IsProfile(p.ID) {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: &pb.ActiveProfileUpdate{
			Id: &pb.ProfileID{Name: p.ID.Name}, Profile: &pb.Profile{InboundRules: in, OutboundRules: out},
		}}}, err
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &pb.ActivePolicyUpdate{
		Id: policyID(p.ID), Policy: &pb.Policy{InboundRules: in, OutboundRules: out, Untracked: s.Untracked, PreDnat: s.PreDNAT, Namespace: p.ID.Namespace, Tier: p.Tier},
	}}}, err
}

// RemovePolicy returns the message that a policy or a profile is no more.
func RemovePolicy(id intent.PolicyID) *pb.ToDataplane {
	if IsProfile(id) {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_ActiveProfileRemove{ActiveProfileRemove: &pb.ActiveProfileRemove{Id: &pb.ProfileID{Name: id.Name}}}}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_ActivePolicyRemove{ActivePolicyRemove: &pb.ActivePolicyRemove{Id: policyID(id)}}}
}
