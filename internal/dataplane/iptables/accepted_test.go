package iptables

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// sent sends one packet again and again, for longer if it should arrive, and reports whether it does. The network is of package net: "udp", or "ip4:4".
func (b *between) sent(network string, from, to *netnstest.NS, at netip.AddrPort, should bool) bool {
	b.t.Helper()
	open := func(ns *netnstest.NS, addr string) (c net.PacketConn) {
		ns.Do(func() {
			var err error
			if c, err = net.ListenPacket(network, addr); err != nil {
				b.t.Fatal(err)
			}
		})
		return c
	}
	var dst net.Addr = net.UDPAddrFromAddrPort(at)
	local, remote := at.String(), net.JoinHostPort("", "0")
	if at.Port() == 67 { // DHCP
		remote = net.JoinHostPort("", "68")
	}
	if network != "udp" {
		dst, local, remote = &net.IPAddr{IP: at.Addr().AsSlice()}, at.Addr().String(), "0.0.0.0"
	}
	receiver, sender := open(to, local), open(from, remote)
	defer receiver.Close()
	defer sender.Close()
	within := netnstest.Silence
	if should {
		within = netnstest.Patience
	}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if _, err := sender.WriteTo([]byte("twill"), dst); err != nil && !errors.Is(err, os.ErrPermission) { // as output is told of what is dropped there
			b.t.Fatal(err)
		}
		_ = receiver.SetReadDeadline(time.Now().Add(netnstest.Silence / 5))
		if _, _, err := receiver.ReadFrom(make([]byte, 64)); err == nil {
			return true
		}
	}
	return false
}

// TestWhatHostsSendEachOtherIsAccepted: what tunnels carry between hosts, where the policies of INPUT and OUTPUT are DROP, without any host endpoint.
func TestWhatHostsSendEachOtherIsAccepted(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		for _, chain := range []string{"INPUT", "OUTPUT"} {
			b.others("-P", chain, "DROP")
			b.others("-A", chain, "-p", "icmpv6", "-j", "ACCEPT")
		}
		type way struct {
			network string
			family  int
			port    uint16
		}
		tunnels := []way{{"udp", 0, 4789}, {"udp", 1, 4789}, {"ip4:4", 0, 0}, {"udp", 0, 51820}, {"udp", 1, 51821}}
		check := func(when string, ways []way, want bool) {
			t.Helper()
			for _, w := range ways {
				in, out := netip.AddrPortFrom(netip.MustParseAddr(atHost[w.family]), w.port), netip.AddrPortFrom(netip.MustParseAddr(atOutside[w.family]), w.port)
				if got := b.sent(w.network, b.outside, k.NS, in, want); got != want {
					t.Errorf("%s, %s to the host at %s: arrives: %v, want %v", when, w.network, in, got, want)
				}
				if got := b.sent(w.network, k.NS, b.outside, out, want); got != want {
					t.Errorf("%s, %s from the host to %s: arrives: %v, want %v", when, w.network, out, got, want)
				}
			}
		}
		settings := intent.HostSettings{WireGuard: intent.WireGuardSettings{Port: [2]uint16{51820, 51821}}}
		batch := oneWorkload(settings)
		b.apply(batch)
		check("without a tunnel", tunnels, false)
		for kind, f := range map[intent.TunnelKind]int{intent.VXLAN: 0, intent.VXLAN6: 1, intent.IPIP: 0, intent.WireGuard: 0, intent.WireGuard6: 1} {
			settings.Tunnels[kind] = intent.Tunnel{Host: netip.MustParseAddr(atHost[f])}
		}
		peers := members(0, atOutside[0]+"/32", atOutside[1]+"/128")
		sets := intent.Batch{Host: &settings, IPSets: []intent.IPSet{{ID: intent.SetVXLANPeers}, {ID: intent.SetIPIPPeers}, {ID: intent.SetWireGuardPeers}}}
		b.apply(sets)
		check("of no peer", tunnels, false)
		for i := range sets.IPSets {
			sets.IPSets[i].Members = peers
		}
		b.apply(sets)
		check("of a peer", tunnels, true)
		check("another port", []way{{"udp", 0, 4790}}, false)
		settings.IPTables.FilterReturn = true
		b.apply(intent.Batch{Host: &settings})
		check("left to others", tunnels, false)
	})
}

// TestWhatAWorkloadNeedsOfItsHostIsAccepted where the policy of INPUT is DROP, whatever it may send to its host otherwise: DHCP, neighbour discovery, metadata and DNS.
func TestWhatAWorkloadNeedsOfItsHostIsAccepted(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.others("-P", "INPUT", "DROP")
		b.others("-A", "INPUT", "-i", "eth0", "-p", "icmpv6", "-j", "ACCEPT")
		dhcp := netip.AddrPortFrom(netip.MustParseAddr(atHost[0]), 67)
		metadata := [2]string{atHost[0], atHost[0]}
		for _, action := range []intent.ToHost{intent.ToHostDrop, intent.ToHostReturn} {
			for _, left := range []bool{false, true} {
				b.apply(oneWorkload(intent.HostSettings{EndpointToHost: action, Metadata: netip.MustParseAddrPort(atHost[0] + ":8775"), DNS: true, IPTables: intent.IPTablesSettings{FilterReturn: left}}))
				if got := b.sent("udp", b.workload, k.NS, dhcp, !left); got == left {
					t.Errorf("action %v, left to others: %v: DHCP arrives: %v", action, left, got)
				}
				b.check(b.workload, k.NS, metadata, 8775, !left)
				b.check(b.workload, k.NS, metadata, 81, false)
				for _, at := range atHost {
					dns := netip.AddrPortFrom(netip.MustParseAddr(at), 53)
					if got := b.sent("udp", b.workload, k.NS, dns, !left); got == left {
						t.Errorf("action %v, left to others: %v: DNS at %s arrives: %v", action, left, dns, got)
					}
					b.check(b.workload, k.NS, [2]string{at, at}, 53, false) // by TCP
				}
				b.check(b.outside, k.NS, metadata, 8775, false)
			}
			b.apply(oneWorkload(intent.HostSettings{EndpointToHost: action}))
			k.Run("ip", "neigh", "flush", "dev", "cali1")
			b.workload.Run("ip", "neigh", "flush", "dev", "eth0")
			b.check(b.outside, b.workload, [2]string{atWorkload[1], atWorkload[1]}, 80, true)
		}
	})
}
