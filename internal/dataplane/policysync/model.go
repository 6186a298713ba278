package policysync

import (
	"maps"
	"slices"
	"sync"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/felixwire"
	"github.com/twillnet/twill/internal/intent"
)

// workload names a workload's endpoint, as the protocol does.
type workload struct{ orchestrator, workload, endpoint string }

func workloadOf(id intent.EndpointID) workload {
	x := felixwire.WorkloadID(id)
	return workload{x.GetOrchestratorId(), x.GetWorkloadId(), x.GetEndpointId()}
}

func (w workload) String() string { return w.orchestrator + "/" + w.workload + "/" + w.endpoint }

// hub joins the model with those who read it.
type hub struct {
	woken func() // work is to be called

	noting sync.Mutex
	notes  []func(*model) // not in the model yet

	mu    sync.Mutex
	model model
}

func newHub(woken func()) *hub {
	return &hub{woken: woken, model: model{
		endpoints: map[workload]intent.Endpoint{}, policies: map[intent.PolicyID]intent.Policy{}, sets: map[intent.SetID]*set{},
		labels: map[labelled]map[string]string{}, shares: map[*share]bool{},
	}}
}

// note has something done to the model soon. It does not wait for those who read.
func (h *hub) note(f func(*model)) {
	h.noting.Lock()
	h.notes = append(h.notes, f)
	h.noting.Unlock()
	h.woken()
}

// work does what was noted.
func (h *hub) work() {
	h.noting.Lock()
	notes := h.notes
	h.notes = nil
	h.noting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range notes {
		f(&h.model)
	}
	for s := range h.model.shares {
		if h.model.inSync && (s.touched || !s.synced) {
			s.wake()
		}
	}
}

// proxied are the endpoints with a reader that has all of its share.
func (h *hub) proxied() map[intent.EndpointID]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[intent.EndpointID]bool{}
	for s := range h.model.shares {
		if s.reads && s.endpoint != (intent.EndpointID{}) {
			out[s.endpoint] = true
		}
	}
	return out
}

// model is what is in force on the node, as far as proxies want to know it.
type model struct {
	endpoints map[workload]intent.Endpoint
	policies  map[intent.PolicyID]intent.Policy
	sets      map[intent.SetID]*set
	labels    map[labelled]map[string]string
	inSync    bool
	shares    map[*share]bool
}

// set is a set and its members.
type set struct {
	intent.IPSet // without members
	members      map[intent.Member]bool
}

// labelled names a namespace, or with an account a service account.
type labelled struct{ namespace, account string }

// merge takes over what has come into force.
func (m *model) merge(b intent.Batch) {
	m.inSync = m.inSync || b.InSync
	for _, x := range b.IPSets {
		m.put(x)
	}
	for _, d := range b.Members {
		m.change(d)
	}
	for _, p := range b.Policies {
		m.policies[p.ID] = p
		m.changed(p.ID)
	}
	for _, e := range b.Endpoints {
		if e.ID.Kind == intent.Workload {
			m.endpoints[workloadOf(e.ID)] = e
			m.changed(workloadOf(e.ID))
		}
	}
	for _, k := range b.Removed {
		m.remove(k)
	}
}

// forget lets go of all policy. Nobody reads any more.
func (m *model) forget() {
	m.endpoints, m.policies, m.sets = map[workload]intent.Endpoint{}, map[intent.PolicyID]intent.Policy{}, map[intent.SetID]*set{}
}

func (m *model) remove(k intent.Key) {
	switch id := k.(type) {
	case intent.SetID:
		delete(m.sets, id)
		m.changed(id)
	case intent.PolicyID:
		delete(m.policies, id)
		m.changed(id)
	case intent.EndpointID:
		if w := workloadOf(id); m.endpoints[w].ID == id {
			delete(m.endpoints, w)
			m.changed(w)
		}
	}
}

func (m *model) put(x intent.IPSet) {
	if !felixwire.OfPolicy(x.ID) || x.ID == intent.SetProxied {
		return
	}
	is := &set{IPSet: x, members: make(map[intent.Member]bool, len(x.Members))}
	is.Members = nil
	for _, member := range x.Members {
		is.members[member] = true
	}
	m.sets[x.ID] = is
	m.changed(x.ID)
}

// change changes members of a set, and notes them for whoever has it.
func (m *model) change(d intent.MemberDelta) {
	is := m.sets[d.Set]
	if is == nil {
		return
	}
	for n, list := range [][]intent.Member{d.Removed, d.Added} {
		for _, member := range list {
			if in := n == 1; is.members[member] != in {
				if in {
					is.members[member] = true
				} else {
					delete(is.members, member)
				}
				for s := range m.shares {
					s.member(is, member, in)
				}
			}
		}
	}
}

func (m *model) know(l Labels) {
	k := labelled{l.Namespace, l.Account}
	if l.Gone {
		delete(m.labels, k)
	} else {
		m.labels[k] = l.Labels
	}
	m.changed(k)
}

// changed notes for whoever has an item, or waits for it, that it is another one now.
func (m *model) changed(k any) {
	_, label := k.(labelled)
	for s := range m.shares {
		if label || k == s.of || s.has[k] || s.lacks {
			s.dirty[k], s.touched = true, true
		}
	}
}

// wants are the policies and sets of an endpoint; lacks: there are others that are not known.
func (m *model) wants(e intent.Endpoint) (policies []intent.PolicyID, sets []intent.SetID, lacks bool) {
	if e.Closed != "" {
		return nil, nil, false
	}
	g, seen := e.Policies(), map[any]bool{}
	lists := [][]intent.PolicyID{g.Profiles}
	for _, t := range g.Normal {
		lists = append(lists, t.Ingress, t.Egress)
	}
	for _, id := range slices.Concat(lists...) {
		if seen[id] || id.Staged() {
			continue
		}
		seen[id] = true
		p, there := m.policies[id]
		if !there {
			lacks = true
			continue
		}
		policies = append(policies, id)
		for set := range intent.Uses(p) {
			switch {
			case seen[set] || set == intent.SetProxied:
			case m.sets[set] == nil:
				lacks = true
			default:
				seen[set] = true
				sets = append(sets, set)
			}
		}
	}
	slices.Sort(sets)
	return policies, sets, lacks
}

// membersAtOnce is how many members of a set one message has at most: some 100 KB, where clients of gRPC take 4 MB.
const membersAtOnce = 2000

// whole returns the messages of a set.
func (x *set) whole() []*pb.ToDataplane {
	members := slices.Collect(maps.Keys(x.members))
	first := x.IPSet
	first.Members = members[:min(len(members), membersAtOnce)]
	out := []*pb.ToDataplane{felixwire.Set(first)}
	for rest := range slices.Chunk(members[len(first.Members):], membersAtOnce) {
		out = append(out, felixwire.Delta(intent.MemberDelta{Set: x.ID, Added: rest}))
	}
	return out
}

func labelUpdate(k labelled, labels map[string]string) *pb.ToDataplane {
	if k.account == "" {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_NamespaceUpdate{NamespaceUpdate: &pb.NamespaceUpdate{Id: &pb.NamespaceID{Name: k.namespace}, Labels: labels}}}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_ServiceAccountUpdate{ServiceAccountUpdate: &pb.ServiceAccountUpdate{
		Id: &pb.ServiceAccountID{Namespace: k.namespace, Name: k.account}, Labels: labels,
	}}}
}

func labelRemove(k labelled) *pb.ToDataplane {
	if k.account == "" {
		return &pb.ToDataplane{Payload: &pb.ToDataplane_NamespaceRemove{NamespaceRemove: &pb.NamespaceRemove{Id: &pb.NamespaceID{Name: k.namespace}}}}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_ServiceAccountRemove{ServiceAccountRemove: &pb.ServiceAccountRemove{Id: &pb.ServiceAccountID{Namespace: k.namespace, Name: k.account}}}}
}
