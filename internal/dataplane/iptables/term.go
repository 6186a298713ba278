package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// Protocols on which matches depend.
const (
	icmp   = 1
	tcp    = 6
	icmpv6 = 58
)

// withPorts are the protocols whose ports rules match.
var withPorts = []uint8{6, 17, 132, 136}

// Limits of multiport: how many numbers it takes, of which a range is two; and the numbers in one line,
// because iptables-restore takes lines of 255 words.
const (
	maxPorts  = 15
	maxInLine = 8
)

// conjunction is terms that must all match: a line, and blocks.
type conjunction struct {
	family intent.Family
	marks  kernel.Marks
	proto  uint8 // of all packets that match; 0: not known
	never  bool  // no packet matches
	line   line
	blocks []block
	sets   []Set
}

// conjoin adds terms of a rule for one family.
func conjoin(terms []rules.Term, f intent.Family, m kernel.Marks) (conjunction, error) {
	c := conjunction{family: f, marks: m}
	if err := c.protocols(terms); err != nil { // first, since other terms depend on it
		return c, err
	}
	if err := c.icmp(terms); err != nil {
		return c, err
	}
	for _, t := range terms {
		if err := c.term(t); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *conjunction) term(t rules.Term) error {
	switch t.Kind {
	case rules.Protocol, rules.ICMPType, rules.ICMPCode: // see conjoin
	case rules.Nets:
		c.nets(t)
	case rules.Ports:
		c.ports(t)
	case rules.Addrs:
		c.inSet(t, setOf(t.Set, intent.SetAddrs, c.family), sideWord(t.Side))
	case rules.PortSet: // the address, then the port with the protocol before it
		c.inSet(t, setOf(t.Set, intent.SetPorts, c.family), sideWord(t.Side)+","+sideWord(t.Side))
	case rules.Allowed:
		c.mark(kernel.MarkAllowed, t.Not)
	case rules.Passed:
		c.mark(kernel.MarkPassed, t.Not)
	default: // Family too, which ForFamily leaves out
		return fmt.Errorf("term %s has no form in iptables", t)
	}
	return nil
}

func sideWord(s rules.Side) string {
	if s == rules.Dst {
		return "dst"
	}
	return "src"
}

func not(n bool) string {
	if n {
		return "! "
	}
	return ""
}

func (c *conjunction) ask(format string, args ...any) {
	c.line.rest = append(c.line.rest, fmt.Sprintf(format, args...))
}

func (c *conjunction) mark(bit uint32, not bool) {
	if not {
		c.ask("%s", matchMark(c.marks, 0, bit))
		return
	}
	c.ask("%s", matchMark(c.marks, bit, bit))
}

func (c *conjunction) inSet(t rules.Term, s Set, dirs string) {
	c.sets = append(c.sets, s)
	c.ask("-m set %s--match-set %s %s", not(t.Not), s.Name, dirs)
}

// protocols returns the protocol that all packets must have, or those that they must not have. A match of ICMP types includes that
// protocol, since the tool refuses it without.
func (c *conjunction) protocols(terms []rules.Term) error {
	var is, isNot []uint8
	for _, t := range terms {
		switch {
		case t.Kind == rules.ICMPType || t.Kind == rules.ICMPCode:
			is = append(is, icmpOf(c.family))
		case t.Kind != rules.Protocol:
		case t.Number == 0: // to iptables 0 is every protocol
			return errors.New("protocol 0 has no form in iptables")
		case t.Not:
			isNot = append(isNot, t.Number)
		default:
			is = append(is, t.Number)
		}
	}
	if len(is) > 0 {
		c.proto = is[0]
		c.never = slices.ContainsFunc(is, func(p uint8) bool { return p != c.proto }) || slices.Contains(isNot, c.proto)
		c.line.proto = protocol(c.proto)
		return nil
	}
	for i, p := range isNot {
		if i == 0 {
			c.line.proto = "! " + protocol(p)
			continue
		}
		c.blocks = append(c.blocks, block{none: true, lines: []line{{proto: protocol(p)}}})
	}
	return nil
}

func protocol(p uint8) string { return fmt.Sprintf("-p %d", p) }

func icmpOf(f intent.Family) uint8 {
	if f == intent.IPv6 {
		return icmpv6
	}
	return icmp
}

// icmpMatch is the match of ICMP types.
var icmpMatch = map[intent.Family]string{intent.IPv4: "icmp --icmp-type", intent.IPv6: "icmp6 --icmpv6-type"}

// icmp adds types and codes. The tool takes a code only together with its type, and rules never have it without.
func (c *conjunction) icmp(terms []rules.Term) error {
	module, option, _ := strings.Cut(icmpMatch[c.family], " ")
	kind := "" // the type that all must have
	for _, t := range terms {
		if t.Kind != rules.ICMPType {
			continue
		}
		if t.Number == 255 && c.family == intent.IPv4 { // to the kernel's match 255 is every type
			return errors.New("type 255 of ICMP has no form in iptables")
		}
		if !t.Not && kind == "" {
			kind = fmt.Sprint(t.Number)
		}
		c.ask("-m %s %s%s %d", module, not(t.Not), option, t.Number)
	}
	for _, t := range terms {
		if t.Kind != rules.ICMPCode {
			continue
		}
		if kind == "" {
			return fmt.Errorf("term %s without a type has no form in iptables", t)
		}
		c.ask("-m %s %s%s %s/%d", module, not(t.Not), option, kind, t.Number)
	}
	return nil
}

// nets adds prefixes. The first term of a side that has only one takes -s or -d.
func (c *conjunction) nets(t rules.Term) {
	own := &c.line.src
	if t.Side == rules.Dst {
		own = &c.line.dst
	}
	b := block{none: t.Not}
	for _, n := range t.Nets {
		text := n.String()
		if n.Bits() == 0 { // every address; the kernel refuses the negation that iptables-nft makes of it
			c.never = c.never || t.Not
			return
		}
		if t.Side == rules.Dst {
			b.lines = append(b.lines, line{dst: "-d " + text})
		} else {
			b.lines = append(b.lines, line{src: "-s " + text})
		}
	}
	if len(b.lines) == 1 && *own == "" {
		*own = not(t.Not) + b.lines[0].src + b.lines[0].dst
		return
	}
	c.blocks = append(c.blocks, b)
}

// ports adds ports. A packet without ports matches no list, and every negated list.
func (c *conjunction) ports(t rules.Term) {
	lists := portLists(t.Ports)
	if len(lists) == 0 || c.proto != 0 && !slices.Contains(withPorts, c.proto) {
		c.never = c.never || !t.Not
		return
	}
	option := map[rules.Side]string{rules.Src: "--sports", rules.Dst: "--dports"}[t.Side]
	if c.proto != 0 && (len(lists) == 1 || t.Not && len(lists) <= maxInLine) {
		for _, l := range lists {
			c.ask("-m multiport %s%s %s", not(t.Not), option, l)
		}
		return
	}
	protos := withPorts
	if c.proto != 0 {
		protos = []uint8{c.proto}
	}
	b := block{none: t.Not}
	for _, p := range protos {
		for _, l := range lists {
			b.lines = append(b.lines, line{proto: protocol(p), rest: []string{"-m multiport " + option + " " + l}})
		}
	}
	c.blocks = append(c.blocks, b)
}

// portLists returns the ports in lists that multiport takes.
func portLists(ports []intent.PortRange) []string {
	var lists []string
	room := 0
	for _, p := range ports {
		text, size := fmt.Sprint(p.Min), 1
		switch {
		case p.Min > p.Max: // no port matches it, and the tool refuses it
			continue
		case p.Min < p.Max:
			text, size = fmt.Sprintf("%d:%d", p.Min, p.Max), 2
		}
		if size > room {
			lists, room = append(lists, text), maxPorts-size
			continue
		}
		lists[len(lists)-1] += "," + text
		room -= size
	}
	return lists
}
