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
