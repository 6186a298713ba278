// Package nodeaddr decides which addresses a node announces to other nodes.
//
// In: how to look for an address ([ParseWant]), the interfaces of this host ([Host]), and the Nodes of all ([Book]).
// Out: the address, or why none was found ([Want.Choose]); what to write ([Settle]); who else has it ([Registry.Others]).
package nodeaddr

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Family is an address family, with the names of its settings.
type Family struct {
	Four   bool
	Name   string // IPv4
	Flag   string // --ip
	Env    string // IP
	Method string // IP_AUTODETECTION_METHOD
	Field  string // of Node
}

// The families.
var (
	V4 = Family{true, "IPv4", "--ip", "IP", "IP_AUTODETECTION_METHOD", "spec.bgp.ipv4Address"}
	V6 = Family{false, "IPv6", "--ip6", "IP6", "IP6_AUTODETECTION_METHOD", "spec.bgp.ipv6Address"}
)

// methodKind is a way to choose among interfaces.
type methodKind uint8

const (
	firstFound methodKind = iota
	canReach
	byInterface
	skipInterface
	byPrefix
	internalIP
)

// Method is one of the ways to choose among interfaces.
type Method struct {
	text     string
	kind     methodKind
	patterns []*regexp.Regexp
	prefixes []netip.Prefix
	reach    string // an address or a name
}

// String is the method as users write it.
func (m Method) String() string { return m.text }

const methods = "first-found, can-reach=ADDRESS, interface=PATTERN,…, skip-interface=PATTERN,…, cidr=PREFIX,… or kubernetes-internal-ip"

// ParseMethod reads a method; nothing is first-found.
func ParseMethod(text string) (Method, error) {
	m := Method{text: text}
	name, value, given := strings.Cut(text, "=")
	value = strings.TrimSpace(value)
	var err error
	switch {
	case text == "" || text == "first-found":
		m.text = "first-found"
		return m, nil
	case text == "kubernetes-internal-ip":
		m.kind = internalIP
		return m, nil
	case !given || !slices.Contains([]string{"can-reach", "interface", "skip-interface", "cidr"}, name):
		return m, fmt.Errorf("%q: want %s", text, methods)
	case value == "":
		return m, fmt.Errorf("%q: nothing follows the =; want %s", text, methods)
	}
	switch name {
	case "can-reach":
		m.kind, m.reach = canReach, value
	case "interface":
		m.kind = byInterface
		m.patterns, err = patterns(value)
	case "skip-interface":
		m.kind = skipInterface
		m.patterns, err = patterns(value)
	case "cidr":
		m.kind = byPrefix
		m.prefixes, err = prefixes(value)
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func patterns(list string) (out []*regexp.Regexp, err error) {
	for word := range strings.SplitSeq(list, ",") {
		p, err := regexp.Compile(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", word, err)
		}
		if p.String() != "" { // it would match all
			out = append(out, p)
		}
	}
	return out, nil
}

func prefixes(list string) (out []netip.Prefix, err error) {
	for word := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("%q: want a prefix such as 192.0.2.0/24", word)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// leftOut are names of interfaces that others make for their own ends: upstream's list.
var leftOut = func() (out []*regexp.Regexp) {
	for word := range strings.FieldsSeq(`^docker ^cbr ^dummy ^podman ^virbr ^lxcbr ^veth ^lo ^br- ^cali ^tunl ^flannel ^kube-ipvs ^cni
		^vxlan\.calico ^vxlan-v6\.calico ^wireguard\.cali ^wg-v6\.cali ^nodelocaldns`) {
		out = append(out, regexp.MustCompile(word))
	}
	return out
}()

// Order is what the user wants done about the address of a family.
type Order uint8

// Orders.
const (
	Fill   Order = iota // find one if the Node has none, and follow it
	Detect              // find one, whatever the Node has, and follow it
	Keep                // leave the Node as it is
	Fixed               // this one
)

// Want is an order with its method or address.
type Want struct {
	Family
	Order  Order
	Method Method
	Fixed  netip.Prefix
	Bare   bool // Fixed was given without a length, which is that of its interface then
}

// ParseWant reads what a user wrote: autodetect, none, an address with or without a length, or nothing, which is Fill
// for IPv4 and Keep for IPv6.
func ParseWant(f Family, address, method string) (Want, error) {
	w := Want{Family: f}
	var err error
	if w.Method, err = ParseMethod(method); err != nil {
		return w, fmt.Errorf("%s-autodetection-method (%s): %w", f.Flag, f.Method, err)
	}
	switch strings.ToLower(address) {
	case "autodetect":
		w.Order = Detect
		return w, nil
	case "none":
		w.Order = Keep
		return w, nil
	case "":
		if w.Order = Fill; !f.Four {
			w.Order = Keep
		}
		return w, nil
	}
	w.Order = Fixed
	w.Fixed, err = netip.ParsePrefix(address)
	if a, bad := netip.ParseAddr(address); bad == nil {
		w.Fixed, w.Bare, err = netip.PrefixFrom(a, a.BitLen()), true, nil
	}
	if err != nil || w.Fixed.Addr().Is4() != f.Four || w.Fixed.Addr().Zone() != "" {
		return w, fmt.Errorf("%s (%s) is %q: want autodetect, none, or an %s address with or without a length", f.Flag, f.Env, address, f.Name)
	}
	if why := unsuitable(w.Fixed.Addr()); why != "" {
		return w, fmt.Errorf("%s (%s) is %s, which %s: no other node can reach this one by it", f.Flag, f.Env, address, why)
	}
	return w, nil
}
