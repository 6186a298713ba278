package simulate

import (
	"fmt"
	"math"
)

// seen is what some agents say of all.
type seen struct {
	*plan
	of   []result
	mean [kinds][2]cost // the sums of changes, by kind and whether they are of the agent's own; no sort is without any
}

var (
	everyKind  = []kind{added, removed, moved, labelled, ruled}
	ofEndpoint = []kind{added, removed, moved, labelled}
)

// What is asked of a cost.
func cpuOf(c cost) float64        { return c.cpu().Seconds() }
func intentsOf(c cost) float64    { return float64(c.intents) }
func operationsOf(c cost) float64 { return float64(c.operations) }

func (p *plan) seen(of []result) *seen {
	s := &seen{plan: p, of: of}
	var all cost
	for _, r := range of {
		for k := range kinds {
			for own := range 2 {
				s.mean[k][own].add(r.churn[k][own])
				all.add(r.churn[k][own])
			}
		}
	}
	sums := s.mean
	for k := range kinds {
		for own := range 2 {
			// Where the sample has none of a sort, the nearest sort stands for it.
			for _, near := range []cost{sums[k][own], sums[k][1-own], all} {
				if near.events > 0 {
					s.mean[k][own] = near
					break
				}
			}
		}
	}
	return s
}

// one is what a change of a sort costs an agent.
func (s *seen) one(k kind, own int, what func(cost) float64) float64 {
	return what(s.mean[k][own]) / float64(s.mean[k][own].events)
}

// each is what a change costs, as a mean over changes × agents.
func (s *seen) each(what func(cost) float64, of []kind, owns ...int) float64 {
	sum, count := 0.0, 0.0
	for _, k := range of {
		for _, own := range owns {
			sum += s.one(k, own, what) * float64(s.counts[k][own])
			count += float64(s.counts[k][own])
		}
	}
	return sum / max(count, 1)
}

// agents is a mean over agents.
func (s *seen) agents(what func(result) float64) float64 {
	sum := 0.0
	for _, r := range s.of {
		sum += what(r)
	}
	return sum / float64(len(s.of))
}

func (s *seen) heap(what func(heaps) int64) float64 {
	return s.agents(func(r result) float64 { return float64(what(r.heap)) })
}

// busy is the time for which the store's processors send for one change.
func (s *seen) busy() float64 {
	messages := float64(s.messages.keys) / float64(len(s.events))
	return messages * float64(s.Nodes) * s.Store.Send.Seconds() / s.Store.Cores
}

// figures are those that some agents say of all.
func (p *plan) figures(of []result) ([]Figure, Limit) {
	s := p.seen(of)
	fs := append(append(s.store(), s.agent()...), s.convergence()...)
	limit := Limit{1 / max(s.each(cpuOf, everyKind, 0, 1), math.SmallestNonzeroFloat64), "agent"}
	store := 1 / max(s.busy(), math.SmallestNonzeroFloat64)
	fs = append(
		fs,
		Figure{Name: "limit-store", Value: store, Unit: PerSec, Known: Modelled, About: fmt.Sprintf("changes that the store can send, with %v cores (--store-cores)", p.Store.Cores)},
		Figure{Name: "limit-agent", Value: limit.Changes, Unit: PerSec, Known: Modelled, About: "changes that an agent can calculate, with one core"},
	)
	if store < limit.Changes {
		limit = Limit{store, "store"}
	}
	return fs, limit
}

func (s *seen) store() []Figure {
	n, seconds, listed := float64(s.Nodes), s.Duration.Seconds(), s.of[0].listed
	messages, bytes := float64(s.messages.keys)*n/seconds, float64(s.messages.bytes)*n/seconds
	return []Figure{
		{Name: "store-keys", Value: float64(listed.keys + s.Endpoints + s.Nodes*s.blocksPerNode), Known: Counted, About: "keys in the store, with those that no agent watches: handles, affinities"},
		{Name: "store-bytes", Value: float64(listed.bytes), Unit: Bytes, Known: Counted, About: "of keys and values that each agent lists when it starts"},
		{Name: "store-lists", Value: float64(listed.bytes) * n, Unit: Bytes, Known: Counted, About: "sent when all agents start"},
		{Name: "store-watches", Value: n * float64(len(watched)), Known: Counted, About: "watches of agents"},
		{Name: "store-writes", Value: float64(s.writes) / seconds, Unit: PerSec, Known: Counted, About: "keys written, with those that no agent watches"},
		{Name: "store-messages", Value: messages, Unit: PerSec, Known: Counted, About: "messages to all agents"},
		{Name: "store-sends", Value: bytes, Unit: BytesPS, Known: Counted, About: "keys and values in those messages"},
		{Name: "store-sends-blocks", Value: 100 * float64(s.ofBlocks.bytes) / float64(s.messages.bytes), Unit: Percent, Known: Counted, About: "of them are blocks of addresses, of which an agent reads the owner"},
		{Name: "store-cpu", Value: messages * s.Store.Send.Seconds(), Unit: Cores, Known: Modelled, About: fmt.Sprintf("to send them, at %v each (--store-send)", s.Store.Send)},
	}
}

func (s *seen) agent() []Figure {
	n := float64(s.Nodes)
	change, heap := s.each(cpuOf, everyKind, 0, 1), s.heap(heaps.sum)
	operations := s.each(operationsOf, everyKind, 0, 1)
	return []Figure{
		{Name: "agent-heap", Value: heap, Unit: Bytes, Known: Measured, About: "an agent's heap after garbage was collected, in sum"},
		{Name: "agent-heap-syncer", Value: s.heap(func(h heaps) int64 { return h.syncer }), Unit: Bytes, Known: Measured, About: "of it: which version of each key it has"},
		{Name: "agent-heap-calc", Value: s.heap(func(h heaps) int64 { return h.calc }), Unit: Bytes, Known: Measured, About: "of it: labels, addresses, selectors, intents"},
		{Name: "agent-heap-dataplane", Value: s.heap(func(h heaps) int64 { return h.dataplane }), Unit: Bytes, Known: Measured, About: "of it: desired state, and a copy of what is in the kernel"},
		{Name: "agent-start-cpu", Value: s.agents(func(r result) float64 { return r.start.cpu().Seconds() }), Unit: Seconds, Known: Measured, About: "processor time to calculate all at the start, once the list is read"},
		{Name: "agent-change-cpu", Value: change, Unit: Seconds, Known: Measured, About: "processor time for one change, of any kind"},
		{Name: "agent-change-syncer", Value: s.each(func(c cost) float64 { return c.syncer.Seconds() }, everyKind, 0, 1), Unit: Seconds, Known: Measured, About: "of it: to receive it and see that it is new"},
		{Name: "agent-change-calc", Value: s.each(func(c cost) float64 { return c.calc.Seconds() }, everyKind, 0, 1), Unit: Seconds, Known: Measured, About: "of it: to decode it and work out intents"},
		{Name: "agent-change-dataplane", Value: s.each(func(c cost) float64 { return c.dataplane.Seconds() }, everyKind, 0, 1), Unit: Seconds, Known: Measured, About: "of it: to work out desired state, and note it in memory"},
		{Name: "agent-own-cpu", Value: s.each(cpuOf, ofEndpoint, 1), Unit: Seconds, Known: Measured, About: "for one of an own endpoint"},
		{Name: "agent-others-cpu", Value: s.each(cpuOf, ofEndpoint, 0), Unit: Seconds, Known: Measured, About: "for one of another node's endpoint"},
		{Name: "agent-policy-cpu", Value: s.each(cpuOf, []kind{ruled}, 0, 1), Unit: Seconds, Known: Measured, About: "for one of a policy"},
		{Name: "agent-cpu", Value: 100 * change * s.Churn, Unit: Percent, Known: Measured, About: "of a core, at this churn"},
		{Name: "agent-intents", Value: s.each(intentsOf, everyKind, 0, 1), Known: Estimated, About: "intents that follow from a change, on a node"},
		{Name: "agent-operations", Value: operations, Known: Estimated, About: "operations on the kernel that follow from a change, on a node"},
		{Name: "cluster-heap", Value: heap * n, Unit: Bytes, Known: Measured, About: "of all agents"},
		{Name: "cluster-operations", Value: operations * n * float64(len(s.events)) / s.Duration.Seconds(), Unit: PerSec, Known: Estimated, About: "operations on all kernels"},
	}
}

func (s *seen) convergence() []Figure {
	var took service
	for k := range took {
		for own := range took[k] {
			took[k][own] = s.one(kind(k), own, cpuOf) //nolint:gosec // one of the kinds
		}
	}
	c := s.converge(took)
	figure := func(name string, h *histogram, q float64, about string) Figure {
		return Figure{Name: name, Value: h.quantile(q).Seconds(), Unit: Seconds, Known: Modelled, About: about}
	}
	return []Figure{
		figure("converged-p50", &c.one, .5, "from the write until an agent has calculated it: half of all"),
		figure("converged-p99", &c.one, .99, "99 of 100"),
		figure("converged-last-p50", &c.last, .5, "until the last agent has: half of all changes"),
		figure("converged-last-p99", &c.last, .99, "99 of 100"),
	}
}
