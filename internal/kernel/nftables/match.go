package nftables

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
)

// IPv4Src loads the source address of an IPv4 packet; match the family first.
func IPv4Src() Payload { return Payload{Base: NetworkHeader, Offset: 12, Len: 4} }

// IPv4Dst loads the destination address of an IPv4 packet.
func IPv4Dst() Payload { return Payload{Base: NetworkHeader, Offset: 16, Len: 4} }

// IPv6Src loads the source address of an IPv6 packet.
func IPv6Src() Payload { return Payload{Base: NetworkHeader, Offset: 8, Len: 16} }

// IPv6Dst loads the destination address of an IPv6 packet.
func IPv6Dst() Payload { return Payload{Base: NetworkHeader, Offset: 24, Len: 16} }

// SrcPort loads the source port; match the protocol first.
func SrcPort() Payload { return Payload{Base: TransportHeader, Offset: 0, Len: 2} }

// DstPort loads the destination port.
func DstPort() Payload { return Payload{Base: TransportHeader, Offset: 2, Len: 2} }

// ICMPType loads the type of an ICMP or ICMPv6 message.
func ICMPType() Payload { return Payload{Base: TransportHeader, Offset: 0, Len: 1} }

// ICMPCode loads its code.
func ICMPCode() Payload { return Payload{Base: TransportHeader, Offset: 1, Len: 1} }

// In returns p loading into another register.
func (p Payload) In(r Reg) Payload { p.Reg = r; return p }

// Src loads the source address for a family.
func Src(f Family) Payload {
	if f == FamilyIPv6 {
		return IPv6Src()
	}
	return IPv4Src()
}

// Dst loads the destination address for a family.
func Dst(f Family) Payload {
	if f == FamilyIPv6 {
		return IPv6Dst()
	}
	return IPv4Dst()
}

// MatchNFProto matches packets of a family.
func MatchNFProto(f Family) []Expr {
	return []Expr{Meta{Key: MetaNFProto}, Cmp{Op: Eq, Data: []byte{uint8(f)}}}
}

// MatchL4Proto matches packets of a protocol, whatever the IPv6 extension headers.
func MatchL4Proto(p uint8) []Expr {
	return []Expr{Meta{Key: MetaL4Proto}, Cmp{Op: Eq, Data: []byte{p}}}
}

// MatchIIFName matches packets that came in through an interface. A name that ends in * matches what begins so.
func MatchIIFName(name string) []Expr { return matchName(MetaIIFName, name) }

// MatchOIFName matches packets that go out through an interface. A name that ends in * matches what begins so.
func MatchOIFName(name string) []Expr { return matchName(MetaOIFName, name) }

func matchName(key MetaKey, name string) []Expr {
	data := KeyIfname(name)
	if n := len(name); n > 0 && name[n-1] == '*' {
		if n == 1 {
			return nil // every interface
		}
		data = []byte(name[:n-1])
	}
	return []Expr{Meta{Key: key}, Cmp{Op: Eq, Data: data}}
}

// MatchMark matches packets whose mark, masked, has a value.
func MatchMark(value, mask uint32) []Expr {
	return []Expr{Meta{Key: MetaMark}, Bitwise{Mask: U32(mask), Xor: U32(0)}, Cmp{Op: Eq, Data: U32(value)}}
}

// MatchCTMark matches packets whose connection's mark, masked, has a value.
func MatchCTMark(value, mask uint32) []Expr {
	return []Expr{CT{Key: CTMark}, Bitwise{Mask: U32(mask), Xor: U32(0)}, Cmp{Op: Eq, Data: U32(value)}}
}

// MatchCTState matches packets whose connection is in one of the states.
func MatchCTState(states uint32) []Expr {
	return []Expr{CT{Key: CTState}, Bitwise{Mask: U32(states), Xor: U32(0)}, Cmp{Op: Neq, Data: U32(0)}}
}

// MatchSrc matches packets of p's family whose source is in p (or, with not, outside).
func MatchSrc(p netip.Prefix, not bool) []Expr { return matchPrefix(Src(familyOf(p)), p, not) }

// MatchDst matches packets of p's family whose destination is in p (or, with not, outside).
func MatchDst(p netip.Prefix, not bool) []Expr { return matchPrefix(Dst(familyOf(p)), p, not) }

func familyOf(p netip.Prefix) Family {
	if p.Addr().Is4() {
		return FamilyIPv4
	}
	return FamilyIPv6
}

// matchPrefix compares whole bytes where it can, since that is one expression less.
func matchPrefix(load Payload, p netip.Prefix, not bool) []Expr {
	p = p.Masked()
	exprs := MatchNFProto(familyOf(p))
	op := Eq
	if not {
		op = Neq
	}
	addr, bits := p.Addr().AsSlice(), p.Bits()
	switch {
	case !p.IsValid():
		// A prefix that is none matches nothing, nor does its negation: byte 0 of a header is never both.
		return append(exprs, load, Cmp{Op: Eq, Data: []byte{0}}, Cmp{Op: Eq, Data: []byte{1}})
	case bits == 0 && !not:
		return exprs
	case bits == 0:
		mask := make([]byte, load.Len)
		return append(exprs, load, Bitwise{Mask: mask, Xor: mask}, Cmp{Op: Neq, Data: mask})
	case bits%8 == 0:
		load.Len = uint32(bits / 8)
		return append(exprs, load, Cmp{Op: op, Data: addr[:bits/8]})
	}
	mask := net.CIDRMask(bits, 8*len(addr))
	return append(exprs, load, Bitwise{Mask: mask, Xor: make([]byte, len(mask))}, Cmp{Op: op, Data: addr})
}

// SetMarkBits sets some bits of the packet's mark, clears others, and keeps the rest.
func SetMarkBits(set, clear uint32) []Expr {
	return []Expr{Meta{Key: MetaMark}, Bitwise{Mask: U32(^(set | clear)), Xor: U32(set)}, SetMeta{Key: MetaMark}}
}

// SetCTMarkBits sets some bits of the mark of the packet's connection, and keeps the rest.
func SetCTMarkBits(set uint32) []Expr {
	return []Expr{CT{Key: CTMark}, Bitwise{Mask: U32(^set), Xor: U32(set)}, SetCT{Key: CTMark}}
}

// MatchAddrs matches an address, loaded by Src or Dst, that is in one of some prefixes of its family, or, with not, in none. It returns
// alternatives, one for each length of a prefix; a packet matches at most one of them, and a negation is always one. Match the family first.
// No prefix at all matches nothing; with not, everything.
//
// The kernel has sets of intervals, with which this would be one alternative. But in one that is new it finds nothing until the end of the transaction that
// makes it, when the rules that ask it are in force already (nf_tables_commit calls nft_set_commit_update last): docs/decisions/068.
func MatchAddrs(load Payload, ps []netip.Prefix, not bool) [][]Expr {
	var none []Expr
	var ways [][]Expr
	for _, same := range byLength(ps) {
		var in []Expr
		if len(same) == 1 {
			in = matchPrefix(load, same[0], not)[len(MatchNFProto(FamilyIPv4)):]
		} else {
			in = append(in, load)
			if p := same[0]; !p.IsSingleIP() {
				mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
				in = append(in, Bitwise{Mask: mask, Xor: make([]byte, len(mask))})
			}
			key, els := TypeIPv4Addr, make([]Element, len(same))
			if same[0].Addr().Is6() {
				key = TypeIPv6Addr
			}
			for i, p := range same {
				els[i] = Element{Key: p.Addr().AsSlice()}
			}
			in = append(in, In{Set: Set{Key: key}, Elements: els, Not: not})
		}
		ways, none = append(ways, in), append(none, in...)
	}
	switch {
	case not:
		return [][]Expr{none}
	case len(ways) == 0:
		return [][]Expr{{load, Cmp{Op: Lt, Data: make([]byte, load.Len), Reg: load.Reg}}}
	}
	return ways
}

// byLength groups prefixes by length, the shortest first, each group sorted and masked. What lies within another prefix is left out, and so is what is
// none.
func byLength(ps []netip.Prefix) [][]netip.Prefix {
	masked := make([]netip.Prefix, 0, len(ps))
	for _, p := range ps {
		if p.IsValid() {
			masked = append(masked, p.Masked())
		}
	}
	slices.SortFunc(masked, func(a, b netip.Prefix) int { return cmp.Or(a.Bits()-b.Bits(), a.Addr().Compare(b.Addr())) })
	kept := map[netip.Prefix]bool{}
	var out [][]netip.Prefix
	for _, p := range masked {
		covered := false
		for _, group := range out {
			wider, err := p.Addr().Prefix(group[0].Bits())
			covered = covered || err == nil && kept[wider]
		}
		switch last := len(out) - 1; {
		case covered:
			continue
		case last >= 0 && out[last][0].Bits() == p.Bits():
			out[last] = append(out[last], p)
		default:
			out = append(out, []netip.Prefix{p})
		}
		kept[p] = true
	}
	return out
}

// narrow is the number of ports up to which a range among others is listed port by port, since a set without intervals is one alternative.
const narrow = 32

// MatchPorts matches a port, loaded by SrcPort or DstPort, that is in one of the ranges, or, with not, in none. It returns alternatives, of which a packet
// matches at most one; a negation is always one. Match the protocol first. No range at all matches nothing; with not, everything.
func MatchPorts(load Payload, ranges [][2]uint16, not bool) [][]Expr {
	merged := mergePorts(ranges)
	var listed []Element
	var tests []Expr
	for _, r := range merged {
		if r[1]-r[0] >= narrow || len(merged) == 1 {
			tests = append(tests, matchOne(RangeElement(KeyPort(r[0]), KeyPort(r[1])), not, load.Reg))
			continue
		}
		for port := int(r[0]); port <= int(r[1]); port++ {
			listed = append(listed, Element{Key: KeyPort(uint16(port))})
		}
	}
	switch len(listed) {
	case 0:
	case 1:
		tests = append(tests, matchOne(listed[0], not, load.Reg))
	default: // no intervals: see MatchAddrs
		tests = append(tests, In{Set: Set{Key: TypeInetService}, Elements: listed, Not: not, Reg: load.Reg})
	}
	switch {
	case len(tests) == 0 && not:
		return [][]Expr{nil}
	case len(tests) == 0:
		return [][]Expr{{load, Cmp{Op: Lt, Data: []byte{0, 0}, Reg: load.Reg}}}
	case not:
		return [][]Expr{append([]Expr{load}, tests...)}
	}
	ways := make([][]Expr, len(tests))
	for i, test := range tests {
		ways[i] = []Expr{load, test}
	}
	return ways
}

// mergePorts joins ranges that overlap or follow on each other: one range needs no set, of which each costs the kernel a
// walk through all others.
func mergePorts(ranges [][2]uint16) [][2]uint16 {
	var out [][2]uint16
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b [2]uint16) int { return cmp.Compare(a[0], b[0]) }) {
		switch last := len(out) - 1; {
		case r[0] > r[1]: // holds nothing
		case last >= 0 && uint32(r[0]) <= uint32(out[last][1])+1:
			out[last][1] = max(out[last][1], r[1])
		default:
			out = append(out, r)
		}
	}
	return out
}

func matchOne(el Element, not bool, r Reg) Expr {
	if el.End != nil {
		return Range{Not: not, From: el.Key, To: el.End, Reg: r}
	}
	op := Eq
	if not {
		op = Neq
	}
	return Cmp{Op: op, Data: el.Key, Reg: r}
}
