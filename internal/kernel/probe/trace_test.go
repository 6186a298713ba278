package probe_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/probe"
)

// TestWhoAnswersOnTheWay over two routers, of which the second has a link that takes less, and says so or does not.
func TestWhoAnswersOnTheWay(t *testing.T) {
	a, r1, r2, b := netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t)
	a.VethTo(r1, "eth0", "left")
	r1.VethTo(r2, "right", "left")
	r2.VethTo(b, "right", "eth0")
	r1.Forward()
	r2.Forward()
	a.Addr("eth0", "192.0.2.1/24", "2001:db8:1::1/64")
	r1.Addr("left", "192.0.2.2/24", "2001:db8:1::2/64")
	r1.Addr("right", "203.0.113.1/24", "2001:db8:3::1/64")
	r2.Addr("left", "203.0.113.2/24", "2001:db8:3::2/64")
	r2.Addr("right", "198.51.100.2/24", "2001:db8:2::2/64")
	b.Addr("eth0", "198.51.100.1/24", "2001:db8:2::1/64")
	for _, r := range []string{"default via 192.0.2.2", "default via 2001:db8:1::2"} {
		a.Route(r)
	}
	for _, r := range []string{"default via 203.0.113.2", "default via 2001:db8:3::2"} {
		r1.Route(r)
	}
	for _, r := range []string{"default via 203.0.113.1", "default via 2001:db8:3::1"} {
		r2.Route(r)
	}
	for _, r := range []string{"default via 198.51.100.2", "default via 2001:db8:2::2"} {
		b.Route(r)
	}
	r2.Run("ip", "link", "set", "right", "mtu", "1400")
	try := func(dst string, size, hops int, from string, what probe.Answer, want error) {
		t.Helper()
		patience := netnstest.Patience
		if errors.Is(want, probe.ErrNoReply) {
			patience = netnstest.Silence
		}
		var got probe.Hop
		var err error
		a.Do(func() { got, err = probe.Trace(netip.MustParseAddr(dst), size, hops, 0, patience) })
		wanted := probe.Hop{What: what}
		if from != "" {
			wanted.From = netip.MustParseAddr(from)
		}
		if got != wanted || !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%d bytes to %s over %d hops: %v, %v; want %v, %v", size, dst, hops, got, err, wanted, want)
		}
	}
	const four, six = "198.51.100.1", "2001:db8:2::1"
	try(four, 1400, 64, four, probe.Arrived, nil)
	try(six, 1400, 64, six, probe.Arrived, nil)
	try(four, 1500, 1, "192.0.2.2", probe.Passed, nil)
	try(six, 1500, 1, "2001:db8:1::2", probe.Passed, nil)
	try(four, 1500, 2, "203.0.113.2", probe.Passed, nil)
	try(six, 1500, 2, "2001:db8:3::2", probe.Passed, nil)
	try(four, 1500, 3, "203.0.113.2", probe.TooLarge, nil)
	try(six, 1500, 3, "2001:db8:3::2", probe.TooLarge, nil)
	try(four, 1501, 3, "", 0, probe.ErrTooLarge)
	try(six, 1501, 3, "", 0, probe.ErrTooLarge)
	try("198.51.100.77", 100, 64, "", 0, probe.ErrNoReply)
}
