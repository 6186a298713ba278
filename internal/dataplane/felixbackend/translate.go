package felixbackend

import (
	"errors"
	"fmt"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/unsent"
	"github.com/twillnet/twill/internal/intent"
)

// translator makes messages for one driver that runs, and remembers what they were made of where others depend on it.
type translator struct {
	network
	begun    bool                              // the driver knows shut
	policies map[intent.PolicyID]intent.Policy // that the driver has
	stages   map[intent.PolicyID]stages        // of host endpoints' policies, as the driver has them
	hosts    map[intent.EndpointID]*intent.Group
	ids      map[wireID]intent.EndpointID
}

// stages are those at which a policy is asked, if not where most are.
type stages struct{ untracked, preDNAT bool }

func newTranslator(node string) *translator {
	return &translator{
		network: newNetwork(node), policies: map[intent.PolicyID]intent.Policy{}, stages: map[intent.PolicyID]stages{}, hosts: map[intent.EndpointID]*intent.Group{}, ids: map[wireID]intent.EndpointID{},
	}
}

// batch is messages in the order in which a driver may do them, and what could not be said in them.
type batch struct {
	first, sets, policies, profiles, endpoints, routes, removed, last []*pb.ToDataplane

	refused map[intent.Key]error
}

func (b *batch) messages() (out []*pb.ToDataplane) {
	for _, list := range [][]*pb.ToDataplane{b.first, b.sets, b.policies, b.profiles, b.endpoints, b.routes, b.removed, b.last} {
		out = append(out, list...)
	}
	return out
}

// translate takes items as [unsent.State] returns them.
func (t *translator) translate(items []any) *batch {
	b := &batch{refused: map[intent.Key]error{}}
	if !t.begun {
		t.begun = true
		t.policy(b, shut)
	}
	for _, item := range items {
		switch x := item.(type) {
		case intent.IPSet:
			if t.wanted(x.ID) {
				b.sets = append(b.sets, encodeSet(x))
			}
		case intent.MemberDelta:
			if t.wanted(x.Set) {
				b.sets = append(b.sets, encodeDelta(x))
			}
		case intent.Policy:
			t.policies[x.ID] = x // sent once the stages of all are known
		case intent.Endpoint:
			t.endpoint(b, x)
		case unsent.Gone:
			t.remove(b, x.Key)
		default:
			t.take(item)
		}
	}
	t.asked(b, items)
	t.flush(b)
	return b
}

// wanted reports whether a driver has a use for a set.
func (t *translator) wanted(id intent.SetID) bool {
	for _, other := range ofTunnels {
		if id == other {
			return false
		}
	}
	return true
}

// asked adds the policies that changed, and those whose stages did.
func (t *translator) asked(b *batch, items []any) {
	now := map[intent.PolicyID]stages{}
	for _, g := range t.hosts {
		for n, list := range [][]intent.Tier{g.Untracked, g.PreDNAT} {
			for _, tier := range list {
				for _, ids := range [][]intent.PolicyID{tier.Ingress, tier.Egress} {
					for _, id := range ids {
						s := now[id]
						now[id] = stages{s.untracked || n == 0, s.preDNAT || n == 1}
					}
				}
			}
		}
	}
	was := t.stages
	t.stages = now
	for _, item := range items {
		if p, is := item.(intent.Policy); is {
			t.policy(b, p)
			was[p.ID] = now[p.ID]
		}
	}
	for id, p := range t.policies {
		if was[id] != now[id] {
			t.policy(b, p)
		}
	}
}

// policy adds a policy or a profile. Staged ones are never sent: a driver would enforce them.
func (t *translator) policy(b *batch, p intent.Policy) {
	if p.ID.Staged() {
		return
	}
	in, inErr := encodeRules(p.ID, intent.Ingress, p.Ingress)
	out, outErr := encodeRules(p.ID, intent.Egress, p.Egress)
	if err := errors.Join(inErr, outErr); err != nil {
		b.refused[p.ID] = err
	}
	if isProfile(p.ID) {
		b.profiles = append(b.profiles, &pb.ToDataplane{Payload: &pb.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: &pb.ActiveProfileUpdate{
			Id: &pb.ProfileID{Name: p.ID.Name}, Profile: &pb.Profile{InboundRules: in, OutboundRules: out},
		}}})
		return
	}
	s := t.stages[p.ID]
	b.policies = append(b.policies, &pb.ToDataplane{Payload: &pb.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &pb.ActivePolicyUpdate{
		Id: policyID(p.ID), Policy: &pb.Policy{InboundRules: in, OutboundRules: out, Untracked: s.untracked, PreDnat: s.preDNAT, Namespace: p.ID.Namespace, Tier: p.Tier},
	}}})
}

func isProfile(id intent.PolicyID) bool { return id.Kind == "Profile" }

func (t *translator) endpoint(b *batch, e intent.Endpoint) {
	wire := wireOf(e.ID)
	if other, is := t.ids[wire]; is && other != e.ID {
		b.refused[e.ID] = fmt.Errorf("this driver would take it for %s: their names differ in what it does not know", other)
		return
	}
	t.ids[wire] = e.ID
	if delete(t.hosts, e.ID); e.ID.Kind == intent.Host && e.Closed == "" {
		t.hosts[e.ID] = e.Policies()
	}
	b.endpoints = append(b.endpoints, encodeEndpoint(e))
}

// remove adds the end of an item. They come in an order in which nothing is in use any more.
func (t *translator) remove(b *batch, k intent.Key) {
	switch id := k.(type) {
	case intent.SetID:
		if t.wanted(id) {
			b.removed = append(b.removed, &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: string(id)}}})
		}
	case intent.PolicyID:
		delete(t.policies, id)
		switch {
		case id.Staged():
		case isProfile(id):
			b.removed = append(b.removed, &pb.ToDataplane{Payload: &pb.ToDataplane_ActiveProfileRemove{ActiveProfileRemove: &pb.ActiveProfileRemove{Id: &pb.ProfileID{Name: id.Name}}}})
		default:
			b.removed = append(b.removed, &pb.ToDataplane{Payload: &pb.ToDataplane_ActivePolicyRemove{ActivePolicyRemove: &pb.ActivePolicyRemove{Id: policyID(id)}}})
		}
	case intent.EndpointID:
		delete(t.hosts, id)
		if wire := wireOf(id); t.ids[wire] == id {
			delete(t.ids, wire)
			b.removed = append(b.removed, removeEndpoint(id))
		}
	default:
		t.forget(k)
	}
}
