package api

import (
	"fmt"
	"net/netip"
	"slices"
)

// netList is one of the four lists of prefixes that a rule may have.
type netList struct {
	field string // path within the rule
	nets  []string
	not   bool
}

func (r *Rule) netLists() []netList {
	return []netList{
		{"source.nets", r.Source.Nets, false},
		{"source.notNets", r.Source.NotNets, true},
		{"destination.nets", r.Destination.Nets, false},
		{"destination.notNets", r.Destination.NotNets, true},
	}
}

// perFamily is something that is so for IPv4, and for IPv6.
type perFamily [2]bool

func familySlot(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// familyLimit is something in a rule that leaves it only these families.
type familyLimit struct {
	of      perFamily
	because string
}

// familyLimits are those that no nets make.
func familyLimits(r *Rule) []familyLimit {
	var limits []familyLimit
	if v := r.IPVersion; v != nil {
		limits = append(limits, familyLimit{perFamily{*v == 4, *v == 6}, fmt.Sprintf("ipVersion is %d", *v)})
	}
	if n, ok := numberOf(r.Protocol); ok && (n == protoICMP || n == protoICMPv6) {
		limits = append(limits, familyLimit{perFamily{n == protoICMP, n == protoICMPv6}, "protocol is " + r.Protocol.String()})
	}
	return limits
}

// deadNets names the lists of nets of a rule that have prefixes which can match no packet, each with the reason. A rule is of
// those families that each of its lists has, also of the nets that are not meant, and that ipVersion and an ICMP protocol
// leave; prefixes of the other family are without effect. So is all that is said of a family of which notNets have
// everything. Upstream refuses such rules, too, and leaves them out if they are stored: validateRule in
// libcalico-go/lib/validator/v3, FilterRuleToIPVersion in felix/rules/policy.go.
func deadNets(r *Rule) map[string]string {
	lists := slices.DeleteFunc(r.netLists(), func(l netList) bool { return len(l.nets) == 0 })
	if len(lists) == 0 {
		return nil
	}
	limits := familyLimits(r)
	out := map[string]string{}
	has := map[string]perFamily{}
	for _, l := range lists {
		var of, all perFamily
		for _, s := range l.nets {
			if p, reason := prefixOf(s); reason == "" {
				of[familySlot(p)] = true
				all[familySlot(p)] = all[familySlot(p)] || p.Bits() == 0
			}
		}
		has[l.field] = of
		because := l.field + " has none"
		for i, everything := range all {
			if l.not && everything {
				of[i], because = false, l.field+" has all of it"
				out[l.field] = fmt.Sprintf("has all of %s: no packet of it is left to match", familyName[i])
			}
		}
		limits = append(limits, familyLimit{of, because})
	}
	for _, l := range lists {
		for i, there := range has[l.field] {
			for _, limit := range limits {
				if there && !limit.of[i] && out[l.field] == "" {
					out[l.field] = fmt.Sprintf("has prefixes of %s, but %s: no packet matches them", familyName[i], limit.because)
				}
			}
		}
	}
	return out
}

var familyName = [2]string{"IPv4", "IPv6"}
