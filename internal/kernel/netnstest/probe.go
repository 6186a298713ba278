package netnstest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/checksum"
)

// Patience is how long a probe that should succeed may take on a busy machine; Silence is how long one must go
// unanswered to count as blocked.
const (
	Patience = time.Minute
	Silence  = 250 * time.Millisecond
)

// Probe is a packet exchange from one namespace to another: there and back.
type Probe struct {
	From, To *NS
	Proto    string     // tcp, udp or icmp (which is also ICMPv6)
	Src      netip.Addr // the zero value: the kernel chooses
	Dst      netip.AddrPort
	SrcPort  uint16 // 0: the kernel chooses
	Mark     uint32 // of what From sends over TCP or UDP (SO_MARK)
}

// WantReach fails the test unless the probe is answered.
func (p Probe) WantReach(t testing.TB) {
	t.Helper()
	if err := p.Try(Patience); err != nil {
		t.Errorf("%s does not get through: %v", p, err)
	}
}

// WantBlocked fails the test if the probe is answered.
func (p Probe) WantBlocked(t testing.TB) {
	t.Helper()
	if err := p.Try(Silence); err == nil {
		t.Errorf("%s gets through", p)
	}
}

// String is the probe as people say it.
func (p Probe) String() string {
	if p.Src.IsValid() {
		return fmt.Sprintf("%s from %s to %s", p.Proto, p.Src, p.Dst)
	}
	return fmt.Sprintf("%s to %s", p.Proto, p.Dst)
}

// Try makes the exchange: nil if an answer came within that time. Each try has a listener and a source port of its own,
// so that no earlier one is remembered by conntrack.
func (p Probe) Try(within time.Duration) error {
	deadline := time.Now().Add(within)
	switch p.Proto {
	case "tcp":
		return p.tryTCP(deadline)
	case "udp":
		return p.tryUDP(deadline)
	case "icmp":
		return p.From.Ping(p.Src, p.Dst.Addr(), deadline)
	}
	return fmt.Errorf("probe: no protocol %q", p.Proto)
}

// ListenTCP listens in the namespace; it is closed at the end of the test.
func (n *NS) ListenTCP(at netip.AddrPort) (net.Listener, error) {
	var l net.Listener
	err := n.ns.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err == nil {
		n.t.Cleanup(func() { _ = l.Close() })
	}
	return l, err
}

// DialTCP connects from the namespace; from may be zero. The connection is closed at the end of the test.
func (n *NS) DialTCP(from, to netip.AddrPort, deadline time.Time) (net.Conn, error) {
	return n.dialTCP(from, to, deadline, 0)
}

func (n *NS) dialTCP(from, to netip.AddrPort, deadline time.Time, mark uint32) (net.Conn, error) {
	d := net.Dialer{Deadline: deadline, Control: func(_, _ string, c syscall.RawConn) error { return setMark(c, mark) }}
	if from != (netip.AddrPort{}) {
		d.LocalAddr = net.TCPAddrFromAddrPort(from)
	}
	var c net.Conn
	err := n.ns.Do(func() (err error) { c, err = d.Dial("tcp", to.String()); return err })
	if err == nil {
		n.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// setMark sets the mark of what a socket sends.
func setMark(c syscall.RawConn, mark uint32) (err error) {
	if mark == 0 {
		return nil
	}
	if failed := c.Control(func(fd uintptr) {
		err = os.NewSyscallError("SO_MARK", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, int(mark)))
	}); failed != nil {
		return failed
	}
	return err
}

// ListenUDP opens a socket in the namespace; it is closed at the end of the test.
func (n *NS) ListenUDP(at netip.AddrPort) (*net.UDPConn, error) {
	var c *net.UDPConn
	err := n.ns.Do(func() (err error) { c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err })
	if err == nil {
		n.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func (p Probe) source() netip.AddrPort {
	a := p.Src
	if !a.IsValid() {
		a = netip.IPv4Unspecified()
		if p.Dst.Addr().Is6() {
			a = netip.IPv6Unspecified()
		}
	}
	return netip.AddrPortFrom(a, p.SrcPort)
}

// anyAddr is the port of Dst on all addresses, since Dst may be translated on its way.
func (p Probe) anyAddr() netip.AddrPort {
	return netip.AddrPortFrom(Probe{Dst: p.Dst}.source().Addr(), p.Dst.Port())
}

func (p Probe) tryTCP(deadline time.Time) error {
	l, err := p.To.ListenTCP(p.anyAddr())
	if err != nil {
		return err
	}
	defer l.Close()
	go echoTCP(l, deadline)
	c, err := p.From.dialTCP(p.source(), p.Dst, deadline, p.Mark)
	if err != nil {
		return err
	}
	defer c.Close()
	return Exchange(c, deadline)
}

func echoTCP(l net.Listener, deadline time.Time) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(deadline)
			_, _ = io.Copy(c, c)
		}()
	}
}

// Echo answers each connection with what it sends, until the listener is closed.
func Echo(l net.Listener) { go echoTCP(l, time.Time{}) }

// Exchange sends a word over a connection to Echo and waits for its return: nil if the flow works.
func Exchange(c net.Conn, deadline time.Time) error {
	_ = c.SetDeadline(deadline)
	if _, err := c.Write([]byte("twill")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

func (p Probe) tryUDP(deadline time.Time) error {
	server, err := p.To.ListenUDP(p.anyAddr())
	if err != nil {
		return err
	}
	defer server.Close()
	_ = server.SetDeadline(deadline)
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	client, err := p.From.ListenUDP(p.source())
	if err != nil {
		return err
	}
	defer client.Close()
	raw, err := client.SyscallConn()
	if err != nil {
		return err
	}
	if err := setMark(raw, p.Mark); err != nil {
		return err
	}
	buf := make([]byte, 64)
	return resend(deadline, func(until time.Time) error {
		if _, err := client.WriteToUDPAddrPort([]byte("twill"), p.Dst); err != nil {
			return err
		}
		_ = client.SetReadDeadline(until)
		_, _, err := client.ReadFromUDPAddrPort(buf)
		return err
	})
}

// Ping sends an ICMP or ICMPv6 echo request and waits for its reply.
func (n *NS) Ping(src, dst netip.Addr, deadline time.Time) error {
	network, local := "ip4:icmp", "0.0.0.0"
	request, reply := byte(8), byte(0)
	if dst.Is6() {
		network, local, request, reply = "ip6:ipv6-icmp", "::", 128, 129
	}
	if src.IsValid() {
		local = src.String()
	}
	var c net.PacketConn
	if err := n.ns.Do(func() (err error) { c, err = net.ListenPacket(network, local); return err }); err != nil {
		return err
	}
	defer c.Close()
	zone := dst.Zone()
	if zone != "" { // a number: package net looks names up in the namespace of the process
		zone = strconv.Itoa(n.Link(zone).Index)
	}
	id := uint16(time.Now().UnixNano())
	packet := []byte{request, 0, 0, 0, byte(id >> 8), byte(id), 0, 1, 't', 'w', 'i', 'l'}
	if dst.Is4() { // for ICMPv6 the kernel does it
		binary.BigEndian.PutUint16(packet[2:], checksum.Internet(0, packet))
	}
	buf := make([]byte, 256)
	return resend(deadline, func(until time.Time) error {
		if _, err := c.WriteTo(packet, &net.IPAddr{IP: dst.AsSlice(), Zone: zone}); err != nil {
			return err
		}
		_ = c.SetReadDeadline(until)
		for {
			got, _, err := c.ReadFrom(buf)
			if err != nil {
				return err
			}
			if got >= 8 && buf[0] == reply && binary.BigEndian.Uint16(buf[4:]) == id {
				return nil
			}
		}
	})
}

// resend tries every 100 ms until the deadline, waiting for the answer each time.
func resend(deadline time.Time, try func(until time.Time) error) error {
	for {
		until := time.Now().Add(100 * time.Millisecond)
		if until.After(deadline) {
			until = deadline
		}
		err := try(until)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline) {
			return err
		}
	}
}
