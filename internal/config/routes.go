package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

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

// featureOverride reads one of upstream's overrides of what a kernel can do: the others are of iptables.
func featureOverride() Param {
	return Param{
		Name: "featureDetectOverride", Type: "name=true or name=false, with commas",
		Help: "ChecksumOffloadBroken: true: the kernel fills in the checksums of packets in VXLAN and IPIP tunnels, and not the device; false: the device does; without it the device does from Linux 5.7 on. Other names have no effect",
		set: func(s *Settings, text string) error {
			s.ChecksumsBroken = ""
			for _, w := range words(text) {
				name, value, _ := strings.Cut(w, "=")
				is, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(value)))
				if err != nil {
					return fmt.Errorf("has %q: want name=true or name=false", w)
				}
				if strings.EqualFold(strings.TrimSpace(name), "ChecksumOffloadBroken") {
					s.ChecksumsBroken = strconv.FormatBool(is)
				}
			}
			return nil
		},
	}
}

// routeProtocol reports whether routes to workloads may have a protocol.
func routeProtocol(word string) error {
	if n, err := strconv.Atoi(word); err == nil && slices.Contains(api.TakenRouteProtocols, n) {
		return fmt.Errorf("%d is of routes that others make: want another than %v", n, api.TakenRouteProtocols)
	}
	return nil
}

// normalPriority is the priority of a route without a metric of settings: what BGP says of it, and upstream's default.
const normalPriority = 1024

// elevate takes back a metric that would not have routes preferred to those of other hosts.
func (e *Effective) elevate() {
	r := &e.Settings.Routes
	for f, family := range [2]string{"ipv4", "ipv6"} {
		normal := cmp.Or(r.Metric[f], normalPriority)
		if r.Elevated[f] < normal {
			continue
		}
		name := family + "ElevatedRoutePriority"
		from := e.Values[slices.IndexFunc(e.Values, func(v Value) bool { return v.Param.Name == name })].From
		e.Problems = append(e.Problems, Problem{from, name, fmt.Sprintf(
			"is %d, which is no better than %sNormalRoutePriority, %d: want a lower number; until then a virtual machine that comes from another host is not preferred here", r.Elevated[f], family, normal)})
		r.Elevated[f] = 0
	}
}
