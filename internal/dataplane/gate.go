package dataplane

import (
	"errors"
	"fmt"

	"github.com/twillnet/twill/internal/intent"
)

var errNotReadBack = errors.New("it cannot be read back from the kernel")

// gate tracks the endpoints whose policy is in force.
type gate struct {
	open  bool                         // there is no policy driver to wait for
	ready bool                         // a complete policy transaction was applied
	sync  bool                         // the source is in sync, so that the next transaction is complete
	links map[intent.EndpointID]string // the interface of each endpoint that waits because its present policy is not in force
	count map[string]int               // number of waiting endpoints by interface
}

func newGate(open bool) gate {
	return gate{open: open, ready: open, links: map[intent.EndpointID]string{}, count: map[string]int{}}
}

// held reports whether no new path through the interface may be opened.
func (g *gate) held(link string) bool { return g.count[link] > 0 }

func (g *gate) merge(b intent.Batch) {
	g.sync = g.sync || b.InSync
	if g.open {
		return
	}
	for _, e := range b.Endpoints {
		g.settle(e.ID)
		g.links[e.ID] = e.Link
		g.count[e.Link]++
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.EndpointID); ok {
			g.settle(id)
		}
	}
}

// settle ends the waiting of an endpoint.
func (g *gate) settle(id intent.EndpointID) {
	link, waits := g.links[id]
	if !waits {
		return
	}
	delete(g.links, id)
	if g.count[link]--; g.count[link] == 0 {
		delete(g.count, link)
	}
}

// secure notes that the policy driver applied everything except bad. It returns the endpoints that wait no longer,
// and whether anything opened. Before the source is in sync nothing does: the kernel has what an earlier agent left, and nothing of a
// new endpoint.
func (g *gate) secure(bad map[intent.Key]bool) (settled []intent.Outcome, opened bool) {
	if !g.sync {
		return nil, false
	}
	for id := range g.links {
		if !bad[id] {
			g.settle(id)
			settled = append(settled, intent.Outcome{Key: id})
		}
	}
	opened = len(settled) > 0 || !g.ready
	g.ready = true
	return settled, opened
}

// failAll returns an outcome with err for all endpoints that wait, when the policy driver failed as a whole.
func (g *gate) failAll(err error) []intent.Outcome {
	var out []intent.Outcome
	for id := range g.links {
		out = append(out, intent.Outcome{Key: id, Err: fmt.Errorf("policy: %w", err)})
	}
	return out
}
