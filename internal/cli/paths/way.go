package paths

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/verdict/world"
)

// Way is how packets go from one host to another, as resources say.
type Way struct {
	From      string `json:"from"` // nodes
	To        string `json:"to"`
	Family    string `json:"family"`
	By        string `json:"by"` // WireGuard, VXLAN, IPIP, direct, or other: BGP or somebody else has the route, and nothing is encapsulated
	Encrypted bool   `json:"encrypted"`
	Problem   string `json:"problem,omitempty"`
}

// Other is the way by routes that are not the agent's.
const Other = "other"

// Between says how packets of a question go from the host of one end to that of the other, if these are two hosts: to an address of the other end's,
// which is a workload of it, or the host itself.
func Between(us []api.Update, q world.Query, addr netip.Addr) (Way, bool) {
	src, dst := q.Src, q.Dst
	if src.Node == "" || dst.Node == "" || src.Node == dst.Node || !addr.IsValid() {
		return Way{}, false
	}
	g := calc.New(src.Node)
	g.Update(us)
	b := g.Flush()
	w := Way{From: src.Node, To: dst.Node, Family: "IPv4", By: Other}
	f := 0
	if addr.Is6() {
		w.Family, f = "IPv6", 1
	}
	best := -1
	for _, r := range b.Routes {
		if !r.Dst.Contains(addr) || r.Dst.Bits() <= best {
			continue
		}
		best = r.Dst.Bits()
		w.By, w.Encrypted, w.Problem = by(r, b.Peers)
	}
	if best < 0 && b.Host != nil && hostEncrypted(b, f, dst.Node, addr) {
		if what := excepted(b.Host.WireGuard.InClear, q, addr); what == "" {
			w.By, w.Encrypted = intent.WireGuard.Encapsulation(), true
		} else {
			w.Problem = "in clear, although settings want WireGuard: " + what
		}
	}
	wanted := g.Settings().Settings.WireGuard.Enabled[f]
	if wanted && !w.Encrypted && w.Problem == "" {
		w.Problem = "in clear, although settings want WireGuard: "
		if dst.Host {
			w.Problem += "it is to the host's own address" + whyNot(g.Settings().Settings.WireGuard.Hosts)
		} else {
			w.Problem += "wireguardAllowUnencrypted is true and " + dst.Node + " has no key, or no block of addresses has this one"
		}
	}
	return w, true
}

// whyNot is why what is for a host's own address is not encrypted; on: settings want that it is.
func whyNot(on bool) string {
	if on {
		return ", and one of the hosts has no key of WireGuard, or this is not its Node's address"
	}
	return ", and wireguardHostEncryptionEnabled is false"
}

// hostEncrypted reports whether what is for an own address of a node goes into the device of a family.
func hostEncrypted(b intent.Batch, f int, node string, addr netip.Addr) bool {
	return b.Host.WireGuard.Hosts[f] && slices.ContainsFunc(b.Peers, func(p intent.TunnelPeer) bool {
		return p.Node == node && p.Host == addr && p.Kind == [2]intent.TunnelKind{intent.WireGuard, intent.WireGuard6}[f]
	})
}

// excepted says why what a host itself sends to another's own address is not encrypted; empty: it is.
func excepted(list []intent.Failsafe, q world.Query, addr netip.Addr) string {
	for _, f := range list {
		if !q.Src.Host || f.Protocol != q.Proto || f.Port != q.DstPort && f.Port != q.SrcPort || f.Net.IsValid() && !f.Net.Contains(addr) {
			continue
		}
		return fmt.Sprintf("it is of port %d, which must not need a key: a failsafe port, or WireGuard's or BFD's own", f.Port)
	}
	return ""
}

// by is how a route leads to another host.
func by(r intent.Route, peers []intent.TunnelPeer) (name string, encrypted bool, problem string) {
	switch r.Kind {
	case intent.RouteDirect:
		return "direct", false, ""
	case intent.RouteTunnel:
		for _, k := range []intent.TunnelKind{intent.VXLAN, intent.VXLAN6, intent.IPIP} {
			if k.Link() == r.Link {
				name = k.Encapsulation()
			}
		}
		if !r.Via.IsValid() {
			problem = fmt.Sprintf("unreachable: %s or this host has no end of the tunnel", r.Node)
		}
		return name, false, problem
	case intent.RouteEncrypted:
		keyed := slices.ContainsFunc(peers, func(p intent.TunnelPeer) bool {
			return p.Node == r.Node && (p.Kind == intent.WireGuard && r.Dst.Addr().Is4() || p.Kind == intent.WireGuard6 && r.Dst.Addr().Is6())
		})
		if !keyed {
			problem = fmt.Sprintf("unreachable: %s or this host has no key of WireGuard", r.Node)
		}
		return "WireGuard", true, problem
	}
	return Other, false, ""
}

// Lines say the ways that are worth a word: those that are not plain routes, or have a problem.
func Lines(ways []Way) (out []string) {
	for _, w := range ways {
		if w.By == Other && w.Problem == "" {
			continue
		}
		how := map[string]string{"WireGuard": "encrypted by WireGuard", "direct": "straight to the host's address", Other: "by routes that are not the agent's"}[w.By]
		if how == "" {
			how = "by " + w.By
		}
		line := fmt.Sprintf("%s: %s → %s, %s", w.Family, w.From, w.To, how)
		out = append(out, strings.TrimSuffix(line+"; "+w.Problem, "; "))
	}
	return out
}
