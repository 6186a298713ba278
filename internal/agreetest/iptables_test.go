package agreetest

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
	"github.com/twillnet/twill/internal/verdict/world"
)

// iptablesWorlds are few: each change of one takes some processes.
const iptablesWorlds = 20

// TestIptablesAgrees: the driver of iptables, in a world that changes step by step, does to packets what the resources say. In the next world
// another driver begins with what that one left, as an agent that restarts. What it drops it reports under what decided. Answers are not compared: it
// rejects in table filter alone.
func TestIptablesAgrees(t *testing.T) {
	seed := seedtest.New(t)
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			machinetest.Program(t, "ipset")
			machinetest.Program(t, "iptables-"+backend+"-restore")
			n := newNode(t)
			asked, allowed := 0, 0
			for i := range min(iptablesWorlds, *worlds) {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				w := calctest.Random(rng, calctest.Config{Workloads: workloads, Services: true, Unlimited: true})
				p := newIptablesPath(n, backend, w)
				for step := range iptablesSteps {
					for range rng.IntN(15) {
						p.graph.Update(p.good.Keep(change(w, rng)))
					}
					p.apply()
					a, b := p.ask(rng)
					asked, allowed = asked+a, allowed+b
					if t.Failed() {
						t.Fatalf("world %d, step %d", i, step)
					}
				}
			}
			if !*brief && (asked < 10*min(iptablesWorlds, *worlds) || allowed < asked/5) {
				t.Errorf("%d packets, of which %d are allowed: too few to show anything", asked, allowed)
			}
		})
	}
}

// iptablesSteps are the steps of a world.
const iptablesSteps = 4

// iptablesPath is one world, and a driver that follows it.
type iptablesPath struct {
	*node
	world  *calctest.Cluster
	good   calctest.LastGood
	graph  *calc.Graph
	driver *iptables.Driver
	judge  verdict.State
	routed map[string]intent.Route
}

func newIptablesPath(n *node, backend string, w *calctest.Cluster) *iptablesPath {
	n.names = attribution.New()
	p := &iptablesPath{node: n, world: w, good: calctest.LastGood{}, graph: calc.New(nodeName), driver: iptables.NewDriver(within{n.host, iptables.Host(backend)}, iptables.Config{Names: n.names}), routed: map[string]intent.Route{}}
	p.driver.Links([]ifmon.Change{{Link: ifmon.Link{Name: uplink, Addrs: []netip.Prefix{netip.MustParsePrefix(ownV4 + "/32"), netip.MustParsePrefix(ownV6 + "/128")}}}})
	p.graph.Update(p.good.Keep(w.State()))
	p.graph.SetInSync()
	return p
}

// apply brings what has changed into the kernel.
func (p *iptablesPath) apply() {
	p.t.Helper()
	b := p.graph.Flush()
	p.driver.Merge(b)
	p.judge.Merge(b)
	outcomes, err := p.driver.Apply(p.t.Context())
	must(p.t, err)
	for _, o := range outcomes {
		must(p.t, o.Err)
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.RouteID); ok {
			delete(p.routed, id.String())
		}
	}
	for _, r := range b.Routes {
		p.routed[r.Dst.String()] = r
	}
	p.setRoutes(slices.Collect(maps.Values(p.routed)))
}

// ask sends packets, and compares what becomes of them.
func (p *iptablesPath) ask(rng *rand.Rand) (asked, allowed int) {
	p.t.Helper()
	links := linksOf(intent.Batch{Routes: slices.Collect(maps.Values(p.routed))})
	qs := asker{node: p.node, world: p.world, rng: rng, oracle: world.New(p.good.State()), links: links, contested: contested(p.good)}.questions(*each)
	ps := make([]sending, len(qs))
	for i := range qs {
		ps[i] = qs[i].sending
	}
	f := p.deliver(ps)
	for i, q := range qs {
		link, passed := f.out[ps[i].Mark]
		passed = passed && (strings.HasPrefix(link, q.out) && q.out != "" || link == q.out)
		if asked++; q.allowed {
			allowed++
		}
		if passed != q.allowed {
			p.t.Errorf("%+v in by %q, out by %q: kernel %v (out by %q), world %v (%+v)", ps[i].Packet, q.link, q.out, passed, link, q.allowed, q.answer.Decided)
		} else if asks := packetOf(q, links); !passed && asks.OutLink != closedLink {
			v := p.judge.Judge(asks)
			if by, reported := f.dropped[ps[i].Mark]; !reported || !sameDecision(by, v) {
				p.t.Errorf("%+v in by %q, out by %q: dropped by %+v (reported: %v), verdict says by %+v", ps[i].Packet, q.link, q.out, by, reported, v.Decision)
			}
		}
	}
	return asked, allowed
}

// within runs the programs of iptables on a host.
type within struct {
	on *netnstest.NS
	iptables.Host
}

func (w within) Save(ctx context.Context, f intent.Family) (s string, err error) {
	w.on.Do(func() { s, err = w.Host.Save(ctx, f) })
	return s, err
}

func (w within) Restore(ctx context.Context, f intent.Family, text string) (err error) {
	w.on.Do(func() { err = w.Host.Restore(ctx, f, text) })
	return err
}

func (w within) SaveSets(ctx context.Context) (s string, err error) {
	w.on.Do(func() { s, err = w.Host.SaveSets(ctx) })
	return s, err
}

func (w within) RestoreSets(ctx context.Context, text string) (err error) {
	w.on.Do(func() { err = w.Host.RestoreSets(ctx, text) })
	return err
}

func (w within) DestroySet(name string) (inUse bool, err error) {
	w.on.Do(func() { inUse, err = w.Host.DestroySet(name) })
	return inUse, err
}
