package policysync

import (
	"cmp"
	"maps"
	"slices"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/felixwire"
	"github.com/twillnet/twill/internal/intent"
)

// sharesAtOnce is how many readers one workload may have.
const sharesAtOnce = 4

// share is what one reader has of its workload's share, and what it has not been sent. Its size is that of the share: changes of one item, or of one
// member, become one. The hub's lock guards it.
type share struct {
	of       workload
	endpoint intent.EndpointID // that it has; zero: none
	reads    bool              // it has been sent all, once
	synced   bool              // and InSync
	dirty    map[any]bool      // names of items that changed since they were sent, or that it may never have had
	has      map[any]bool      // items that it has: a SetID, PolicyID or labelled
	deltas   map[intent.SetID]map[intent.Member]bool
	woken    chan struct{}

	touched  bool // something of it has changed since it was taken
	policies []intent.PolicyID
	sets     []intent.SetID
	lacks    bool // an item that it wants is not known
}

func (s *share) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// join adds a reader of a workload; nil: it has too many.
func (h *hub) join(of workload) *share {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for s := range h.model.shares {
		if s.of == of {
			n++
		}
	}
	if n >= sharesAtOnce {
		return nil
	}
	s := &share{of: of, dirty: map[any]bool{}, has: map[any]bool{}, deltas: map[intent.SetID]map[intent.Member]bool{}, woken: make(chan struct{}, 1)}
	for k := range h.model.labels {
		s.dirty[k] = true
	}
	h.model.shares[s] = true
	return s
}

// leave removes a reader.
func (h *hub) leave(s *share) {
	h.mu.Lock()
	delete(h.model.shares, s)
	h.mu.Unlock()
	h.woken()
}

// read notes that a reader has all that take returned until now.
func (h *hub) read(s *share) {
	h.mu.Lock()
	was := s.reads
	s.reads = s.synced
	now := s.reads
	h.mu.Unlock()
	if was != now {
		h.woken()
	}
}

// member notes a member that came to a set or went.
func (s *share) member(of *set, m intent.Member, in bool) {
	if !s.has[of.ID] || s.dirty[of.ID] {
		return // all members are sent, or none
	}
	is := s.deltas[of.ID]
	if is == nil {
		is = map[intent.Member]bool{}
		s.deltas[of.ID] = is
	}
	s.touched = true
	if _, back := is[m]; back {
		delete(is, m) // as the reader has it
		return
	}
	if is[m] = in; len(is) > membersAtOnce && len(is) > len(of.members) {
		s.dirty[of.ID] = true // a message of all is shorter
		delete(s.deltas, of.ID)
	}
}

// take returns what a reader has not been sent, in an order in which nothing that is used is missing.
func (h *hub) take(s *share) (out []*pb.ToDataplane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &h.model
	if !m.inSync {
		return nil // what is known in part is nobody's policy
	}
	e, there := m.endpoints[s.of]
	if len(s.dirty) > 0 || !s.synced {
		if s.policies, s.sets, s.lacks = nil, nil, false; there {
			s.policies, s.sets, s.lacks = m.wants(e)
		}
	}
	s.touched = false
	wanted := map[any]bool{}
	for _, id := range s.sets {
		wanted[id] = true
		out = append(out, s.set(m.sets[id])...)
	}
	for _, id := range s.policies {
		wanted[id] = true
		if !s.has[id] || s.dirty[id] {
			s.has[id] = true
			out = append(out, policyMessage(m.policies[id]))
		}
	}
	out = append(out, s.endpoints(e, there)...)
	out = append(out, s.labels(m)...)
	out = append(out, s.unwanted(wanted)...)
	clear(s.dirty)
	if !s.synced {
		s.synced = true
		out = append(out, &pb.ToDataplane{Payload: &pb.ToDataplane_InSync{InSync: &pb.InSync{}}})
	}
	return out
}

// set returns what a reader has not of a set that it wants.
func (s *share) set(x *set) (out []*pb.ToDataplane) {
	if !s.has[x.ID] || s.dirty[x.ID] {
		s.has[x.ID] = true
		delete(s.deltas, x.ID)
		return x.whole()
	}
	of := s.deltas[x.ID]
	delete(s.deltas, x.ID)
	for part := range slices.Chunk(slices.Collect(maps.Keys(of)), membersAtOnce) {
		d := intent.MemberDelta{Set: x.ID}
		for _, member := range part {
			if of[member] {
				d.Added = append(d.Added, member)
			} else {
				d.Removed = append(d.Removed, member)
			}
		}
		out = append(out, felixwire.Delta(d))
	}
	return out
}

// endpoints returns the endpoint, or that it is gone.
func (s *share) endpoints(e intent.Endpoint, there bool) (out []*pb.ToDataplane) {
	if s.endpoint != (intent.EndpointID{}) && (!there || s.endpoint != e.ID) {
		out = append(out, felixwire.RemoveEndpoint(s.endpoint))
		s.endpoint = intent.EndpointID{}
	}
	if there && (s.endpoint != e.ID || s.dirty[s.of]) {
		s.endpoint = e.ID
		out = append(out, felixwire.Endpoint(e))
	}
	return out
}

// labels returns labels of namespaces and accounts that changed.
func (s *share) labels(m *model) (out []*pb.ToDataplane) {
	var changed []labelled
	for k := range s.dirty {
		if l, is := k.(labelled); is {
			changed = append(changed, l)
		}
	}
	slices.SortFunc(changed, func(a, b labelled) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.account, b.account))
	})
	for _, k := range changed {
		if labels, there := m.labels[k]; there {
			s.has[k] = true
			out = append(out, labelUpdate(k, labels))
		} else if s.has[k] {
			delete(s.has, k)
			out = append(out, labelRemove(k))
		}
	}
	return out
}

// unwanted returns the ends of policies and of sets that the reader has no use for any more: policies first.
func (s *share) unwanted(wanted map[any]bool) []*pb.ToDataplane {
	var policies []intent.PolicyID
	var sets []intent.SetID
	for k := range s.has {
		if wanted[k] {
			continue
		}
		switch id := k.(type) {
		case intent.PolicyID:
			policies = append(policies, id)
		case intent.SetID:
			sets = append(sets, id)
			delete(s.deltas, id)
		default:
			continue
		}
		delete(s.has, k)
	}
	slices.SortFunc(policies, func(a, b intent.PolicyID) int { return intent.CompareKeys(a, b) })
	slices.Sort(sets)
	var out []*pb.ToDataplane
	for _, id := range policies {
		out = append(out, felixwire.RemovePolicy(id))
	}
	for _, id := range sets {
		out = append(out, felixwire.RemoveSet(id))
	}
	return out
}

// policyMessage is a policy for proxies: what a rule asks of requests stands in the place of [intent.SetProxied]. A rule that the protocol cannot say is
// closed there.
func policyMessage(p intent.Policy) *pb.ToDataplane {
	for _, list := range []*[]intent.Rule{&p.Ingress, &p.Egress} {
		*list = slices.Clone(*list)
		for n := range *list {
			r := &(*list)[n]
			if r.Requests != nil && r.Requests.HTTP != nil {
				r.Dst.Sets = slices.DeleteFunc(slices.Clone(r.Dst.Sets), func(id intent.SetID) bool { return id == intent.SetProxied })
			}
		}
	}
	out, _ := felixwire.Policy(p, felixwire.Stages{}) // an error says what is closed
	return out
}
