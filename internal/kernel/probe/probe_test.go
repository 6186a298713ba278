package probe_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/probe"
)

// way is from a over a router to b, who is 198.51.100.1 and 2001:db8:2::1 behind its link right.
func way(t *testing.T) (a, router, b *netnstest.NS) {
	t.Helper()
	a, router, b = netnstest.New(t), netnstest.New(t), netnstest.New(t)
	a.VethTo(router, "eth0", "left")
	router.VethTo(b, "right", "eth0")
	router.Forward()
	a.Addr("eth0", "192.0.2.1/24", "2001:db8:1::1/64")
	router.Addr("left", "192.0.2.2/24", "2001:db8:1::2/64")
	router.Addr("right", "198.51.100.2/24", "2001:db8:2::2/64")
	b.Addr("eth0", "198.51.100.1/24", "2001:db8:2::1/64")
	a.Route("default via 192.0.2.2")
	a.Route("default via 2001:db8:1::2")
	b.Route("default via 198.51.100.2")
	b.Route("default via 2001:db8:2::2")
	return a, router, b
}

// TestEchoesOfASizeArriveOrNot has a way whose middle takes less than its ends.
func TestEchoesOfASizeArriveOrNot(t *testing.T) {
	a, router, _ := way(t)
	router.Run("ip", "link", "set", "right", "mtu", "1400")
	for _, tt := range []struct {
		dst  string
		size int
		want error
	}{
		{"198.51.100.1", 100, nil},
		{"198.51.100.1", 1400, nil},
		{"198.51.100.1", 1401, probe.ErrTooLarge},
		{"198.51.100.1", 1501, probe.ErrTooLarge},
		{"198.51.100.1", 1400, nil}, // what was learned of the way does not matter
		{"198.51.100.1", 1500, probe.ErrTooLarge},
		{"2001:db8:2::1", 1400, nil},
		{"2001:db8:2::1", 1450, probe.ErrNoReply},
		{"2001:db8:2::1", 1501, probe.ErrTooLarge},
		{"198.51.100.77", 100, probe.ErrNoReply},
	} {
		patience := netnstest.Patience
		if errors.Is(tt.want, probe.ErrNoReply) {
			patience = netnstest.Silence
		}
		var err error
		a.Do(func() { err = probe.Echo(netip.MustParseAddr(tt.dst), tt.size, 0, patience) })
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%d bytes to %s: %v, want %v", tt.size, tt.dst, err, tt.want)
		}
	}
}

func TestAnotherHolderOfAnAddressIsFound(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	a.VethTo(b, "eth0", "eth0")
	a.Addr("eth0", "192.0.2.1/24", "192.0.2.7/24", "2001:db8::1/64", "2001:db8::7/64")
	b.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	l := a.Link("eth0")
	ask := func(addr string, within time.Duration) string {
		var mac string
		var err error
		a.Do(func() {
			mac, err = probe.Holder(probe.Link{Index: l.Index, MAC: l.MAC}, netip.MustParseAddr(addr), within)
		})
		if err != nil {
			t.Error(err)
		}
		return mac
	}
	theirs := b.Link("eth0").MAC
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		if got := ask(addr, netnstest.Patience); got != theirs {
			t.Errorf("%s is that of %q, want %s", addr, got, theirs)
		}
	}
	for _, addr := range []string{"192.0.2.7", "2001:db8::7"} { // ours alone
		if got := ask(addr, netnstest.Silence); got != "" {
			t.Errorf("%s is that of %s, want nobody", addr, got)
		}
	}
	if _, err := probe.Holder(probe.Link{Index: 1}, netip.MustParseAddr("192.0.2.1"), time.Second); err == nil {
		t.Error("a link without an Ethernet address was asked")
	}
}
