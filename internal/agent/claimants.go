package agent

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// claimants returns the endpoints of this node that have an address, and which of their interfaces the host has.
func (r *reporter) claimants(addr netip.Addr) []attach.Claimant {
	r.mu.Lock()
	out := r.tracker.claimants(addr)
	r.mu.Unlock()
	if len(out) == 0 || r.links == nil {
		return out
	}
	links, err := r.links()
	for i, c := range out { // of what cannot be read everything counts as there
		out[i].There = err != nil || slices.ContainsFunc(links, func(l rtnl.Link) bool { return l.Name == c.Link })
	}
	return out
}

func (t *tracker) claimants(addr netip.Addr) (out []attach.Claimant) {
	for _, link := range t.routes[intent.RouteID{Prefix: netip.PrefixFrom(addr, addr.BitLen())}] {
		if id, is := t.links[link]; is && id.Kind == intent.Workload {
			out = append(out, attach.Claimant{Endpoint: id, Link: link})
		}
	}
	return out
}
