package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Messages and attributes of ctnetlink (linux/netfilter/nfnetlink_conntrack.h).
const (
	msgNew    = 0
	msgGet    = 1
	msgDelete = 2
	msgStats  = 5 // of the table as a whole

	attrOriginal = 1
	attrReply    = 2
	attrProtocol = 4
	attrMark     = 8
	attrMaster   = 14
	attrZone     = 18
	attrMarkMask = 21
	attrFilter   = 25 // which fields of the tuples that are sent a dump asks for, as bits by number less one

	filterOriginal = 1
	filterReply    = 2
	filterSrc      = 1 << 0 // CTA_IP_SRC

	statsEntries = 1

	tupleIP    = 1
	tupleProto = 2
	tupleZone  = 3

	ipSrc4 = 1
	ipDst4 = 2
	ipSrc6 = 3
	ipDst6 = 4

	protoNum      = 1
	protoSrcPort  = 2
	protoDstPort  = 3
	protoICMPID   = 4
	protoICMPType = 5
	protoICMPCode = 6
	protoICMP6ID  = 7 // and its type and code follow

	protocolTCP      = 1
	tcpFlagsOriginal = 4 // and those of the reply follow: flags, and which of them are meant
	tcpBeLiberal     = 8 // linux/netfilter/nf_conntrack_tcp.h

	nested   = unix.NLA_F_NESTED
	typeMask = 0x3fff
)

func decode(b []byte) (Flow, bool) {
	var f Flow
	attrs(b, func(typ uint16, v []byte) {
		switch typ {
		case attrOriginal:
			f.Original = decodeTuple(v, &f.Zone)
		case attrReply:
			f.Reply = decodeTuple(v, &f.Zone)
		case attrMaster:
			f.Master = decodeTuple(v, new(uint16))
		case attrMark:
			f.Mark = be32(v)
		case attrZone:
			f.Zone = be16(v)
		}
	})
	return f, f.Original.Src.IsValid() && f.Original.Dst.IsValid() && f.Reply.Src.IsValid()
}

func decodeTuple(b []byte, zone *uint16) (t Tuple) {
	attrs(b, func(typ uint16, v []byte) {
		switch typ {
		case tupleIP:
			attrs(v, func(typ uint16, v []byte) {
				a, ok := netip.AddrFromSlice(v)
				switch {
				case ok && (typ == ipSrc4 || typ == ipSrc6):
					t.Src = a
				case ok && (typ == ipDst4 || typ == ipDst6):
					t.Dst = a
				}
			})
		case tupleProto:
			attrs(v, t.decodeProto)
		case tupleZone:
			*zone = be16(v)
		}
	})
	return t
}

func (t *Tuple) decodeProto(typ uint16, v []byte) {
	switch typ {
	case protoNum:
		t.Proto = be8(v)
	case protoSrcPort:
		t.SrcPort = be16(v)
	case protoDstPort:
		t.DstPort = be16(v)
	case protoICMPID, protoICMP6ID:
		t.ICMPID = be16(v)
	case protoICMPType, protoICMP6ID + 1:
		t.ICMPType = be8(v)
	case protoICMPCode, protoICMP6ID + 2:
		t.ICMPCode = be8(v)
	}
}

// encodeName names a flow by its original tuple.
func encodeName(f Flow) []byte {
	out := attr(nil, attrOriginal|nested, encodeTuple(f.Original))
	if f.Zone != 0 {
		out = attr(out, attrZone, binary.BigEndian.AppendUint16(nil, f.Zone))
	}
	return out
}

// encode names a flow, and says its mark.
func encode(c Change) []byte {
	out := attr(encodeName(c.Flow), attrMark, binary.BigEndian.AppendUint32(nil, c.Mark))
	out = attr(out, attrMarkMask, binary.BigEndian.AppendUint32(nil, c.Mask))
	if c.AnyWindow && c.Flow.Original.Proto == unix.IPPROTO_TCP {
		liberal := []byte{tcpBeLiberal, tcpBeLiberal}
		tcp := attr(attr(nil, tcpFlagsOriginal, liberal), tcpFlagsOriginal+1, liberal)
		out = attr(out, attrProtocol|nested, attr(nil, protocolTCP|nested, tcp))
	}
	return out
}

// encodeFilter asks for the flows of which one direction, filterOriginal or filterReply, comes from an IPv4 address.
func encodeFilter(side uint16, src netip.Addr) []byte {
	tuple := [...]uint16{filterOriginal: attrOriginal, filterReply: attrReply}[side]
	out := attr(nil, tuple|nested, attr(nil, tupleIP|nested, attr(nil, ipSrc4, src.AsSlice())))
	return attr(out, attrFilter|nested, attr(nil, side, binary.NativeEndian.AppendUint32(nil, filterSrc)))
}

func encodeTuple(t Tuple) []byte {
	src, dst := uint16(ipSrc4), uint16(ipDst4)
	if t.Src.Is6() {
		src, dst = ipSrc6, ipDst6
	}
	ip := attr(attr(nil, src, t.Src.AsSlice()), dst, t.Dst.AsSlice())
	proto := attr(nil, protoNum, []byte{t.Proto})
	first := uint16(protoICMPID)
	switch t.Proto {
	case unix.IPPROTO_ICMPV6:
		first = protoICMP6ID
		fallthrough
	case unix.IPPROTO_ICMP:
		proto = attr(proto, first, binary.BigEndian.AppendUint16(nil, t.ICMPID))
		proto = attr(proto, first+1, []byte{t.ICMPType})
		proto = attr(proto, first+2, []byte{t.ICMPCode})
	default:
		proto = attr(proto, protoSrcPort, binary.BigEndian.AppendUint16(nil, t.SrcPort))
		proto = attr(proto, protoDstPort, binary.BigEndian.AppendUint16(nil, t.DstPort))
	}
	return attr(attr(nil, tupleIP|nested, ip), tupleProto|nested, proto)
}

// attr appends an attribute.
func attr(b []byte, typ uint16, v []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(v)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, v...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attrs hands over attributes until one is cut off.
func attrs(b []byte, f func(typ uint16, v []byte)) {
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&typeMask, b[4:n])
		b = b[min((n+3)&^3, len(b)):]
	}
}

func be8(b []byte) uint8 {
	if len(b) < 1 {
		return 0
	}
	return b[0]
}

func be16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func be32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}
