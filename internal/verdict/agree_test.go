package verdict_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
	"github.com/twillnet/twill/internal/verdict/world"

	"github.com/twillnet/twill/api"
)

var worlds = flag.Uint64("worlds", 120, "how many random worlds")

// cluster is all nodes: what each has calculated, and its routes to workloads.
type cluster struct {
	graphs map[string]*calc.Graph
	states map[string]*verdict.State
	routes map[string]map[string]string // node → prefix → link
}

func newCluster(nodes ...string) *cluster {
	c := &cluster{map[string]*calc.Graph{}, map[string]*verdict.State{}, map[string]map[string]string{}}
	for _, n := range nodes {
		c.graphs[n], c.states[n], c.routes[n] = calc.New(n), &verdict.State{}, map[string]string{}
	}
	return c
}

func (c *cluster) update(u []api.Update) {
	for n, g := range c.graphs {
		g.Update(u)
		b := g.Flush()
		c.states[n].Merge(b)
		for _, r := range b.Routes {
			c.routes[n][r.Dst.String()] = r.Link
		}
		for _, k := range b.Removed {
			if id, ok := k.(intent.RouteID); ok {
				delete(c.routes[n], id.String())
			}
		}
	}
}

// routed reports whether a node takes an address to be on a link: else what
// comes from there is spoofed, and what goes there goes elsewhere.
func (c *cluster) routed(node, link string, a netip.Addr) bool {
	return link == "" || link == "eth0" || c.routes[node][netip.PrefixFrom(a, a.BitLen()).String()] == link
}

// judge sends the packet through the one or two nodes that see it.
func (c *cluster) judge(w *links, q world.Query, a world.Answer, staged bool) (bool, []verdict.Verdict) {
	p := verdict.Packet{
		Src: a.Src, Dst: a.Dst, Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort,
		ICMPType: q.ICMPType, ICMPCode: q.ICMPCode,
	}
	in, out := w.of(q.Src), w.of(q.Dst)
	var asked []verdict.Verdict
	ask := func(node, in, out string) bool {
		if !c.routed(node, in, p.Src) || !c.routed(node, out, p.Dst) {
			return false
		}
		p.InLink, p.OutLink = in, out
		judge := c.states[node].Judge
		if staged {
			judge = c.states[node].JudgeStaged
		}
		v := judge(p)
		asked = append(asked, v)
		return v.Allowed
	}
	switch {
	case q.Src.Node == "" && q.Dst.Node == "":
		return true, nil
	case q.Src.Node == q.Dst.Node:
		return ask(q.Src.Node, in, out), asked
	}
	if q.Src.Node != "" && !ask(q.Src.Node, in, "eth0") {
		return false, asked
	}
	if q.Dst.Node != "" && !ask(q.Dst.Node, "eth0", out) {
		return false, asked
	}
	return true, asked
}

// links are the interfaces of workloads, as stored.
type links struct{ byName map[string]string }

func readLinks(t *testing.T, updates []api.Update) *links {
	t.Helper()
	l := &links{map[string]string{}}
	for _, u := range updates {
		_, name, ok := strings.Cut(u.Key, "/workloadendpoints/")
		var e struct {
			Spec struct{ InterfaceName string }
		}
		if ok && json.Unmarshal(u.Value, &e) == nil {
			l.byName[name] = e.Spec.InterfaceName
		}
	}
	return l
}

func (l *links) of(p world.Party) string { return l.byName[p.Endpoint] }

// TestVerdictOfCalcIsWorld: over random worlds, on random paths, what the nodes
// would do with a packet is what the resources say, by the same rule.
func TestVerdictOfCalcIsWorld(t *testing.T) {
	seed := seedtest.New(t)
	var cover calctest.Coverage
	for i := range *worlds {
		rng := rand.New(rand.NewPCG(seed, i))
		w := calctest.Random(rng, calctest.Config{})
		c := newCluster("h1", "h2", "h3")
		good := calctest.LastGood{}
		c.update(good.Keep(w.State()))
		for range 8 {
			compare(t, i, rng, w, good.State(), c, &cover)
			for range 1 + rng.IntN(6) {
				c.update(good.Keep(w.Step()))
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("\n%s", cover.Table())
	if share := cover.Share(stagedDiffers); share < 0.01 {
		t.Errorf("staged policies would change %.1f %% of the answers, want 1 %%", 100*share)
	}
}

// stagedDiffers is the tag of a packet for which staged policies would make a difference.
const stagedDiffers = "staged policies would decide otherwise"

func compare(t *testing.T, s uint64, rng *rand.Rand, w *calctest.Cluster, state []api.Update, c *cluster, cover *calctest.Coverage) {
	t.Helper()
	oracle, l := world.New(state), readLinks(t, state)
	staged := oracle.Staged()
	for range 20 {
		r := w.RandomQuery(rng)
		if (r.Proto == 1 || r.Proto == 58) && rng.IntN(4) == 0 {
			r.Proto = 59 - r.Proto // the other family's ICMP, which no rule for ICMP means
		}
		q := world.Query{Family: r.Family, Proto: r.Proto, SrcPort: r.SrcPort, DstPort: r.DstPort, ICMPType: r.ICMPType, ICMPCode: r.ICMPCode, Uplink: "eth0"}
		var err1, err2 error
		q.Src, err1 = oracle.Resolve(r.Src)
		q.Dst, err2 = oracle.Resolve(r.Dst)
		if err1 != nil || err2 != nil {
			continue // a host that is gone, with all of its workloads
		}
		want := oracle.Judge(q)
		if want.Decided.Reason == world.ReasonNoAddress {
			continue // such a packet cannot be made
		}
		would := staged.Judge(q)
		tags := want.Tags()
		if would.Allowed != want.Allowed {
			tags = append(tags, stagedDiffers)
		}
		cover.Count(want.Allowed, tags)
		got, asked := c.judge(l, q, want, false)
		if got != want.Allowed || !sameRule(want, asked) {
			t.Errorf("world %d: %+v\n world %v by %+v\n hops %+v\n nodes %v by %+v", s, r, want.Allowed, want.Decided, want.Hops, got, asked)
		}
		got, asked = c.judge(l, q, would, true)
		if got != would.Allowed || !sameRule(would, asked) {
			t.Errorf("world %d: if staged policies were enforced: %+v\n world %v by %+v\n hops %+v\n nodes %v by %+v", s, r, would.Allowed, would.Decided, would.Hops, got, asked)
		}
	}
}

// sameRule: if a rule or the end of a tier decided in world, the last node to be
// asked names it too.
func sameRule(a world.Answer, asked []verdict.Verdict) bool {
	// A node without a route to a closed workload asks no policy, whatever the
	// other end's says.
	if slices.ContainsFunc(a.Hops, func(h world.Hop) bool { return h.Decided.Reason == world.ReasonClosed }) {
		return true
	}
	want := a.Decided
	if len(asked) == 0 {
		return want.RuleIndex < 0
	}
	for len(asked) > 1 && asked[len(asked)-1].Allowed && asked[len(asked)-1].Reason == intent.ReasonNoPolicy {
		asked = asked[:len(asked)-1]
	}
	v := asked[len(asked)-1]
	if want.RuleIndex < 0 {
		return want.Reason != world.ReasonEndOfTier || v.Reason == intent.ReasonEndOfTier && v.Tier == want.Tier
	}
	dir := intent.Ingress
	if want.Direction == string(api.Egress) {
		dir = intent.Egress
	}
	if v.Rejected != (want.Reject == world.RejectSent) {
		return false
	}
	return v.Reason == intent.ReasonRule && v.Rule.Policy.String() == want.Policy && v.Rule.Index == want.RuleIndex && v.Rule.Direction == dir && v.Tier == want.Tier
}
