package world

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// hostEndpoints returns those that may be the one of the interface by which a node receives or sends: that which names the interface or has
// an address of the node, else that for all. If the interface is not known, they are all of the node's, and sure is false.
func (w *World) hostEndpoints(node, uplink string) (es []*endpoint, sure bool) {
	var mine, others []*endpoint
	for _, e := range w.hosts {
		if e.spec.Node != node || e.spec.InterfaceName == "*" {
			continue
		}
		is := slices.ContainsFunc(e.prefixes, func(p netip.Prefix) bool {
			return slices.ContainsFunc(w.nodes[node].addrs, p.Contains)
		})
		switch {
		case e.spec.InterfaceName != "" && uplink != "":
			is = e.spec.InterfaceName == uplink
		case e.spec.InterfaceName == "" && w.excluded(node, uplink, e):
			continue
		}
		if is {
			mine = append(mine, e)
		} else if uplink == "" {
			others = append(others, e)
		}
	}
	if len(mine) > 0 {
		return []*endpoint{slices.MinFunc(mine, better)}, true
	}
	for _, e := range others {
		if !slices.ContainsFunc(others, func(o *endpoint) bool {
			return o.spec.InterfaceName != "" && o.spec.InterfaceName == e.spec.InterfaceName && better(o, e) < 0 // the interface belongs to that one
		}) {
			es = append(es, e)
		}
	}
	if e := w.wildcard(node); e != nil {
		es = append(es, e)
	}
	return es, len(others) == 0
}

// excluded reports whether interfaceExclude keeps a node's interface from having an endpoint by address: the interface that the query names,
// else those that the Node lists with such an address.
func (w *World) excluded(node, uplink string, e *endpoint) bool {
	words := cmp.Or(w.exclude["node."+node], w.exclude["default"], "kube-ipvs0")
	no := func(link string) bool {
		for word := range strings.SplitSeq(words, ",") {
			if word = strings.TrimSpace(word); word == link {
				return true
			}
			if pattern, ok := api.ExcludedPattern(word); ok {
				if re, err := regexp.Compile(pattern); err == nil && re.MatchString(link) {
					return true
				}
			}
		}
		return false
	}
	if uplink != "" {
		return no(uplink)
	}
	found := false
	for _, i := range w.nodes[node].interfaces {
		if slices.ContainsFunc(i.Addresses, func(text string) bool {
			text, _, _ = strings.Cut(text, "/")
			a, err := netip.ParseAddr(text)
			return err == nil && slices.ContainsFunc(e.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
		}) {
			if found = true; !no(i.Name) {
				return false
			}
		}
	}
	return found
}

// underHost evaluates the host endpoints that may be the packet's; of several, the first that denies decides.
func (w *World) underHost(node, uplink string, ask func(*endpoint) []Hop) (hops []Hop) {
	if node == "" {
		return nil
	}
	es, sure := w.hostEndpoints(node, uplink)
	for i, e := range es {
		found := ask(e)
		denies := slices.ContainsFunc(found, func(h Hop) bool { return !h.Allowed })
		for k := range found {
			if !sure {
				found[k].AssumedInterface = interfaceOf(e)
			}
		}
		if i == 0 || denies {
			hops = found
		}
		if denies {
			return hops
		}
	}
	return hops
}

// interfaceOf names the interface of a host endpoint, for people.
func interfaceOf(e *endpoint) string {
	switch {
	case e.spec.InterfaceName == "*":
		return "another"
	case e.spec.InterfaceName == "" && len(e.prefixes) > 0:
		return "that with " + e.prefixes[0].String()
	}
	return e.spec.InterfaceName
}

// wildcard returns the host endpoint for all interfaces of a node.
func (w *World) wildcard(node string) *endpoint {
	var best *endpoint
	for _, e := range w.hosts {
		if e.spec.Node == node && e.spec.InterfaceName == "*" && (best == nil || better(e, best) < 0) {
			best = e
		}
	}
	return best
}

// better is negative if a precedes b for one interface, which each names or has an address of: one that can be read, then the smallest name.
func better(a, b *endpoint) int {
	if (a.closed == "") != (b.closed == "") {
		if a.closed == "" {
			return -1
		}
		return 1
	}
	return strings.Compare(a.name, b.name)
}

// leave returns the hops of a packet that leaves a host, from its own processes (local) or forwarded.
func (w *World) leave(node, uplink string, p packet, local bool) []Hop {
	return w.underHost(node, uplink, func(e *endpoint) []Hop {
		if !local {
			return w.forwardHops(e, api.Egress, p)
		}
		safe := w.safe(node, api.Egress, p)
		if h, decided := w.early(e, StageUntracked, api.Egress, p); decided && !safe && !w.safe(node, api.Ingress, p.reply()) {
			return []Hop{h} // an allowed one has no conntrack entry, and no further stage
		}
		return []Hop{w.hostHop(e, api.Egress, p, safe)}
	})
}

// arrive returns the hops of a packet that arrives at a host, for its own processes (local) or forwarded.
func (w *World) arrive(node, uplink string, p packet, local bool) []Hop {
	return w.underHost(node, uplink, func(e *endpoint) []Hop { return w.arriveUnder(e, p, local) })
}

func (w *World) arriveUnder(e *endpoint, p packet, local bool) []Hop {
	var hops []Hop
	safe := w.safe(e.spec.Node, api.Ingress, p)
	h, decided := w.early(e, StageUntracked, api.Ingress, p.asSent())
	if decided && !safe && !w.safe(e.spec.Node, api.Egress, p.reply()) {
		hops = append(hops, h)
	}
	if h, decided := w.early(e, StagePreDNAT, api.Ingress, p.asSent()); decided && !safe && (len(hops) == 0 || hops[0].Allowed) {
		hops = append(hops, h)
	}
	switch {
	case len(hops) > 0: // a packet that an early stage allowed has no further stage
		return hops
	case local:
		return []Hop{w.hostHop(e, api.Ingress, p, safe)}
	}
	return w.forwardHops(e, api.Ingress, p)
}

// enter returns the hops of a packet that a workload sends before its own policy is asked: those of the host endpoint for all interfaces, which is for
// the workload's, too. The packet is as it was sent, and out as it leaves the host.
func (w *World) enter(from *endpoint, p, out packet, toHost bool) []Hop {
	all := w.wildcard(from.spec.Node)
	if all == nil || from.closed != "" {
		return nil
	}
	_, served := w.served(from, out)
	if h, decided := w.early(all, StagePreDNAT, api.Ingress, p.asSent()); decided && !served && !w.safe(from.spec.Node, api.Ingress, p) {
		return []Hop{h}
	}
	if toHost {
		return nil
	}
	return w.forwardHops(all, api.Ingress, out)
}

// underAll returns the hop of a packet that is forwarded to a workload after that one's policy, if the host endpoint for all interfaces has policy for it.
func (w *World) underAll(to *endpoint, p packet) []Hop {
	if all := w.wildcard(to.spec.Node); all != nil {
		return w.forwardHops(all, api.Egress, p)
	}
	return nil
}

// early evaluates a stage in which tiers have no default action: a packet that no rule decides about goes on.
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

// forwardHops returns one hop if a rule or the end of a tier decides, and none if
// no policy applies: forwarded packets are allowed by default.
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

// hostHop evaluates the normal stage of a host endpoint. Failsafe ports pass.
func (w *World) hostHop(e *endpoint, dir api.PolicyType, p packet, safe bool) Hop {
	if safe {
		h := newHop(e, dir, StageHost)
		return h.end(Decision{Reason: ReasonFailsafe, RuleIndex: -1, Action: string(api.Allow)})
	}
	return w.hop(e, dir, p)
}

// failsafes are those of one FelixConfiguration; nil: not set.
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
		found := w.failsafes[name].in
		if dir == api.Egress {
			found = w.failsafes[name].out
		}
		if found != nil {
			list = *found
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

// reply returns the packet with its ends exchanged.
func (p packet) reply() packet {
	p.src, p.dst, p.srcPort, p.dstPort = p.dst, p.src, p.dstPort, p.srcPort
	return p
}
