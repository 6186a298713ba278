package nft

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/seedtest"
)

// uncovered is the obvious way: those that no other one contains.
func uncovered(all map[netip.Prefix]int) map[netip.Prefix]bool {
	out := map[netip.Prefix]bool{}
	for p := range all {
		out[p] = true
		for q := range all {
			if q != p && q.Bits() < p.Bits() && q.Contains(p.Addr()) {
				delete(out, p)
			}
		}
	}
	return out
}

func TestACoverIsWhatNoOtherPrefixContains(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		r := seedtest.Rand(t)
		var c cover
		all, got := map[netip.Prefix]int{}, map[netip.Prefix]bool{}
		for step := range 5000 {
			p := randomPrefix(r, v6)
			change := c.add
			switch {
			case r.IntN(2) == 0:
				all[p]++
			default:
				change = c.remove
				if all[p]--; all[p] <= 0 {
					delete(all, p)
				}
			}
			gain, lose := change(p)
			for _, q := range lose {
				if !got[q] {
					t.Fatalf("step %d: loses %s, which it did not have", step, q)
				}
				delete(got, q)
			}
			for _, q := range gain {
				if got[q] {
					t.Fatalf("step %d: gains %s twice", step, q)
				}
				got[q] = true
			}
			want := uncovered(all)
			if len(got) != len(want) || c.n != len(all) {
				t.Fatalf("step %d: %v, %d members; want %v, %d", step, got, c.n, want, len(all))
			}
			for q := range want {
				if !got[q] {
					t.Fatalf("step %d: %s is missing", step, q)
				}
			}
		}
	}
}

// randomPrefix is one of few, so that they meet.
func randomPrefix(r *rand.Rand, v6 bool) netip.Prefix {
	bits := []int{0, 1, 2, 3, 5, 8, 9, 12, 31}[r.IntN(9)]
	a := netip.AddrFrom4([4]byte{byte(r.IntN(4)) << 6, byte(r.IntN(4)) << 4, 0, byte(r.IntN(2)) << 1})
	if v6 {
		a = netip.AddrFrom16([16]byte{byte(r.IntN(4)) << 6, byte(r.IntN(4)) << 4, 0, byte(r.IntN(2)) << 1})
	}
	return netip.PrefixFrom(a, bits).Masked()
}
