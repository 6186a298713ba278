package rules

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
	"github.com/twillnet/twill/internal/seedtest"
)

// A backend asks what a rule is for one family; whoever judges a packet asks its terms, which know of families.
func TestARuleForAFamilyIsTheRuleForItsPackets(t *testing.T) {
	r := seedtest.Rand(t)
	p4, p6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	nets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd00::/16"), netip.MustParsePrefix("fd09::/16")}
	held := 0
	for range 20000 {
		rule := Rule{}
		for range 1 + r.IntN(2) {
			rule.Terms = append(rule.Terms, randomTerm(r, nets))
		}
		for f, a := range map[intent.Family]netip.Addr{intent.IPv4: p4, intent.IPv6: p6} {
			p := match.Packet{Src: a, Dst: a, Proto: []uint8{1, 58, 6}[r.IntN(3)]}
			of, applies := rule.ForFamily(f)
			got, want := match.All(rule.Terms, p, nil), applies && match.All(of.Terms, p, nil)
			if got != want {
				t.Fatalf("%s of IPv%d, protocol %d: %v; for the family %v, %s: %v", rule, f, p.Proto, got, applies, of, want)
			}
			if got {
				held++
			}
		}
	}
	if held < 1000 {
		t.Errorf("%d rules held: too few for a test", held)
	}
}

func randomTerm(r *rand.Rand, nets []netip.Prefix) Term {
	x := Term{Not: r.IntN(2) == 0, Side: Side(r.IntN(2))}
	switch r.IntN(3) {
	case 0:
		x.Kind, x.Number = Family, []uint8{4, 6}[r.IntN(2)]
	case 1:
		x.Kind, x.Number = Protocol, []uint8{1, 58, 6}[r.IntN(3)]
	default:
		x.Kind = Nets
		for len(x.Nets) == 0 {
			for _, n := range nets {
				if r.IntN(3) == 0 {
					x.Nets = append(x.Nets, n)
				}
			}
		}
	}
	return x
}
