package netnstest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/rtnl"
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

func TestAnAddressIsForUseWhenAddReturns(t *testing.T) {
	n := New(t)
	n.Veth("a", "b")
	for i := range 100 {
		addr := netip.MustParsePrefix(fmt.Sprintf("2001:db8::%x/64", i+1))
		n.Addr("a", addr.String())
		local, err := n.Rtnl().Routes(rtnl.RouteFilter{Table: unix.RT_TABLE_LOCAL})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(local, func(r rtnl.Route) bool { return r.Dst == netip.PrefixFrom(addr.Addr(), 128) }) {
			t.Fatalf("the %dth: there is no route to %s", i+1, addr)
		}
	}
	n.Down("a")
	n.Addr("a", "2001:db8:1::1/64") // which is not waited for
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
