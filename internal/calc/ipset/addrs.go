package ipset

import (
	"encoding/binary"
	"net/netip"
)

// Addrs is prefixes, packed: there are many, and most are IPv4. Equal lists are equal.
type Addrs string

// Pack packs prefixes. They must be masked; what comes twice is left out.
func Pack(ps []netip.Prefix) Addrs {
	out := make([]byte, 0, 6*len(ps))
	seen := map[netip.Prefix]struct{}{}
	for _, p := range ps {
		if _, twice := seen[p]; twice {
			continue
		}
		if len(ps) > 1 {
			seen[p] = struct{}{}
		}
		out = append(out, byte(p.Addr().BitLen()/8), byte(p.Bits()))
		out = append(out, p.Addr().AsSlice()...)
	}
	return Addrs(out)
}

// Each calls yield for each prefix.
func (a Addrs) Each(yield func(netip.Prefix)) {
	for len(a) > 0 {
		size, bits := int(a[0]), int(a[1])
		var addr netip.Addr
		if size == 4 {
			addr = netip.AddrFrom4([4]byte([]byte(a[2:6])))
		} else {
			addr = netip.AddrFrom16([16]byte([]byte(a[2:18])))
		}
		yield(netip.PrefixFrom(addr, bits))
		a = a[2+size:]
	}
}

// holders maps addresses to their sources. An address seldom has more than one.
type holders[S comparable] struct {
	v4   map[uint64]S // see key4
	v6   map[netip.Prefix]S
	more map[netip.Prefix][]S // all but the first
}

func newHolders[S comparable]() holders[S] {
	return holders[S]{v4: map[uint64]S{}, v6: map[netip.Prefix]S{}, more: map[netip.Prefix][]S{}}
}

// key4 is an IPv4 prefix's address and length in one word: maps of words are small and fast.
func key4(p netip.Prefix) uint64 {
	a := p.Addr().As4()
	return uint64(binary.BigEndian.Uint32(a[:]))<<8 | uint64(p.Bits())
}

func (h *holders[S]) first(p netip.Prefix) (S, bool) {
	if p.Addr().Is4() {
		s, ok := h.v4[key4(p)]
		return s, ok
	}
	s, ok := h.v6[p]
	return s, ok
}

func (h *holders[S]) setFirst(p netip.Prefix, s S) {
	if p.Addr().Is4() {
		h.v4[key4(p)] = s
	} else {
		h.v6[p] = s
	}
}

func (h *holders[S]) add(p netip.Prefix, s S) {
	if _, taken := h.first(p); taken {
		h.more[p] = append(h.more[p], s)
	} else {
		h.setFirst(p, s)
	}
}

func (h *holders[S]) remove(p netip.Prefix, s S) {
	rest := h.more[p]
	if first, _ := h.first(p); first == s {
		if len(rest) == 0 {
			if p.Addr().Is4() {
				delete(h.v4, key4(p))
			} else {
				delete(h.v6, p)
			}
			return
		}
		h.setFirst(p, rest[0])
		s = rest[0]
	}
	for i := range rest {
		if rest[i] == s {
			rest[i] = rest[len(rest)-1]
			rest = rest[:len(rest)-1]
			break
		}
	}
	if len(rest) == 0 {
		delete(h.more, p)
	} else {
		h.more[p] = rest
	}
}
