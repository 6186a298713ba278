package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Canonical is a text that is equal for rulesets that do the same: names and elements sorted, no handles, no counters,
// anonymous sets inlined. Rules keep their order within a chain, because order is meaning. A set's size limit and the
// constant flag are shape, and are there.
func (r *Ruleset) Canonical() string {
	if !r.Exists {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s%s\n", r.Table.Name, commentText(r.Table.Comment))
	rules := make(map[string][]Rule, len(r.Chains))
	for _, x := range r.Rules {
		rules[x.Chain] = append(rules[x.Chain], x)
	}
	chains := slices.Clone(r.Chains)
	slices.SortFunc(chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range chains {
		fmt.Fprintf(&b, "chain %s%s%s\n", c.Name, c.Base.text(), commentText(c.Comment))
		for _, x := range rules[c.Name] {
			fmt.Fprintf(&b, "  %s\n", x.String())
		}
	}
	sets := slices.Clone(r.Sets)
	slices.SortFunc(sets, func(a, b SetState) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range sets {
		b.WriteString(s.Set.String())
		b.WriteByte('\n')
		for _, el := range sortedElements(s.Elements) {
			b.WriteString("  ")
			b.WriteString(el.text(s.Set))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func commentText(s string) string {
	if s == "" {
		return ""
	}
	return " comment " + strconv.Quote(s)
}

func (h *Hook) text() string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf(" type %s hook %d priority %d policy %s", h.Type, h.Hook, h.Priority, h.Policy)
}

// String is the canonical text of a rule, without its place.
func (r Rule) String() string {
	parts := make([]string, len(r.Exprs))
	for i, x := range r.Exprs {
		parts[i] = x.String()
	}
	return strings.Join(parts, "; ") + commentText(r.Comment)
}

// String is the canonical text of a set's shape.
func (s Set) String() string {
	var b strings.Builder
	kind := "set"
	if s.Data != TypeNone {
		kind = "map"
	}
	fmt.Fprintf(&b, "%s %s key %s", kind, s.Name, s.Key)
	if s.Data != TypeNone {
		fmt.Fprintf(&b, " data %s", s.Data)
	}
	if s.Interval {
		b.WriteString(" interval")
	}
	if s.Constant {
		b.WriteString(" constant")
	}
	if s.Counter {
		b.WriteString(" counter")
	}
	if s.Size != 0 {
		fmt.Fprintf(&b, " size %d", s.Size)
	}
	b.WriteString(commentText(s.Comment))
	return b.String()
}

func sortedElements(els []Element) []Element {
	if slices.IsSortedFunc(els, compareElements) {
		return els
	}
	els = slices.Clone(els)
	slices.SortFunc(els, compareElements)
	return els
}

func (el Element) text(s Set) string {
	t := "*"
	if !el.CatchAll {
		t = keyText(s.Key, el.Key)
		if el.End != nil {
			t += " - " + keyText(s.Key, el.End)
		}
	}
	switch {
	case el.Verdict != nil:
		t += " : " + el.Verdict.String()
	case el.Data != nil:
		t += " : " + keyText(s.Data, el.Data)
	}
	return t + commentText(el.Comment)
}

// keyText prints a key by its type; what does not fit is printed as bytes.
func keyText(t Type, b []byte) string {
	if n := t.Len(); n == 0 || n != len(b) {
		return fmt.Sprintf("%x", b)
	}
	fields := t.Fields()
	if len(fields) == 1 {
		return fieldText(t, b)
	}
	parts := make([]string, len(fields))
	for i, f := range fields {
		n := f.info().size
		parts[i] = fieldText(f, b[:n])
		b = b[padded(n):]
	}
	return strings.Join(parts, " . ")
}

func fieldText(t Type, b []byte) string {
	switch t {
	case TypeIPv4Addr, TypeIPv6Addr:
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case TypeInetService:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
	case TypeInetProto, TypeICMPType, TypeICMPv6Type, TypeNFProto:
		return strconv.Itoa(int(b[0]))
	case TypeIfname:
		return strconv.Quote(strings.TrimRight(string(b), "\x00"))
	case TypeMark:
		return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b))
	case TypeIfindex, TypeCTState, TypeClassID, TypeFibAddr:
		return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
	}
	return fmt.Sprintf("%x", b)
}
