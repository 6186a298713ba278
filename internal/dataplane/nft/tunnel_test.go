package nft

import (
	"net"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestATunnelEndsWithItsPermission: a flow that was allowed, and is established, is dropped once workloads must not send VXLAN.
func TestATunnelEndsWithItsPermission(t *testing.T) {
	for _, to := range []string{"out", "host"} {
		t.Run("to "+to, func(t *testing.T) {
			h := newHosted(t)
			b := pair(nil)
			b.Host = &intent.HostSettings{EndpointToHost: intent.ToHostAccept, AllowVXLAN: true}
			h.d.Merge(b)
			apply(t, h.d)
			addr := &net.UDPAddr{IP: net.ParseIP(addrs[to][0]), Port: 4789}
			var far, near *net.UDPConn
			open := func(party string, f func() (*net.UDPConn, error)) (c *net.UDPConn) {
				h.party(party).Do(func() {
					var err error
					if c, err = f(); err != nil {
						t.Fatal(err)
					}
				})
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			far = open(to, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", addr) })
			near = open("a", func() (*net.UDPConn, error) { return net.DialUDP("udp4", nil, addr) })
			receive := func(c *net.UDPConn) *net.UDPAddr {
				t.Helper()
				_ = c.SetReadDeadline(time.Now().Add(netnstest.Patience))
				_, from, err := c.ReadFromUDP(make([]byte, 16))
				if err != nil {
					t.Fatal(err)
				}
				return from
			}
			say := func() {
				t.Helper()
				if _, err := near.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			say()
			if _, err := far.WriteToUDP([]byte("y"), receive(far)); err != nil {
				t.Fatal(err)
			}
			receive(near) // and so the flow is established
			h.d.Merge(intent.Batch{Host: &intent.HostSettings{EndpointToHost: intent.ToHostAccept}})
			apply(t, h.d)
			say()
			if n := h.droppedNow(t, "VXLAN from a workload", 1); n != 1 {
				t.Errorf("%d packets were dropped, want 1", n)
			}
		})
	}
}
