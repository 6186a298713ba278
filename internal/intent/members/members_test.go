package members

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// oracle is the slow, obvious way: a list of members, each asked.
type oracle map[intent.SetID]map[intent.Member]bool

func (o oracle) has(id intent.SetID, a netip.Addr) bool {
	for m := range o[id] {
		if m.Proto == 0 && m.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

func (o oracle) merge(b intent.Batch) {
	for _, s := range b.IPSets {
		o[s.ID] = map[intent.Member]bool{}
		for _, m := range s.Members {
			o[s.ID][m] = true
		}
	}
	for _, d := range b.Members {
		for _, m := range d.Removed {
			delete(o[d.Set], m)
		}
		for _, m := range d.Added {
			if o[d.Set] != nil {
				o[d.Set][m] = true
			}
		}
	}
	for _, k := range b.Removed {
		delete(o, k.(intent.SetID))
	}
}

var addrs = []netip.Addr{
	netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.1.0.1"),
	netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00:1::1"), netip.MustParseAddr("fd01::1"),
}

func someMembers(r *rand.Rand) (out []intent.Member) {
	for range r.IntN(4) {
		a := addrs[r.IntN(len(addrs))]
		p, _ := a.Prefix([]int{a.BitLen(), a.BitLen() - 8, 16, 0}[r.IntN(4)])
		m := intent.Member{Prefix: p}
		if r.IntN(3) == 0 {
			m = intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: 6, Port: uint16(r.IntN(3))}
		}
		out = append(out, m)
	}
	return out
}

func TestAStoreHasWhatWasMerged(t *testing.T) {
	r := seedtest.Rand(t)
	var s Store
	o := oracle{}
	for step := range 3000 {
		var b intent.Batch
		id := []intent.SetID{"a", "b", "c"}[r.IntN(3)]
		switch r.IntN(8) {
		case 0:
			b.Removed = []intent.Key{id}
		case 1:
			b.IPSets = []intent.IPSet{{ID: id, Members: someMembers(r)}}
		default:
			b.Members = []intent.MemberDelta{{Set: id, Added: someMembers(r), Removed: someMembers(r)}}
		}
		s.Merge(b)
		o.merge(b)
		for _, id := range []intent.SetID{"a", "b", "c", "none"} {
			same(t, &s, o, id)
		}
		if t.Failed() {
			t.Fatalf("at step %d, %+v", step, b)
		}
	}
}

func same(t *testing.T, s *Store, o oracle, id intent.SetID) {
	t.Helper()
	if s.Known(id) != (o[id] != nil) {
		t.Errorf("set %s is there: %v", id, s.Known(id))
	}
	for _, a := range addrs {
		if got, want := s.Has(id, a), o.has(id, a); got != want {
			t.Errorf("%s in %s: %v, want %v", a, id, got, want)
		}
		for port := range uint16(3) {
			m := intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: 6, Port: port}
			if got := s.HasPort(id, a, 6, port); got != o[id][m] {
				t.Errorf("%v in %s: %v, want %v", m, id, got, o[id][m])
			}
		}
	}
	all := map[intent.Member]bool{}
	s.Each(id, func(m intent.Member) {
		if all[m] || !o[id][m] {
			t.Errorf("%s has %v, twice %v", id, m, all[m])
		}
		all[m] = true
	})
	if len(all) != len(o[id]) {
		t.Errorf("%s has %d members, want %d", id, len(all), len(o[id]))
	}
}

func TestNoAddressIsInNoSet(t *testing.T) {
	var s Store
	s.Merge(intent.Batch{IPSets: []intent.IPSet{{ID: "all", Members: []intent.Member{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0")}}}}})
	if s.Has("all", netip.Addr{}) || s.HasPort("all", netip.Addr{}, 6, 80) {
		t.Error("no address is in a set")
	}
}
