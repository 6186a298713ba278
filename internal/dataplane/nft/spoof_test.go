package nft

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestPacketsFromSourcesThatAreNotTheWorkloadsAreDropped: a source must be routed to the interface by which its packet comes, or be of
// a prefix that the endpoint may have besides.
func TestPacketsFromSourcesThatAreNotTheWorkloadsAreDropped(t *testing.T) {
	h := newHosted(t)
	h.ns.Sysctl("ipv4/conf/all/rp_filter", "0") // as the agent has it for such an endpoint: the kernel's check knows no exceptions
	h.ns.Sysctl("ipv4/conf/calia/rp_filter", "0")
	spoofable := [2]string{"10.99.0.1", "fd99::1"}
	sources := map[string][2]string{
		"of a prefix that the endpoint may have": spoofable,
		"outside of it, and not routed":          {"10.98.0.1", "fd98::1"},
		"routed to another workload":             addrs["b"],
		"routed to the outside":                  {"192.0.2.9", "fd00::9"},
	}
	for _, a := range sources {
		h.a.Addr("eth0", a[0]+"/32")
		h.a.Run("ip", "addr", "add", a[1]+"/128", "dev", "eth0", "nodad", "preferred_lft", "0") // none is taken unasked
	}
	var outside [2]*net.UDPConn
	for i, a := range addrs["out"] {
		c, err := h.out.ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(a), 54))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		outside[i] = c
	}
	for _, may := range []bool{true, false} {
		b := pair(nil)
		if may {
			b.Endpoints[0].Spoofable = []netip.Prefix{prefix("10.99.0.0/24"), prefix("fd99::/64")}
		}
		h.d.Merge(b)
		apply(t, h.d)
		h.check(t, "a>out udp/53")
		for what, source := range sources {
			for i, src := range source {
				want := may && source == spoofable
				if got := h.passes(t, src, outside[i]); got != want {
					t.Errorf("the endpoint may send from other addresses: %v; a packet from %s, %s, passes: %v", may, src, what, got)
				}
			}
		}
	}
}

// passes sends a datagram from an address of a, and waits until it is received outside, or counted as dropped for its source.
func (h *hosted) passes(t *testing.T, src string, outside *net.UDPConn) bool {
	t.Helper()
	before := h.dropped(t, "spoofed source")
	h.a.Do(func() {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(src)}, outside.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	})
	for deadline := time.Now().Add(netnstest.Patience); time.Now().Before(deadline); {
		_ = outside.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, from, err := outside.ReadFromUDPAddrPort(make([]byte, 8)); err == nil && from.Addr().Unmap().String() == src {
			return true
		}
		if h.dropped(t, "spoofed source") > before {
			return false
		}
	}
	t.Fatalf("a packet from %s is neither received nor dropped as spoofed", src)
	return false
}

// TestAnErrorAboutAFlowPassesPolicy: the kernel calls it related, and no policy is asked about it.
func TestAnErrorAboutAFlowPassesPolicy(t *testing.T) {
	h := newHosted(t)
	nothing := pol("nothing", nil, nil)
	h.d.Merge(pair(ask(nothing, in), nothing))
	apply(t, h.d)
	h.check(t, "!out>a icmp")
	for _, a := range addrs["out"] {
		h.a.Do(func() {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(a), 9)))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			err = os.ErrDeadlineExceeded
			for end := time.Now().Add(netnstest.Patience); errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end); { // there may be no more than so many errors in a second
				if _, err = c.Write([]byte("x")); err == nil {
					_ = c.SetReadDeadline(time.Now().Add(netnstest.Silence))
					_, err = c.Read(make([]byte, 8))
				}
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("nobody listens at %s, and the sender hears of %v", a, err)
			}
		})
	}
}
