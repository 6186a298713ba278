package api

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api/selector"
)

// checkSelector says why a selector cannot be used; empty text means all().
// global() means something only as the whole of a rule's namespaceSelector.
func checkSelector(text string, globalAllowed bool) string {
	if text == "" {
		return ""
	}
	if len(text) > MaxSelector {
		return fmt.Sprintf("has %d bytes: at most %d are read", len(text), MaxSelector)
	}
	s, err := selector.Parse(text)
	if err != nil {
		return err.Error()
	}
	if globalAllowed && s.IsGlobal() {
		return ""
	}
	if callsGlobal(s.String()) {
		return "global() is possible only as the whole of a rule's namespaceSelector"
	}
	return ""
}

// callsGlobal looks for global() outside of quotes; labels have no parentheses.
func callsGlobal(canonical string) bool {
	var quote rune
	for i, c := range canonical {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == 'g' && strings.HasPrefix(canonical[i:], "global()"):
			return true
		}
	}
	return false
}

// prefixOf reads a prefix or an address, and says what is wrong with it. An IPv4
// address in IPv6's clothing is neither: a set of one family would not match it.
func prefixOf(s string) (netip.Prefix, string) {
	var p netip.Prefix
	var err error
	if strings.Contains(s, "/") {
		p, err = netip.ParsePrefix(s)
	} else {
		var a netip.Addr
		if a, err = netip.ParseAddr(s); err == nil && a.Zone() == "" {
			p = netip.PrefixFrom(a, a.BitLen())
		}
	}
	switch {
	case err != nil || !p.IsValid():
		return netip.Prefix{}, fmt.Sprintf("is %q: want a prefix such as 10.0.0.0/8 or fd00::/8", s)
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Sprintf("is %q: write it as an IPv4 prefix", s)
	}
	return p, ""
}

// addrOf reads a single address without a length.
func addrOf(s string) (netip.Addr, string) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Sprintf("is %q: want an address such as 192.0.2.1 or fd00::1", s)
	}
	return a, ""
}

// Numbers of protocols with a meaning of their own.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

func hasPorts(p *Protocol) bool {
	if p == nil {
		return false
	}
	n, ok := p.Number()
	return ok && (n == protoTCP || n == protoUDP || n == protoSCTP) // not UDPLite, as upstream
}

// checkPorts says what ports of a rule lack. Names may stand without a protocol: each port has its own, and a name means
// those of any (upstream since pull request 11916). Numbers may not.
func checkPorts(ports []Port, p *Protocol) string {
	numbers := func(p Port) bool { return p.Name == "" }
	if len(ports) == 0 || hasPorts(p) || p == nil && !slices.ContainsFunc(ports, numbers) {
		return ""
	}
	return "needs protocol TCP, UDP or SCTP"
}

// rejectField is where a rule says that it rejects.
var rejectField = join("metadata.annotations", AnnotationReject)

// checkReject says what is wrong in what a rule says of rejecting.
func checkReject(r *Rule) string {
	if r.Metadata == nil {
		return ""
	}
	switch value, given := r.Metadata.Annotations[AnnotationReject]; {
	case !given || value == "false":
		return ""
	case value != "true":
		return fmt.Sprintf("is %q: want \"true\" or \"false\"", clip(value))
	case r.Action != Deny:
		return fmt.Sprintf("is for rules with action Deny: this one has %q", clip(string(r.Action)))
	}
	return ""
}

func checkICMP(f *ICMPFields, p *Protocol) string {
	if f == nil {
		return ""
	}
	var n uint8
	if p != nil {
		n, _ = p.Number()
	}
	switch {
	case n != protoICMP && n != protoICMPv6:
		return "needs protocol ICMP or ICMPv6"
	case f.Code != nil && f.Type == nil:
		return "has a code without a type"
	case f.Type != nil && (*f.Type < 0 || *f.Type > 254):
		return fmt.Sprintf("type is %d: want 0 to 254", *f.Type)
	case f.Code != nil && (*f.Code < 0 || *f.Code > 255):
		return fmt.Sprintf("code is %d: want 0 to 255", *f.Code)
	}
	return ""
}

// validMAC accepts six bytes in hexadecimal, joined by colons or dashes.
func validMAC(s string) bool {
	if len(s) != 17 {
		return false
	}
	for i, c := range []byte(strings.ToLower(s)) {
		if i%3 == 2 {
			if c != s[2] || c != ':' && c != '-' {
				return false
			}
		} else if !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return false
		}
	}
	return true
}
