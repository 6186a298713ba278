package policysync

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/felixwire"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// reader is a proxy: it applies messages as one does, and complains where one would.
type reader struct {
	endpoint                   string
	policies, profiles, labels map[string]string
	sets                       map[string]map[string]bool
	inSync                     int
}

func newReader() *reader {
	return &reader{policies: map[string]string{}, profiles: map[string]string{}, labels: map[string]string{}, sets: map[string]map[string]bool{}}
}

// apply applies a message, and says what is wrong with it.
func (r *reader) apply(m *pb.ToDataplane) (problem string) {
	switch x := m.GetPayload().(type) {
	case *pb.ToDataplane_InSync:
		r.inSync++
	case *pb.ToDataplane_IpsetUpdate:
		is := map[string]bool{}
		for _, member := range x.IpsetUpdate.GetMembers() {
			is[member] = true
		}
		r.sets[x.IpsetUpdate.GetId()] = is
	case *pb.ToDataplane_IpsetDeltaUpdate:
		return r.delta(x.IpsetDeltaUpdate)
	case *pb.ToDataplane_IpsetRemove:
		return take(r.sets, x.IpsetRemove.GetId())
	case *pb.ToDataplane_ActivePolicyUpdate:
		r.policies[idText(x.ActivePolicyUpdate.GetId())] = x.ActivePolicyUpdate.GetPolicy().String()
		return r.known(slices.Concat(x.ActivePolicyUpdate.GetPolicy().GetInboundRules(), x.ActivePolicyUpdate.GetPolicy().GetOutboundRules()))
	case *pb.ToDataplane_ActivePolicyRemove:
		return take(r.policies, idText(x.ActivePolicyRemove.GetId()))
	case *pb.ToDataplane_ActiveProfileUpdate:
		r.profiles[x.ActiveProfileUpdate.GetId().GetName()] = x.ActiveProfileUpdate.GetProfile().String()
		return r.known(slices.Concat(x.ActiveProfileUpdate.GetProfile().GetInboundRules(), x.ActiveProfileUpdate.GetProfile().GetOutboundRules()))
	case *pb.ToDataplane_ActiveProfileRemove:
		return take(r.profiles, x.ActiveProfileRemove.GetId().GetName())
	case *pb.ToDataplane_WorkloadEndpointUpdate:
		r.endpoint = x.WorkloadEndpointUpdate.String()
		return r.complete(x.WorkloadEndpointUpdate.GetEndpoint())
	case *pb.ToDataplane_WorkloadEndpointRemove:
		r.endpoint = ""
	case *pb.ToDataplane_NamespaceUpdate:
		r.labels[x.NamespaceUpdate.GetId().GetName()] = fmt.Sprint(x.NamespaceUpdate.GetLabels())
	case *pb.ToDataplane_NamespaceRemove:
		return take(r.labels, x.NamespaceRemove.GetId().GetName())
	case *pb.ToDataplane_ServiceAccountUpdate:
		id := x.ServiceAccountUpdate.GetId()
		r.labels[id.GetNamespace()+"/"+id.GetName()] = fmt.Sprint(x.ServiceAccountUpdate.GetLabels())
	case *pb.ToDataplane_ServiceAccountRemove:
		return take(r.labels, x.ServiceAccountRemove.GetId().GetNamespace()+"/"+x.ServiceAccountRemove.GetId().GetName())
	default:
		return fmt.Sprintf("a proxy does not know %T", x)
	}
	return ""
}

func idText(id *pb.PolicyID) string {
	return id.GetKind() + "/" + id.GetNamespace() + "/" + id.GetName()
}

func take[T any](from map[string]T, id string) string {
	if _, there := from[id]; !there {
		return id + " is not there"
	}
	delete(from, id)
	return ""
}

func (r *reader) delta(d *pb.IPSetDeltaUpdate) string {
	is := r.sets[d.GetId()]
	if is == nil {
		return "a change of set " + d.GetId() + ", which is not there"
	}
	for _, m := range d.GetAddedMembers() {
		is[m] = true
	}
	for _, m := range d.GetRemovedMembers() {
		if !is[m] {
			return m + " is not in " + d.GetId()
		}
		delete(is, m)
	}
	return ""
}

func (r *reader) known(rules []*pb.Rule) string {
	for _, x := range rules {
		for _, id := range slices.Concat(x.GetSrcIpSetIds(), x.GetDstIpSetIds()) {
			if r.sets[id] == nil {
				return "a rule names set " + id + ", which is not there"
			}
		}
	}
	return ""
}

func (r *reader) complete(e *pb.WorkloadEndpoint) string {
	for _, id := range e.GetProfileIds() {
		if _, there := r.profiles[id]; !there {
			return "profile " + id + " is not there"
		}
	}
	for _, t := range e.GetTiers() {
		for _, id := range slices.Concat(t.GetIngressPolicies(), t.GetEgressPolicies()) {
			if _, there := r.policies[idText(id)]; !there {
				return "policy " + idText(id) + " is not there"
			}
		}
	}
	return ""
}

// node is what calc would want of a node, at random.
type node struct {
	*rand.Rand
	sets      map[intent.SetID]map[intent.Member]bool
	policies  map[intent.PolicyID]intent.Policy
	endpoints map[intent.EndpointID]intent.Endpoint
}

func (n *node) member() intent.Member {
	return intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n.IntN(12))}), 32)}
}

func policyName(i int) intent.PolicyID {
	if i == 0 {
		return intent.PolicyID{Kind: "Profile", Name: "kns.shop"}
	}
	return intent.PolicyID{Kind: "NetworkPolicy", Namespace: "shop", Name: fmt.Sprint("p", i)}
}

func setName(i int) intent.SetID { return intent.SetID(fmt.Sprint("s", i)) }

func pod(name string) intent.EndpointID {
	return intent.EndpointID{Namespace: "shop", Name: "h1-k8s-" + name + "-eth0"}
}

// step changes something, and returns a batch as calc would make it: whole, sets and policies before who refers to them.
func (n *node) step() (b intent.Batch) {
	old := node{sets: maps.Clone(n.sets), policies: maps.Clone(n.policies)}
	e := intent.Endpoint{ID: pod([]string{"web", "db"}[n.IntN(2)]), Link: "cali1", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}
	switch n.IntN(5) {
	case 0:
		if _, there := n.endpoints[e.ID]; there {
			delete(n.endpoints, e.ID)
			b.Removed = append(b.Removed, e.ID)
		}
	case 1:
		e.Closed = "for a reason"
		n.endpoints[e.ID] = e
		b.Endpoints = append(b.Endpoints, e)
	default:
		ids := []intent.PolicyID{policyName(1 + n.IntN(4)), policyName(1 + n.IntN(4))}
		e.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Ingress: slices.Compact(ids), Egress: ids[:1]}}}, policyName(0))
		n.endpoints[e.ID] = e
		b.Endpoints = append(b.Endpoints, e)
	}
	used := map[intent.PolicyID]bool{}
	for _, e := range n.endpoints {
		for _, id := range e.Policies().IDs() {
			used[id] = true
		}
	}
	sets := map[intent.SetID]bool{}
	for id := range used {
		p, there := n.policies[id]
		if !there || n.IntN(4) == 0 {
			r := intent.Rule{Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: []intent.SetID{setName(n.IntN(3))}}}
			if n.IntN(2) == 0 {
				r.Dst.Sets, r.Requests = []intent.SetID{intent.SetProxied}, &intent.Requests{HTTP: &intent.HTTP{Methods: []string{fmt.Sprint("M", n.IntN(9))}}}
			}
			p = intent.Policy{ID: id, Tier: "default", Ingress: []intent.Rule{r}}
			b.Policies = append(b.Policies, p)
			n.policies[id] = p
		}
		for s := range intent.Uses(p) {
			sets[s] = true
		}
	}
	n.putSets(&b, sets, old)
	for id := range old.policies {
		if !used[id] {
			delete(n.policies, id)
			b.Removed = append(b.Removed, id)
		}
	}
	return b
}

func (n *node) putSets(b *intent.Batch, used map[intent.SetID]bool, old node) {
	for id := range used {
		if n.sets[id] == nil {
			n.sets[id] = map[intent.Member]bool{n.member(): true}
			b.IPSets = append(b.IPSets, intent.IPSet{ID: id, Members: slices.Collect(maps.Keys(n.sets[id]))})
		}
	}
	for id := range old.sets {
		if !used[id] {
			delete(n.sets, id)
			b.Removed = append([]intent.Key{id}, b.Removed...)
			continue
		}
		m, d := n.member(), intent.MemberDelta{Set: id}
		if n.sets[id][m] {
			delete(n.sets[id], m)
			d.Removed = append(d.Removed, m)
		} else {
			n.sets[id][m] = true
			d.Added = append(d.Added, m)
		}
		b.Members = append(b.Members, d)
	}
}

// share is what a reader of an endpoint must have, the obvious way.
func (n *node) share(id intent.EndpointID) *reader {
	r := newReader()
	e, there := n.endpoints[id]
	if !there {
		return r
	}
	r.endpoint = felixwire.Endpoint(e).GetWorkloadEndpointUpdate().String()
	if e.Closed != "" {
		return r
	}
	for _, id := range e.Policies().IDs() {
		for _, one := range n.policies[id].Ingress {
			for _, s := range append(slices.Clone(one.Src.Sets), one.Dst.Sets...) {
				if s == intent.SetProxied {
					continue
				}
				r.sets[string(s)] = map[string]bool{}
				for m := range n.sets[s] {
					r.sets[string(s)][m.Prefix.String()] = true
				}
			}
		}
		switch m := policyMessage(n.policies[id]); {
		case felixwire.IsProfile(id):
			r.profiles[id.Name] = m.GetActiveProfileUpdate().GetProfile().String()
		default:
			r.policies[id.Kind+"/"+id.Namespace+"/"+id.Name] = m.GetActivePolicyUpdate().GetPolicy().String()
		}
	}
	return r
}

// TestAnyPaceTheWorkloadsShareAlone: at whatever pace readers take messages, and whenever they come, each message fits what they have, and they end with all of their
// workload's share and nothing of another's; InSync comes once, after the first state.
func TestAnyPaceTheWorkloadsShareAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.New(t), 0))
	n := &node{Rand: rng, sets: map[intent.SetID]map[intent.Member]bool{}, policies: map[intent.PolicyID]intent.Policy{}, endpoints: map[intent.EndpointID]intent.Endpoint{}}
	h := newHub(func() {})
	type one struct {
		*share
		*reader
		id intent.EndpointID
	}
	var readers []one
	for step := range 3000 {
		b := n.step()
		b.InSync = step > 20
		h.note(func(m *model) { m.merge(b) })
		h.work()
		if rng.IntN(20) == 0 {
			id := pod([]string{"web", "db", "none"}[rng.IntN(3)])
			if s := h.join(workloadOf(id)); s != nil {
				readers = append(readers, one{s, newReader(), id})
			}
		}
		for _, r := range readers {
			if rng.IntN(3) == 0 {
				continue
			}
			select {
			case <-r.woken:
			default:
				if r.synced {
					continue // as a stream, which waits to be woken
				}
			}
			for _, m := range h.take(r.share) {
				if problem := r.apply(m); problem != "" {
					t.Fatalf("step %d: %v: %s", step, m, problem)
				}
			}
			if want := n.share(r.id); step <= 20 {
				if r.inSync != 0 {
					t.Fatalf("step %d: in sync before the node is", step)
				}
			} else if want.inSync = 1; !reflect.DeepEqual(r.reader, want) {
				t.Fatalf("step %d: reader of %s has\n%+v\nwant\n%+v", step, r.id, r.reader, want)
			}
		}
		if len(readers) > 0 && rng.IntN(40) == 0 {
			h.leave(readers[0].share)
			readers = readers[1:]
		}
	}
}

// TestLabelsOfAllAreSent: each reader has the labels of every namespace and service account, and what changes of them.
func TestLabelsOfAllAreSent(t *testing.T) {
	h := newHub(func() {})
	put := func(l Labels) { h.note(func(m *model) { m.know(l) }) }
	put(Labels{Namespace: "shop", Labels: map[string]string{"team": "a"}})
	put(Labels{Namespace: "shop", Account: "web"})
	h.note(func(m *model) { m.merge(intent.Batch{InSync: true}) })
	h.work()
	s, r := h.join(workloadOf(pod("web"))), newReader()
	want := func(labels map[string]string) {
		t.Helper()
		for _, m := range h.take(s) {
			if problem := r.apply(m); problem != "" {
				t.Fatal(problem)
			}
		}
		if !maps.Equal(r.labels, labels) || r.inSync != 1 {
			t.Errorf("got %v (in sync %d), want %v", r.labels, r.inSync, labels)
		}
	}
	want(map[string]string{"shop": "map[team:a]", "shop/web": "map[]"})
	put(Labels{Namespace: "shop", Gone: true})
	put(Labels{Namespace: "shop", Account: "web", Labels: map[string]string{"x": "y"}})
	put(Labels{Namespace: "other", Account: "short-lived"})
	put(Labels{Namespace: "other", Account: "short-lived", Gone: true})
	h.work()
	want(map[string]string{"shop/web": "map[x:y]"})
}

// TestWhatARuleAsksOfRequestsIsPassedOn: and the set that stands for it in the kernel is not.
func TestWhatARuleAsksOfRequestsIsPassedOn(t *testing.T) {
	p := intent.Policy{ID: policyName(1), Ingress: []intent.Rule{{
		Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Sets: []intent.SetID{"s1", intent.SetProxied}},
		Requests: &intent.Requests{
			HTTP: &intent.HTTP{Methods: []string{"GET"}, Paths: []intent.Path{{Exact: "/a"}, {Prefix: "/b"}}},
			Src:  intent.Identity{Selector: "app == 'x'", NotSelector: "has(y)", NamespaceSelector: "all()", Accounts: &intent.Accounts{Names: []string{"web"}, Selector: "has(z)"}},
		},
	}}}
	got := policyMessage(p).GetActivePolicyUpdate().GetPolicy().GetInboundRules()[0]
	want := &pb.Rule{
		Action: "allow", Protocol: &pb.Protocol{NumberOrName: &pb.Protocol_Number{Number: 6}}, DstIpSetIds: []string{"s1"}, RuleId: "NetworkPolicy/shop/p1/Ingress/0",
		OriginalSrcSelector: "app == 'x'", OriginalNotSrcSelector: "has(y)", OriginalSrcNamespaceSelector: "all()",
		SrcServiceAccountMatch: &pb.ServiceAccountMatch{Selector: "has(z)", Names: []string{"web"}},
		HttpMatch: &pb.HTTPMatch{Methods: []string{"GET"}, Paths: []*pb.HTTPMatch_PathMatch{
			{PathMatch: &pb.HTTPMatch_PathMatch_Exact{Exact: "/a"}}, {PathMatch: &pb.HTTPMatch_PathMatch_Prefix{Prefix: "/b"}},
		}},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(p.Ingress[0].Dst.Sets) != 2 {
		t.Error("the intent was changed")
	}
}

// TestALargeSetComesInPieces: no message is near what clients take, and a set of which most has changed is sent anew.
func TestALargeSetComesInPieces(t *testing.T) {
	h, e := newHub(func() {}), intent.Endpoint{ID: pod("web"), Group: intent.GroupOf(intent.Stages{}, policyName(0))}
	many := func(from int) (out []intent.Member) {
		for i := range 50_000 {
			a := from + i
			out = append(out, intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(a >> 16), byte(a >> 8), byte(a)}), 32)})
		}
		return out
	}
	p := intent.Policy{ID: policyName(0), Ingress: []intent.Rule{{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{"s1"}}}}}
	h.note(func(m *model) {
		m.merge(intent.Batch{IPSets: []intent.IPSet{{ID: "s1", Members: many(0)}}, Policies: []intent.Policy{p}, Endpoints: []intent.Endpoint{e}, InSync: true})
	})
	h.work()
	s, r := h.join(workloadOf(e.ID)), newReader()
	read := func() (whole bool) {
		for _, m := range h.take(s) {
			whole = whole || m.GetIpsetUpdate() != nil
			if problem := r.apply(m); problem != "" || proto.Size(m) > 256<<10 {
				t.Fatalf("a message of %d bytes; %s", proto.Size(m), problem)
			}
		}
		return whole
	}
	read()
	for n, batch := range []intent.Batch{
		{Members: []intent.MemberDelta{{Set: "s1", Removed: many(0)[:1000]}}},
		{Members: []intent.MemberDelta{{Set: "s1", Removed: many(0)[1000:]}, {Set: "s1", Added: many(100_000)}}},
	} {
		h.note(func(m *model) { m.merge(batch) })
		h.work()
		if whole := read(); whole != (n == 1) {
			t.Errorf("batch %d: sent whole: %v", n, whole)
		}
	}
	if n := len(r.sets["s1"]); n != 50_000 || !strings.HasPrefix(fmt.Sprint(slices.Sorted(maps.Keys(r.sets["s1"]))[0]), "10.1.") {
		t.Errorf("the reader has %d members", n)
	}
}
