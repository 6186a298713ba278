package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
)

// plan is what is known of all agents before any is calculated.
type plan struct {
	*world
	applies applies
	sample  []int // nodes, sorted

	events   []timing
	mine     map[int]int   // changes of a node's own, by node; policies apart
	counts   [kinds][2]int // changes × agents, by kind and whether it is of the node's own
	per      [kinds]int    // changes
	messages load          // to each agent
	ofBlocks load          // of them
	writes   int
}

// timing is what the model must know of a change.
type timing struct {
	kind     kind
	messages uint8
	at       time.Duration
	event    event // without its updates
}

func newPlan(w *world) *plan {
	p := &plan{world: w, mine: map[int]int{}}
	c := newChurn(w)
	for range w.Config.events() {
		e := c.step()
		p.messages.add(e.updates...)
		for _, u := range e.updates {
			if _, block := api.ParseBlockKey(u.Key); block {
				p.ofBlocks.add(u)
			}
		}
		p.writes += e.writes
		p.per[e.kind]++
		t := timing{kind: e.kind, messages: uint8(len(e.updates)), at: e.at, event: e} //nolint:gosec // four at most
		t.event.updates = nil
		p.events = append(p.events, t)
		for _, n := range e.nodes {
			if n >= 0 {
				p.mine[n]++
			}
		}
	}
	p.applies = w.appliesWhere(c.policies)
	for _, t := range p.events {
		own := 0
		for _, n := range t.event.nodes {
			if n >= 0 {
				own++
			}
		}
		if t.kind == ruled {
			for n := range w.Nodes {
				if p.applies.has(t.event.policy, n) {
					own++
				}
			}
		}
		p.counts[t.kind][1] += own
		p.counts[t.kind][0] += w.Nodes - own
	}
	p.sample = p.choose()
	return p
}

// choose draws the agents to calculate: half of them those with the most changes of their own, so that there is something to
// learn from where few are, and the others at random.
func (p *plan) choose() []int {
	busy := p.all()
	rand.New(rand.NewPCG(p.Seed, 2)).Shuffle(len(busy), func(i, j int) { busy[i], busy[j] = busy[j], busy[i] }) //nolint:gosec // no secret
	chosen := busy[:p.Sample/2]
	rest := slices.Clone(busy[p.Sample/2:])
	slices.SortStableFunc(rest, func(a, b int) int { return cmp.Compare(p.mine[b], p.mine[a]) })
	return slices.Sorted(slices.Values(append(slices.Clone(chosen), rest[:p.Sample-p.Sample/2]...)))
}

func (p *plan) all() []int {
	out := make([]int, p.Nodes)
	for i := range out {
		out[i] = i
	}
	return out
}
