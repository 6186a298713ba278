package netnstest

import (
	"net/netip"
	"testing"
)

func TestProbesSeeWhatIsReachableAndWhatIsNot(t *testing.T) {
	a, b := New(t), New(t)
	a.VethTo(b, "ab", "ba")
	a.Addr("ab", "192.0.2.1/24", "2001:db8::1/64")
	b.Addr("ba", "192.0.2.2/24", "2001:db8::2/64")
	for _, dst := range []string{"192.0.2.2:80", "[2001:db8::2]:80"} {
		for _, proto := range []string{"tcp", "udp", "icmp"} {
			p := Probe{From: a, To: b, Proto: proto, Dst: netip.MustParseAddrPort(dst)}
			b.Up("ba")
			p.WantReach(t)
			b.Run("nft", "add table inet t")
			b.Run("nft", "add chain inet t in { type filter hook input priority 0; policy drop; }")
			b.Run("nft", "add rule inet t in icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept")
			p.WantBlocked(t)
			b.Run("nft", "delete table inet t")
		}
	}
}

func TestWantRouteReadsWhatIpRouteShows(t *testing.T) {
	n := New(t)
	n.Veth("wl1", "wl1p")
	n.Route("10.65.0.5 dev wl1 proto 80 scope link")
	n.Route("2001:db8::5 dev wl1 proto 80")
	n.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	n.WantRoute(t, "2001:db8::5 dev wl1 proto 80")
	n.Flap("wl1")
	n.WantNoRoute(t, "10.65.0.5")
}
