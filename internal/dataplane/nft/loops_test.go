package nft

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// service are addresses that the host routes to the outside, where somebody has them.
var service = [2]string{"198.51.100.9", "fd98::9"}

// TestNothingIsForwardedToAServiceThatIsNotThere: dropped and counted, or rejected, live; what is translated before, what is sent to other addresses, and
// what the host itself sends is not.
func TestNothingIsForwardedToAServiceThatIsNotThere(t *testing.T) {
	h := newHosted(t)
	h.out.Addr("eth0", service[0]+"/32", service[1]+"/128")
	h.ns.Route("198.51.100.0/24 via " + addrs["out"][0])
	h.ns.Route("fd98::/64 via " + addrs["out"][1])
	prefixes := intent.ServicePrefixes{Cluster: []netip.Prefix{prefix("198.51.100.0/24")}, Balancer: []netip.Prefix{prefix("fd98::/64")}}
	h.d.Merge(pair(nil))
	knock := func(from string, at [2]string, want error) {
		t.Helper()
		for _, a := range at {
			to := netip.AddrPortFrom(netip.MustParseAddr(a), 80)
			within := netnstest.Patience
			if errors.Is(want, syscall.ETIMEDOUT) {
				within = netnstest.Silence
			}
			c, err := h.party(from).DialTCP(netip.AddrPort{}, to, time.Now().Add(within))
			if err == nil {
				_ = c.Close()
			}
			if refused := errors.Is(err, syscall.ECONNREFUSED); (err == nil) != (want == nil) || refused != errors.Is(want, syscall.ECONNREFUSED) {
				t.Errorf("%s to %s: %v, want %v", from, to, err, want)
			}
		}
	}
	listen := func(at netip.AddrPort, where *netnstest.NS) {
		l, err := where.ListenTCP(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	for _, a := range service {
		listen(netip.AddrPortFrom(netip.MustParseAddr(a), 80), h.out)
	}
	for _, a := range addrs["b"] {
		listen(netip.AddrPortFrom(netip.MustParseAddr(a), 80), h.b)
	}
	for _, tt := range []struct {
		name     string
		services intent.ServicePrefixes
		action   intent.ServiceLoops
		want     error
	}{
		{"none is advertised", intent.ServicePrefixes{}, intent.LoopsDrop, nil},
		{"dropped", prefixes, intent.LoopsDrop, syscall.ETIMEDOUT},
		{"rejected", prefixes, intent.LoopsReject, syscall.ECONNREFUSED},
		{"settings let it pass", prefixes, intent.LoopsPass, nil},
		{"dropped again", prefixes, intent.LoopsDrop, syscall.ETIMEDOUT},
	} {
		h.d.Merge(intent.Batch{Host: &intent.HostSettings{Services: tt.services, ServiceLoops: tt.action}})
		apply(t, h.d)
		knock("a", service, tt.want)
		knock("host", service, nil)
		knock("a", addrs["b"], nil)
		if t.Failed() {
			t.Fatalf("that was %q:\n%s", tt.name, h.ns.Run("nft", "list", "table", "inet", "twill"))
		}
		if tt.want != nil && h.droppedNow(t, "no such service", 1) == 0 {
			t.Errorf("%s: nothing is counted", tt.name)
		}
	}
	h.ns.Run("nft", `table inet kube-proxy { chain prerouting { type nat hook prerouting priority dstnat;
		ip daddr 198.51.100.9 tcp dport 80 dnat ip to 10.65.0.2; ip6 daddr fd98::9 tcp dport 80 dnat ip6 to fd65::b; }; }`)
	knock("a", service, nil)
}

// TestTheEndOfLoopsStaysAsItIsUntilAllIsKnown, and goes when nothing is advertised.
func TestTheEndOfLoopsStaysAsItIsUntilAllIsKnown(t *testing.T) {
	h := newHosted(t)
	b := pair(nil)
	b.Host = &intent.HostSettings{Services: intent.ServicePrefixes{External: []netip.Prefix{prefix("198.51.100.0/24")}}}
	h.d.Merge(b)
	apply(t, h.d)
	table := func() string { return h.ns.Run("nft", "-s", "list", "table", "inet", "twill") }
	before := table()
	if !strings.Contains(before, "198.51.100.0/24") {
		t.Fatalf("want the prefix of services:\n%s", before)
	}
	again := New(h.kernelConn, Config{}) // the agent restarts, and knows nothing yet
	again.Merge(intent.Batch{})
	apply(t, again)
	if after := table(); after != before {
		t.Errorf("changed before all was known:\n%s\nto\n%s", before, after)
	}
	b.Host = &intent.HostSettings{}
	again.Merge(b)
	apply(t, again)
	if after := table(); strings.Contains(after, "198.51.100.0/24") || strings.Contains(after, "service-loops") {
		t.Errorf("nothing is advertised any more:\n%s", after)
	}
}
