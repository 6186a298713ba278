package world

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// metadata is where the requests of workloads for metadata go, by one FelixConfiguration, with the prefixes of names of interfaces by which OpenStack is known.
type metadata struct {
	addr, prefixes string
	port           *int
}

const protoTCP = 6

// server returns where TCP to port 80 of 169.254.169.254 goes from workloads of a node; not valid: nowhere else. Each setting is the node's own, else
// the default one.
func (w *World) server(node string) netip.AddrPort {
	addr, port := w.asked(node)
	if addr == "" && w.tap(node) {
		addr = "127.0.0.1"
	}
	if a, err := netip.ParseAddr(addr); err == nil && a.Is4() {
		return netip.AddrPortFrom(a, uint16(port))
	}
	return netip.AddrPort{}
}

// asked returns what settings say of the server of a node; the address is empty if they name none.
func (w *World) asked(node string) (addr string, port int) {
	port = 8775
	for _, name := range []string{"default", "node." + node} {
		m := w.metadata[name]
		if m.addr != "" {
			addr = m.addr
		}
		if m.port != nil && *m.port > 0 && *m.port < 1<<16 {
			port = *m.port
		}
	}
	return addr, port
}

// openStack reports whether a node is one of OpenStack's to upstream: by names of interfaces, or by another server of metadata than the default.
func (w *World) openStack(node string) bool {
	addr, port := w.asked(node)
	other := addr != "" && addr != "127.0.0.1" && !strings.EqualFold(addr, "none")
	return w.tap(node) || other || port != 8775
}

// tap reports whether a node's workloads have interfaces with OpenStack's names.
func (w *World) tap(node string) bool {
	prefixes := w.metadata["node."+node].prefixes
	if prefixes == "" {
		prefixes = w.metadata["default"].prefixes
	}
	return slices.ContainsFunc(strings.Split(prefixes, ","), func(p string) bool { return strings.TrimSpace(p) == "tap" })
}

// translated returns the question as the sender's node changes it, if that asks for metadata.
func (w *World) translated(q Query) Query {
	from := w.endpoint(q.Src.Endpoint)
	if from == nil || q.Proto != protoTCP || q.DstPort != 80 || addrOf(q.Dst, q.Family) != netip.AddrFrom4([4]byte{169, 254, 169, 254}) {
		return q
	}
	to := w.server(from.spec.Node)
	if !to.IsValid() {
		return q
	}
	if q.Dst = w.partyOf(to.Addr()); to.Addr().IsLoopback() {
		q.Dst = Party{Name: "host/" + from.spec.Node, Node: from.spec.Node, Host: true, Addrs: []netip.Addr{to.Addr()}}
	}
	q.DstPort = to.Port()
	return q
}

// served is the hop of a workload's packet to the server of metadata on its own host, which needs no policy; ok is false for any other.
func (w *World) served(e *endpoint, p packet) (h Hop, ok bool) {
	if p.proto != protoTCP || e.closed != "" || w.server(e.spec.Node) != netip.AddrPortFrom(p.dst, p.dstPort) {
		return h, false
	}
	return newHop(e, api.Egress, StageWorkload).end(Decision{Reason: ReasonMetadata, RuleIndex: -1, Action: string(api.Allow)}), true
}

// resolves is the hop of a workload's packet to DNS of its own host, which needs no policy on hosts of OpenStack; ok is false for any other.
func (w *World) resolves(e *endpoint, p packet) (h Hop, ok bool) {
	if p.proto != protoUDP || p.dstPort != 53 || e.closed != "" || w.encapsulates(e, p) || !w.openStack(e.spec.Node) {
		return h, false
	}
	return newHop(e, api.Egress, StageWorkload).end(Decision{Reason: ReasonDNS, RuleIndex: -1, Action: string(api.Allow)}), true
}
