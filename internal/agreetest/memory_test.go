package agreetest

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
	"github.com/twillnet/twill/internal/verdict/world"
)

// memorySteps is how often each world changes.
const memorySteps = 4

// TestMemoryAgrees: what is desired, carried out in memory, does to packets what verdict and world say, and so without a kernel what
// TestKernelAgrees and TestKernelAgreesOnAnyPath find with one: of random worlds, at once and step by step.
func TestMemoryAgrees(t *testing.T) {
	seed := seedtest.New(t)
	asked, allowed := 0, 0
	for i := range *worlds {
		m := newMemory(t, rand.New(rand.NewPCG(seed, uint64(i))))
		for range memorySteps {
			n, passed := m.agrees(t)
			asked, allowed = asked+n, allowed+passed
			if t.Failed() {
				t.Fatalf("world %d", i)
			}
			m.walk(t)
		}
	}
	if !*brief && (asked < 10**worlds || allowed < asked/5) {
		t.Errorf("%d packets, of which %d are allowed: too few to show anything", asked, allowed)
	}
}

// memoryNode is one world, and a node that follows it in memory.
type memoryNode struct {
	rng     *rand.Rand
	world   *calctest.Cluster
	good    calctest.LastGood
	graph   *calc.Graph
	node    *sim.Dataplane
	take    func(intent.Batch) *sim.Dataplane // the node after a batch
	verdict verdict.State
	routes  map[string]intent.Route
}

func newMemory(t *testing.T, rng *rand.Rand) *memoryNode {
	node := sim.NewDataplane(desired.Config{})
	node.Links(ownLinks())
	return memoryOf(t, rng, func(b intent.Batch) *sim.Dataplane {
		node.Merge(b)
		_, err := node.Apply(t.Context())
		must(t, err)
		return node
	})
}

// ownLinks are the host's interfaces.
func ownLinks() []desired.Addrs {
	return []desired.Addrs{{Link: uplink, Addrs: []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)}}}
}

func memoryOf(t *testing.T, rng *rand.Rand, take func(intent.Batch) *sim.Dataplane) *memoryNode {
	m := &memoryNode{
		rng: rng, world: calctest.Random(rng, calctest.Config{Workloads: workloads, Services: true, Unlimited: true}), good: calctest.LastGood{}, graph: calc.New(nodeName),
		take: take, routes: map[string]intent.Route{},
	}
	for _, l := range ownLinks() {
		m.verdict.SetLink(l.Link, l.Addrs)
	}
	m.graph.Update(m.good.Keep(m.world.State()))
	m.graph.SetInSync()
	m.apply(t)
	return m
}

// walk makes some changes, each by itself.
func (m *memoryNode) walk(t *testing.T) {
	t.Helper()
	for range 1 + m.rng.IntN(6) {
		for _, u := range m.good.Keep(change(m.world, m.rng)) {
			m.graph.Update([]api.Update{u})
			m.apply(t)
		}
	}
}

func (m *memoryNode) apply(t *testing.T) {
	t.Helper()
	b := m.graph.Flush()
	m.node = m.take(b)
	m.verdict.Merge(b)
	follow(m.routes, b)
}

// follow keeps the routes that there are.
func follow(routes map[string]intent.Route, b intent.Batch) {
	for _, r := range b.Routes {
		routes[r.Dst.String()] = r
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.RouteID); ok {
			delete(routes, id.String())
		}
	}
}

func values(m map[string]intent.Route) (out []intent.Route) {
	for _, r := range m {
		if r.Kind == intent.RouteLink {
			out = append(out, r)
		}
	}
	return out
}

// agrees asks all of packets.
func (m *memoryNode) agrees(t *testing.T) (asked, allowed int) {
	t.Helper()
	links := linksOf(intent.Batch{Routes: values(m.routes)})
	a := asker{
		node: &node{t: t, sent: map[packet.Packet]bool{}}, world: m.world, rng: m.rng, oracle: world.New(m.good.State()), links: links, contested: contested(m.good),
	}
	for _, q := range a.questions(*each) {
		p := verdict.Packet{
			InLink: inLink(q, links), OutLink: outLink(q, links), Src: q.Src, Dst: q.Dst, Proto: q.Proto,
			SrcPort: q.SrcPort, DstPort: q.DstPort, ICMPType: q.ICMPType, ICMPCode: q.ICMPCode,
		}
		says := m.verdict.Judge(p)
		got := m.node.Judge(sim.Packet{
			In: p.InLink, Out: p.OutLink, Src: p.Src, Dst: p.Dst, Proto: p.Proto, SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType, ICMPCode: p.ICMPCode,
		})
		if asked++; got.Allowed {
			allowed++
		}
		agree := got.Allowed == says.Allowed
		if p.OutLink != closedLink { // what is for it has no route, and so no packet comes that far
			agree = agree && got.Allowed == q.allowed && got.Rejected == says.Rejected && got.Reset == (says.Rejected && p.Proto == 6) && (got.Allowed || sameDecision(got.By, says))
		}
		if !agree {
			t.Errorf("%+v: in memory %+v, verdict %v (%+v, rejected %v), world %v (%+v)", p, got, says.Allowed, says.Decision, says.Rejected, q.allowed, q.answer.Decided)
		}
	}
	return asked, allowed
}
