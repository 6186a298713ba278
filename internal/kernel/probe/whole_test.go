package probe_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/probe"
)

// TestAWholePacketComesBackOrNot over a way whose middle takes less than its ends, and then as much.
func TestAWholePacketComesBackOrNot(t *testing.T) {
	a, router, b := way(t)
	var port uint16
	b.Do(func() {
		c, err := net.ListenPacket("udp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		port = c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		go func() {
			for buf := make([]byte, 1<<16); ; {
				n, from, err := c.ReadFrom(buf)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = c.WriteTo(buf[:n], from)
				}
			}
		}()
	})
	try := func(dst string, within bool) (size int, err error) {
		patience := netnstest.Silence
		if within {
			patience = netnstest.Patience
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a.Do(func() { size, err = probe.Whole(ctx, netip.AddrPortFrom(netip.MustParseAddr(dst), port)) })
		return size, err
	}
	for _, dst := range []string{"198.51.100.1", "2001:db8:2::1"} {
		if size, err := try(dst, true); size != 1500 || err != nil {
			t.Errorf("to %s: %d bytes, %v; want 1500 to come back", dst, size, err)
		}
	}
	router.Run("ip", "link", "set", "right", "mtu", "1400")
	for _, dst := range []string{"198.51.100.1", "2001:db8:2::1"} {
		for range 2 { // what a router said of the way does not matter
			if size, err := try(dst, false); size != 1500 || !errors.Is(err, probe.ErrNoReply) || !strings.Contains(err.Error(), dst) {
				t.Errorf("to %s: %d bytes, %v; want 1500 not to come back", dst, size, err)
			}
		}
	}
}
