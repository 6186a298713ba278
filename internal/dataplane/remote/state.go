package remote

import (
	"maps"
	"slices"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/intent"
)

// membersAtOnce is how many members of a set one message has at most: some 100 KB.
const membersAtOnce = 2000

// state is what a node should be, and what of it a stream has not carried yet. Its size is that of what should be, however long a driver
// takes: changes of one item, or of one member, become one.
type state struct {
	items  map[intent.Key]any // a Policy, Endpoint, Route, TunnelPeer or HostSettings
	sets   map[intent.SetID]*set
	inSync bool

	carried map[intent.Key]bool                          // the driver has it
	dirty   map[intent.Key]bool                          // to be sent, or removed
	deltas  map[intent.SetID]map[intent.Member]deltaKind // members to be sent, of sets that are not dirty
}

type set struct {
	intent.IPSet // without members
	members      map[intent.Member]bool
}

type deltaKind bool

const (
	added   deltaKind = true
	removed deltaKind = false
)

func newState() state {
	s := state{items: map[intent.Key]any{}, sets: map[intent.SetID]*set{}}
	s.begin()
	return s
}

// begin is for a new stream: all is to be sent.
func (s *state) begin() {
	s.carried, s.dirty, s.deltas = map[intent.Key]bool{}, map[intent.Key]bool{}, map[intent.SetID]map[intent.Member]deltaKind{}
	for k := range s.items {
		s.dirty[k] = true
	}
	for id := range s.sets {
		s.dirty[id] = true
	}
}

// again has an item sent once more.
func (s *state) again(k intent.Key) {
	if s.has(k) {
		s.dirty[k] = true
	}
}

func (s *state) has(k intent.Key) bool {
	if id, is := k.(intent.SetID); is {
		return s.sets[id] != nil
	}
	_, there := s.items[k]
	return there
}

func (s *state) put(k intent.Key, v any) {
	s.items[k] = v
	s.dirty[k] = true
}

func (s *state) merge(b intent.Batch) {
	s.inSync = s.inSync || b.InSync
	for _, x := range b.IPSets {
		is := &set{IPSet: x, members: make(map[intent.Member]bool, len(x.Members))}
		is.Members = nil
		for _, m := range x.Members {
			is.members[m] = true
		}
		s.sets[x.ID] = is
		s.dirty[x.ID] = true
		delete(s.deltas, x.ID)
	}
	for _, d := range b.Members {
		s.change(d)
	}
	for _, p := range b.Policies {
		s.put(p.ID, p)
	}
	for _, e := range b.Endpoints {
		s.put(e.ID, e)
	}
	for _, r := range b.Routes {
		s.put(r.ID(), r)
	}
	for _, p := range b.Peers {
		s.put(p.ID(), p)
	}
	if b.Host != nil {
		s.put(intent.HostID(""), *b.Host)
	}
	for _, k := range b.Removed {
		delete(s.items, k)
		if id, is := k.(intent.SetID); is {
			delete(s.sets, id)
			delete(s.deltas, id)
		}
		s.dirty[k] = true
	}
}

// change changes members of a set.
func (s *state) change(d intent.MemberDelta) {
	is := s.sets[d.Set]
	if is == nil {
		return
	}
	note := func(m intent.Member, kind deltaKind) {
		if is.members[m] == bool(kind) {
			return
		}
		if kind == added {
			is.members[m] = true
		} else {
			delete(is.members, m)
		}
		if s.dirty[d.Set] {
			return // all members are sent
		}
		of := s.deltas[d.Set]
		if of == nil {
			of = map[intent.Member]deltaKind{}
			s.deltas[d.Set] = of
		}
		if _, back := of[m]; back {
			delete(of, m) // as the driver has it
			return
		}
		of[m] = kind
	}
	for _, m := range d.Removed {
		note(m, removed)
	}
	for _, m := range d.Added {
		note(m, added)
	}
}

// take returns what the stream has not carried, in the order in which a driver can do it, and the names of what is in it; both are empty if there is
// nothing.
func (s *state) take() (items []*pb.ToDriver, keys []intent.Key) {
	var gone []intent.Key
	for _, k := range slices.SortedFunc(maps.Keys(s.dirty), intent.CompareKeys) {
		if !s.has(k) {
			if s.carried[k] {
				gone = append(gone, k)
				delete(s.carried, k)
			}
			continue
		}
		s.carried[k] = true
		keys = append(keys, k)
		if id, is := k.(intent.SetID); is {
			items = append(items, s.sets[id].whole()...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.deltas)) {
		if len(s.deltas[id]) == 0 {
			continue
		}
		keys = append(keys, id)
		items = append(items, deltas(id, s.deltas[id])...)
	}
	for _, k := range keys {
		if item := encode(s.items[k]); item != nil {
			items = append(items, item)
		}
	}
	for _, k := range slices.Backward(gone) {
		items = append(items, &pb.ToDriver{Item: &pb.ToDriver_Removed{Removed: encodeKey(k)}})
	}
	clear(s.dirty)
	clear(s.deltas)
	return items, keys
}

// whole returns a set with all its members, in pieces.
func (x *set) whole() []*pb.ToDriver {
	members := slices.Collect(maps.Keys(x.members))
	first := x.IPSet
	first.Members = members[:min(len(members), membersAtOnce)]
	out := []*pb.ToDriver{{Item: &pb.ToDriver_IpSet{IpSet: encodeSet(first)}}}
	for rest := range slices.Chunk(members[len(first.Members):], membersAtOnce) {
		out = append(out, membersOf(intent.MemberDelta{Set: x.ID, Added: rest}))
	}
	return out
}

func deltas(id intent.SetID, of map[intent.Member]deltaKind) (out []*pb.ToDriver) {
	for part := range slices.Chunk(slices.Collect(maps.Keys(of)), membersAtOnce) {
		d := intent.MemberDelta{Set: id}
		for _, m := range part {
			if of[m] == added {
				d.Added = append(d.Added, m)
			} else {
				d.Removed = append(d.Removed, m)
			}
		}
		out = append(out, membersOf(d))
	}
	return out
}

func membersOf(d intent.MemberDelta) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_Members{Members: encodeMembers(d)}}
}

// encode returns nil for what is not an item of [state].
func encode(v any) *pb.ToDriver {
	switch x := v.(type) {
	case intent.Policy:
		return &pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: encodePolicy(x)}}
	case intent.Endpoint:
		return &pb.ToDriver{Item: &pb.ToDriver_Endpoint{Endpoint: encodeEndpoint(x)}}
	case intent.Route:
		return &pb.ToDriver{Item: &pb.ToDriver_Route{Route: encodeRoute(x)}}
	case intent.TunnelPeer:
		return &pb.ToDriver{Item: &pb.ToDriver_TunnelPeer{TunnelPeer: encodeTunnelPeer(x)}}
	case intent.HostSettings:
		return &pb.ToDriver{Item: &pb.ToDriver_Host{Host: encodeHost(x)}}
	}
	return nil
}
