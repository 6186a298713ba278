// Package linklocal exchanges what an IPv6 host says before it has an address with the machine at the other end of a link: DHCPv6
// (RFC 8415) and router solicitations (RFC 4861).
//
// In: packets for a hardware address, which ask neither routes nor neighbours and pass no rules of the host's. Out: DHCPv6 messages to servers and
// router solicitations that arrive by that link, each with the hardware address that sent it. Sockets belong to the network namespace of the
// thread that opened them. They need root.
package linklocal

import (
	"encoding/binary"
	"errors"
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

// Protocols of IPv6.
const (
	UDP    = unix.IPPROTO_UDP
	ICMPv6 = unix.IPPROTO_ICMPV6
)

const (
	ipHeader, udpHeader = 40, 8
	serverPort          = 547 // of DHCPv6
	solicitation        = 133 // of ICMPv6
)

// groups are the Ethernet addresses of ff02::1:2, DHCPv6's servers, and ff02::2, routers.
var groups = []MAC{{0x33, 0x33, 0, 1, 0, 2}, {0x33, 0x33, 0, 0, 0, 2}}

// Packet is one that is sent or has arrived.
type Packet struct {
	MAC              MAC // of the machine
	Src, Dst         netip.Addr
	HopLimit         byte
	Proto            byte   // UDP or ICMPv6
	SrcPort, DstPort uint16 // of UDP
	Payload          []byte // of UDP; of ICMPv6 all of it
}

// Socket is one on a link. One goroutine may receive while another sends; any may close it.
type Socket struct {
	link int
	file *os.File
	raw  syscall.RawConn
}

// Open opens a socket on the link of an index.
func Open(link int) (*Socket, error) {
	s, err := open(link)
	if err != nil {
		return nil, fmt.Errorf("listen for IPv6 machines on link %d: %w", link, err)
	}
	return s, nil
}

func open(link int) (*Socket, error) {
	// Of no protocol until it has the filter, so that nothing else is in its queue.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &Socket{link: link, file: os.NewFile(uintptr(fd), "packet")}
	err = os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
	for _, g := range groups {
		if err == nil {
			m := unix.PacketMreq{Ifindex: int32(link), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(g))}
			copy(m.Address[:], g[:])
			err = os.NewSyscallError("setsockopt", unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m))
		}
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link, Protocol: etherIP6}))
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		_ = s.file.Close()
		return nil, err
	}
	return s, nil
}

// etherIP6 is in network order.
var etherIP6 = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IPV6))

// filter lets UDP to DHCPv6's servers and router solicitations through, so that nothing else of the machine's traffic is copied. Offsets are from
// the IPv6 header; a packet with extension headers is none of either (RFC 8415 and RFC 4861 want none).
var filter = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 6}, // next header
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: UDP, Jf: 2},
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: ipHeader + 2}, // destination port
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: serverPort, Jt: 3, Jf: 4},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: ICMPv6, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipHeader}, // type
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: solicitation, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// Close closes the socket, and ends a Receive with os.ErrClosed.
func (s *Socket) Close() error { return s.file.Close() }

// Receive waits for a packet, whose payload is in buf; what is too long for it, or is no whole packet, is passed over. A link that goes down does
// not end it: it goes on once the link is up again. It does not look at the checksum, which is empty in packets that never left this host's memory.
func (s *Socket) Receive(buf []byte) (Packet, error) {
	for {
		var n int
		var from unix.Sockaddr
		var fault error
		err := s.raw.Read(func(fd uintptr) bool {
			n, from, fault = unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC)
			return fault != unix.EAGAIN && fault != unix.EINTR
		})
		if err == nil && errors.Is(fault, unix.ENETDOWN) {
			continue
		}
		if err == nil {
			err = os.NewSyscallError("recvfrom", fault)
		}
		if err != nil {
			return Packet{}, fmt.Errorf("receive on link %d: %w", s.link, err)
		}
		ll, isLink := from.(*unix.SockaddrLinklayer)
		if !isLink || ll.Pkttype == unix.PACKET_OTHERHOST || int(ll.Halen) != len(MAC{}) || n > len(buf) {
			continue
		}
		if p, ok := parse(buf[:n]); ok {
			p.MAC = MAC(ll.Addr[:6])
			return p, nil
		}
	}
}

// parse reads an IPv6 packet (RFC 8200, RFC 768); false: it is not whole.
func parse(b []byte) (p Packet, ok bool) {
	if len(b) < ipHeader+udpHeader || b[0]>>4 != 6 {
		return p, false
	}
	size := int(binary.BigEndian.Uint16(b[4:]))
	if size < udpHeader || ipHeader+size > len(b) {
		return p, false
	}
	p = Packet{Src: netip.AddrFrom16([16]byte(b[8:24])), Dst: netip.AddrFrom16([16]byte(b[24:40])), HopLimit: b[7], Proto: b[6], Payload: b[ipHeader : ipHeader+size]}
	switch p.Proto {
	case ICMPv6:
		return p, true
	case UDP:
		u := p.Payload
		size = int(binary.BigEndian.Uint16(u[4:]))
		if size < udpHeader || size > len(u) {
			return p, false
		}
		p.SrcPort, p.DstPort, p.Payload = binary.BigEndian.Uint16(u), binary.BigEndian.Uint16(u[2:]), u[udpHeader:size]
		return p, true
	}
	return p, false
}

// Send sends a packet, with its checksum.
func (s *Socket) Send(p Packet) error {
	to := &unix.SockaddrLinklayer{Ifindex: s.link, Protocol: etherIP6, Halen: uint8(len(p.MAC))}
	copy(to.Addr[:], p.MAC[:])
	var fault error
	err := s.raw.Control(func(fd uintptr) { fault = unix.Sendto(int(fd), p.bytes(), 0, to) })
	if err == nil {
		err = os.NewSyscallError("sendto", fault)
	}
	if err != nil {
		return fmt.Errorf("send to %s on link %d: %w", p.Dst, s.link, err)
	}
	return nil
}

// bytes is the IP packet.
func (p Packet) bytes() []byte {
	body, at := p.Payload, 2 // where the checksum is
	if p.Proto == UDP {
		u := make([]byte, udpHeader, udpHeader+len(body))
		binary.BigEndian.PutUint16(u, p.SrcPort)
		binary.BigEndian.PutUint16(u[2:], p.DstPort)
		binary.BigEndian.PutUint16(u[4:], uint16(udpHeader+len(body)))
		body, at = append(u, body...), 6
	}
	b := make([]byte, ipHeader, ipHeader+len(body))
	b[0], b[6], b[7] = 6<<4, p.Proto, p.HopLimit
	binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
	src, dst := p.Src.As16(), p.Dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	b = append(b, body...)
	binary.BigEndian.PutUint16(b[ipHeader+at:], 0)
	// The pseudo-header is the addresses, the length and the protocol (RFC 8200, 8.1).
	sum := checksum.Internet(uint32(len(body))+uint32(p.Proto), b[8:])
	if sum == 0 { // zero says that there is none
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[ipHeader+at:], sum)
	return b
}
