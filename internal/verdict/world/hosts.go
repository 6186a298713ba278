package world

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// hostEndpoint finds the one that an interface of a node is under: that which
// names the interface or has an address of the node, else that for all; nil if
// there is none.
func (w *World) hostEndpoint(node, uplink string) *endpoint {
	var best *endpoint
	for _, e := range w.hosts {
		if e.spec.Node != node || e.spec.InterfaceName == "*" {
			continue
		}
		mine := slices.ContainsFunc(e.prefixes, func(p netip.Prefix) bool {
			return slices.ContainsFunc(w.nodes[node].addrs, p.Contains)
		})
		if e.spec.InterfaceName != "" && uplink != "" {
			mine = e.spec.InterfaceName == uplink
		}
		if mine && (best == nil || better(e, best)) {
			best = e
		}
	}
	if best == nil {
		return w.wildcard(node)
	}
	return best
}

// wildcard is the host endpoint for all interfaces of a node.
func (w *World) wildcard(node string) *endpoint {
	var best *endpoint
	for _, e := range w.hosts {
		if e.spec.Node == node && e.spec.InterfaceName == "*" && (best == nil || better(e, best)) {
			best = e
		}
	}
	return best
}

// better: of several for one interface, one that can be read, then the smallest name.
func better(a, b *endpoint) bool {
	if (a.closed == "") != (b.closed == "") {
		return a.closed == ""
	}
	return a.name < b.name
}

// leave is what the sender's host does with a packet for elsewhere.
func (w *World) leave(q Query, p packet, local bool) []Hop {
	e := w.hostEndpoint(q.Src.Node, q.Uplink)
	if e == nil || q.Src.Node == "" {
		return nil
	}
	if !local {
		return w.forwardHops(e, api.Egress, p)
	}
	safe := w.safe(q.Src.Node, api.Egress, p)
	if h, decided := w.early(e, StageUntracked, api.Egress, p); decided && !safe && !w.safe(q.Src.Node, api.Ingress, p.reply()) {
		return []Hop{h} // an allowed one has no state, and is not asked about again
	}
	return []Hop{w.hostHop(e, api.Egress, p, safe)}
}

// arrive is what the receiver's host does with a packet from elsewhere.
func (w *World) arrive(q Query, p packet, local bool) []Hop {
	e := w.hostEndpoint(q.Dst.Node, q.Uplink)
	if e == nil || q.Dst.Node == "" {
		return nil
	}
	var hops []Hop
	safe := w.safe(q.Dst.Node, api.Ingress, p)
	h, decided := w.early(e, StageUntracked, api.Ingress, p)
	if decided && !safe && !w.safe(q.Dst.Node, api.Egress, p.reply()) {
		hops = append(hops, h)
	}
	if h, decided := w.early(e, StagePreDNAT, api.Ingress, p); decided && !safe && (len(hops) == 0 || hops[0].Allowed) {
		hops = append(hops, h)
	}
	switch {
	case len(hops) > 0: // what an early stage allowed is not asked about again
		return hops
	case local:
		return []Hop{w.hostHop(e, api.Ingress, p, safe)}
	}
	return w.forwardHops(e, api.Ingress, p)
}

// early is a stage whose tiers have no end: what no rule decides goes on.
// Wildcard endpoints have no untracked stage.
func (w *World) early(e *endpoint, stage string, dir api.PolicyType, p packet) (Hop, bool) {
	h := newHop(e, dir, stage)
	if e.closed != "" || stage == StageUntracked && e.spec.InterfaceName == "*" {
		return h, false
	}
	d := w.walk(&h, e, dir, p)
	if d == nil {
		return h, false
	}
	return h.end(*d), true
}

// forwardHops is one hop if a rule or the end of a tier decides, and none if
// nothing applies: what is forwarded needs no one's leave.
func (w *World) forwardHops(e *endpoint, dir api.PolicyType, p packet) []Hop {
	h := newHop(e, dir, StageForward)
	if e.closed != "" {
		return []Hop{h.end(Decision{Reason: ReasonClosed, Detail: e.closed, RuleIndex: -1, Action: string(api.Deny)})}
	}
	if d := w.walk(&h, e, dir, p); d != nil {
		return []Hop{h.end(*d)}
	}
	return nil
}

// hostHop is the normal stage of a host endpoint. What is failsafe is not asked about.
func (w *World) hostHop(e *endpoint, dir api.PolicyType, p packet, safe bool) Hop {
	if safe {
		h := newHop(e, dir, StageHost)
		return h.end(Decision{Reason: ReasonFailsafe, RuleIndex: -1, Action: string(api.Allow)})
	}
	return w.hop(e, dir, p)
}

// failsafes are what one FelixConfiguration says; nil says nothing.
type failsafes struct{ in, out *[]api.ProtoPort }

var (
	defaultFailsafeIn  = append([]api.ProtoPort{{Protocol: "TCP", Port: 22}, {Protocol: "UDP", Port: 68}}, clusterPorts...)
	defaultFailsafeOut = append([]api.ProtoPort{{Protocol: "UDP", Port: 53}, {Protocol: "UDP", Port: 67}}, clusterPorts...)
	clusterPorts       = []api.ProtoPort{
		{Protocol: "TCP", Port: 179},
		{Protocol: "TCP", Port: 2379},
		{Protocol: "TCP", Port: 2380},
		{Protocol: "UDP", Port: 3784},
		{Protocol: "TCP", Port: 5473},
		{Protocol: "TCP", Port: 6443},
		{Protocol: "TCP", Port: 6666},
		{Protocol: "TCP", Port: 6667},
	}
)

// safe reports whether a packet to (Ingress) or from a node is to or from a failsafe port.
func (w *World) safe(node string, dir api.PolicyType, p packet) bool {
	list, other := defaultFailsafeIn, p.src
	if dir == api.Egress {
		list, other = defaultFailsafeOut, p.dst
	}
	for _, name := range []string{"default", "node." + node} {
		said := w.failsafes[name].in
		if dir == api.Egress {
			said = w.failsafes[name].out
		}
		if said != nil {
			list = *said
		}
	}
	numbers := map[string]uint8{"TCP": 6, "": 6, "UDP": 17, "SCTP": 132}
	for _, f := range list {
		n, known := numbers[strings.ToUpper(f.Protocol)]
		if !known || n != p.proto || f.Port != p.dstPort {
			continue
		}
		if f.Net == nil {
			return true
		}
		if net, err := netip.ParsePrefix(*f.Net); err == nil && net.Contains(other) {
			return true
		}
	}
	return false
}

// reply is the packet with its ends exchanged.
func (p packet) reply() packet {
	p.src, p.dst, p.srcPort, p.dstPort = p.dst, p.src, p.dstPort, p.srcPort
	return p
}
