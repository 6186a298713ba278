package revoke_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestAFlowToAFloatingAddressFollowsIt: datagrams of one flow come to the workload that has the address, whoever had it before, or nobody.
func TestAFlowToAFloatingAddressFollowsIt(t *testing.T) {
	for _, family := range [][3]string{{"10.65.0.1", "10.65.0.2", "198.51.100.1"}, {"fd65::a", "fd65::b", "fd99::1"}} {
		t.Run(family[0], func(t *testing.T) {
			p := newPair(t, family[0], family[1])
			p.start()
			external := netip.MustParseAddr(family[2])
			listen := func(ns *netnstest.NS, a netip.Addr, port uint16) *net.UDPConn {
				c, err := ns.ListenUDP(netip.AddrPortFrom(a, port))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			from, atServer, atClient := listen(p.client, p.from, 7001), listen(p.server, p.to, 7000), listen(p.client, p.from, 7000)
			send := func() {
				if _, err := from.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(external, 7000)); err != nil {
					t.Fatal(err)
				}
			}
			arrives := func(c *net.UDPConn, within time.Duration) bool {
				if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
					t.Fatal(err)
				}
				_, _, err := c.ReadFromUDPAddrPort(make([]byte, 8))
				return err == nil
			}
			have := func(who int, own netip.Addr) int {
				b := p.workloads(policy())
				b.Endpoints[who].NATs = []intent.NAT{{External: external, Internal: own}}
				return p.apply(b).Forgotten
			}
			have(1, p.to)
			send()
			if !arrives(atServer, netnstest.Patience) {
				t.Fatal("nothing comes to the server by its floating address")
			}
			if n := have(0, p.from); n != 1 {
				t.Errorf("the address moves: %d flows are deleted, want 1", n)
			}
			send()
			if !arrives(atClient, netnstest.Patience) {
				t.Error("nothing comes to whom the address moved")
			}
			if arrives(atServer, netnstest.Silence) {
				t.Error("the server gets what is sent to an address that it has no more")
			}
			if n := have(0, p.from); n != 0 {
				t.Errorf("nothing changes: %d flows are deleted", n)
			}
			if n := p.apply(p.workloads(policy())).Forgotten; n != 1 {
				t.Errorf("nobody has the address any more: %d flows are deleted, want 1", n)
			}
		})
	}
}
