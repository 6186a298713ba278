package calctest

import "net/netip"

// lend gives some addresses of a block to nodes, one of which may be the block's.
func (w *Cluster) lend(b object, cidr netip.Prefix) {
	allocations := make([]any, 1<<(cidr.Addr().BitLen()-cidr.Bits()))
	var attributes []object
	for range w.rng.IntN(4) {
		at := w.rng.IntN(len(allocations))
		if allocations[at] == nil {
			allocations[at] = len(attributes)
			about := object{"handle_id": "x", "secondary": object{"node": numbered("h", 1+w.rng.IntN(w.cfg.Nodes))}}
			if w.maybe(0.2) {
				about["releasedAt"] = "2026-01-01T00:00:00Z"
			}
			attributes = append(attributes, about)
		}
	}
	if at := w.rng.IntN(len(allocations)); allocations[at] == nil && w.maybe(0.1) { // it refers to nothing
		allocations[at] = pick(w, []int{-1, len(attributes)})
	}
	b["allocations"], b["attributes"] = allocations, attributes
}
