package iptables

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestNothingIsForwardedToAServiceThatIsNotThere, with both backends, in both families: dropped, rejected, or let pass, live; and what is translated before
// arrives.
func TestNothingIsForwardedToAServiceThatIsNotThere(t *testing.T) {
	t.Parallel()
	services := [2]string{"198.51.100.9", "fd98::9"}
	prefixes := intent.ServicePrefixes{External: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Balancer: []netip.Prefix{netip.MustParsePrefix("fd98::/64")}}
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.outside.Addr("eth0", services[0]+"/32", services[1]+"/128")
		k.Route("198.51.100.0/24 via " + atOutside[0])
		k.Route("fd98::/64 via " + atOutside[1])
		knock := func(from *netnstest.NS, want error) {
			t.Helper()
			for _, a := range services {
				within := netnstest.Patience
				if errors.Is(want, syscall.ETIMEDOUT) {
					within = netnstest.Silence
				}
				c, err := from.DialTCP(netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(a), 81), time.Now().Add(within))
				if err == nil {
					_ = c.Close()
				}
				if (err == nil) != (want == nil) || errors.Is(err, syscall.ECONNREFUSED) != errors.Is(want, syscall.ECONNREFUSED) {
					t.Errorf("to %s: %v, want %v", a, err, want)
				}
			}
			if t.Failed() {
				t.Fatal(b.everything())
			}
		}
		for _, a := range append(services[:], atOutside[:]...) {
			l, err := b.outside.ListenTCP(netip.AddrPortFrom(netip.MustParseAddr(a), 81))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		for _, tt := range []struct {
			services intent.ServicePrefixes
			action   intent.ServiceLoops
			want     error
		}{
			{intent.ServicePrefixes{}, intent.LoopsDrop, nil},
			{prefixes, intent.LoopsDrop, syscall.ETIMEDOUT},
			{prefixes, intent.LoopsReject, syscall.ECONNREFUSED},
			{prefixes, intent.LoopsPass, nil},
			{prefixes, intent.LoopsDrop, syscall.ETIMEDOUT},
		} {
			b.apply(oneWorkload(intent.HostSettings{Services: tt.services, ServiceLoops: tt.action}))
			knock(b.workload, tt.want)
			knock(k.NS, nil)
		}
		for i, name := range []string{"iptables-", "ip6tables-"} {
			k.Run(name+k.backend, "-w", "60", "-t", "nat", "-I", "PREROUTING", "-d", services[i], "-j", "DNAT", "--to-destination", atOutside[i])
		}
		knock(b.workload, nil)
	})
}
