package agreetest

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
	"github.com/twillnet/twill/internal/verdict/world"
)

var (
	worlds = flag.Int("worlds", 500, "how many random worlds")
	each   = flag.Int("packets", 24, "how many packets in each world")
	brief  = flag.Bool("brief", false, "no thresholds and no table: for mutants")
)

// worldsANode is the number of worlds after which the namespaces are made again, so that
// conntrack does not know every tuple already.
const worldsANode = 25

// question is one packet, and what it should become by the resources and by the intents.
type question struct {
	sending
	query   calctest.Query
	asks    world.Query
	answer  world.Answer
	allowed bool   // by the hops that are on this node
	out     string // where it must come out if it is allowed; "cali" for any workload's
	verdict verdict.Verdict
}

func TestKernelAgrees(t *testing.T) { kernelAgrees(t, *on, *worlds) }

func kernelAgrees(t *testing.T, dataplane string, worlds int) {
	t.Helper()
	var seen calctest.Coverage
	tabled := map[string]int{}
	seed := seedtest.New(t)
	for first := 0; first < worlds; first += worldsANode {
		t.Run(fmt.Sprintf("from world %d", first), func(t *testing.T) {
			n := newNode(t, dataplane)
			n.tabled = tabled
			for i := first; i < min(first+worldsANode, worlds); i++ {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				w := calctest.Random(rng, calctest.Config{Workloads: workloads, Services: true, Unlimited: true})
				for range rng.IntN(30) {
					w.Step()
				}
				if !agree(t, n, w, rng, &seen) {
					t.Fatalf("world %d", i)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	if *brief {
		return
	}
	t.Logf("%d worlds\n%s", worlds, seen.Table())
	if dataplane == inNftables {
		checkTabled(t, tabled, worlds < 100)
	}
	const many = 300 // of fewer, none may show what is rare
	least := 0.3
	if worlds < many { // of 100 worlds, 33 to 42 % were seen
		least = 0.1
	}
	if share := float64(seen.Allowed) / float64(seen.Packets); share < least {
		t.Errorf("%.1f %% of packets are allowed, want %.0f %%", 100*share, 100*least)
	}
	if worlds < many {
		return
	}
	if share := seen.Share(uplinkToUplink); share < 0.01 {
		t.Errorf("%.1f %% of packets are forwarded from uplink to uplink, want 1 %%", 100*share)
	}
	// The worlds are made so that each decides 1.3 % or more on average. The packets of one world ask about the same rules, so that a
	// run's share wavers by a fifth of it: 0.93 % was seen of what was 1.2 % on average.
	if missing := seen.Missing(0.007); len(missing) > 0 {
		t.Errorf("decided fewer than 0.7 %% of the packets: %s", strings.Join(missing, ", "))
	}
}

// agree programs a world and asks packets of it.
func agree(t *testing.T, n *node, w *calctest.Cluster, rng *rand.Rand, seen *calctest.Coverage) bool {
	g := calc.New(nodeName)
	g.Update(w.State())
	proxied := map[intent.EndpointID]bool{}
	var names []string
	for _, name := range w.Proxied(rng) {
		parts := strings.Split(name, "/")
		proxied[intent.EndpointID{Namespace: parts[1], Name: parts[2]}] = true
		names = append(names, parts[1]+"/"+parts[2])
	}
	g.Proxied(proxied)
	g.SetInSync()
	batch := g.Flush()
	n.program(batch)
	var v verdict.State
	v.Merge(batch)
	oracle := world.New(w.State()).Proxied(names...)
	links := linksOf(batch)
	qs := asker{node: n, world: w, rng: rng, oracle: oracle, links: links}.questions(*each)
	ps := make([]sending, len(qs))
	for i := range qs {
		ps[i] = qs[i].sending
	}
	f := n.deliver(ps)
	ok := true
	for i, q := range qs {
		q.sending = ps[i]
		ok = n.same(q, f, &v, links) && ok
		seen.Count(q.allowed, q.tags())
	}
	return ok
}

// asker makes up packets for a world.
type asker struct {
	*node
	world  *calctest.Cluster
	rng    *rand.Rand
	oracle *world.World
	links  map[netip.Addr]string
	// contested are addresses that two workloads claim. A node routes to its own; the oracle takes the first.
	contested map[netip.Addr]bool
}

// questions makes up packets that conntrack has not seen.
func (a asker) questions(count int) []question {
	rng := a.rng
	var qs []question
	for tries := 0; len(qs) < count && tries < 40*count; tries++ {
		c := a.world.RandomQuery(rng)
		if rng.IntN(5) == 0 { // more ICMP than calctest asks: rules about it are few
			c.Proto, c.ICMPType, c.SrcPort, c.DstPort = 1, []uint8{8, 13}[rng.IntN(2)], 0, 0
			if c.Family == 6 {
				c.Proto = 58
			}
		}
		q, ok := ask(c, a.oracle, a.links)
		if ok && !rare(q.answer.Tags()) && rng.IntN(3) > 0 {
			continue
		}
		if ok && !a.contested[q.Src] && !a.contested[q.Dst] && a.fresh(q.Packet) {
			q.query = c
			a.withoutInterface(q)
			qs = append(qs, q)
		}
	}
	return qs
}

// withoutInterface asks as `twill why` does, which does not know by which interface packets come to hosts. Here each host has one, so
// that the answer is no other.
func (a asker) withoutInterface(q question) {
	asks := q.asks
	asks.Uplink = ""
	if why := a.oracle.Judge(asks); why.Allowed != q.answer.Allowed || !reflect.DeepEqual(why.Decided, q.answer.Decided) {
		a.t.Errorf("%s -> %s proto %d ports %d %d: without the interface's name %+v, with it %+v", q.Src, q.Dst, q.Proto, q.SrcPort, q.DstPort, why.Decided, q.answer.Decided)
	}
}

// tags are the answer's, and that of a packet that has no end on this node.
func (q question) tags() []string {
	tags := q.answer.Tags()
	if q.link == uplink && q.out == uplink {
		tags = append(tags, uplinkToUplink)
	}
	return tags
}

const uplinkToUplink = "from uplink to uplink"

// same compares what became of a packet with what should have.
func (n *node) same(q question, f fates, v *verdict.State, links map[netip.Addr]string) bool {
	t := n.t
	t.Helper()
	ok := true
	link, passed := f.out[q.Mark]
	passed = passed && (strings.HasPrefix(link, q.out) && q.out != "" || link == q.out)
	p := packetOf(q, links)
	q.verdict = v.Judge(p)
	agreed := q.verdict.Allowed == passed
	if p.InLink == "" && p.OutLink == closedLink {
		// There is no route to it, so that what the host sends goes by the uplink; there verdict is asked about it.
		q.verdict = v.Judge(offRoute(p))
		agreed = q.verdict.Allowed == (f.out[q.Mark] == uplink)
	}
	if passed != q.allowed || !agreed {
		t.Errorf("%s -> %s proto %d ports %d %d icmp %d/%d in by %s: kernel %v (out by %q; dropped by %+v), verdict %v (%s %+v), world %v (%+v)", q.Src, q.Dst, q.Proto, q.SrcPort, q.DstPort,
			q.ICMPType, q.ICMPCode, q.link, passed, link, f.dropped[q.Mark], q.verdict.Allowed, q.verdict.Reason, q.verdict.Rule, q.allowed, q.answer.Decided)
		trace, _ := json.Marshal(q.answer.Hops)
		t.Logf("world: %s", trace)
		t.Logf("verdict: %+v", q.verdict.Trace)
		ok = false
	} else if by, reported := f.dropped[q.Mark]; !passed && outLink(q, links) != closedLink && (reported || n.reports(q.verdict)) && (!reported || !sameDecision(by, q.verdict)) {
		t.Errorf("%s -> %s proto %d ports %d %d in by %q, out by %q: dropped by %+v (reported: %v), verdict says by %+v", q.Src, q.Dst, q.Proto, q.SrcPort, q.DstPort, q.link, q.out, by, reported, q.verdict.Decision)
		ok = false
	}
	if link, rejected := f.rejected[q.Mark]; p.OutLink != closedLink && (rejected != (n.rejects(q.verdict, p) && answerPasses(v, p, q)) || rejected && link != q.link) {
		t.Errorf("%s -> %s proto %d ports %d %d in by %q: a reject was sent: %v, on %q; verdict %+v", q.Src, q.Dst, q.Proto, q.SrcPort, q.DstPort, q.link, rejected, link, q.verdict)
		ok = false
	}
	return ok
}

// packetOf is what verdict is asked about a packet.
func packetOf(q question, links map[netip.Addr]string) verdict.Packet {
	return verdict.Packet{
		InLink: inLink(q, links), OutLink: outLink(q, links), Src: q.Src, Dst: q.Dst, Proto: q.Proto,
		SrcPort: q.SrcPort, DstPort: q.DstPort, ICMPType: q.ICMPType, ICMPCode: q.ICMPCode,
	}
}

// offRoute is a packet of the host's to whom it has no route of the agent's.
func offRoute(p verdict.Packet) verdict.Packet {
	p.OutLink = uplink
	return p
}

// answerPasses reports whether the sender of a rejected packet gets the reset or ICMP error: policy is asked about that answer, too.
// It belongs to the packet's connection, and so passes all but the untracked stage, unless the packet itself is of no connection.
func answerPasses(s *verdict.State, p verdict.Packet, q question) bool {
	answer := verdict.Packet{OutLink: q.link, Src: p.Dst, Dst: p.Src, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort, State: verdict.Established}
	if untracked(q.verdict) {
		answer.State = verdict.Invalid
	}
	if p.Proto != 6 {
		answer.Src, answer.Proto, answer.ICMPType, answer.ICMPCode = netip.MustParseAddr(ownV4), 1, 3, 13
		if p.Dst.Is6() {
			answer.Src, answer.Proto, answer.ICMPType, answer.ICMPCode = netip.MustParseAddr(ownV6), 58, 1, 1
		}
		answer.SrcPort, answer.DstPort = 0, 0
	}
	return s.Judge(answer).Allowed
}

// rare reports whether an answer has a tag that few have, and that a run must show.
func rare(tags []string) bool {
	return slices.ContainsFunc(tags, func(tag string) bool { return slices.Contains(rareTags, tag) })
}

var rareTags = []string{
	"families not in everything of the other", "families passed over", "field notICMP",
	"ports without a protocol", "decided failsafe port", "field source.services", "field source.notSelector", "field destination.named ports",
	"no account, though its labels would match", "no namespace, though its labels would match", "negative serviceAccounts of a rule", "negative namespaceSelector of a rule",
	"field destination.nets", "field destination.services", "field ipVersion", "field source.nets", "field destination.notSelector", "field destination.namespaceSelector", "field destination.notPorts",
}

// sameDecision reports whether the kernel dropped a packet for the reason that verdict gives.
func sameDecision(by intent.Decision, v verdict.Verdict) bool {
	if by.Endpoint == (intent.EndpointID{}) {
		by.Endpoint = v.Endpoint // a rule that others share
	}
	// What is on closedLink is so for verdict because no endpoint has the address; the kernel may know the link.
	unknown := v.Reason == intent.ReasonUnknownLink && (by.Reason == intent.ReasonSpoofed || by.Reason == intent.ReasonClosed)
	return by == v.Decision || unknown
}

// linksOf maps the addresses of endpoints that may carry traffic to their links.
func linksOf(b intent.Batch) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, r := range b.Routes {
		out[r.Dst.Addr()] = r.Link
	}
	return out
}

// inLink is the link for verdict, which does not check reverse paths: what a
// closed endpoint sends comes by no interface that has an endpoint.
func inLink(q question, links map[netip.Addr]string) string {
	if _, ok := links[q.Src]; !ok && q.link != uplink && q.link != "" {
		return closedLink
	}
	return q.link
}

// closedLink stands for the interface of an endpoint that carries nothing, which no intent names. What is for it has no
// route, and takes another way.
const closedLink = "calix"

func outLink(q question, links map[netip.Addr]string) string {
	if l, ok := links[q.Dst]; ok {
		return l
	}
	if q.out != uplink && q.out != "" {
		return closedLink // a closed endpoint's: it has no route, and no interface that we know
	}
	return q.out
}

// ask turns a query into a packet that this node can be asked about: one that
// some policy of its own concerns. What neither comes from it nor is for it, it forwards from its uplink to its uplink.
func ask(c calctest.Query, w *world.World, links map[netip.Addr]string) (question, bool) {
	q, ok := put(c, w, links)
	return q, ok && slices.ContainsFunc(q.answer.Hops, func(h world.Hop) bool { return h.Node == nodeName })
}

// put turns a query into a packet that comes to this node, whether some policy concerns it or not; false: none does.
func put(c calctest.Query, w *world.World, links map[netip.Addr]string) (question, bool) {
	c.ICMPType = request(c)
	src, err1 := w.Resolve(c.Src)
	dst, err2 := w.Resolve(c.Dst)
	if err1 != nil || err2 != nil || src.Host && dst.Host {
		return question{}, false
	}
	if src.Node != "" && src.Node == dst.Node && src.Node != nodeName {
		return question{}, false // it stays on another host: the world asks nothing here, and what is asked here of all that comes in would be news to it
	}
	asks := world.Query{Src: src, Dst: dst, Uplink: uplink, Via: nodeName, Family: c.Family, Proto: c.Proto, SrcPort: c.SrcPort, DstPort: c.DstPort, ICMPType: c.ICMPType, ICMPCode: c.ICMPCode}
	a := w.Judge(asks)
	q := question{asks: asks, answer: a, allowed: true, out: uplink}
	q.Packet = packet.Packet{
		Src: addrOf(c.Src, a.Src), Dst: addrOf(c.Dst, a.Dst), Proto: c.Proto,
		SrcPort: c.SrcPort, DstPort: c.DstPort, ICMPType: c.ICMPType, ICMPCode: c.ICMPCode,
	}
	if !q.Src.IsValid() || !q.Dst.IsValid() {
		return q, false
	}
	// A world without a node of this name takes its addresses for those of somebody else, and the kernel knows better.
	own := func(p world.Party) bool { return p.Host && p.Node == nodeName }
	if own(src) != isOwn(q.Src) || own(dst) != isOwn(q.Dst) {
		return q, false
	}
	for _, h := range a.Hops {
		q.allowed = q.allowed && (h.Allowed || h.Node != nodeName)
	}
	q.link = uplink
	switch {
	case local(src):
		q.link = place(q.Src, links)
	case src.Node == nodeName:
		q.link = ""
	}
	switch {
	case local(dst):
		q.out = "cali"
	case dst.Node == nodeName:
		q.out = ""
	}
	return q, true
}

func isOwn(a netip.Addr) bool { return a.String() == ownV4 || a.String() == ownV6 }

// addrOf is the address that a query names, or that which the oracle took for a name.
func addrOf(text string, taken netip.Addr) netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil {
		return a
	}
	return taken
}

func local(p world.Party) bool { return p.Node == nodeName && !p.Host }

// place is the link of a workload's address; one that is closed has the link of its number.
func place(a netip.Addr, links map[netip.Addr]string) string {
	if l, ok := links[a]; ok {
		return l
	}
	b := a.AsSlice()
	return fmt.Sprintf("cali%d", int(b[len(b)-1])-1)
}

// request is a query's ICMP type, or a request instead: for conntrack only
// requests begin a flow, and the rest is invalid without one.
func request(c calctest.Query) uint8 {
	switch {
	case c.Proto == 1 && c.ICMPType != 8 && c.ICMPType != 13: // nf_conntrack_proto_icmp.c, valid_new
		return 8
	case c.Proto == 58:
		return 128
	}
	return c.ICMPType
}
