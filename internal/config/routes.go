package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// address is one of IPv4, or else of IPv6.
func address(name string, four bool, help string, field func(*Settings) *netip.Addr) Param {
	kind := map[bool]string{true: "IPv4 address", false: "IPv6 address"}[four]
	return Param{Name: name, Type: kind, Help: help, set: func(s *Settings, text string) error {
		if *field(s) = (netip.Addr{}); text == "" {
			return nil
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4() != four {
			return fmt.Errorf("is %q: want an %s", text, kind)
		}
		*field(s) = a
		return nil
	}}
}

// nets are addresses and CIDRs, each once.
func nets(name, help string, field func(*Settings) *[]netip.Prefix) Param {
	return Param{Name: name, Type: "list of addresses and CIDRs, with commas", Help: help, set: func(s *Settings, text string) error {
		var out []netip.Prefix
		for _, w := range words(text) {
			p, err := api.ParseNet(w)
			if err != nil {
				return err
			}
			out = append(out, p)
		}
		slices.SortFunc(out, func(a, b netip.Prefix) int {
			return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
		})
		*field(s) = slices.Compact(out)
		return nil
	}}
}
