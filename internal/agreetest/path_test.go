package agreetest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
)

var paths = flag.Int("paths", 8, "how many random worlds that change step by step")

const (
	pathsANode = 6
	steps      = 10 // of a path, each of some updates and the questions about what they come to
	stepAsks   = 12
)

// TestKernelAgreesOnAnyPath: however a world came to be, by updates one by one, deletions and moves, the kernel does what the
// resources say now, with new flows and with those that live.
func TestKernelAgreesOnAnyPath(t *testing.T) { anyPathAgrees(t, *on, *paths) }

func anyPathAgrees(t *testing.T, dataplane string, paths int) {
	t.Helper()
	if dataplane == inFar {
		t.Fatal("not asked of a driver in another process: it looks at live flows itself, and nothing says when it has")
	}
	var seen calctest.Coverage
	met, tabled := map[string]int{}, map[string]int{}
	seed := seedtest.New(t)
	for first := 0; first < paths; first += pathsANode {
		t.Run(fmt.Sprintf("from path %d", first), func(t *testing.T) {
			n := newNode(t, dataplane)
			n.tabled = tabled
			n.host.KeepFlows()
			n.host.Sysctl("netfilter/nf_conntrack_tcp_be_liberal", "1") // our segments have no sequence
			for i := first; i < min(first+pathsANode, paths); i++ {
				p := newPath(t, n, rand.New(rand.NewPCG(seed, uint64(1_000_000+i))), met)
				for step := range steps {
					if !p.ask(&seen) {
						t.Fatalf("path %d, step %d", i, step)
					}
					if !p.walk() {
						t.Fatalf("path %d, after step %d", i, step)
					}
				}
				p.stop()
			}
		})
		if t.Failed() {
			return
		}
	}
	if *brief {
		return
	}
	t.Logf("%d paths; flows: %v\n%s", paths, met, seen.Table())
	const many = 50 // of fewer, none may show a fate that is rare
	if dataplane == inNftables {
		checkTabled(t, tabled, paths < many)
	}
	few := paths < 8 // the default; of fewer, all may be of worlds that allow nothing
	for fate, rare := range map[string]bool{"established": few, "goes on": few, "cut": true, "lives again": true, "is denied before it is judged": true} {
		if met[fate] == 0 && (!rare || paths >= many) {
			t.Errorf("no flow was seen of which it is true that it is: %s", fate)
		}
	}
}

// path is one world, and one driver of each kind that follow it.
type path struct {
	*node
	rng     *rand.Rand
	world   *calctest.Cluster
	good    calctest.LastGood
	graph   *calc.Graph
	policy  policyDriver
	verdict verdict.State
	links   map[netip.Addr]string
	routed  map[string]intent.Route // by destination
	revoke  *revoke.Driver
	passes  chan passed
	host    intent.HostSettings
	hosts   map[intent.EndpointID]intent.Endpoint // host endpoints that were there
	tables  bool                                  // policy is, now
	denied  bool                                  // what the watched flow is now
	flows   []*flow
	met     map[string]int
	stop    func()
}

func newPath(t *testing.T, n *node, rng *rand.Rand, met map[string]int) *path {
	n.t = t
	n.forgetFlows()
	clear(n.sent)
	n.names = attribution.New()
	p := &path{
		node: n, rng: rng, world: calctest.Random(rng, calctest.Config{Workloads: workloads, Unlimited: true}), good: calctest.LastGood{}, graph: calc.New(nodeName),
		policy: n.driver(true), routed: map[string]intent.Route{}, passes: make(chan passed, 1), met: met, hosts: map[intent.EndpointID]intent.Endpoint{},
	}
	var table *conntrack.Conn
	n.host.Do(func() {
		var err error
		table, err = conntrack.Open()
		must(t, err)
	})
	watch := &watched{Conn: table}
	p.revoke = revoke.New(revoke.Config{
		Table: watch, Share: 1, Done: func(x revoke.Pass) { p.passes <- passed{x, watch.mark} },
		Local: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.revoke.Run(ctx) }()
	p.stop = func() {
		cancel()
		<-ended
		must(t, table.Close())
	}
	p.graph.Update(p.good.Keep(p.world.State()))
	p.graph.SetInSync()
	p.follow(p.apply())
	return p
}

// contested are the addresses that several workloads claim.
func contested(g calctest.LastGood) map[netip.Addr]bool {
	claims := map[netip.Addr]int{}
	for key, u := range g {
		if !strings.Contains(key, "/workloadendpoints/") {
			continue
		}
		var e struct{ Spec struct{ IPNetworks []string } }
		_ = json.Unmarshal(u.Value, &e) // what is wrong with a resource leaves the rest of it
		for _, p := range e.Spec.IPNetworks {
			if p, err := netip.ParsePrefix(p); err == nil {
				claims[p.Addr()]++
			}
		}
	}
	out := map[netip.Addr]bool{}
	for a, n := range claims {
		if n > 1 {
			out[a] = true
		}
	}
	return out
}

// walk makes some changes, most of them one by one, each a transaction in the kernel.
func (p *path) walk() bool {
	p.t.Helper()
	several := false
	for range 1 + p.rng.IntN(6) {
		us := p.good.Keep(change(p.world, p.rng))
		for _, u := range us {
			p.graph.Update([]api.Update{u})
			if len(us) < 4 || p.rng.IntN(6) == 0 { // of many that go at once, some in one batch
				p.revoke.InForce(p.apply(), false)
				several = true
			}
		}
	}
	b := p.apply()
	ok := p.askAtOnce(several)
	p.follow(b)
	if d, looks := p.policy.(*nft.Driver); looks {
		d.Judged(d.Standing())
		p.inForce(d)
	}
	return ok
}

// change changes a world.
func change(w *calctest.Cluster, rng *rand.Rand) []api.Update {
	switch rng.IntN(11) {
	case 0:
		return w.Move()
	case 1, 2:
		return w.Undo()
	case 3, 4, 5:
		return w.MovePolicy()
	case 6, 7:
		return w.TurnPolicy()
	}
	return w.Step()
}

// apply brings what has changed into the kernel.
func (p *path) apply() intent.Batch {
	p.t.Helper()
	b := p.graph.Flush()
	if b.Host != nil {
		p.host = *b.Host
	}
	if b.Host != nil || p.rng.IntN(12) == 0 { // what the settings say changes while all lives
		p.tables = p.rng.IntN(3) != 0
		b.Host = compiled(p.host, p.tables)
	}
	p.policy.Merge(b)
	p.revoke.Prepare(b.Endpoints, b.Removed)
	p.inForce(p.policy)
	p.verdict.Merge(b)
	for _, e := range b.Endpoints {
		if e.ID.Kind == intent.Host {
			p.hosts[e.ID] = e
		}
	}
	p.countTabled(slices.Collect(maps.Values(p.hosts)))
	for _, k := range b.Removed {
		if id, ok := k.(intent.RouteID); ok {
			delete(p.routed, id.String())
		}
	}
	for _, r := range b.Routes {
		p.routed[r.Dst.String()] = r
	}
	routes := slices.Collect(maps.Values(p.routed))
	p.setRoutes(routes)
	p.links = linksOf(intent.Batch{Routes: routes})
	for _, f := range p.flows {
		f.kept = f.kept && f.at == [2]string{p.links[f.Src], p.links[f.Dst]}
	}
	return b
}

// follow lets revocation follow what has come into force, and waits until it has: the batch also turns the fate of the watched flow.
func (p *path) follow(b intent.Batch) {
	p.t.Helper()
	p.denied = !p.denied
	rule := intent.Rule{Action: intent.Allow}
	if p.denied {
		rule.Action = intent.Deny
	}
	id := intent.PolicyID{Kind: api.KindProfile, Name: "watched"}
	b.Policies = append(slices.Clone(b.Policies), intent.Policy{ID: id, Ingress: []intent.Rule{rule}})
	b.Endpoints = append(slices.Clone(b.Endpoints), intent.Endpoint{
		ID: intent.EndpointID{Namespace: "none", Name: "watched"}, Link: "cali99", Addrs: []netip.Addr{watchedFlow.Original.Dst}, Group: intent.GroupOf(intent.Stages{}, id),
	})
	p.revoke.InForce(b, false)
	for {
		select {
		case x := <-p.passes:
			must(p.t, x.Err)
			if (x.mark != 0) == p.denied {
				return
			}
		case <-time.After(netnstest.Patience):
			p.t.Fatal("no pass after a change")
		}
	}
}

// watched is the kernel's table, and one flow besides that shows which changes a pass has seen.
type watched struct {
	*conntrack.Conn
	mark uint32
}

type passed struct {
	revoke.Pass
	mark uint32 // of the watched flow
}

var watchedFlow = conntrack.Flow{
	Original: conntrack.Tuple{Src: netip.MustParseAddr("198.18.0.2"), Dst: netip.MustParseAddr("198.18.0.1"), Proto: 17, SrcPort: 1, DstPort: 1},
	Reply:    conntrack.Tuple{Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), Proto: 17, SrcPort: 1, DstPort: 1},
}

func (w *watched) Count() (int, error) {
	n, err := w.Conn.Count()
	return n + 1, err
}

func (w *watched) Each(f func(conntrack.Flow)) error {
	own := watchedFlow
	own.Mark = w.mark
	f(own)
	return w.Conn.Each(f)
}

func (w *watched) Find(flows []conntrack.Flow) ([]conntrack.Flow, error) {
	found, err := w.Conn.Find(flows)
	if slices.ContainsFunc(flows, func(f conntrack.Flow) bool { return f.Original == watchedFlow.Original }) {
		own := watchedFlow
		own.Mark = w.mark
		found = append(found, own)
	}
	return found, err
}

func (w *watched) Mark(changes []conntrack.Change) (int, error) {
	changes = slices.DeleteFunc(changes, func(c conntrack.Change) bool {
		own := c.Flow.Original == watchedFlow.Original
		if own {
			w.mark = w.mark&^c.Mask | c.Mark
		}
		return own
	})
	return w.Conn.Mark(changes)
}
