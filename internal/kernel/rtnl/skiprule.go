package rtnl

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SkipRule has some packets that this host itself sends skip the rules up to a later priority (FR_ACT_GOTO). The kernel asks the same rules about
// what this host receives where it looks for the way back (rp_filter), but knows ports there only while some rule with a port is also for packets
// that are forwarded (fib_rule_requires_fldissect). Needs Linux 4.17: before, rules do not know of ports.
type SkipRule struct {
	Six      bool
	Priority int
	Target   int          // the priority at which the kernel goes on, larger than Priority; zero: this rule matches all, does nothing (FR_ACT_NOP), and is such a place
	To       netip.Prefix // the other end, masked; the zero value: any
	Protocol uint8        // IANA's number
	Port     uint16       // to which the packet is sent
	Answer   bool         // Port is the one from which it is sent
	Forward  bool         // packets that this host forwards, too
	Out      string       // instead of To and all that follows: what is bound to that interface, which the kernel also asks about where it looks whether a route's gateway is on a link (fib_check_nh)
}

const (
	gotoRule = 2 // FR_ACT_GOTO
	nopRule  = 3 // FR_ACT_NOP
)

// AddSkipRule adds a rule, of a protocol, by which it is found again; it is ErrExists if there is one like it.
func (h *Handle) AddSkipRule(r SkipRule, protocol int) error {
	loose, err := h.nonStrict()
	if err == nil {
		err = loose.RuleAdd(r.rule(protocol))
	}
	return wrap(err, "add rule %d", r.Priority)
}

// DeleteSkipRule removes a rule of a protocol.
func (h *Handle) DeleteSkipRule(r SkipRule, protocol int) error {
	loose, err := h.nonStrict()
	if err == nil {
		err = loose.RuleDel(r.rule(protocol))
	}
	return wrap(err, "delete rule %d", r.Priority)
}

func (r SkipRule) rule(protocol int) *netlink.Rule {
	v := netlink.NewRule()
	v.Family, v.Priority, v.Protocol = netlink.FAMILY_V4, r.Priority, uint8(protocol)
	if r.Six {
		v.Family = netlink.FAMILY_V6
	}
	if r.Target == 0 {
		v.Type = nopRule
		return v
	}
	v.Type, v.Goto, v.IPProto, v.OifName = gotoRule, r.Target, int(r.Protocol), r.Out
	if !r.Forward {
		v.IifName = "lo"
	}
	if r.Out != "" {
		return v
	}
	if r.To.IsValid() {
		v.Dst = toIPNet(r.To)
	}
	ports := netlink.NewRulePortRange(r.Port, r.Port)
	if r.Answer {
		v.Sport = ports
	} else {
		v.Dport = ports
	}
	return v
}

// SkipRules lists those of a protocol.
func (h *Handle) SkipRules(protocol int) (ours []SkipRule, err error) {
	err = h.rules(0, func(v netlink.Rule) error {
		if int(v.Protocol) != protocol || v.Mark != 0 || v.Table != unix.RT_TABLE_UNSPEC {
			return nil
		}
		r := SkipRule{Six: v.Family == netlink.FAMILY_V6, Priority: v.Priority, Protocol: uint8(v.IPProto), Out: v.OifName}
		if v.Goto > 0 {
			r.Target, r.Forward = v.Goto, v.IifName == ""
		}
		r.To, _ = fromIPNet(v.Dst)
		switch {
		case v.Dport != nil:
			r.Port = v.Dport.Start
		case v.Sport != nil:
			r.Port, r.Answer = v.Sport.Start, true
		}
		ours = append(ours, r)
		return nil
	})
	return ours, err
}
