package world

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// floating returns the workload that has a floating address, and the one of its own that is reached by it; nil: none has. It is that of the oldest
// workload that asks for it, if it is in a pool for workloads, and its node has floating addresses. OpenStack's go before, and need neither. Whoever
// has the address as its own goes before all: see partyOf.
func (w *World) floating(a netip.Addr) (*endpoint, netip.Addr) {
	var holder *endpoint
	var internal netip.Addr
	for _, e := range w.workloads {
		for _, n := range e.spec.IPNATs {
			external, err := netip.ParseAddr(n.ExternalIP)
			in, err2 := netip.ParseAddr(n.InternalIP)
			if err == nil && err2 == nil && external == a && (holder == nil || older(e, holder)) {
				holder, internal = e, in
			}
		}
	}
	inside := slices.ContainsFunc(w.pools, func(p api.IPPoolSpec) bool { return contains(readPrefixes([]string{p.CIDR}), a) })
	other := slices.ContainsFunc(w.pools, func(p api.IPPoolSpec) bool {
		return contains(readPrefixes([]string{p.CIDR}), a) && len(p.AllowedUses) > 0 && !slices.Contains(p.AllowedUses, "Workload")
	})
	taken := false
	for _, n := range w.nodes {
		taken = taken || slices.Contains(n.ends, a)
	}
	switch {
	case holder == nil || taken:
		return nil, a
	case holder.neutrons():
		return holder, internal
	case !inside || other:
		return nil, a
	}
	if !strings.EqualFold(cmp.Or(w.floats["node."+holder.spec.Node], w.floats["default"]), api.Enabled) {
		return nil, a
	}
	return holder, internal
}

// neutrons reports whether a workload is OpenStack's, whose floating addresses are what Neutron's record says.
func (e *endpoint) neutrons() bool { return e.spec.Orchestrator == api.OrchestratorOpenStack }

// older reports whether a workload has a floating address rather than another: OpenStack's, one whose age is known, the older one, the first by its key.
func older(a, b *endpoint) bool {
	if a.neutrons() != b.neutrons() {
		return a.neutrons()
	}
	if (a.created == "") != (b.created == "") {
		return a.created != ""
	}
	return cmp.Or(strings.Compare(a.created, b.created), strings.Compare(a.key, b.key)) < 0
}
