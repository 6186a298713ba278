package rtnl

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel"
)

// SourceRule has the routes of a table decide about packets from a prefix, before those of main do.
type SourceRule struct {
	From  netip.Prefix
	Table int
}

// sourceRulePriority is just before main's, which is 32766.
const sourceRulePriority = 32765

// AddSourceRule adds a rule; it is ErrExists if there is one like it.
func (h *Handle) AddSourceRule(r SourceRule) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	v := netlink.NewRule()
	v.Family, v.Src, v.Table, v.Priority = netlink.FAMILY_V6, toIPNet(r.From), r.Table, sourceRulePriority
	if r.From.Addr().Is4() {
		v.Family = netlink.FAMILY_V4
	}
	return wrap(loose.RuleAdd(v), "add rule from %s", r.From)
}

// SourceRules lists the rules of both families that lead to a table.
func (h *Handle) SourceRules(table int) (out []SourceRule, err error) {
	err = h.rules(table, func(v netlink.Rule) error {
		if p, ok := fromIPNet(v.Src); ok {
			out = append(out, SourceRule{p, v.Table})
		}
		return nil
	})
	return out, err
}

// DeleteRules removes all rules that lead to a table.
func (h *Handle) DeleteRules(table int) error {
	return h.rules(table, func(v netlink.Rule) error {
		loose, err := h.nonStrict()
		if err == nil {
			err = wrap(loose.RuleDel(&v), "delete rule from %s", v.Src)
		}
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// rules calls do with each rule that leads to a table; zero: to any.
func (h *Handle) rules(table int, do func(netlink.Rule) error) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var part []netlink.Rule
		err := dump(func() (err error) {
			filter := netlink.RT_FILTER_TABLE
			if table == 0 {
				filter = 0
			}
			part, err = loose.RuleListFiltered(family, &netlink.Rule{Table: table}, filter)
			return err
		})
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // this host has not that family
			return wrap(err, "list rules")
		}
		for _, v := range part {
			v.Family = family
			if err := do(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// MarkRule has the routes of a table decide about all packets of a family, but for those with a mark.
type MarkRule struct {
	Six      bool
	Priority int // before rules of a larger one
	Table    int
	Mark     uint32 // a bit, or several, all of which are set
}

// AddMarkRule adds a rule, of a protocol, by which it is found again; it is ErrExists if there is one like it.
func (h *Handle) AddMarkRule(r MarkRule, protocol int) error {
	loose, err := h.nonStrict()
	if err == nil {
		err = loose.RuleAdd(r.rule(protocol))
	}
	return wrap(err, "add rule %d into table %d", r.Priority, r.Table)
}

// DeleteMarkRule removes a rule of a protocol.
func (h *Handle) DeleteMarkRule(r MarkRule, protocol int) error {
	loose, err := h.nonStrict()
	if err == nil {
		err = loose.RuleDel(r.rule(protocol))
	}
	return wrap(err, "delete rule %d into table %d", r.Priority, r.Table)
}

func (r MarkRule) rule(protocol int) *netlink.Rule {
	v := netlink.NewRule()
	v.Family, v.Priority, v.Table, v.Mark, v.Mask, v.Invert, v.Protocol = netlink.FAMILY_V4, r.Priority, r.Table, r.Mark, &r.Mark, true, uint8(protocol)
	if r.Six {
		v.Family = netlink.FAMILY_V6
	}
	return v
}

// MarkRules lists those of a protocol, and the tables into which rules of others lead.
func (h *Handle) MarkRules(protocol int) (ours []MarkRule, others map[int]bool, err error) {
	others = map[int]bool{}
	err = h.rules(0, func(v netlink.Rule) error {
		if int(v.Protocol) != protocol {
			others[v.Table] = true
			return nil
		}
		if v.Mark == 0 { // a SkipRule
			return nil
		}
		ours = append(ours, MarkRule{v.Family == netlink.FAMILY_V6, v.Priority, v.Table, v.Mark})
		return nil
	})
	return ours, others, err
}

// EncryptedMark is the mark of packets that the rules of this host's agent do not lead into devices of WireGuard: what such a device sends has it. Zero:
// there are no such rules.
func (h *Handle) EncryptedMark() (mark uint32, err error) {
	rules, _, err := h.MarkRules(kernel.RouteProtocolHosts)
	for _, r := range rules {
		mark |= r.Mark
	}
	return mark, err
}
