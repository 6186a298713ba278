package nftables

import (
	"fmt"
	"strconv"
	"strings"
)

func (r Reg) String() string { return "r" + strconv.FormatUint(uint64(r), 10) }

func regOrNone(r *Reg) string {
	if r == nil {
		return "-"
	}
	return r.String()
}

func (k MetaKey) String() string {
	switch k {
	case MetaPriority:
		return "priority"
	case MetaMark:
		return "mark"
	case MetaIIF:
		return "iif"
	case MetaOIF:
		return "oif"
	case MetaIIFName:
		return "iifname"
	case MetaOIFName:
		return "oifname"
	case MetaNFProto:
		return "nfproto"
	case MetaL4Proto:
		return "l4proto"
	}
	return "key" + strconv.FormatUint(uint64(k), 10)
}

func (k CTKey) String() string {
	switch k {
	case CTState:
		return "state"
	case CTDirection:
		return "direction"
	case CTStatus:
		return "status"
	case CTMark:
		return "mark"
	}
	return "key" + strconv.FormatUint(uint64(k), 10)
}

func (o Op) String() string {
	ops := [...]string{"==", "!=", "<", "<=", ">", ">="}
	if int(o) < len(ops) {
		return ops[o]
	}
	return "op" + strconv.FormatUint(uint64(o), 10)
}

func (b PayloadBase) String() string {
	bases := [...]string{"link", "network", "transport"}
	if int(b) < len(bases) {
		return bases[b]
	}
	return "base" + strconv.FormatUint(uint64(b), 10)
}

func (c VerdictCode) String() string {
	switch c {
	case VerdictDrop:
		return "drop"
	case VerdictAccept:
		return "accept"
	case VerdictContinue:
		return "continue"
	case VerdictBreak:
		return "break"
	case VerdictJump:
		return "jump"
	case VerdictGoto:
		return "goto"
	case VerdictReturn:
		return "return"
	}
	return "verdict" + strconv.FormatInt(int64(c), 10)
}

func not(b bool) string {
	if b {
		return "not "
	}
	return ""
}

func (x Meta) String() string    { return fmt.Sprintf("%s = meta %s", x.Reg, x.Key) }
func (x SetMeta) String() string { return fmt.Sprintf("meta %s = %s", x.Key, x.Reg) }
func (x CT) String() string {
	if x.Dir != nil {
		return fmt.Sprintf("%s = ct %s dir %d", x.Reg, x.Key, *x.Dir)
	}
	return fmt.Sprintf("%s = ct %s", x.Reg, x.Key)
}
func (x SetCT) String() string { return fmt.Sprintf("ct %s = %s", x.Key, x.Reg) }
func (x Payload) String() string {
	return fmt.Sprintf("%s = %s %d+%d", x.Reg, x.Base, x.Offset, x.Len)
}

func (x Write) String() string {
	return fmt.Sprintf("%s %d+%d = %s", x.Base, x.Offset, x.Len, x.Reg)
}
func (x Cmp) String() string { return fmt.Sprintf("%s %s %x", x.Reg, x.Op, x.Data) }
func (x Range) String() string {
	return fmt.Sprintf("%s %sin %x-%x", x.Reg, not(x.Not), x.From, x.To)
}

func (x Bitwise) String() string {
	xor := x.Xor
	if xor == nil {
		xor = make([]byte, len(x.Mask))
	}
	return fmt.Sprintf("%s = %s & %x ^ %x", x.Dst, x.Reg, x.Mask, xor)
}

func (x Lookup) String() string        { return fmt.Sprintf("%s %sin @%s", x.Reg, not(x.Not), x.Set) }
func (x LookupVerdict) String() string { return fmt.Sprintf("%s vmap @%s", x.Reg, x.Map) }
func (x LookupData) String() string {
	return fmt.Sprintf("%s = map %s @%s", x.Dst, x.Reg, x.Map)
}

func (x In) String() string {
	var b strings.Builder
	switch x.Set.Data {
	case TypeNone:
		fmt.Fprintf(&b, "%s %sin {", x.Reg, not(x.Not))
	case TypeVerdict:
		fmt.Fprintf(&b, "%s vmap {", x.Reg)
	default:
		fmt.Fprintf(&b, "%s = map %s {", x.Dst, x.Reg)
	}
	for i, el := range sortedElements(x.Elements) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte(' ')
		b.WriteString(el.text(x.Set))
	}
	b.WriteString(" }")
	return b.String()
}

func (x Load) String() string { return fmt.Sprintf("%s = %x", x.Reg, x.Data) }

func (x Verdict) String() string {
	if x.Chain != "" {
		return x.Code.String() + " " + x.Chain
	}
	return x.Code.String()
}

func (Counter) String() string { return "counter" }

func (x Fib) String() string {
	return fmt.Sprintf("%s = fib flags %d result %d", x.Reg, x.Flags, x.Result)
}

func (x NFLog) String() string {
	return fmt.Sprintf("nflog group %d prefix %q snaplen %d threshold %d", x.Group, x.Prefix, x.Snaplen, x.Threshold)
}

func (x Limit) String() string {
	x = x.normal()
	unit, over := "packets", ""
	if x.Bytes {
		unit = "bytes"
	}
	if x.Over {
		over = "over "
	}
	return fmt.Sprintf("limit %s%d %s in %d s burst %d", over, x.Rate, unit, x.Per, x.Burst)
}

func (x ConnLimit) String() string {
	over := ""
	if x.Over {
		over = "over "
	}
	return fmt.Sprintf("connections %s%d", over, x.Count)
}

func (x Reject) String() string {
	if x.Type == RejectReset {
		return "reject tcp reset"
	}
	return fmt.Sprintf("reject type %d code %d", x.Type, x.Code)
}

func (x Masq) String() string {
	return fmt.Sprintf("masquerade ports %s-%s flags %d", regOrNone(x.ProtoMin), regOrNone(x.ProtoMax), x.Flags)
}

func (x NAT) String() string {
	kind := "dnat"
	if x.Source {
		kind = "snat"
	}
	return fmt.Sprintf("%s family %d address %s-%s ports %s-%s flags %d", kind, x.Family, regOrNone(x.AddrMin),
		regOrNone(x.AddrMax), regOrNone(x.ProtoMin), regOrNone(x.ProtoMax), x.Flags)
}

func (x Redirect) String() string {
	return fmt.Sprintf("redirect ports %s-%s flags %d", regOrNone(x.ProtoMin), regOrNone(x.ProtoMax), x.Flags)
}

func (NoTrack) String() string { return "notrack" }

func (r Raw) String() string { return fmt.Sprintf("raw %s %x", r.Name, r.Data) }
