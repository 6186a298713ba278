package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestAddressesAreCountedAsUpstreamCountsThem: each pool and node that there is has zeros, except of blocks; what there is no pool for has none. What is
// said of pools and nodes goes with them, and what was reclaimed for a node with the last that it left.
func TestAddressesAreCountedAsUpstreamCountsThem(t *testing.T) {
	names := []string{"ipam_allocations_in_use", "ipam_allocations_per_node", "ipam_blocks", "ipam_allocations_gc_candidates", "ipam_allocations_gc_reclamations"}
	reg := prometheus.NewRegistry()
	c := NewControllers(reg)
	for _, s := range []Share{{"p", "n1"}, {"p", "n2"}, {"q", "n1"}, {"", ""}} {
		c.Reclaimed(s.Pool, s.Node)
	}
	for _, tt := range []struct {
		name string
		is   Addresses
		want string
	}{
		{"all of them", Addresses{Size: map[string]float64{"p": 4, "q": 8}, Nodes: []string{"n1", "n2"}, InUse: map[Share]int{{"p", "n1"}: 3, {"", "n2"}: 1}, Blocks: map[Share]int{{"p", "n1"}: 1}}, `
ipam_allocations_gc_candidates{ippool="p",node="n1"} 0
ipam_allocations_gc_candidates{ippool="p",node="n2"} 0
ipam_allocations_gc_candidates{ippool="q",node="n1"} 0
ipam_allocations_gc_candidates{ippool="q",node="n2"} 0
ipam_allocations_gc_reclamations{ippool="no_ippool",node="unknown_node"} 1
ipam_allocations_gc_reclamations{ippool="p",node="n1"} 1
ipam_allocations_gc_reclamations{ippool="p",node="n2"} 1
ipam_allocations_gc_reclamations{ippool="q",node="n1"} 1
ipam_allocations_in_use{ippool="no_ippool",node="n2"} 1
ipam_allocations_in_use{ippool="p",node="n1"} 3
ipam_allocations_in_use{ippool="p",node="n2"} 0
ipam_allocations_in_use{ippool="q",node="n1"} 0
ipam_allocations_in_use{ippool="q",node="n2"} 0
ipam_allocations_per_node{node="n1"} 3
ipam_allocations_per_node{node="n2"} 1
ipam_blocks{ippool="p",node="n1"} 1
`},
		{"a pool is gone, and a node that left a block", Addresses{Size: map[string]float64{"p": 4}, Nodes: []string{"n1"}, Blocks: map[Share]int{{"p", "n2"}: 1}}, `
ipam_allocations_gc_candidates{ippool="p",node="n1"} 0
ipam_allocations_gc_reclamations{ippool="no_ippool",node="unknown_node"} 1
ipam_allocations_gc_reclamations{ippool="p",node="n1"} 1
ipam_allocations_gc_reclamations{ippool="p",node="n2"} 1
ipam_allocations_in_use{ippool="p",node="n1"} 0
ipam_blocks{ippool="p",node="n2"} 1
`},
		{"and the block, and both are back", Addresses{Size: map[string]float64{"p": 4, "q": 8}, Nodes: []string{"n1"}}, `
ipam_allocations_gc_candidates{ippool="p",node="n1"} 0
ipam_allocations_gc_candidates{ippool="q",node="n1"} 0
ipam_allocations_gc_reclamations{ippool="no_ippool",node="unknown_node"} 1
ipam_allocations_gc_reclamations{ippool="p",node="n1"} 1
ipam_allocations_in_use{ippool="p",node="n1"} 0
ipam_allocations_in_use{ippool="q",node="n1"} 0
`},
	} {
		c.Addresses(tt.is)
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, f := range all {
			if !slices.Contains(names, f.GetName()) {
				continue
			}
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				fmt.Fprintf(&got, "%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
		if got.String() != strings.TrimPrefix(tt.want, "\n") {
			t.Errorf("%s: got\n%s\nwant%s", tt.name, got.String(), tt.want)
		}
	}
}
