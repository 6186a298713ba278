package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// WorkloadPrefixes are the datastore's keys of which [Resources] needs updates while [Resources.Workloads] is true, in addition to those of
// [Prefixes].
func WorkloadPrefixes() []string { return []string{api.KeyPrefix(api.KindWorkloadEndpoint, "")} }

// workload is the part of a WorkloadEndpoint that plans use.
type workload struct {
	node   string
	labels map[string]string
	addrs  []netip.Addr
}

func workloadOf(e *api.WorkloadEndpoint) *workload {
	out := &workload{node: e.Spec.Node, labels: e.Metadata.Labels}
	for _, n := range e.Spec.IPNetworks {
		if a := address(n); a.IsValid() && a.IsSingleIP() {
			out.addrs = append(out.addrs, a.Addr())
		}
	}
	return out
}

// Workloads reports whether a node's plan depends on its workloads: some may be its peers.
func (w *Resources) Workloads(node string) bool {
	self, ok := w.host(node)
	if !ok || w.NoWorkloads != "" {
		return false
	}
	for _, p := range w.peers {
		if p.Spec.LocalWorkloadSelector != "" && selects(&p.Spec, self) {
			return true
		}
	}
	return false
}

// workloads makes the sessions of a BGPPeer with this node's workloads, one for each of their addresses. The workload calls.
func (d *planner) workloads(name string, s *api.BGPPeerSpec) {
	if d.NoWorkloads != "" {
		d.plan.Problems = append(d.plan.Problems, "BGPPeer "+name+": localWorkloadSelector has no effect: "+d.NoWorkloads)
		return
	}
	d.peering(true)
	d.peering(false)
	for _, key := range slices.Sorted(maps.Keys(d.Resources.workloads)) {
		w := d.Resources.workloads[key]
		if w.node != d.self.name || !matches(s.LocalWorkloadSelector, w.labels) {
			continue
		}
		for _, a := range w.addrs {
			session := d.draw(name, s, a)
			session.Port, session.AS, session.Workload = DefaultPort, uint32(s.ASNumber), key
			session.Source, session.Passive = netip.Addr{}, true
			if !session.BFD.Asked {
				session.BFD = BFD{}
			}
			d.setClient(&session, netip.Addr{})
			d.add(session, s.Filters)
		}
	}
}

// peering gives the host the address that workloads of a family call, also while there is none: a speaker that is to listen on another set of
// addresses ends all its sessions.
func (d *planner) peering(four bool) {
	text := d.config("default").LocalWorkloadPeeringIPv6
	if four {
		text = d.config("default").LocalWorkloadPeeringIPv4
	}
	at, err := netip.ParseAddr(text)
	if err != nil || slices.Contains(d.plan.Peering, at) || !d.self.addr(four).IsValid() {
		return // none is configured: workloads may call the node's own; or it listens on none of the family
	}
	d.plan.Peering = append(d.plan.Peering, at)
	slices.SortFunc(d.plan.Peering, netip.Addr.Compare)
	for _, l := range d.plan.Listen {
		if l.Addr().Is4() == four && !l.Addr().IsUnspecified() { // bindMode NodeIP
			d.plan.Listen = append(d.plan.Listen, netip.AddrPortFrom(at, l.Port()))
			return
		}
	}
}
