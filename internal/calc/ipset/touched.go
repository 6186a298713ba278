package ipset

import (
	"encoding/binary"
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
)

// touched says of members that have changed whether they were in a set before. There are many at once when endpoints move, and
// most are IPv4 addresses. Zero is ready to use.
type touched struct {
	v4    map[uint64]bool // see key4
	other map[intent.Member]bool
	were  int // members that were in the set
}

func plain4(m intent.Member) bool { return m.Prefix.Addr().Is4() && m.Proto == 0 && m.Port == 0 }

func (t *touched) len() int { return len(t.v4) + len(t.other) }

func (t *touched) knows(m intent.Member) (known bool) {
	if plain4(m) {
		_, known = t.v4[key4(m.Prefix)]
	} else {
		_, known = t.other[m]
	}
	return known
}

func (t *touched) put(m intent.Member, was bool) {
	if plain4(m) {
		if t.v4 == nil {
			t.v4 = map[uint64]bool{}
		}
		t.v4[key4(m.Prefix)] = was
	} else {
		if t.other == nil {
			t.other = map[intent.Member]bool{}
		}
		t.other[m] = was
	}
	if was {
		t.were++
	}
}

// each calls yield for each member, in no order.
func (t *touched) each(yield func(m intent.Member, was bool)) {
	for k, was := range t.v4 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(k>>8))
		yield(intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4(a), int(k&0xff))}, was)
	}
	for m, was := range t.other {
		yield(m, was)
	}
}
