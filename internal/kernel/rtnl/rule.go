package rtnl

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// rules calls do with each rule that leads to a table.
func (h *Handle) rules(table int, do func(netlink.Rule) error) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var part []netlink.Rule
		err := dump(func() (err error) {
			part, err = loose.RuleListFiltered(family, &netlink.Rule{Table: table}, netlink.RT_FILTER_TABLE)
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
