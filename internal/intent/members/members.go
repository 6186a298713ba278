// Package members stores the members of sets, for packages that evaluate packets and for those that compute what follows from
// membership.
//
// In: [intent.Batch], of which sets, their members and removals are used.
// Out: whether an address or a port is in a set, as the terms of package match need it, and all members of a set.
//
// What a node is about to enforce and what it enforces differ, and need two stores. A backend keeps members in the form of its
// kernel by itself, since it must know which of them are there.
// A Store has one owner, depends on what was merged and not on the order of what is of different sets, and is pure.
package members

import (
	"encoding/binary"
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
)

// Store has the sets that were merged. The zero value is empty.
type Store struct {
	sets map[intent.SetID]*set
}

// set is a hash of prefixes, looked up once for each length in use. There are many, and most are IPv4.
type set struct {
	v4      map[uint64]struct{} // see key4
	v6      map[netip.Prefix]struct{}
	ports   map[intent.Member]struct{}
	lengths [2]map[int]int // by family: length of a prefix → number of prefixes
}

// Merge merges a batch. Members of an unknown set are ignored.
func (s *Store) Merge(b intent.Batch) {
	for _, in := range b.IPSets {
		if s.sets == nil {
			s.sets = map[intent.SetID]*set{}
		}
		x := &set{}
		s.sets[in.ID] = x
		for _, m := range in.Members {
			x.put(m, true)
		}
	}
	for _, d := range b.Members {
		x := s.sets[d.Set]
		if x == nil {
			continue
		}
		// Added last: a member in both lists is in the set.
		for _, m := range d.Removed {
			x.put(m, false)
		}
		for _, m := range d.Added {
			x.put(m, true)
		}
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.SetID); ok {
			delete(s.sets, id)
		}
	}
}

// Has reports whether an address is in a set. An unknown set is empty.
func (s *Store) Has(id intent.SetID, a netip.Addr) bool {
	x := s.sets[id]
	if x == nil || !a.IsValid() {
		return false
	}
	for bits := range x.lengths[slot(a)] {
		if p, err := a.Prefix(bits); err == nil && x.holds(p) {
			return true
		}
	}
	return false
}

// HasPort reports whether a port of an address is in a set.
func (s *Store) HasPort(id intent.SetID, a netip.Addr, proto uint8, port uint16) bool {
	x := s.sets[id]
	if x == nil || !a.IsValid() {
		return false
	}
	_, is := x.ports[intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: proto, Port: port}]
	return is
}

// Each calls yield for each member of a set, in no order; prefixes are masked.
func (s *Store) Each(id intent.SetID, yield func(intent.Member)) {
	x := s.sets[id]
	if x == nil {
		return
	}
	for k := range x.v4 {
		yield(intent.Member{Prefix: prefix4(k)})
	}
	for p := range x.v6 {
		yield(intent.Member{Prefix: p})
	}
	for m := range x.ports {
		yield(m)
	}
}

// Known reports whether a set exists, with members or without.
func (s *Store) Known(id intent.SetID) bool { return s.sets[id] != nil }

// put adds or removes a member.
func (x *set) put(m intent.Member, in bool) {
	switch p := m.Prefix.Masked(); {
	case m.Port != 0 || m.Proto != 0:
		place(&x.ports, m, in)
	case p.Addr().Is4():
		x.count(p, place(&x.v4, key4(p), in), in)
	default:
		x.count(p, place(&x.v6, p, in), in)
	}
}

// place adds a key to a map or removes it, and reports whether that changed the map.
func place[K comparable](m *map[K]struct{}, k K, in bool) bool {
	if _, was := (*m)[k]; was == in {
		return false
	}
	if !in {
		delete(*m, k)
		return true
	}
	if *m == nil {
		*m = map[K]struct{}{}
	}
	(*m)[k] = struct{}{}
	return true
}

// count maintains the number of prefixes with a length.
func (x *set) count(p netip.Prefix, changed, in bool) {
	lengths := &x.lengths[slot(p.Addr())]
	switch {
	case !changed:
	case in:
		if *lengths == nil {
			*lengths = map[int]int{}
		}
		(*lengths)[p.Bits()]++
	default:
		if (*lengths)[p.Bits()]--; (*lengths)[p.Bits()] == 0 {
			delete(*lengths, p.Bits())
		}
	}
}

func (x *set) holds(p netip.Prefix) (is bool) {
	if p.Addr().Is4() {
		_, is = x.v4[key4(p)]
	} else {
		_, is = x.v6[p]
	}
	return is
}

// slot is the index of an address's family.
func slot(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// key4 is an IPv4 prefix's address and length in one word: maps of words are small and fast.
func key4(p netip.Prefix) uint64 {
	a := p.Addr().As4()
	return uint64(binary.BigEndian.Uint32(a[:]))<<8 | uint64(p.Bits())
}

// prefix4 is the inverse of key4.
func prefix4(k uint64) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(k>>8))
	return netip.PrefixFrom(netip.AddrFrom4(a), int(k&0xff))
}
