package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/twillnet/twill/internal/lab/script"
)

// try makes one exchange from a to b, there and back, on one family, and
// reports whether there was an answer in time. Each has a service and a source
// port of its own, so that no earlier one is remembered by conntrack.
func try(a, b end, f script.Flow, v6 bool, wait time.Duration) (bool, error) {
	to := netip.AddrPortFrom(b.addr(v6), f.Port)
	switch f.Proto {
	case "tcp":
		ls := &listeners{}
		if err := ls.open(b.ns, to); err != nil {
			return false, err
		}
		defer ls.Close()
		return tryTCP(a.ns, a.addr(v6), to, wait)
	case "udp":
		return tryUDP(a, b, to, wait)
	}
	return ping(a.ns, a.addr(v6), b.addr(v6), wait)
}

func tryUDP(a, b end, to netip.AddrPort, wait time.Duration) (bool, error) {
	var server, client *net.UDPConn
	err := inside(b.ns, func() (err error) { server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to)); return err })
	if err != nil {
		return false, err
	}
	defer server.Close()
	go func() {
		var buf [64]byte
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf[:])
			if err != nil {
				return // closed
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	src := net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.addr(to.Addr().Is6()), 0))
	err = inside(a.ns, func() (err error) { client, err = net.ListenUDP("udp", src); return err })
	if err != nil {
		return false, err
	}
	defer client.Close()
	return again(client, wait, func() error { _, err := client.WriteToUDPAddrPort([]byte("twill"), to); return err }, func([]byte) bool { return true })
}

// again asks every 100 ms until there is the right answer or the time is up.
func again(c net.PacketConn, wait time.Duration, ask func() error, right func([]byte) bool) (bool, error) {
	var buf [256]byte
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		if err := ask(); err != nil {
			return false, nil // unreachable or not permitted: it did not get through
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for {
			n, _, err := c.ReadFrom(buf[:])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return false, nil // the other side refused
			}
			if right(buf[:n]) {
				return true, nil
			}
		}
	}
	return false, nil
}

// ping sends ICMP or ICMPv6 echo requests.
func ping(ns string, src, dst netip.Addr, wait time.Duration) (bool, error) {
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if dst.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c net.PacketConn
	err := inside(ns, func() (err error) { c, err = net.ListenPacket(network, src.String()); return err })
	if err != nil {
		return false, fmt.Errorf("ping: %w", err)
	}
	defer c.Close()
	id := uint16(time.Now().UnixNano())
	packet := binary.BigEndian.AppendUint16([]byte{request, 0, 0, 0}, id)
	packet = append(packet, 0, 1)
	if dst.Is4() { // for ICMPv6 the kernel does it
		sum := uint32(request)<<8 + uint32(id) + 1
		binary.BigEndian.PutUint16(packet[2:], ^uint16(sum>>16+sum&0xffff))
	}
	ask := func() error { _, err := c.WriteTo(packet, &net.IPAddr{IP: dst.AsSlice()}); return err }
	return again(c, wait, ask, func(b []byte) bool {
		return len(b) >= 8 && b[0] == reply && binary.BigEndian.Uint16(b[4:]) == id
	})
}
