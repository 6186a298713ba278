package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// String is the action in one word.
func (a Action) String() string {
	names := [...]string{"deny", "allow", "pass", "log", "jump", "begin", "next", "return", "accept", "allow-untracked", "allow-early", "reset", "reject"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("action%d", uint8(a))
}

// String is the chain as tests and people read it.
func (c Chain) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Comment)
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "  %s\n", r)
	}
	return b.String()
}

// String is the rule in one line.
func (r Rule) String() string {
	words := make([]string, 0, len(r.Terms)+3)
	for _, t := range r.Terms {
		words = append(words, t.String())
	}
	words = append(words, r.Action.String())
	if r.Target != "" {
		words = append(words, r.Target)
	}
	if r.Comment != "" {
		words = append(words, "# "+r.Comment)
	}
	return strings.Join(words, " ")
}

// String is the term in words.
func (t Term) String() string {
	side := [...]string{"src", "dst"}[t.Side&1]
	op, in := "=", " in "
	if t.Not {
		op, in = "!=", " not in "
	}
	switch t.Kind {
	case Family:
		return fmt.Sprintf("ipv%s%d", op, t.Number)
	case Protocol:
		return fmt.Sprintf("proto%s%d", op, t.Number)
	case ICMPType:
		return fmt.Sprintf("icmptype%s%d", op, t.Number)
	case ICMPCode:
		return fmt.Sprintf("icmpcode%s%d", op, t.Number)
	case Nets:
		return side + in + join(t.Nets, netip.Prefix.String)
	case Addrs:
		return side + in + "@" + string(t.Set)
	case Ports:
		return side + "port" + in + join(t.Ports, portRange)
	case PortSet:
		return side + "port" + in + "@" + string(t.Set)
	case Allowed:
		return "allowed" + op + "1"
	case Passed:
		return "passed" + op + "1"
	}
	return fmt.Sprintf("term%d", uint8(t.Kind))
}

func portRange(p intent.PortRange) string {
	if p.Min == p.Max {
		return fmt.Sprint(p.Min)
	}
	return fmt.Sprintf("%d-%d", p.Min, p.Max)
}

func join[T any](list []T, text func(T) string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = text(v)
	}
	return "{" + strings.Join(words, ",") + "}"
}
