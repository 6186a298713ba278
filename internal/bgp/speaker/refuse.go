package speaker

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// thisNetwork are addresses that mean this host on this network (RFC 1122, 3.2.1.3).
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// martian says why no route to a destination is installed, whichever peer advertises it (RFC 1812, 5.3.7); empty: it may be.
// A default route may: by its metric the host's own is preferred.
func martian(dst netip.Prefix, own map[netip.Addr]bool) string {
	a := dst.Addr()
	switch {
	case dst.Bits() == 0:
		return ""
	case a.IsLoopback():
		return "loopback addresses are each host's own"
	case a.IsLinkLocalUnicast():
		return "link-local addresses mean something else on each link"
	case a.IsMulticast():
		return "multicast is not routed by these routes"
	case a.Is4In6(), a.IsUnspecified(), thisNetwork.Contains(a):
		return "no host has such an address"
	case dst.IsSingleIP() && own[a]:
		return "it is an address of this host"
	}
	return ""
}

// accepted sets how many routes of each peer are accepted: by the session's rules, which the library does not count, and no martians.
func (s *Speaker) accepted(states map[netip.Addr]Session) {
	strict := slices.ContainsFunc(s.plan.Sessions, func(w plan.Session) bool {
		return slices.ContainsFunc(w.Import, func(r plan.Rule) bool { return !r.Accept })
	})
	if !strict && len(s.fib.refused) == 0 {
		return // as many as the library has
	}
	n := s.bgp.taken(func(dst netip.Prefix) bool { return s.fib.refused[dst] == "" })
	for peer, is := range states {
		is.Accepted = n[peer]
		states[peer] = is
	}
}

// taken returns how many paths of each peer the rules have let through, to destinations that count.
func (b *library) taken(counts func(netip.Prefix) bool) map[netip.Addr]uint64 {
	out := map[netip.Addr]uint64{}
	for _, family := range families {
		err := b.srv.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}, func(nlri bgp.NLRI, paths []*apiutil.Path) {
			if dst, ok := prefixOf(nlri); !ok || !counts(dst) {
				return
			}
			for _, p := range paths {
				out[p.PeerAddress]++
			}
		})
		if err != nil {
			b.log.Error("BGP: count routes", "err", err)
		}
	}
	return out
}

// refusals are the learned routes that are refused now, in one line; empty: there are none.
func (f *fib) refusals() string {
	if len(f.refused) == 0 {
		return ""
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(f.refused)), comparePrefixes)
	text := fmt.Sprintf("refused %s: %s", first, f.refused[first])
	if n := len(f.refused) - 1; n > 0 {
		text += fmt.Sprintf("; and %d others", n)
	}
	return text
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
}

// protocolNames are the names of route protocols, as in /etc/iproute2/rt_protos.
var protocolNames = map[int]string{2: "kernel", 3: "boot", 4: "static", 9: "ra", 12: "bird", 16: "dhcp", 186: "bgp", 188: "ospf", 196: "zstatic"}

// otherRoutes are the kernel's routes to a destination that are neither ours, which has a priority or none, nor the agent's, as text.
func otherRoutes(h *rtnl.Handle, dst netip.Prefix, priority int) ([]string, error) {
	all, err := h.Routes(rtnl.RouteFilter{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range all {
		if r.Dst != dst || ours(r) || r.Protocol == kernel.RouteProtocolAgent {
			continue
		}
		metric, order := r.Metric, "is preferred to ours"
		if metric == 0 && dst.Addr().Is6() {
			metric = defaultMetric6
		}
		if metric > cmp.Or(priority, kernel.RouteMetricSpeaker) {
			order = "is less preferred than ours"
		}
		via := ""
		if r.Gateway.IsValid() {
			via = " via " + r.Gateway.String()
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("protocol %s%s, metric %d: it %s, and is not touched", cmp.Or(protocolNames[r.Protocol], fmt.Sprint(r.Protocol)), via, metric, order)))
	}
	return out, nil
}
