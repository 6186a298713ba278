// Package packet puts single packets on links and sees what comes out of others.
//
// In: a [Packet] as a value. Out: Ethernet frames on an AF_PACKET socket, and
// the packets that arrive. Frames are for tests and probes that must see each
// packet's fate and cannot wait for a connection to time out; whoever gets
// packets from the kernel reads them with [ParseIP].
package packet

import (
	"encoding/binary"
	"net/netip"
)

// Packet is an IP packet without payload beyond its transport header.
type Packet struct {
	Src, Dst           netip.Addr
	Proto              uint8
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8
	TCPFlags           uint8  // zero means SYN
	Mark               uint16 // tells packets apart: IPv4's identification, IPv6's flow label
}

// MAC is a hardware address.
type MAC [6]byte

// Protocol numbers of IANA that have a header here.
const (
	protoICMP, protoTCP, protoUDP, protoICMPv6, protoSCTP, protoUDPLite = 1, 6, 17, 58, 132, 136

	flagSYN  = 0x02
	etherIP4 = 0x0800
	etherIP6 = 0x86dd
)

// Frame encodes the packet as an Ethernet frame, checksums included.
func (p Packet) Frame(from, to MAC) []byte {
	body := p.transport()
	b := append(append([]byte{}, to[:]...), from[:]...)
	if p.Dst.Is4() {
		b = binary.BigEndian.AppendUint16(b, etherIP4)
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, p.Proto
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(body)))
		binary.BigEndian.PutUint16(h[4:], p.Mark)
		binary.BigEndian.PutUint16(h[6:], 0x4000) // do not fragment
		copy(h[12:], p.Src.AsSlice())
		copy(h[16:], p.Dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], fold(sum(0, h)))
		b = append(b, h...)
	} else {
		b = binary.BigEndian.AppendUint16(b, etherIP6)
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(p.Mark))
		b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
		b = append(append(append(b, p.Proto, 64), p.Src.AsSlice()...), p.Dst.AsSlice()...)
	}
	return append(b, body...)
}

// transport encodes the transport header.
func (p Packet) transport() []byte {
	ports := func(size int) []byte {
		h := make([]byte, size)
		binary.BigEndian.PutUint16(h, p.SrcPort)
		binary.BigEndian.PutUint16(h[2:], p.DstPort)
		return h
	}
	var h []byte
	var at int // where the checksum is
	switch p.Proto {
	case protoTCP:
		h, at = ports(20), 16
		h[12], h[13] = 5<<4, p.TCPFlags
		if p.TCPFlags == 0 {
			h[13] = flagSYN
		}
		binary.BigEndian.PutUint16(h[14:], 65535)
	case protoUDP, protoUDPLite:
		h, at = ports(8), 6
		binary.BigEndian.PutUint16(h[4:], 8)
	case protoICMP, protoICMPv6:
		h, at = make([]byte, 8), 2
		h[0], h[1] = p.ICMPType, p.ICMPCode
		binary.BigEndian.PutUint16(h[4:], p.SrcPort) // identifier
		binary.BigEndian.PutUint16(h[6:], p.Mark)
	case protoSCTP:
		return p.sctpInit(ports(12 + 20))
	default:
		return make([]byte, 8)
	}
	if p.Proto == protoICMP {
		binary.BigEndian.PutUint16(h[at:], fold(sum(0, h)))
	} else {
		binary.BigEndian.PutUint16(h[at:], fold(sum(p.pseudo(len(h)), h)))
	}
	return h
}

// sctpInit completes an SCTP packet with one INIT chunk (RFC 9260, 3.3.2):
// conntrack takes no other for the begin of a flow.
func (p Packet) sctpInit(h []byte) []byte {
	h[12] = 1 // INIT
	binary.BigEndian.PutUint16(h[14:], 20)
	binary.BigEndian.PutUint32(h[16:], uint32(p.Mark)+1) // initiate tag
	binary.BigEndian.PutUint32(h[20:], 65535)            // window
	binary.BigEndian.PutUint16(h[24:], 1)                // outbound streams
	binary.BigEndian.PutUint16(h[26:], 1)                // inbound streams
	binary.LittleEndian.PutUint32(h[8:], crc32c(h))
	return h
}

// pseudo is the sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
func (p Packet) pseudo(n int) uint32 {
	s := sum(sum(0, p.Src.AsSlice()), p.Dst.AsSlice())
	return s + uint32(p.Proto) + uint32(n)
}

func sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// Parse decodes a frame; false for what is not IP or too short.
func Parse(frame []byte) (Packet, bool) {
	if len(frame) < 14 {
		return Packet{}, false
	}
	if t := binary.BigEndian.Uint16(frame[12:]); t != etherIP4 && t != etherIP6 {
		return Packet{}, false
	}
	return ParseIP(frame[14:])
}

// Quoted decodes the packet that a message of ICMP is about which says that it did not arrive (RFC 792; RFC 4443, 3.1);
// false for other packets.
func Quoted(b []byte) (Packet, bool) {
	p, ok := ParseIP(b)
	head := 40
	switch {
	case ok && p.Proto == protoICMP && p.ICMPType == 3:
		head = int(b[0]&15) * 4
	case !ok || p.Proto != protoICMPv6 || p.ICMPType != 1:
		return Packet{}, false
	}
	if len(b) < head+8 {
		return Packet{}, false
	}
	return ParseIP(b[head+8:])
}

// ParseIP decodes a packet from its IP header on; false for what is not IP or too short.
func ParseIP(b []byte) (p Packet, ok bool) {
	if len(b) == 0 {
		return p, false
	}
	switch b[0] >> 4 {
	case 4:
		if len(b) < 20 || int(b[0]&15)*4 < 20 || len(b) < int(b[0]&15)*4 {
			return p, false
		}
		p.Proto, p.Mark = b[9], binary.BigEndian.Uint16(b[4:])
		p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[int(b[0]&15)*4:]
	case 6:
		if len(b) < 40 {
			return p, false
		}
		p.Proto, p.Mark = b[6], binary.BigEndian.Uint16(b[2:])
		p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:]
	default:
		return p, false
	}
	switch p.Proto {
	case protoICMP, protoICMPv6:
		if len(b) >= 2 {
			p.ICMPType, p.ICMPCode = b[0], b[1]
		}
	default:
		if len(b) >= 4 {
			p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	}
	return p, true
}
