package nftables

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// decodeExpr reads one expression; what is unknown becomes Raw, never an error.
func decodeExpr(b []byte) (Expr, error) {
	as, err := parseAttrs(b)
	if err != nil {
		return nil, err
	}
	name := as.str(unix.NFTA_EXPR_NAME)
	data := as.get(unix.NFTA_EXPR_DATA)
	in, err := parseAttrs(data)
	if err != nil {
		return nil, err
	}
	var x Expr
	switch name {
	case "meta", "ct", "fib", "payload":
		x = decodeLoad(name, in)
	case "cmp", "range", "bitwise", "immediate":
		x, err = decodeConst(name, in)
	case "lookup":
		x = decodeLookup(in)
	case "masq", "nat", "redir":
		x = decodeNAT(name, in)
	default:
		x = decodeAction(name, in)
	}
	if err != nil {
		return nil, err
	}
	if x == nil {
		return Raw{Name: name, Data: bytes.Clone(data)}, nil
	}
	return x, nil
}

// decodeLoad reads the expressions that fill a register, or empty one into a packet's facts.
func decodeLoad(name string, in attrs) Expr {
	switch name {
	case "meta":
		k := MetaKey(in.u32(unix.NFTA_META_KEY))
		if in.has(unix.NFTA_META_SREG) {
			return SetMeta{Key: k, Reg: in.reg(unix.NFTA_META_SREG)}
		}
		return Meta{Key: k, Reg: in.reg(unix.NFTA_META_DREG)}
	case "ct":
		k := CTKey(in.u32(unix.NFTA_CT_KEY))
		if in.has(unix.NFTA_CT_SREG) {
			return SetCT{Key: k, Reg: in.reg(unix.NFTA_CT_SREG)}
		}
		x := CT{Key: k, Reg: in.reg(unix.NFTA_CT_DREG)}
		if in.has(unix.NFTA_CT_DIRECTION) {
			x.Dir = new(in.u8(unix.NFTA_CT_DIRECTION))
		}
		return x
	case "fib":
		return Fib{
			Flags: FibFlags(in.u32(unix.NFTA_FIB_FLAGS)), Result: FibResult(in.u32(unix.NFTA_FIB_RESULT)),
			Reg: in.reg(unix.NFTA_FIB_DREG),
		}
	}
	if in.has(unix.NFTA_PAYLOAD_SREG) {
		return Write{
			Base: PayloadBase(in.u32(unix.NFTA_PAYLOAD_BASE)), Offset: in.u32(unix.NFTA_PAYLOAD_OFFSET), Len: in.u32(unix.NFTA_PAYLOAD_LEN),
			Reg: in.reg(unix.NFTA_PAYLOAD_SREG), Checksum: in.u32(unix.NFTA_PAYLOAD_CSUM_TYPE) == unix.NFT_PAYLOAD_CSUM_INET,
		}
	}
	return Payload{
		Base: PayloadBase(in.u32(unix.NFTA_PAYLOAD_BASE)), Offset: in.u32(unix.NFTA_PAYLOAD_OFFSET),
		Len: in.u32(unix.NFTA_PAYLOAD_LEN), Reg: in.reg(unix.NFTA_PAYLOAD_DREG),
	}
}

// decodeConst reads the expressions that hold constants.
func decodeConst(name string, in attrs) (Expr, error) {
	switch name {
	case "cmp":
		d, err := in.value(unix.NFTA_CMP_DATA)
		return Cmp{Op: Op(in.u32(unix.NFTA_CMP_OP)), Data: d, Reg: in.reg(unix.NFTA_CMP_SREG)}, err
	case "range":
		from, err := in.value(unix.NFTA_RANGE_FROM_DATA)
		if err != nil {
			return nil, err
		}
		to, err := in.value(unix.NFTA_RANGE_TO_DATA)
		return Range{
			Not: in.u32(unix.NFTA_RANGE_OP) == unix.NFT_RANGE_NEQ, From: from, To: to,
			Reg: in.reg(unix.NFTA_RANGE_SREG),
		}, err
	case "bitwise":
		if in.u32(attrBitwiseOp) != bitwiseBoolean {
			return nil, nil // a shift
		}
		mask, err := in.value(unix.NFTA_BITWISE_MASK)
		if err != nil {
			return nil, err
		}
		xor, err := in.value(unix.NFTA_BITWISE_XOR)
		return Bitwise{Mask: mask, Xor: xor, Reg: in.reg(unix.NFTA_BITWISE_SREG), Dst: in.reg(unix.NFTA_BITWISE_DREG)}, err
	}
	v, err := in.verdict(unix.NFTA_IMMEDIATE_DATA)
	if err != nil {
		return nil, err
	}
	if v != nil {
		return *v, nil
	}
	d, err := in.value(unix.NFTA_IMMEDIATE_DATA)
	return Load{Data: d, Reg: in.reg(unix.NFTA_IMMEDIATE_DREG)}, err
}

// decodeLookup cannot know yet whether the set is anonymous; List puts In in its place when it has read the sets.
func decodeLookup(in attrs) Expr {
	set, src := in.str(unix.NFTA_LOOKUP_SET), in.reg(unix.NFTA_LOOKUP_SREG)
	switch {
	case !in.has(unix.NFTA_LOOKUP_DREG):
		return Lookup{Set: set, Not: in.u32(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0, Reg: src}
	case in.u32(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT:
		return LookupVerdict{Map: set, Reg: src}
	}
	return LookupData{Map: set, Reg: src, Dst: in.reg(unix.NFTA_LOOKUP_DREG)}
}

// natPorts says that there is a range of ports; natImplied are the flags that follow from the registers.
const (
	natPorts   = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
	natImplied = 1<<0 | natPorts
)

func decodeNAT(name string, in attrs) Expr {
	switch name {
	case "masq":
		x := Masq{Flags: in.u32(unix.NFTA_MASQ_FLAGS) &^ natImplied}
		x.ProtoMin, x.ProtoMax = regRange(in, unix.NFTA_MASQ_REG_PROTO_MIN, unix.NFTA_MASQ_REG_PROTO_MAX)
		return x
	case "redir":
		x := Redirect{Flags: in.u32(unix.NFTA_REDIR_FLAGS) &^ natImplied}
		x.ProtoMin, x.ProtoMax = regRange(in, unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFTA_REDIR_REG_PROTO_MAX)
		return x
	}
	x := NAT{
		Source: in.u32(unix.NFTA_NAT_TYPE) == unix.NFT_NAT_SNAT, Family: Family(in.u32(unix.NFTA_NAT_FAMILY)),
		Flags: in.u32(unix.NFTA_NAT_FLAGS) &^ natImplied,
	}
	x.AddrMin, x.AddrMax = regRange(in, unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX)
	x.ProtoMin, x.ProtoMax = regRange(in, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
	return x
}

// regRange leaves out an end that is the start, which the kernel adds.
func regRange(in attrs, lo, hi uint16) (first, last *Reg) {
	first, last = in.optionalReg(lo), in.optionalReg(hi)
	if first != nil && last != nil && *first == *last {
		last = nil
	}
	return first, last
}

func decodeAction(name string, in attrs) Expr {
	switch name {
	case "counter":
		return decodeCounter(in)
	case "log":
		if !in.has(unix.NFTA_LOG_GROUP) {
			return nil // to the kernel's own log
		}
		return NFLog{
			Group: in.u16(unix.NFTA_LOG_GROUP), Prefix: in.str(unix.NFTA_LOG_PREFIX),
			Snaplen: in.u32(unix.NFTA_LOG_SNAPLEN), Threshold: in.u16(unix.NFTA_LOG_QTHRESHOLD),
		}
	case "limit":
		return Limit{
			Rate: in.u64(unix.NFTA_LIMIT_RATE), Per: in.u64(unix.NFTA_LIMIT_UNIT),
			Burst: in.u32(unix.NFTA_LIMIT_BURST), Bytes: in.u32(unix.NFTA_LIMIT_TYPE) == unix.NFT_LIMIT_PKT_BYTES,
			Over: in.u32(unix.NFTA_LIMIT_FLAGS)&unix.NFT_LIMIT_F_INV != 0,
		}
	case "connlimit":
		return ConnLimit{Count: in.u32(attrConnLimitCount), Over: in.u32(attrConnLimitFlags)&connLimitInvert != 0}
	case "reject":
		return Reject{Type: in.u32(unix.NFTA_REJECT_TYPE), Code: in.u8(unix.NFTA_REJECT_ICMP_CODE)}
	case "notrack":
		return NoTrack{}
	}
	return nil
}

func decodeCounter(in attrs) Counter {
	return Counter{Packets: in.u64(unix.NFTA_COUNTER_PACKETS), Bytes: in.u64(unix.NFTA_COUNTER_BYTES)}
}
