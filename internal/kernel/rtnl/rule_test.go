package rtnl_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func TestPacketsFollowTheTableOfTheirSource(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	ns.Veth("one", "onep")
	ns.Veth("two", "twop")
	const table, other = 10_007, 7
	for _, link := range []string{"one", "two"} {
		for _, gateway := range []string{"169.254.1.1", "fe80::1"} {
			to := 0
			if link == "two" {
				to = table
			}
			world := netip.PrefixFrom(netip.MustParseAddr("::"), 0)
			if netip.MustParseAddr(gateway).Is4() {
				world = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			}
			must(t, h.AddRoute(rtnl.Route{Dst: world, Link: ns.Link(link).Index, Gateway: netip.MustParseAddr(gateway), OnLink: true, Table: to}))
		}
	}
	ns.Addr("one", "10.65.0.1/32", "fd65::1/128")
	ns.Addr("two", "10.65.0.2/32", "fd65::2/128")
	rules := []rtnl.SourceRule{{From: prefix("10.65.0.2/32"), Table: table}, {From: prefix("fd65::2/128"), Table: table}}
	for _, r := range rules {
		must(t, h.AddSourceRule(r))
		if err := h.AddSourceRule(r); !errors.Is(err, rtnl.ErrExists) {
			t.Errorf("a second rule from %s: %v", r.From, err)
		}
	}
	must(t, h.AddSourceRule(rtnl.SourceRule{From: prefix("10.65.0.3/32"), Table: other}))
	got, err := h.SourceRules(table)
	must(t, err)
	if !slices.Equal(got, rules) {
		t.Errorf("rules: %v, want %v", got, rules)
	}
	over := func(from, to, dev string) {
		t.Helper()
		if out := ns.Run("ip", "route", "get", to, "from", from); !slices.Contains(strings.Fields(out), dev) {
			t.Errorf("from %s: %s, want over %s", from, out, dev)
		}
	}
	over("10.65.0.1", "192.0.2.1", "one")
	over("10.65.0.2", "192.0.2.1", "two")
	over("fd65::1", "2001:db8::1", "one")
	over("fd65::2", "2001:db8::1", "two")
	for range 2 { // the second time there is nothing to do
		must(t, h.DeleteRules(table))
	}
	if got, err := h.SourceRules(table); err != nil || len(got) > 0 {
		t.Errorf("rules that were deleted: %v, %v", got, err)
	}
	if got, err := h.SourceRules(other); err != nil || len(got) != 1 {
		t.Errorf("the other table's rules: %v, %v", got, err)
	}
	over("10.65.0.2", "192.0.2.1", "one")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMarkedPacketsGoPastATable(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	const protocol, other = 81, 82
	want := []rtnl.MarkRule{{Priority: 99, Table: 7, Mark: 0x100000}, {Six: true, Priority: 98, Table: 8, Mark: 0x100000}}
	for _, r := range want {
		must(t, h.AddMarkRule(r, protocol))
		if err := h.AddMarkRule(r, protocol); !errors.Is(err, rtnl.ErrExists) {
			t.Errorf("a second rule: %v", err)
		}
	}
	must(t, h.AddMarkRule(rtnl.MarkRule{Priority: 50, Table: 9, Mark: 1}, other))
	if text := ns.Run("ip", "rule", "show"); !strings.Contains(text, "99:\tnot from all fwmark 0x100000/0x100000 lookup 7") {
		t.Errorf("the kernel has\n%s", text)
	}
	got, others, err := h.MarkRules(protocol)
	must(t, err)
	if !slices.Equal(got, want) || !others[9] || others[7] || !others[254] {
		t.Errorf("rules are %v, and others lead into %v", got, others)
	}
	must(t, h.AddRoute(rtnl.Route{Dst: prefix("10.65.0.0/26"), Kind: rtnl.Unreachable, Protocol: protocol, Metric: 1024, Table: 7}))
	must(t, h.AddRoute(rtnl.Route{Dst: prefix("10.65.0.1/32"), Kind: rtnl.Throw, Protocol: protocol, Table: 7}))
	must(t, h.AddRoute(rtnl.Route{Dst: prefix("fd65::1/128"), Kind: rtnl.Throw, Protocol: protocol, Table: 7}))
	routes, err := h.Routes(rtnl.RouteFilter{Protocol: protocol, Table: 7})
	must(t, err)
	if len(routes) != 3 || routes[0].Kind != rtnl.Unreachable && routes[1].Kind != rtnl.Unreachable || routes[2].Kind != rtnl.Throw || routes[2].Link != 0 || routes[2].Table != 7 {
		t.Errorf("routes are %+v", routes)
	}
	for _, r := range routes {
		must(t, h.DeleteRoute(r))
	}
	for _, r := range want {
		must(t, h.DeleteMarkRule(r, protocol))
	}
	if got, others, err = h.MarkRules(protocol); len(got) != 0 || !others[9] || err != nil {
		t.Errorf("after they were deleted: %v, %v, %v", got, others, err)
	}
}

// TestPacketsOfAPortSkipRules: what this host sends to and from a port, to one network, goes past a table that all else goes into, in both families.
func TestPacketsOfAPortSkipRules(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	const protocol, table = 81, 7
	ns.Veth("one", "onep")
	ns.Addr("one", "192.0.2.1/24", "2001:db8::1/64")
	var want []rtnl.SkipRule
	for _, six := range []bool{false, true} {
		to := prefix("192.0.2.0/24")
		if six {
			to = prefix("2001:db8::/64")
		}
		must(t, h.AddRoute(rtnl.Route{Dst: to, Kind: rtnl.Unreachable, Table: table}))
		must(t, h.AddMarkRule(rtnl.MarkRule{Six: six, Priority: 101, Table: table, Mark: 0x100000}, protocol))
		want = append(want, rtnl.SkipRule{Six: six, Priority: 100, Target: 102, Protocol: 6, Port: 2379}, rtnl.SkipRule{Six: six, Priority: 100, Target: 102, Protocol: 17, Port: 3784, Answer: true, To: to},
			rtnl.SkipRule{Six: six, Priority: 100, Target: 102, Protocol: 17, Port: 51820, Forward: true},
			rtnl.SkipRule{Six: six, Priority: 100, Target: 102, Out: "one"}, rtnl.SkipRule{Six: six, Priority: 102})
	}
	for _, r := range want {
		must(t, h.AddSkipRule(r, protocol))
		if err := h.AddSkipRule(r, protocol); !errors.Is(err, rtnl.ErrExists) {
			t.Errorf("a second rule: %v", err)
		}
	}
	if got, err := h.SkipRules(protocol); err != nil || !slices.Equal(got, want) {
		t.Errorf("rules are\n%+v, %v; want\n%+v", got, err, want)
	}
	if marks, _, err := h.MarkRules(protocol); err != nil || len(marks) != 2 {
		t.Errorf("rules into tables are %v, %v", marks, err)
	}
	reach := func(skipped bool, args ...string) {
		t.Helper()
		out := ns.Run("sh", "-c", "ip route get "+strings.Join(args, " ")+" 2>&1 || true")
		if strings.Contains(out, "dev one") != skipped {
			t.Errorf("%v: %s; want that it skips the table: %v", args, out, skipped)
		}
	}
	for _, to := range []string{"192.0.2.2", "2001:db8::2"} {
		reach(true, to, "ipproto tcp dport 2379")
		reach(false, to, "ipproto udp dport 2379")
		reach(false, to, "ipproto tcp sport 2379 dport 9")
		reach(true, to, "ipproto udp sport 3784 dport 9")
		reach(false, to, "ipproto udp dport 3784")
		reach(false, to)
		reach(true, to, "mark 0x100000")
		reach(true, to, "oif one")
	}
	for _, r := range want {
		must(t, h.DeleteSkipRule(r, protocol))
	}
	if got, err := h.SkipRules(protocol); err != nil || len(got) > 0 {
		t.Errorf("rules that were deleted: %v, %v", got, err)
	}
	reach(false, "192.0.2.2", "ipproto tcp dport 2379")
}
