package felixbackend

import (
	"fmt"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/felixwire"
	"github.com/twillnet/twill/internal/dataplane/unsent"
	"github.com/twillnet/twill/internal/intent"
)

// translator makes messages for one driver that runs, and remembers what they were made of where others depend on it.
type translator struct {
	network
	begun    bool                                 // the driver knows felixwire.Shut
	policies map[intent.PolicyID]intent.Policy    // that the driver has
	stages   map[intent.PolicyID]felixwire.Stages // of host endpoints' policies, as the driver has them
	hosts    map[intent.EndpointID]*intent.Group
	ids      map[wireID]intent.EndpointID
}

func newTranslator(node string) *translator {
	return &translator{
		network: newNetwork(node), policies: map[intent.PolicyID]intent.Policy{}, stages: map[intent.PolicyID]felixwire.Stages{}, hosts: map[intent.EndpointID]*intent.Group{}, ids: map[wireID]intent.EndpointID{},
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
		t.policy(b, felixwire.Shut)
	}
	for _, item := range items {
		switch x := item.(type) {
		case intent.IPSet:
			if felixwire.OfPolicy(x.ID) {
				b.sets = append(b.sets, felixwire.Set(x))
			}
		case intent.MemberDelta:
			if felixwire.OfPolicy(x.Set) {
				b.sets = append(b.sets, felixwire.Delta(x))
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

// asked adds the policies that changed, and those whose stages did.
func (t *translator) asked(b *batch, items []any) {
	now := map[intent.PolicyID]felixwire.Stages{}
	for _, g := range t.hosts {
		for n, list := range [][]intent.Tier{g.Untracked, g.PreDNAT} {
			for _, tier := range list {
				for _, ids := range [][]intent.PolicyID{tier.Ingress, tier.Egress} {
					for _, id := range ids {
						s := now[id]
						now[id] = felixwire.Stages{Untracked: s.Untracked || n == 0, PreDNAT: s.PreDNAT || n == 1}
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
	m, err := felixwire.Policy(p, t.stages[p.ID])
	if err != nil {
		b.refused[p.ID] = err
	}
	if felixwire.IsProfile(p.ID) {
		b.profiles = append(b.profiles, m)
	} else {
		b.policies = append(b.policies, m)
	}
}

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
	b.endpoints = append(b.endpoints, felixwire.Endpoint(e))
}

// remove adds the end of an item. They come in an order in which nothing is in use any more.
func (t *translator) remove(b *batch, k intent.Key) {
	switch id := k.(type) {
	case intent.SetID:
		if felixwire.OfPolicy(id) {
			b.removed = append(b.removed, felixwire.RemoveSet(id))
		}
	case intent.PolicyID:
		delete(t.policies, id)
		if !id.Staged() {
			b.removed = append(b.removed, felixwire.RemovePolicy(id))
		}
	case intent.EndpointID:
		delete(t.hosts, id)
		if wire := wireOf(id); t.ids[wire] == id {
			delete(t.ids, wire)
			b.removed = append(b.removed, felixwire.RemoveEndpoint(id))
		}
	default:
		t.forget(k)
	}
}
