// Package bootp exchanges datagrams of BOOTP's ports with machines that have no address yet (RFC 951, RFC 2131, 4.1).
//
// In: datagrams, with the link that each arrived by. Out: datagrams to a hardware address on one link, which ask neither routes nor neighbours.
// Sockets belong to the network namespace of the thread that opened them. They need root.
package bootp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/checksum"
)

// MAC is a hardware address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Broadcast is that of all machines on a link.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Socket receives what is sent to one port. One goroutine may receive while another sends; any may close it.
type Socket struct {
	port uint16
	file *os.File
	raw  syscall.RawConn
	out  *os.File
}

// Listen receives IPv4 datagrams to a port, on all links. Other servers that allow it may listen there too, such as a dnsmasq for one bridge: a
// broadcast reaches all of them.
func Listen(port uint16) (*Socket, error) {
	in, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("listen on UDP port %d: %w", port, os.NewSyscallError("socket", err))
	}
	s := &Socket{port: port, file: os.NewFile(uintptr(in), "udp")}
	for _, o := range []struct{ level, name int }{{unix.SOL_SOCKET, unix.SO_REUSEADDR}, {unix.SOL_SOCKET, unix.SO_BROADCAST}, {unix.SOL_IP, unix.IP_PKTINFO}} {
		if err == nil {
			err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(in, o.level, o.name, 1))
		}
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(in, &unix.SockaddrInet4{Port: int(port)}))
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err == nil {
		s.out, err = sender()
	}
	if err != nil {
		_ = s.file.Close()
		return nil, fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
	return s, nil
}

// sender is a packet socket that receives nothing: it is of no protocol.
func sender() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	return os.NewFile(uintptr(fd), "packet"), nil
}

// Close closes the sockets, and ends a Receive with os.ErrClosed.
func (s *Socket) Close() error {
	_ = s.out.Close()
	return s.file.Close()
}

// Receive waits for a datagram, and returns its length in buf, where what is longer is cut off, and the index of the link that it came by.
func (s *Socket) Receive(buf []byte) (n, link int, err error) {
	control := make([]byte, 128)
	var cn int
	var fault error
	err = s.raw.Read(func(fd uintptr) bool {
		n, cn, _, _, fault = unix.Recvmsg(int(fd), buf, control, 0)
		return fault != unix.EAGAIN && fault != unix.EINTR
	})
	if err == nil {
		err = os.NewSyscallError("recvmsg", fault)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("receive on UDP port %d: %w", s.port, err)
	}
	return n, arrival(control[:cn]), nil
}

// arrival is the link's index in control messages; 0: they have none.
func arrival(b []byte) int {
	for len(b) >= unix.CmsgLen(0) {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			break
		}
		if h.Level == unix.SOL_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo {
			return int(binary.NativeEndian.Uint32(data))
		}
		b = rest
	}
	return 0
}

// Datagram is one to a machine on a link.
type Datagram struct {
	Link     int // its index
	MAC      MAC // of the machine
	Src, Dst netip.AddrPort
	Payload  []byte
}

// Send sends a datagram. It passes no rules of the host's.
func (s *Socket) Send(d Datagram) error {
	const etherIP4 = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // in network order
	to := &unix.SockaddrLinklayer{Ifindex: d.Link, Protocol: etherIP4, Halen: uint8(len(d.MAC))}
	copy(to.Addr[:], d.MAC[:])
	raw, err := s.out.SyscallConn()
	if err == nil {
		var fault error
		err = raw.Control(func(fd uintptr) { fault = unix.Sendto(int(fd), d.packet(), 0, to) })
		if err == nil {
			err = os.NewSyscallError("sendto", fault)
		}
	}
	if err != nil {
		return fmt.Errorf("send to %s on link %d: %w", d.Dst, d.Link, err)
	}
	return nil
}

const (
	ipHeader, udpHeader = 20, 8
	ttl                 = 64
)

// packet is the IP packet (RFC 791, RFC 768).
func (d Datagram) packet() []byte {
	b := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(d.Payload))
	b = append(b, d.Payload...)
	b[0], b[8], b[9] = 4<<4|ipHeader/4, ttl, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	src, dst := d.Src.Addr().As4(), d.Dst.Addr().As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[10:], checksum.Internet(0, b[:ipHeader]))
	u := b[ipHeader:]
	binary.BigEndian.PutUint16(u, d.Src.Port())
	binary.BigEndian.PutUint16(u[2:], d.Dst.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(len(u)))
	pseudo := uint32(unix.IPPROTO_UDP + len(u))
	for at := 12; at < ipHeader; at += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(b[at:]))
	}
	sum := checksum.Internet(pseudo, u)
	if sum == 0 { // zero says that there is none
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(u[6:], sum)
	return b
}
