package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	headerLen = unix.SizeofNlMsghdr
	nfgenLen  = 4
	// maxNested keeps the 16-bit length of an attribute from wrapping; chunkLimit leaves room for one more element.
	maxNested  = math.MaxUint16
	chunkLimit = 64000

	maxName    = 255
	maxComment = 127
	maxPrefix  = 127
)

// encoder appends netlink messages to one slice. Lengths of nested attributes are filled in when they are closed.
type encoder struct {
	buf   []byte
	start int      // of the message being written
	anon  []uint32 // ids of the anonymous sets of the rule being written, in order of use
	err   error    // the first mistake
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("nftables: "+format, args...)
	}
}

func (e *encoder) begin(typ, flags uint16, family uint8, resource uint16, seq uint32) {
	e.start = len(e.buf)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, headerLen+nfgenLen)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, typ)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, flags)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, seq)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, 0)
	e.buf = append(e.buf, family, unix.NFNETLINK_V0, byte(resource>>8), byte(resource))
}

func (e *encoder) end() {
	binary.NativeEndian.PutUint32(e.buf[e.start:], uint32(len(e.buf)-e.start))
}

func (e *encoder) head(typ uint16, n int) {
	if n > maxNested-4 {
		e.fail("attribute %d of %d bytes is too long", typ, n)
		n = 0
	}
	var h [4]byte
	binary.NativeEndian.PutUint16(h[:], uint16(4+n))
	binary.NativeEndian.PutUint16(h[2:], typ)
	e.buf = append(e.buf, h[:]...)
}

func (e *encoder) pad() {
	for len(e.buf)&3 != 0 {
		e.buf = append(e.buf, 0)
	}
}

func (e *encoder) bytes(typ uint16, b []byte) {
	e.head(typ, len(b))
	e.buf = append(e.buf, b...)
	e.pad()
}

func (e *encoder) str(typ uint16, s string) {
	e.head(typ, len(s)+1)
	e.buf = append(e.buf, s...)
	e.buf = append(e.buf, 0)
	e.pad()
}

func (e *encoder) u8(typ uint16, v uint8) {
	e.head(typ, 1)
	e.buf = append(e.buf, v, 0, 0, 0)
}

func (e *encoder) u16(typ uint16, v uint16) {
	e.head(typ, 2)
	e.buf = binary.BigEndian.AppendUint16(e.buf, v)
	e.pad()
}

func (e *encoder) u32(typ uint16, v uint32) {
	e.head(typ, 4)
	e.buf = binary.BigEndian.AppendUint32(e.buf, v)
}

func (e *encoder) u64(typ uint16, v uint64) {
	e.head(typ, 8)
	e.buf = binary.BigEndian.AppendUint64(e.buf, v)
}

// reg writes a register by its 32-bit number, which every kernel since 4.1 knows.
func (e *encoder) reg(typ uint16, r Reg) {
	if r > 15 {
		e.fail("register %d does not exist", r)
	}
	e.u32(typ, unix.NFT_REG32_00+uint32(r))
}

func (e *encoder) nest(typ uint16) int {
	p := len(e.buf)
	e.head(typ|unix.NLA_F_NESTED, 0)
	return p
}

func (e *encoder) unnest(p int) {
	n := len(e.buf) - p
	if n > maxNested {
		e.fail("nested attribute of %d bytes is too long", n)
		n = 4
	}
	binary.NativeEndian.PutUint16(e.buf[p:], uint16(n))
}

// value writes constant data, as keys and operands are.
func (e *encoder) value(typ uint16, b []byte) {
	p := e.nest(typ)
	e.bytes(unix.NFTA_DATA_VALUE, b)
	e.unnest(p)
}

func (e *encoder) verdict(typ uint16, v Verdict) {
	p := e.nest(typ)
	q := e.nest(unix.NFTA_DATA_VERDICT)
	e.u32(unix.NFTA_VERDICT_CODE, uint32(v.Code))
	if v.Code == VerdictJump || v.Code == VerdictGoto {
		e.checkName("chain", v.Chain)
		e.str(unix.NFTA_VERDICT_CHAIN, v.Chain)
	} else if v.Chain != "" {
		e.fail("verdict %d takes no chain, but has %q", v.Code, v.Chain)
	}
	e.unnest(q)
	e.unnest(p)
}

var errName = errors.New("must be 1 to 255 bytes without NUL")

func (e *encoder) checkName(kind, name string) {
	if !validText(name, maxName) || name == "" {
		e.fail("%s name %q: %w", kind, name, errName)
	}
}

func validText(s string, limit int) bool {
	return len(s) <= limit && strings.IndexByte(s, 0) < 0
}

// User data is a list of (type, length, value) that the kernel keeps and nft reads: comments, and byte orders by which
// keys are printed.
const (
	udataComment      = 0 // tables, chains, rules, elements
	udataKeyOrder     = 0
	udataDataOrder    = 1
	udataSetComment   = 7
	udataOrderHost    = 1
	udataOrderNetwork = 2

	attrTableUserData = 6
	attrChainUserData = 12
)

func appendUserText(b []byte, typ byte, s string) []byte {
	b = append(b, typ, byte(len(s)+1))
	b = append(b, s...)
	return append(b, 0)
}

func appendUserU32(b []byte, typ byte, v uint32) []byte {
	return binary.NativeEndian.AppendUint32(append(b, typ, 4), v)
}

func (e *encoder) comment(attr uint16, s string) {
	if s == "" {
		return
	}
	if !validText(s, maxComment) {
		e.fail("comment %q: longer than %d bytes, or has a NUL", s, maxComment)
		return
	}
	e.bytes(attr, appendUserText(nil, udataComment, s))
}
