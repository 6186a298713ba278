package simulate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/syncer"
)

// cost is what an agent did for changes.
type cost struct {
	events, messages, intents, operations int
	syncer, calc, dataplane               time.Duration // processor time, of garbage collection included
}

func (c *cost) add(o cost) {
	c.events += o.events
	c.messages += o.messages
	c.intents += o.intents
	c.operations += o.operations
	c.syncer += o.syncer
	c.calc += o.calc
	c.dataplane += o.dataplane
}

func (c cost) cpu() time.Duration { return c.syncer + c.calc + c.dataplane }

// result is what was seen of an agent.
type result struct {
	node   int
	start  cost
	listed load
	churn  [kinds][2]cost // by kind, and whether the change was of the node's own
	heap   heaps
	state  string // a hash of its intents at the end
}

// heaps are bytes on the heap that stay when garbage was collected, of each part.
type heaps struct{ syncer, calc, dataplane int64 }

func (h heaps) sum() int64 { return h.syncer + h.calc + h.dataplane }

// chunk is how many changes are made at once: what making them costs is not the agent's.
const chunk = 64

// agent is one in full: all that an agent does between its datastore and its kernel.
type agent struct {
	*plan
	node   int
	source *source
	syncer *syncer.Syncer
	graph  *calc.Graph
	plane  *sim.Dataplane
	stop   func()
}

func calculate(ctx context.Context, p *plan, node int) (result, error) {
	before := heap()
	a := &agent{plan: p, node: node, source: newSource(p.world)}
	r := result{node: node}
	defer func() { a.stop() }()
	if err := a.begin(ctx, &r); err != nil {
		return r, err
	}
	if err := a.follow(ctx, &r); err != nil {
		return r, err
	}
	if err := a.plane.Check(); err != nil {
		return r, err
	}
	if why := a.graph.Problems(); len(why) > 0 {
		return r, fmt.Errorf("%s: %s", why[0].Key, why[0].Reason)
	}
	r.state = hash(a.graph.Intents())
	all := heap()
	a.plane = nil
	withCalc := heap()
	a.graph = nil
	withSyncer := heap()
	a.stop()
	a.syncer, a.source = nil, nil
	r.heap = heaps{syncer: withSyncer - before, calc: withCalc - withSyncer, dataplane: all - withCalc}
	runtime.KeepAlive(a)
	return r, nil
}

// begin starts the agent, until it is in sync.
func (a *agent) begin(ctx context.Context, r *result) error {
	a.Progress.Now(fmt.Sprintf("%s starts", a.nodeName(a.node)))
	ctx, cancel := context.WithCancel(ctx)
	a.syncer = syncer.New(a.source, syncer.Config{Prefixes: watched})
	var running sync.WaitGroup
	running.Go(func() { _ = a.syncer.Run(ctx) }) // its error is the context's
	a.stop = func() { cancel(); running.Wait() }
	a.graph = calc.New(a.nodeName(a.node))
	a.plane = sim.NewDataplane(desired.Config{})
	a.plane.Trusting = true
	var batches []syncer.Batch
	for in := false; !in; { // all of them first: the world is made while it is listed, and what that costs is not the agent's
		b, err := a.next(ctx)
		if err != nil {
			return err
		}
		r.listed.add(b.Updates...)
		batches, in = append(batches, b), b.InSync
	}
	start := a.CPU()
	for _, b := range batches {
		a.graph.Update(b.Updates)
	}
	a.graph.SetInSync()
	r.start.calc = a.CPU() - start
	return a.carryOut(ctx, a.flush(&r.start), &r.start)
}

func (a *agent) next(ctx context.Context) (syncer.Batch, error) {
	select {
	case b, ok := <-a.syncer.Batches():
		if !ok {
			return b, errors.New("its syncer ended")
		}
		return b, nil
	case <-ctx.Done():
		return syncer.Batch{}, ctx.Err()
	}
}

func (a *agent) flush(c *cost) intent.Batch {
	start := a.CPU()
	b := a.graph.Flush()
	c.calc += a.CPU() - start
	c.intents += len(b.IPSets) + len(b.Members) + len(b.Policies) + len(b.Endpoints) + len(b.Routes) + len(b.Removed)
	if b.Host != nil {
		c.intents++
	}
	return b
}

// carryOut makes a batch so. A route is an operation, too.
func (a *agent) carryOut(ctx context.Context, b intent.Batch, c *cost) error {
	start, before := a.CPU(), a.plane.Operations
	a.plane.Merge(b)
	_, err := a.plane.Apply(ctx)
	c.dataplane += a.CPU() - start
	c.operations += a.plane.Operations - before + len(b.Routes)
	for _, k := range b.Removed {
		if _, route := k.(intent.RouteID); route {
			c.operations++
		}
	}
	return err
}

// follow has the agent take all changes.
func (a *agent) follow(ctx context.Context, r *result) error {
	a.Progress.Now(fmt.Sprintf("%s follows %d changes", a.nodeName(a.node), len(a.events)))
	c := newChurn(a.world)
	var es []event
	for left := len(a.events); left > 0; left -= len(es) {
		es = es[:0]
		for range min(chunk, left) {
			es = append(es, c.step())
		}
		for _, e := range es {
			own := 0
			if e.local(a.node, a.applies) {
				own = 1
			}
			of, err := a.change(ctx, e.updates)
			if err != nil {
				return err
			}
			r.churn[e.kind][own].add(of)
		}
	}
	return nil
}

// change has the agent take one change.
func (a *agent) change(ctx context.Context, us []api.Update) (cost, error) {
	c := cost{events: 1, messages: len(us)}
	start := a.CPU()
	if err := a.source.push(ctx, us); err != nil {
		return c, err
	}
	var got []api.Update
	for len(got) < len(us) {
		b, err := a.next(ctx)
		if err != nil {
			return c, err
		}
		got = append(got, b.Updates...)
	}
	c.syncer = a.CPU() - start
	start = a.CPU()
	a.graph.Update(got)
	c.calc = a.CPU() - start
	b := a.flush(&c)
	if b.Empty() {
		return c, nil // as in an agent: most changes do not concern it
	}
	return c, a.carryOut(ctx, b, &c)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no machine has as much
}

// hash is short for all that an agent wants of its kernel.
func hash(s calc.State) string {
	h := sha256.New()
	to := json.NewEncoder(h)
	for _, x := range s.IPSets {
		must(to.Encode(x))
	}
	for _, x := range s.Policies {
		must(to.Encode(x))
	}
	for _, x := range s.Endpoints {
		must(to.Encode(x))
	}
	must(to.Encode(s.Routes))
	must(to.Encode(s.Host))
	return hex.EncodeToString(h.Sum(nil)[:8])
}
