package simulate

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twillnet/twill/api"
)

// kind of a change.
type kind uint8

const (
	added kind = iota // an endpoint
	removed
	moved    // to another node, with another address
	labelled // an endpoint is of another application
	ruled    // a policy has another rule
	kinds    = iota
)

// mix is how many changes of a hundred are of each kind.
var mix = [kinds]int{added: 30, removed: 30, moved: 20, labelled: 15, ruled: 5}

// event is one change.
type event struct {
	kind    kind
	at      time.Duration // since the start, in virtual time
	updates []api.Update  // that each agent gets
	writes  int           // keys that its writers change, those included that no agent watches
	policy  int           // of a change of one
	nodes   [2]int        // whose own endpoints change; -1: none
}

// local reports whether the change is of something of a node's own: one of its endpoints, or a policy that applied to one at the start.
func (e event) local(node int, a applies) bool {
	if e.kind == ruled {
		return a.has(e.policy, node)
	}
	return e.nodes[0] == node || e.nodes[1] == node
}

// churn makes the changes, the same ones each time: it depends on the world alone.
type churn struct {
	*world
	rand     *rand.Rand
	at       time.Duration
	count    int         // events so far
	total    int         // endpoints that ever were
	alive    int         // endpoints that are
	changed  map[int]pod // that are not as they were at the start
	gone     map[int]bool
	next     map[int]int // slots, of nodes that got endpoints
	blocks   map[int]*blockState
	policies map[int]int // how often each was changed
}

// blockState is a block that is not as it was at the start.
type blockState struct {
	has    map[int]pod
	writes int
}

func newChurn(w *world) *churn {
	return &churn{
		world: w, rand: rand.New(rand.NewPCG(w.Seed, 1)), total: w.Endpoints, alive: w.Endpoints, //nolint:gosec // no secret
		changed: map[int]pod{}, gone: map[int]bool{}, next: map[int]int{}, blocks: map[int]*blockState{}, policies: map[int]int{},
	}
}

// step is the next change.
func (c *churn) step() event {
	c.at += time.Duration(c.rand.ExpFloat64() / c.Churn * float64(time.Second)) // a Poisson process
	c.count++
	e := event{kind: c.kind(), at: c.at, nodes: [2]int{-1, -1}}
	switch e.kind {
	case added:
		p := c.place(pod{index: c.total}, c.rand.IntN(c.Nodes))
		c.total++
		c.alive++
		e.nodes[0], e.writes = p.node, 3 // with its handle
		e.updates = []api.Update{c.endpoint(p), c.take(p)}
	case removed:
		p := c.any()
		c.gone[p.index] = true
		delete(c.changed, p.index)
		c.alive--
		e.nodes[0], e.writes = p.node, 3
		e.updates = []api.Update{{Key: c.endpoint(p).Key}, c.leave(p)}
	case moved:
		from := c.any()
		to := c.place(from, (from.node+1+c.rand.IntN(c.Nodes-1))%c.Nodes)
		e.nodes, e.writes = [2]int{from.node, to.node}, 6
		e.updates = []api.Update{{Key: c.endpoint(from).Key}, c.leave(from), c.endpoint(to), c.take(to)}
	case labelled:
		p := c.any()
		p.gen++
		c.changed[p.index] = p
		e.nodes[0], e.writes = p.node, 1
		e.updates = []api.Update{c.endpoint(p)}
	case ruled:
		e.policy, e.writes = c.rand.IntN(c.Policies), 1
		c.policies[e.policy]++
		e.updates = []api.Update{c.policy(e.policy, c.policies[e.policy])}
	}
	for i := range e.updates {
		e.updates[i].Revision = api.RevisionOf(strconv.Itoa(1 + c.count))
	}
	return e
}

// kind draws one that is possible now.
func (c *churn) kind() kind {
	k, at := added, c.rand.IntN(100)
	for at >= mix[k] {
		at -= mix[k]
		k++
	}
	switch {
	case k == ruled && c.Policies == 0, k == moved && c.Nodes == 1:
		k = labelled
	case k == removed && c.alive < 2:
		k = added
	}
	return k
}

// any draws an endpoint.
func (c *churn) any() pod {
	for {
		i := c.rand.IntN(c.total)
		if p, ok := c.changed[i]; ok {
			return p
		}
		if !c.gone[i] {
			return c.first(i)
		}
	}
}

// place puts an endpoint on a node, or on the next one that has an address for it.
func (c *churn) place(p pod, node int) pod {
	for ; ; node = (node + 1) % c.Nodes {
		slot, known := c.next[node]
		if !known {
			slot = (c.Endpoints - node + c.Nodes - 1) / c.Nodes
		}
		if slot < c.blocksPerNode*blockSize {
			c.next[node] = slot + 1
			p.node, p.slot = node, slot
			c.changed[p.index] = p
			return p
		}
	}
}

func (c *churn) take(p pod) api.Update {
	block, ordinal := c.block(p)
	s := c.stateOf(block)
	s.has[ordinal] = p
	return c.blockUpdate(block, s.has, s.writes)
}

func (c *churn) leave(p pod) api.Update {
	block, ordinal := c.block(p)
	s := c.stateOf(block)
	delete(s.has, ordinal)
	return c.blockUpdate(block, s.has, s.writes)
}

func (c *churn) stateOf(block int) *blockState {
	s := c.blocks[block]
	if s == nil {
		s = &blockState{has: c.firstBlock(block), writes: 1}
		c.blocks[block] = s
	}
	s.writes++
	return s
}

// applies says which nodes have an endpoint to which a policy applied at the start, for policies that change.
type applies map[int][]uint64

func (a applies) has(policy, node int) bool {
	nodes := a[policy]
	return nodes != nil && nodes[node/64]&(1<<(node%64)) != 0
}

// appliesWhere asks each endpoint once.
func (w *world) appliesWhere(policies map[int]int) applies {
	type subject struct{ ns, x int }
	asked := map[subject][]int{}
	a := applies{}
	for i := range policies {
		ns, x := w.subjectOf(i)
		asked[subject{ns, x}] = append(asked[subject{ns, x}], i)
		a[i] = make([]uint64, w.Nodes/64+1)
	}
	if len(asked) == 0 {
		return a
	}
	for i := range w.Endpoints {
		p := w.first(i)
		ns := w.namespace(p)
		for _, s := range []subject{{ns, w.app(p)}, {-1, w.team(ns)}} {
			for _, policy := range asked[s] {
				a[policy][p.node/64] |= 1 << (p.node % 64)
			}
		}
	}
	return a
}
