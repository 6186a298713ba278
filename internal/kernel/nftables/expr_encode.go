package nftables

import "golang.org/x/sys/unix"

// Attributes of bitwise and number of its plain operation, which x/sys does not have.
const (
	attrBitwiseOp  = 6
	bitwiseBoolean = 0
)

// Attributes of connlimit (enum nft_connlimit_attributes of nf_tables.h), which x/sys does not have.
const (
	attrConnLimitCount = 1
	attrConnLimitFlags = 2
	connLimitInvert    = 1
)

func (e *encoder) expr(attr uint16, x Expr) {
	if x == nil {
		e.fail("a rule has an expression that is nil")
		return
	}
	p := e.nest(attr)
	e.str(unix.NFTA_EXPR_NAME, x.kernelName())
	q := e.nest(unix.NFTA_EXPR_DATA)
	x.encode(e)
	e.unnest(q)
	e.unnest(p)
}

func (Meta) kernelName() string          { return "meta" }
func (SetMeta) kernelName() string       { return "meta" }
func (Payload) kernelName() string       { return "payload" }
func (Write) kernelName() string         { return "payload" }
func (Cmp) kernelName() string           { return "cmp" }
func (Range) kernelName() string         { return "range" }
func (Bitwise) kernelName() string       { return "bitwise" }
func (Lookup) kernelName() string        { return "lookup" }
func (LookupVerdict) kernelName() string { return "lookup" }
func (LookupData) kernelName() string    { return "lookup" }
func (In) kernelName() string            { return "lookup" }
func (Load) kernelName() string          { return "immediate" }
func (Verdict) kernelName() string       { return "immediate" }
func (Counter) kernelName() string       { return "counter" }
func (CT) kernelName() string            { return "ct" }
func (SetCT) kernelName() string         { return "ct" }
func (Fib) kernelName() string           { return "fib" }
func (NFLog) kernelName() string         { return "log" }
func (Limit) kernelName() string         { return "limit" }
func (ConnLimit) kernelName() string     { return "connlimit" }
func (Reject) kernelName() string        { return "reject" }
func (Masq) kernelName() string          { return "masq" }
func (NAT) kernelName() string           { return "nat" }
func (Redirect) kernelName() string      { return "redir" }
func (NoTrack) kernelName() string       { return "notrack" }
func (r Raw) kernelName() string         { return r.Name }

func (x Meta) encode(e *encoder) {
	e.u32(unix.NFTA_META_KEY, uint32(x.Key))
	e.reg(unix.NFTA_META_DREG, x.Reg)
}

func (x SetMeta) encode(e *encoder) {
	e.u32(unix.NFTA_META_KEY, uint32(x.Key))
	e.reg(unix.NFTA_META_SREG, x.Reg)
}

func (x Payload) encode(e *encoder) {
	e.reg(unix.NFTA_PAYLOAD_DREG, x.Reg)
	e.u32(unix.NFTA_PAYLOAD_BASE, uint32(x.Base))
	e.u32(unix.NFTA_PAYLOAD_OFFSET, x.Offset)
	e.u32(unix.NFTA_PAYLOAD_LEN, x.Len)
}

func (x Write) encode(e *encoder) {
	const header = 10 // offset of the checksum, RFC 791
	e.reg(unix.NFTA_PAYLOAD_SREG, x.Reg)
	e.u32(unix.NFTA_PAYLOAD_BASE, uint32(x.Base))
	e.u32(unix.NFTA_PAYLOAD_OFFSET, x.Offset)
	e.u32(unix.NFTA_PAYLOAD_LEN, x.Len)
	if x.Checksum {
		e.u32(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET)
		e.u32(unix.NFTA_PAYLOAD_CSUM_OFFSET, header)
	}
}

func (x Cmp) encode(e *encoder) {
	e.reg(unix.NFTA_CMP_SREG, x.Reg)
	e.u32(unix.NFTA_CMP_OP, uint32(x.Op))
	e.value(unix.NFTA_CMP_DATA, x.Data)
}

func (x Range) encode(e *encoder) {
	if len(x.From) != len(x.To) {
		e.fail("range from %x to %x: lengths differ", x.From, x.To)
	}
	op := uint32(unix.NFT_RANGE_EQ)
	if x.Not {
		op = unix.NFT_RANGE_NEQ
	}
	e.reg(unix.NFTA_RANGE_SREG, x.Reg)
	e.u32(unix.NFTA_RANGE_OP, op)
	e.value(unix.NFTA_RANGE_FROM_DATA, x.From)
	e.value(unix.NFTA_RANGE_TO_DATA, x.To)
}

func (x Bitwise) encode(e *encoder) {
	xor := x.Xor
	if xor == nil {
		xor = make([]byte, len(x.Mask))
	}
	if len(xor) != len(x.Mask) {
		e.fail("bitwise mask %x and xor %x: lengths differ", x.Mask, x.Xor)
	}
	e.reg(unix.NFTA_BITWISE_SREG, x.Reg)
	e.reg(unix.NFTA_BITWISE_DREG, x.Dst)
	e.u32(unix.NFTA_BITWISE_LEN, uint32(len(x.Mask)))
	e.value(unix.NFTA_BITWISE_MASK, x.Mask)
	e.value(unix.NFTA_BITWISE_XOR, xor)
}

func (x Lookup) encode(e *encoder) {
	e.checkName("set", x.Set)
	e.str(unix.NFTA_LOOKUP_SET, x.Set)
	e.reg(unix.NFTA_LOOKUP_SREG, x.Reg)
	if x.Not {
		e.u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
	}
}

func (x LookupVerdict) encode(e *encoder) {
	e.checkName("map", x.Map)
	e.str(unix.NFTA_LOOKUP_SET, x.Map)
	e.reg(unix.NFTA_LOOKUP_SREG, x.Reg)
	e.u32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
}

func (x LookupData) encode(e *encoder) {
	e.checkName("map", x.Map)
	e.str(unix.NFTA_LOOKUP_SET, x.Map)
	e.reg(unix.NFTA_LOOKUP_SREG, x.Reg)
	e.reg(unix.NFTA_LOOKUP_DREG, x.Dst)
}

func (x In) encode(e *encoder) {
	if len(e.anon) == 0 {
		e.fail("an anonymous set outside of a rule")
		return
	}
	id := e.anon[0]
	e.anon = e.anon[1:]
	e.str(unix.NFTA_LOOKUP_SET, x.setName())
	e.u32(unix.NFTA_LOOKUP_SET_ID, id)
	e.reg(unix.NFTA_LOOKUP_SREG, x.Reg)
	switch {
	case x.Set.Data == TypeVerdict:
		e.u32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	case x.Set.Data != TypeNone:
		e.reg(unix.NFTA_LOOKUP_DREG, x.Dst)
	}
	if x.Not {
		e.u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
	}
}

func (x Load) encode(e *encoder) {
	e.reg(unix.NFTA_IMMEDIATE_DREG, x.Reg)
	e.value(unix.NFTA_IMMEDIATE_DATA, x.Data)
}

func (x Verdict) encode(e *encoder) {
	e.u32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	e.verdict(unix.NFTA_IMMEDIATE_DATA, x)
}

func (x Counter) encode(e *encoder) {
	e.u64(unix.NFTA_COUNTER_BYTES, x.Bytes)
	e.u64(unix.NFTA_COUNTER_PACKETS, x.Packets)
}

func (x CT) encode(e *encoder) {
	e.u32(unix.NFTA_CT_KEY, uint32(x.Key))
	e.reg(unix.NFTA_CT_DREG, x.Reg)
	if x.Dir != nil {
		e.u8(unix.NFTA_CT_DIRECTION, *x.Dir)
	}
}

func (x SetCT) encode(e *encoder) {
	e.u32(unix.NFTA_CT_KEY, uint32(x.Key))
	e.reg(unix.NFTA_CT_SREG, x.Reg)
}

func (x Fib) encode(e *encoder) {
	e.reg(unix.NFTA_FIB_DREG, x.Reg)
	e.u32(unix.NFTA_FIB_RESULT, uint32(x.Result))
	e.u32(unix.NFTA_FIB_FLAGS, uint32(x.Flags))
}

func (x NFLog) encode(e *encoder) {
	e.u16(unix.NFTA_LOG_GROUP, x.Group)
	if x.Prefix != "" {
		if !validText(x.Prefix, maxPrefix) {
			e.fail("log prefix %q: longer than %d bytes, or has a NUL", x.Prefix, maxPrefix)
			return
		}
		e.str(unix.NFTA_LOG_PREFIX, x.Prefix)
	}
	if x.Snaplen != 0 {
		e.u32(unix.NFTA_LOG_SNAPLEN, x.Snaplen)
	}
	if x.Threshold != 0 {
		e.u16(unix.NFTA_LOG_QTHRESHOLD, x.Threshold)
	}
}

func (x Limit) encode(e *encoder) {
	x = x.normal()
	kind, flags := uint32(unix.NFT_LIMIT_PKTS), uint32(0)
	if x.Bytes {
		kind = unix.NFT_LIMIT_PKT_BYTES
	}
	if x.Over {
		flags = unix.NFT_LIMIT_F_INV
	}
	e.u64(unix.NFTA_LIMIT_RATE, x.Rate)
	e.u64(unix.NFTA_LIMIT_UNIT, x.Per)
	e.u32(unix.NFTA_LIMIT_BURST, x.Burst)
	e.u32(unix.NFTA_LIMIT_TYPE, kind)
	e.u32(unix.NFTA_LIMIT_FLAGS, flags)
}

// normal writes out the defaults, which is what the kernel gives back.
func (x Limit) normal() Limit {
	if x.Per == 0 {
		x.Per = 1
	}
	if x.Burst == 0 && !x.Bytes {
		x.Burst = 5
	}
	return x
}

func (x ConnLimit) encode(e *encoder) {
	e.u32(attrConnLimitCount, x.Count)
	if x.Over {
		e.u32(attrConnLimitFlags, connLimitInvert)
	}
}

func (x Reject) encode(e *encoder) {
	e.u32(unix.NFTA_REJECT_TYPE, x.Type)
	if x.Type != RejectReset {
		e.u8(unix.NFTA_REJECT_ICMP_CODE, x.Code)
	}
}

func (e *encoder) optionalReg(attr uint16, r *Reg) {
	if r != nil {
		e.reg(attr, *r)
	}
}

func (x Masq) encode(e *encoder) {
	flags := x.Flags
	if x.ProtoMin != nil { // the kernel derives this of NAT and Redirect, and not of Masq
		flags |= natPorts
	}
	if flags != 0 {
		e.u32(unix.NFTA_MASQ_FLAGS, flags)
	}
	e.optionalReg(unix.NFTA_MASQ_REG_PROTO_MIN, x.ProtoMin)
	e.optionalReg(unix.NFTA_MASQ_REG_PROTO_MAX, x.ProtoMax)
}

func (x NAT) encode(e *encoder) {
	kind := uint32(unix.NFT_NAT_DNAT)
	if x.Source {
		kind = unix.NFT_NAT_SNAT
	}
	e.u32(unix.NFTA_NAT_TYPE, kind)
	e.u32(unix.NFTA_NAT_FAMILY, uint32(x.Family))
	e.optionalReg(unix.NFTA_NAT_REG_ADDR_MIN, x.AddrMin)
	e.optionalReg(unix.NFTA_NAT_REG_ADDR_MAX, x.AddrMax)
	e.optionalReg(unix.NFTA_NAT_REG_PROTO_MIN, x.ProtoMin)
	e.optionalReg(unix.NFTA_NAT_REG_PROTO_MAX, x.ProtoMax)
	if x.Flags != 0 {
		e.u32(unix.NFTA_NAT_FLAGS, x.Flags)
	}
}

func (x Redirect) encode(e *encoder) {
	e.optionalReg(unix.NFTA_REDIR_REG_PROTO_MIN, x.ProtoMin)
	e.optionalReg(unix.NFTA_REDIR_REG_PROTO_MAX, x.ProtoMax)
	if x.Flags != 0 {
		e.u32(unix.NFTA_REDIR_FLAGS, x.Flags)
	}
}

func (NoTrack) encode(*encoder) {}

// encode of Raw refuses: what is not understood is not written, since its numbers may mean something else elsewhere.
func (r Raw) encode(e *encoder) { e.fail("expression %q is only read, never written", r.Name) }
