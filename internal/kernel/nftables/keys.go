package nftables

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
)

// typeInfo is what this package knows of a type.
type typeInfo struct {
	name string
	size int
	host bool // in host byte order
}

func (t Type) info() typeInfo {
	switch t {
	case TypeVerdict:
		return typeInfo{name: "verdict"}
	case TypeNFProto:
		return typeInfo{name: "nf_proto", size: 1, host: true}
	case TypeIPv4Addr:
		return typeInfo{name: "ipv4_addr", size: 4}
	case TypeIPv6Addr:
		return typeInfo{name: "ipv6_addr", size: 16}
	case TypeEtherAddr:
		return typeInfo{name: "ether_addr", size: 6}
	case TypeInetProto:
		return typeInfo{name: "inet_proto", size: 1}
	case TypeInetService:
		return typeInfo{name: "inet_service", size: 2}
	case TypeICMPType:
		return typeInfo{name: "icmp_type", size: 1}
	case TypeMark:
		return typeInfo{name: "mark", size: 4, host: true}
	case TypeIfindex:
		return typeInfo{name: "iface_index", size: 4, host: true}
	case TypeClassID:
		return typeInfo{name: "classid", size: 4, host: true}
	case TypeCTState:
		return typeInfo{name: "ct_state", size: 4, host: true}
	case TypeICMPv6Type:
		return typeInfo{name: "icmpv6_type", size: 1}
	case TypeFibAddr:
		return typeInfo{name: "fib_addrtype", size: 4, host: true}
	case TypeIfname:
		return typeInfo{name: "ifname", size: 16, host: true}
	}
	return typeInfo{name: "type" + strconv.FormatUint(uint64(t), 10)}
}

// Concat is the type of a concatenation of two to five fields.
func Concat(fields ...Type) Type {
	var t Type
	if len(fields) > typeFieldsMaximum {
		return TypeNone // refused by AddSet: it has no length
	}
	for _, f := range fields {
		t = t<<typeBits | f
	}
	return t
}

// Fields are the fields of a concatenation, or the type itself.
func (t Type) Fields() []Type {
	if t < 1<<typeBits {
		return []Type{t}
	}
	var fs []Type
	for ; t != 0; t >>= typeBits {
		fs = append(fs, t&(1<<typeBits-1))
	}
	slices.Reverse(fs)
	return fs
}

// Len is the length of a value in bytes; fields of concatenations are padded to four. Zero: unknown.
func (t Type) Len() int {
	if t < 1<<typeBits {
		return t.info().size
	}
	n := 0
	for _, f := range t.Fields() {
		if f.info().size == 0 {
			return 0
		}
		n += padded(f.info().size)
	}
	return n
}

func (t Type) String() string {
	s := ""
	for i, f := range t.Fields() {
		if i > 0 {
			s += " . "
		}
		s += f.info().name
	}
	return s
}

func (t Type) hostOrder() bool { return t < 1<<typeBits && t.info().host }

// order is what nft wants to know for printing.
func (t Type) order() uint32 {
	if t.hostOrder() {
		return udataOrderHost
	}
	return udataOrderNetwork
}

func padded(n int) int { return (n + 3) &^ 3 }

// KeyPort is an inet_service.
func KeyPort(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// KeyProto is an inet_proto, nf_proto or ICMP type: one byte.
func KeyProto(p uint8) []byte { return []byte{p} }

// KeyIfname is an interface name, padded to 16 bytes. A name too long for the kernel gives nil, which no set takes.
func KeyIfname(name string) []byte {
	if len(name) > 15 {
		return nil
	}
	b := make([]byte, 16)
	copy(b, name)
	return b
}

// U32 is a mark, an interface index, a conntrack state: four bytes in host order.
func U32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// NumberOf is the inverse of U32; of other lengths it is zero.
func NumberOf(key []byte) uint32 {
	if len(key) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(key)
}

// KeyConcat joins the fields of a concatenation, each padded to four bytes.
func KeyConcat(fields ...[]byte) []byte {
	var b []byte
	for _, f := range fields {
		b = append(b, f...)
		for len(b)&3 != 0 {
			b = append(b, 0)
		}
	}
	return b
}

// PrefixElement is the interval of a prefix.
func PrefixElement(p netip.Prefix) Element {
	p = p.Masked()
	return RangeElement(p.Addr().AsSlice(), lastOf(p))
}

func lastOf(p netip.Prefix) []byte {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i >= 0 && i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// RangeElement is the interval from first to last, both included.
func RangeElement(first, last []byte) Element {
	el := Element{Key: first}
	if !bytes.Equal(first, last) {
		el.End = last
	}
	return el
}

func (el Element) last() []byte {
	if el.End == nil {
		return el.Key
	}
	return el.End
}

// compareElements sorts by key, then by end; the catch-all comes first, as it has no key.
func compareElements(a, b Element) int {
	if c := bytes.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	return bytes.Compare(a.last(), b.last())
}

// successor is the key after b; there is none after the last one.
func successor(b []byte) ([]byte, bool) {
	b = slices.Clone(b)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b, true
		}
	}
	return nil, false
}

// predecessor is the key before b; there is none before zero.
func predecessor(b []byte) ([]byte, bool) {
	b = slices.Clone(b)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			return b, true
		}
	}
	return nil, false
}

// ordered reports whether an interval starts before it ends, in each field.
func ordered(t Type, first, last []byte) bool {
	fields := t.Fields()
	if len(fields) == 1 {
		return bytes.Compare(first, last) <= 0
	}
	for _, f := range fields {
		n := padded(f.Len())
		if n > len(first) || n > len(last) || bytes.Compare(first[:n], last[:n]) > 0 {
			return false
		}
		first, last = first[n:], last[n:]
	}
	return true
}
