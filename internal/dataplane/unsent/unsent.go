// Package unsent is what a node should be, and what of it a stream to a dataplane in another process has not carried yet.
//
// In: [intent.Batch], however many while a stream is busy. Out: what is to be sent, each item in its present state, in the order in which a driver
// can do it. Its size is that of what should be: changes of one item, or of one member of a set, become one.
package unsent

import (
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// MembersAtOnce is how many members of a set one item has at most: some 100 KB.
const MembersAtOnce = 2000

// State is what a node should be. Make it with New; one goroutine may use it.
type State struct {
	items  map[intent.Key]any // a Policy, Endpoint, Route, TunnelPeer or HostSettings
	sets   map[intent.SetID]*set
	inSync bool // a batch had it

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

// New returns a State of nothing.
func New() *State {
	s := &State{items: map[intent.Key]any{}, sets: map[intent.SetID]*set{}}
	s.Begin()
	return s
}

// Begin is for a new stream: all is to be sent.
func (s *State) Begin() {
	s.carried, s.dirty, s.deltas = map[intent.Key]bool{}, map[intent.Key]bool{}, map[intent.SetID]map[intent.Member]deltaKind{}
	for k := range s.items {
		s.dirty[k] = true
	}
	for id := range s.sets {
		s.dirty[id] = true
	}
}

// Again has an item sent once more.
func (s *State) Again(k intent.Key) {
	if s.Has(k) {
		s.dirty[k] = true
	}
}

// Has reports whether an item should be.
func (s *State) Has(k intent.Key) bool {
	if id, is := k.(intent.SetID); is {
		return s.sets[id] != nil
	}
	_, there := s.items[k]
	return there
}

func (s *State) put(k intent.Key, v any) {
	s.items[k] = v
	s.dirty[k] = true
}

// Merge merges a change.
func (s *State) Merge(b intent.Batch) {
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
func (s *State) change(d intent.MemberDelta) {
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

// InSync reports whether all that existed at the start is merged.
func (s *State) InSync() bool { return s.inSync }

// Waits reports whether an item, or its end, is to be sent as a whole.
func (s *State) Waits(k intent.Key) bool { return s.dirty[k] }

// Gone is the name of an item that is to be removed.
type Gone struct{ Key intent.Key }

// Take returns what the stream has not carried, in the order in which a driver can do it, and the names of what is in it; both are empty if there is
// nothing. An item is an [intent.IPSet], [intent.MemberDelta], [intent.Policy], [intent.Endpoint], [intent.Route], [intent.TunnelPeer],
// [intent.HostSettings] or [Gone]. A set with more members than [MembersAtOnce] comes with the first, and deltas with the others after it.
func (s *State) Take() (items []any, keys []intent.Key) {
	var gone []intent.Key
	for _, k := range slices.SortedFunc(maps.Keys(s.dirty), intent.CompareKeys) {
		if !s.Has(k) {
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
		if item, is := s.items[k]; is {
			items = append(items, item)
		}
	}
	for _, k := range slices.Backward(gone) {
		items = append(items, Gone{k})
	}
	clear(s.dirty)
	clear(s.deltas)
	return items, keys
}

// whole returns a set with all its members, in pieces.
func (x *set) whole() []any {
	members := slices.Collect(maps.Keys(x.members))
	first := x.IPSet
	first.Members = members[:min(len(members), MembersAtOnce)]
	out := []any{first}
	for rest := range slices.Chunk(members[len(first.Members):], MembersAtOnce) {
		out = append(out, intent.MemberDelta{Set: x.ID, Added: rest})
	}
	return out
}

func deltas(id intent.SetID, of map[intent.Member]deltaKind) (out []any) {
	for part := range slices.Chunk(slices.Collect(maps.Keys(of)), MembersAtOnce) {
		d := intent.MemberDelta{Set: id}
		for _, m := range part {
			if of[m] == added {
				d.Added = append(d.Added, m)
			} else {
				d.Removed = append(d.Removed, m)
			}
		}
		out = append(out, d)
	}
	return out
}
