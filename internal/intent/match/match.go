// Package match defines which packets a rule matches, for backends that render it and for packages that evaluate
// packets in memory.
//
// In: an [intent.Rule].
// Out: conjunctions of primitive terms, of which one holds if the rule matches ([Lower]); and whether a term holds for a packet
// ([Term.Holds]).
//
// It is pure. Package verdict/world, which evaluates packets by resources, shares nothing with it.
package match

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// Kind is the field of a packet that a term matches.
type Kind uint8

// Kinds of terms. A packet without the field, such as a port, does not match the term, and need not match its negation:
// rules combine ports and ICMP types with the protocol.
const (
	Family   Kind = iota + 1 // IP version is Number
	Protocol                 // protocol is Number
	ICMPType                 // ICMP type, or ICMPv6 type in IPv6, is Number
	ICMPCode                 // ICMP code is Number
	Nets                     // address of Side is in one of Nets; with Not in none, and there is one of the packet's family
	Addrs                    // address of Side is in the intent.SetAddrs Set
	Ports                    // port of Side is in one of Ports
	PortSet                  // address of Side, protocol, and port of Side are in the intent.SetPorts Set
	Allowed                  // a policy allowed the packet
	Passed                   // a policy passed the packet to the next tier
)

// Side is an end of the packet.
type Side uint8

// Sides.
const (
	Src Side = iota
	Dst
)

// Term is one condition; Not negates it.
type Term struct {
	Kind   Kind
	Not    bool
	Side   Side
	Number uint8
	Nets   []netip.Prefix
	Ports  []intent.PortRange
	Set    intent.SetID
}

// String is the term as text.
func (t Term) String() string {
	side := [...]string{"src", "dst"}[t.Side&1]
	op, in := "=", " in "
	if t.Not {
		op, in = "!=", " not in "
	}
	switch t.Kind {
	case Family:
		return "ipv" + op + strconv.Itoa(int(t.Number))
	case Protocol:
		return "proto" + op + strconv.Itoa(int(t.Number))
	case ICMPType:
		return "icmptype" + op + strconv.Itoa(int(t.Number))
	case ICMPCode:
		return "icmpcode" + op + strconv.Itoa(int(t.Number))
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
		return strconv.Itoa(int(p.Min))
	}
	return strconv.Itoa(int(p.Min)) + "-" + strconv.Itoa(int(p.Max))
}

func join[T any](list []T, text func(T) string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = text(v)
	}
	return "{" + strings.Join(words, ",") + "}"
}
