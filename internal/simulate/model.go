package simulate

import (
	"math"
	"time"
)

// The model of convergence, in virtual time. Writers come as a Poisson process. The store commits each change after a fixed time,
// and then sends its messages to all agents, one after the other, change by change, with all its cores: a queue with one server, whose
// speed is cores ÷ send. Each agent is a queue with one server: it takes changes one by one, each for as long as the calculated agents took
// for one of this kind, its own or another's. A change has converged at an agent when that has calculated it; what the kernel then takes
// is in docs/benchmarks.md. The order of agents is another for each change.

// converged is how long changes took to be calculated: by one agent, and by the last of all.
type converged struct{ one, last histogram }

// seconds an agent takes for a change, by its kind and whether it is its own.
type service [kinds][2]float64

func (p *plan) converge(of service) (c converged) {
	send := p.Store.Send.Seconds() / p.Store.Cores
	free := make([]float64, p.Nodes) // when each agent is
	storeFree := 0.0
	for i, t := range p.events {
		at := t.at.Seconds()
		sent := max(at+p.Store.Commit.Seconds(), storeFree)
		each := float64(t.messages) * send
		last := 0.0
		for j := range p.Nodes {
			n := (j + i*7919) % p.Nodes
			sent += each
			own := 0
			if t.event.local(n, p.applies) {
				own = 1
			}
			free[n] = max(sent, free[n]) + of[t.kind][own]
			c.one.add(free[n] - at)
			last = max(last, free[n]-at)
		}
		storeFree = sent
		c.last.add(last)
	}
	return c
}

// histogram counts times, by ranges each 2 % longer than the one before.
type histogram struct {
	count [1200]int
	total int
}

const (
	shortest = 1e-6 // a second's
	wider    = 1.02
)

func (h *histogram) add(seconds float64) {
	i := int(math.Log(max(seconds, shortest)/shortest) / math.Log(wider))
	h.count[min(i, len(h.count)-1)]++
	h.total++
}

// quantile is the upper end of the range in which it is.
func (h *histogram) quantile(q float64) time.Duration {
	left := int(math.Ceil(q * float64(h.total)))
	for i, n := range h.count {
		if left -= n; left <= 0 {
			return time.Duration(shortest * math.Pow(wider, float64(i+1)) * float64(time.Second))
		}
	}
	return 0
}
