package metrics

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
)

// Controllers is the metrics of the cluster's controllers.
type Controllers struct {
	*Metrics
	leads                                prometheus.Gauge
	size                                 *prometheus.GaugeVec
	inUse, borrowed, blocks, candidates  *prometheus.GaugeVec
	nodeInUse, nodeBorrowed, nodeBlocks  *prometheus.GaugeVec
	reclaimed, nodesDeleted, reconciling *prometheus.CounterVec
	failing                              *prometheus.GaugeVec
	counted                              map[Share]bool // of reclaimed, as its labels say it
}

// NewControllers registers them. Those of addresses have the names and labels that upstream's controllers have.
func NewControllers(reg prometheus.Registerer) *Controllers {
	c := &Controllers{Metrics: &Metrics{reg: reg}, counted: map[Share]bool{}}
	c.leads = c.gauge("twill_controllers_leader", "1 in the process that acts, 0 in those that wait to take over.").WithLabelValues()
	c.size = c.gauge("ipam_ippool_size", "Addresses of a pool.", "ippool")
	c.inUse = c.gauge("ipam_allocations_in_use", "Addresses in use, by the pool and the node for which they were allocated.", "ippool", "node")
	c.borrowed = c.gauge("ipam_allocations_borrowed", "Those of them that are in another node's block.", "ippool", "node")
	c.blocks = c.gauge("ipam_blocks", "Blocks of a pool, by the node that has them.", "ippool", "node")
	c.candidates = c.gauge("ipam_allocations_gc_candidates", "Addresses that nobody seems to have, until the grace period is over.", "ippool", "node")
	c.reclaimed = c.counter("ipam_allocations_gc_reclamations", "Leaked addresses that were freed.", "ippool", "node")
	c.nodeInUse = c.gauge("ipam_allocations_per_node", "Addresses in use.", "node")
	c.nodeBorrowed = c.gauge("ipam_allocations_borrowed_per_node", "Those of them that are in another node's block.", "node")
	c.nodeBlocks = c.gauge("ipam_blocks_per_node", "Blocks.", "node")
	c.nodesDeleted = c.counter("twill_controllers_nodes_deleted_total", "Nodes that left Kubernetes, and of which what hung on them was deleted.")
	c.reconciling = c.counter("twill_controllers_reconcile_total", "Turns of a controller, by how they ended: ok or error.", "controller", "result")
	c.failing = c.gauge("twill_controllers_failing", "What a controller looks after, such as services, of which the last turn failed.", "controller")
	return c
}

// Failing says of how much of what a controller looks after the last turn failed.
func (c *Controllers) Failing(controller string, n int) {
	c.failing.WithLabelValues(controller).Set(float64(n))
}

// Leads says whether this process acts.
func (c *Controllers) Leads(yes bool) { c.leads.Set(number(yes)) }

// NodeDeleted counts a node of which all is deleted.
func (c *Controllers) NodeDeleted() { c.nodesDeleted.WithLabelValues().Inc() }

// Reconciled counts a turn of a controller.
func (c *Controllers) Reconciled(controller string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	c.reconciling.WithLabelValues(controller, result).Inc()
}

// What upstream's controllers call those that there are not: its poolManager and ipamController.
const (
	noPool      = "no_ippool"
	noOwner     = "no_affinity"  // of a block
	unknownNode = "unknown_node" // of an address
)

// Reclaimed counts an address that was freed. It and Addresses are called by one goroutine.
func (c *Controllers) Reclaimed(pool, node string) {
	s := Share{cmp.Or(pool, noPool), cmp.Or(node, unknownNode)}
	c.counted[s] = true
	c.reclaimed.WithLabelValues(s.Pool, s.Node).Inc()
}

// forget takes away what was reclaimed of pools, and for nodes, that are gone, as upstream's poolManager and cleanupNode do.
func (c *Controllers) forget(a Addresses) {
	nodes := map[string]bool{unknownNode: true}
	for _, n := range a.Nodes {
		nodes[n] = true
	}
	for _, counts := range []map[Share]int{a.InUse, a.Blocks} { // what a node left is its until that is gone, too
		for s := range counts {
			nodes[s.Node] = true
		}
	}
	for s := range c.counted {
		if _, there := a.Size[s.Pool]; !there && s.Pool != noPool || !nodes[s.Node] {
			c.reclaimed.DeleteLabelValues(s.Pool, s.Node)
			delete(c.counted, s)
		}
	}
}

// Share is what a node has of a pool. Empty names are those of no pool, or of no known node.
type Share struct{ Pool, Node string }

// Addresses are how many there are.
type Addresses struct {
	Size                                map[string]float64 // by pool
	Nodes                               []string           // that there are
	InUse, Borrowed, Blocks, Candidates map[Share]int
}

// Addresses replaces what was said of them. Of each pool and node that there is it says zero where there is nothing, except of blocks, so that a
// query which divides one by the other has an answer, as upstream's createZeroedMapForNodeValues does.
func (c *Controllers) Addresses(a Addresses) {
	c.forget(a)
	c.size.Reset()
	for pool, n := range a.Size {
		c.size.WithLabelValues(pool).Set(n)
	}
	for _, set := range []struct {
		of, byNode *prometheus.GaugeVec
		counts     map[Share]int
		nobody     string
		zeros      bool
	}{
		{c.inUse, c.nodeInUse, a.InUse, unknownNode, true},
		{c.borrowed, c.nodeBorrowed, a.Borrowed, unknownNode, true},
		{c.blocks, c.nodeBlocks, a.Blocks, noOwner, false},
		{c.candidates, nil, a.Candidates, unknownNode, true},
	} {
		set.of.Reset()
		for pool := range a.Size {
			for i := 0; set.zeros && i < len(a.Nodes); i++ {
				set.of.WithLabelValues(pool, a.Nodes[i])
			}
		}
		if set.byNode != nil {
			set.byNode.Reset()
		}
		for s, n := range set.counts {
			node := cmp.Or(s.Node, set.nobody)
			set.of.WithLabelValues(cmp.Or(s.Pool, noPool), node).Set(float64(n))
			if set.byNode != nil {
				set.byNode.WithLabelValues(node).Add(float64(n))
			}
		}
	}
}
