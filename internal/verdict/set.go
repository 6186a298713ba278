package verdict

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
)

// set answers by hash: prefixes are looked up once for each length in use.
type set struct {
	prefixes map[netip.Prefix]bool
	lengths  [2]map[int]int // by family: prefix length → how many
	ports    map[intent.Member]bool
}

func newSet(members []intent.Member) *set {
	s := &set{
		prefixes: map[netip.Prefix]bool{},
		lengths:  [2]map[int]int{{}, {}},
		ports:    map[intent.Member]bool{},
	}
	s.change(intent.MemberDelta{Added: members})
	return s
}

func (s *set) change(d intent.MemberDelta) {
	// Added last: a member in both lists is one that is wanted.
	for _, m := range d.Removed {
		s.put(m, false)
	}
	for _, m := range d.Added {
		s.put(m, true)
	}
}

func (s *set) put(m intent.Member, in bool) {
	if m.Port != 0 || m.Proto != 0 {
		if in {
			s.ports[m] = true
		} else {
			delete(s.ports, m)
		}
		return
	}
	p := m.Prefix.Masked()
	if s.prefixes[p] == in {
		return
	}
	lengths := s.lengths[familyIndex(p.Addr())]
	if in {
		s.prefixes[p] = true
		lengths[p.Bits()]++
		return
	}
	delete(s.prefixes, p)
	if lengths[p.Bits()]--; lengths[p.Bits()] == 0 {
		delete(lengths, p.Bits())
	}
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// has reports whether an address is in the set. A set nobody sent is empty.
func (s *set) has(a netip.Addr) bool {
	if s == nil || !a.IsValid() {
		return false
	}
	for bits := range s.lengths[familyIndex(a)] {
		if p, err := a.Prefix(bits); err == nil && s.prefixes[p] {
			return true
		}
	}
	return false
}

func (s *set) hasPort(a netip.Addr, proto uint8, port uint16) bool {
	if s == nil || !a.IsValid() {
		return false
	}
	return s.ports[intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: proto, Port: port}]
}
