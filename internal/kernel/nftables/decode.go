package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var errShortAttr = errors.New("attribute from the kernel is cut short")

// attrs are the attributes of one level, in the kernel's order.
type attrs []attr

type attr struct {
	typ  uint16
	data []byte
}

func parseAttrs(b []byte) (attrs, error) {
	var as attrs
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, errShortAttr
		}
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return nil, errShortAttr
		}
		typ := binary.NativeEndian.Uint16(b[2:]) & 0x3fff
		as = append(as, attr{typ, b[4:n]})
		b = b[min(padded(n), len(b)):]
	}
	return as, nil
}

func (as attrs) get(typ uint16) []byte {
	for _, a := range as {
		if a.typ == typ {
			return a.data
		}
	}
	return nil
}

func (as attrs) has(typ uint16) bool {
	for _, a := range as {
		if a.typ == typ {
			return true
		}
	}
	return false
}

// Values that are absent or too short read as zero: the kernel leaves out what is zero.
func (as attrs) u8(typ uint16) uint8 {
	if b := as.get(typ); len(b) >= 1 {
		return b[0]
	}
	return 0
}

func (as attrs) u16(typ uint16) uint16 {
	if b := as.get(typ); len(b) >= 2 {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (as attrs) u32(typ uint16) uint32 {
	if b := as.get(typ); len(b) >= 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (as attrs) u64(typ uint16) uint64 {
	if b := as.get(typ); len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (as attrs) str(typ uint16) string {
	b := as.get(typ)
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func (as attrs) nested(typ uint16) (attrs, error) { return parseAttrs(as.get(typ)) }

// reg undoes the kernel's preference for the old numbers of registers that start at a multiple of 16 bytes.
func (as attrs) reg(typ uint16) Reg {
	switch r := as.u32(typ); {
	case r >= unix.NFT_REG32_00:
		return Reg(r - unix.NFT_REG32_00)
	case r >= unix.NFT_REG_1:
		return Reg((r - unix.NFT_REG_1) * 4)
	}
	return 0
}

func (as attrs) optionalReg(typ uint16) *Reg {
	if !as.has(typ) {
		return nil
	}
	return new(as.reg(typ))
}

// value reads constant data.
func (as attrs) value(typ uint16) ([]byte, error) {
	in, err := as.nested(typ)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(in.get(unix.NFTA_DATA_VALUE)), nil
}

// verdict reads data that is a verdict.
func (as attrs) verdict(typ uint16) (*Verdict, error) {
	in, err := as.nested(typ)
	if err != nil {
		return nil, err
	}
	if !in.has(unix.NFTA_DATA_VERDICT) {
		return nil, nil
	}
	v, err := in.nested(unix.NFTA_DATA_VERDICT)
	if err != nil {
		return nil, err
	}
	return &Verdict{Code: VerdictCode(v.u32(unix.NFTA_VERDICT_CODE)), Chain: v.str(unix.NFTA_VERDICT_CHAIN)}, nil
}

// userText finds a text in user data, which others may have written: what is not as expected is no text.
func userText(b []byte, typ byte) string {
	for len(b) >= 2 {
		n := int(b[1])
		if len(b) < 2+n {
			return ""
		}
		if b[0] == typ {
			v := b[2 : 2+n]
			if i := bytes.IndexByte(v, 0); i >= 0 {
				v = v[:i]
			}
			return string(v)
		}
		b = b[2+n:]
	}
	return ""
}

func decodeTable(body []byte) (Table, error) {
	as, err := parseAttrs(body)
	if err != nil {
		return Table{}, fmt.Errorf("table: %w", err)
	}
	const handle = 4
	return Table{
		Name: as.str(unix.NFTA_TABLE_NAME), Handle: as.u64(handle),
		Comment: userText(as.get(attrTableUserData), udataComment),
		Flags:   TableFlags(as.u32(unix.NFTA_TABLE_FLAGS)), Owner: as.u32(attrTableOwner),
	}, nil
}

func decodeChain(body []byte) (Chain, error) {
	as, err := parseAttrs(body)
	if err != nil {
		return Chain{}, fmt.Errorf("chain: %w", err)
	}
	c := Chain{
		Table: as.str(unix.NFTA_CHAIN_TABLE), Name: as.str(unix.NFTA_CHAIN_NAME),
		Handle: as.u64(unix.NFTA_CHAIN_HANDLE), Comment: userText(as.get(attrChainUserData), udataComment),
	}
	if !as.has(unix.NFTA_CHAIN_HOOK) {
		return c, nil
	}
	h, err := as.nested(unix.NFTA_CHAIN_HOOK)
	if err != nil {
		return Chain{}, fmt.Errorf("chain %s: %w", c.Name, err)
	}
	c.Base = &Hook{
		Type: as.str(unix.NFTA_CHAIN_TYPE), Hook: HookNum(h.u32(unix.NFTA_HOOK_HOOKNUM)),
		Priority: int32(h.u32(unix.NFTA_HOOK_PRIORITY)), Policy: VerdictCode(as.u32(unix.NFTA_CHAIN_POLICY)),
	}
	return c, nil
}

func decodeRule(body []byte) (Rule, error) {
	as, err := parseAttrs(body)
	if err != nil {
		return Rule{}, fmt.Errorf("rule: %w", err)
	}
	r := Rule{
		Table: as.str(unix.NFTA_RULE_TABLE), Chain: as.str(unix.NFTA_RULE_CHAIN),
		Handle: as.u64(unix.NFTA_RULE_HANDLE), Comment: userText(as.get(unix.NFTA_RULE_USERDATA), udataComment),
	}
	list, err := as.nested(unix.NFTA_RULE_EXPRESSIONS)
	if err != nil {
		return Rule{}, fmt.Errorf("rule %d in chain %s: %w", r.Handle, r.Chain, err)
	}
	for _, a := range list {
		x, err := decodeExpr(a.data)
		if err != nil {
			return Rule{}, fmt.Errorf("rule %d in chain %s: %w", r.Handle, r.Chain, err)
		}
		r.Exprs = append(r.Exprs, x)
	}
	return r, nil
}
