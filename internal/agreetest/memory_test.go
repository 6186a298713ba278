package agreetest

import (
	"math/rand/v2"
	"net/netip"
	"testing"

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

// TestMemoryAgrees: what is desired, carried out in memory, does to packets what verdict and world say, and so without a kernel what
// TestKernelAgrees finds with one: of random worlds, at once and step by step.
func TestMemoryAgrees(t *testing.T) {
	seed := seedtest.New(t)
	asked, allowed := 0, 0
	for i := range *worlds {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		w := calctest.Random(rng, calctest.Config{Workloads: workloads})
		g := calc.New(nodeName)
		g.Update(w.State())
		g.SetInSync()
		d := sim.NewDataplane(desired.Config{})
		d.Links([]desired.Addrs{{Link: uplink, Addrs: []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)}}})
		var v verdict.State
		v.SetLink(uplink, []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)})
		routes := map[string]intent.Route{}
		for step := range 4 {
			b := g.Flush()
			d.Merge(b)
			v.Merge(b)
			_, err := d.Apply(t.Context())
			must(t, err)
			follow(routes, b)
			n, passed := memoryAgrees(t, w, rng, d, &v, linksOf(intent.Batch{Routes: values(routes)}), step == 0)
			asked, allowed = asked+n, allowed+passed
			if t.Failed() {
				t.Fatalf("world %d", i)
			}
			g.Update(w.Step())
		}
	}
	if !*brief && (asked < 10**worlds || allowed < asked/5) {
		t.Errorf("%d packets, of which %d are allowed: too few to show anything", asked, allowed)
	}
}

// follow keeps the routes that there are.
func follow(routes map[string]intent.Route, b intent.Batch) {
	for _, r := range b.Routes {
		routes[r.Dst.String()] = r
	}
	for _, k := range b.Removed {
		if k.Kind == intent.KeyRoute {
			delete(routes, k.ID)
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

// memoryAgrees asks packets of a world of all. The world counts while it is fresh: of what cannot be read an agent that lives keeps what was
// understood last, of which world knows nothing.
func memoryAgrees(t *testing.T, w *calctest.World, rng *rand.Rand, d *sim.Dataplane, v *verdict.State, links map[netip.Addr]string, fresh bool) (asked, allowed int) {
	t.Helper()
	a := asker{node: &node{t: t, sent: map[packet.Packet]bool{}}, world: w, rng: rng, oracle: world.New(w.State()), links: links}
	for _, q := range a.questions(*each) {
		p := verdict.Packet{
			InLink: inLink(q, links), OutLink: outLink(q, links), Src: q.Src, Dst: q.Dst, Proto: q.Proto,
			SrcPort: q.SrcPort, DstPort: q.DstPort, ICMPType: q.ICMPType, ICMPCode: q.ICMPCode,
		}
		says := v.Judge(p)
		got := d.Judge(sim.Packet{
			In: p.InLink, Out: p.OutLink, Src: p.Src, Dst: p.Dst, Proto: p.Proto, SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType, ICMPCode: p.ICMPCode,
		})
		if asked++; got.Allowed {
			allowed++
		}
		agree := got.Allowed == says.Allowed
		if p.OutLink != closedLink { // what is for it has no route, and so no packet comes that far
			agree = agree && got.Rejected == says.Rejected && (got.Allowed || sameDecision(got.By, says)) && (!fresh || got.Allowed == q.allowed)
		}
		if !agree {
			t.Errorf("%+v: in memory %+v, verdict %v (%+v, rejected %v), world %v (%+v)", p, got, says.Allowed, says.Decision, says.Rejected, q.allowed, q.answer.Decided)
		}
	}
	return asked, allowed
}
