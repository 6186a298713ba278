package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// maxMembers is the largest size of a set; ipset's own default is 65,536.
const maxMembers = 1 << 20

// Set is a kernel set of one family.
type Set struct {
	Name   string
	ID     intent.SetID
	Kind   intent.SetKind
	Family intent.Family
}

// setPrefix begins the names of all our sets.
const setPrefix = "tw"

// setOf returns the kernel set of a set. The kind is in the name: a term of the wrong kind finds no set.
func setOf(id intent.SetID, kind intent.SetKind, f intent.Family) Set {
	prefix := setPrefix + "4"
	if f == intent.IPv6 {
		prefix = setPrefix + "6"
	}
	switch kind {
	case intent.SetPorts:
		prefix += "-port-"
	default:
		prefix += "-net-"
	}
	return Set{Name: shortName(prefix, string(id)), ID: id, Kind: kind, Family: f}
}

// Create returns the line of ipset that makes the set.
func (s Set) Create() string {
	return fmt.Sprintf("create %s %s maxelem %d", s.Name, s.shape(), maxMembers)
}

// shape is the type of the set, and its family.
func (s Set) shape() string {
	kind, family := "hash:net", "inet"
	if s.Kind == intent.SetPorts {
		kind = "hash:ip,port"
	}
	if s.Family == intent.IPv6 {
		family = "inet6"
	}
	return kind + " family " + family
}

// Elements returns a member as elements of the kernel set; none if it is of the other family, or not valid for this kind of set.
func (s Set) Elements(m intent.Member) []string {
	p := m.Prefix.Masked()
	a := p.Addr()
	if !p.IsValid() || a.Is4In6() || a.Is4() != (s.Family == intent.IPv4) {
		return nil
	}
	switch {
	case s.Kind == intent.SetPorts:
		// The kernel refuses the unspecified address here, and ipset refuses a port of a protocol without ports.
		if !p.IsSingleIP() || a.IsUnspecified() || !slices.Contains(withPorts, m.Proto) {
			return nil
		}
		return []string{fmt.Sprintf("%s,%d:%d", a, m.Proto, m.Port)}
	case p.Bits() == 0: // hash:net has no prefix of length 0; two halves cover it
		half := netip.AddrFrom4([4]byte{128})
		if a.Is6() {
			half = netip.AddrFrom16([16]byte{128})
		}
		return []string{netip.PrefixFrom(a, 1).String(), netip.PrefixFrom(half, 1).String()}
	}
	return []string{p.String()}
}

// RestoreSets returns the input of `ipset restore` that makes sets of a family with their members.
func RestoreSets(f intent.Family, sets []intent.IPSet) string {
	var lines []string
	for _, in := range sets {
		s := setOf(in.ID, in.Kind, f)
		lines = append(lines, s.Create())
		var add []string
		for _, m := range in.Members {
			for _, el := range s.Elements(m) {
				add = append(add, "add "+s.Name+" "+el)
			}
		}
		slices.Sort(add)
		lines = append(lines, slices.Compact(add)...) // members that differ in host bits only are one prefix
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
