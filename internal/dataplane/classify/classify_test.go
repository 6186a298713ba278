package classify_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
)

// node is one that has calculated: its intents, what they say by verdict, and by tables.
type node struct {
	graph     *calc.Graph
	judge     verdict.State
	policies  map[intent.PolicyID]intent.Policy
	endpoints map[intent.EndpointID]intent.Endpoint
	sets      sets
	gone      []intent.SetID      // until Flush returned
	groups    map[string]*walkers // by what is asked
	next      classify.Group
	state     *classify.State
	tables    classify.Tables
	plain     map[classify.Group]string // groups that are left out
}

// walkers are endpoints with the same walk.
type walkers struct {
	id    classify.Group
	walk  classify.Walk
	users int
}

type sets map[intent.SetID]map[intent.Member]bool

func (s sets) Each(id intent.SetID, f func(intent.Member)) {
	for m := range s[id] {
		f(m)
	}
}

func (s sets) Has(id intent.SetID, a netip.Addr) bool {
	for m := range s[id] {
		if m.Proto == 0 && m.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

func (s sets) HasPort(id intent.SetID, a netip.Addr, proto uint8, port uint16) bool {
	return s[id][intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: proto, Port: port}]
}

func newNode(name string) *node {
	n := &node{
		graph: calc.New(name), policies: map[intent.PolicyID]intent.Policy{}, endpoints: map[intent.EndpointID]intent.Endpoint{},
		sets: sets{}, groups: map[string]*walkers{}, plain: map[classify.Group]string{},
	}
	n.judge.IgnoreHosts = true
	n.state = classify.New(classify.Limits{}, n.sets)
	return n
}

// walksOf are all walks that may be asked of an endpoint.
func walksOf(e intent.Endpoint) (out []classify.Walk) {
	for _, dir := range []intent.Direction{intent.Ingress, intent.Egress} {
		if e.ID.Kind == intent.Workload {
			out = append(out, classify.WalkOf(e, dir))
			continue
		}
		for _, stage := range hostStages {
			out = append(out, classify.HostWalkOf(e, stage, dir))
		}
	}
	return out
}

// regroup says of an endpoint what it is asked, now and until now.
func (n *node) regroup(e intent.Endpoint, by int) {
	for _, w := range walksOf(e) {
		key := fmt.Sprint(w)
		g := n.groups[key]
		if g == nil {
			n.next++
			g = &walkers{n.next, w, 0}
			n.groups[key] = g
			n.state.SetWalk(g.id, w)
		}
		if g.users += by; g.users == 0 {
			n.state.RemoveWalk(g.id)
			delete(n.groups, key)
		}
	}
}

func (n *node) merge(b intent.Batch) {
	n.judge.Merge(b)
	for _, s := range b.IPSets {
		n.sets[s.ID] = map[intent.Member]bool{}
		for _, m := range s.Members {
			n.sets[s.ID][m] = true
		}
	}
	for _, d := range b.Members {
		real := intent.MemberDelta{Set: d.Set}
		for _, m := range d.Removed {
			if n.sets[d.Set][m] && !slices.Contains(d.Added, m) {
				real.Removed = append(real.Removed, m)
				delete(n.sets[d.Set], m)
			}
		}
		for _, m := range d.Added {
			if !n.sets[d.Set][m] {
				real.Added = append(real.Added, m)
				n.sets[d.Set][m] = true
			}
		}
		n.state.Change(real)
	}
	for _, p := range b.Policies {
		n.policies[p.ID] = p
		n.state.SetPolicy(p)
	}
	for _, e := range b.Endpoints {
		n.regroup(e, 1)
		if was, ok := n.endpoints[e.ID]; ok {
			n.regroup(was, -1)
		}
		n.endpoints[e.ID] = e
	}
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.PolicyID:
			delete(n.policies, id)
			n.state.RemovePolicy(id)
		case intent.EndpointID:
			n.regroup(n.endpoints[id], -1)
			delete(n.endpoints, id)
		case intent.SetID:
			n.gone = append(n.gone, id)
		}
	}
}

// flush brings what changed into the tables, as a backend does.
func (n *node) flush(t *testing.T) {
	t.Helper()
	d := n.state.Flush()
	if err := n.tables.Apply(d); err != nil {
		t.Fatal(err)
	}
	n.state.Committed()
	for ; d != nil; d = d.Next {
		maps.Copy(n.plain, d.Plain)
	}
	for _, id := range n.gone {
		delete(n.sets, id)
	}
	n.gone = nil
}

// hints are what rules and sets name, of which packets are made that are worth asking about.
type hints struct {
	addrs []netip.Addr
	ports []uint16
}

func (n *node) hints() hints {
	h := hints{ports: []uint16{1, 80, 443, 65535}}
	addr := func(a netip.Addr) {
		h.addrs = append(h.addrs, a, a.Next(), a.Prev())
	}
	for _, s := range n.sets {
		for m := range s {
			addr(m.Prefix.Addr())
			h.ports = append(h.ports, m.Port)
		}
	}
	for _, p := range n.policies {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, peer := range []intent.Peer{r.Src, r.Dst} {
				for _, net := range slices.Concat(peer.Nets, peer.NotNets) {
					addr(net.Addr())
				}
				for _, ports := range slices.Concat(peer.Ports, peer.NotPorts) {
					h.ports = append(h.ports, ports.Min, ports.Max, ports.Max+1, ports.Min-1)
				}
			}
		}
	}
	h.addrs = append(h.addrs, netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:9::9"))
	h.addrs = slices.DeleteFunc(h.addrs, func(a netip.Addr) bool { return !a.IsValid() })
	slices.SortFunc(h.addrs, netip.Addr.Compare)
	slices.Sort(h.ports)
	return h
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// compare asks both about random packets from and to endpoints.
func (n *node) compare(t *testing.T, rng *rand.Rand, count int) (allowed, asked int) {
	t.Helper()
	var eps []intent.Endpoint
	for _, id := range slices.SortedFunc(maps.Keys(n.endpoints), func(a, b intent.EndpointID) int { return strings.Compare(a.String(), b.String()) }) {
		if e := n.endpoints[id]; id.Kind == intent.Workload && e.Closed == "" && e.Link != "" && len(e.Addrs) > 0 {
			eps = append(eps, e)
		}
	}
	if len(eps) == 0 {
		return 0, 0
	}
	h := n.hints()
	for range count {
		e := pick(rng, eps)
		own, peer := pick(rng, e.Addrs), pick(rng, h.addrs)
		if own.Is4() != peer.Is4() {
			continue
		}
		dir := intent.Direction(rng.IntN(2))
		p := classify.Packet{Src: peer, Dst: own, Proto: pick(rng, []uint8{6, 6, 17, 132, 1, 58, 47}), SrcPort: pick(rng, h.ports), DstPort: pick(rng, h.ports)}
		switch p.Proto {
		case 1, 58:
			p.SrcPort, p.DstPort, p.ICMPType, p.ICMPCode = 0, 0, uint8(rng.IntN(10)), uint8(rng.IntN(3))
		case 47:
			p.SrcPort, p.DstPort = 0, 0
		}
		q := verdict.Packet{InLink: "eth0", OutLink: e.Link}
		if dir == intent.Egress {
			q.InLink, q.OutLink = e.Link, "eth0"
			p.Src, p.Dst = own, peer
		}
		if p.Proto == 17 && p.DstPort == 4789 {
			continue // what tunnels may not is not policy's
		}
		q.Src, q.Dst, q.Proto, q.SrcPort, q.DstPort, q.ICMPType, q.ICMPCode = p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort, p.ICMPType, p.ICMPCode
		want := n.judge.Judge(q)
		if want.Endpoint != e.ID {
			continue // several claim the interface
		}
		g := n.groups[fmt.Sprint(classify.WalkOf(e, dir))]
		if n.plain[g.id] != "" {
			continue
		}
		asked++
		if want.Allowed {
			allowed++
		}
		way, err := n.tables.Ask(g.id, peer, p, n.sets)
		if err != nil {
			t.Fatal(err)
		}
		by := way.Decided.By
		rejected := way.Decided.Action == rules.Reset || way.Decided.Action == rules.Reject
		if by.Reason != want.Reason || by.Allowed != want.Allowed || (way.Decided.Action == rules.Allow) != want.Allowed ||
			by.Rule != want.Rule || by.Tier != want.Tier || rejected != want.Rejected {
			t.Fatalf("%s of %s: %+v\nverdict: %+v\ntables:  %+v\n%v\nrules of verdict's:\n%s", dir, e.ID, p, want.Decision, way, n.tables.Codes[way.Code],
				rules.Policy(n.policies[want.Rule.Policy], dir).String()+rules.Policy(n.policies[by.Rule.Policy], dir).String()+fmt.Sprint(classify.WalkOf(e, dir)))
		}
	}
	return allowed, asked
}

// text is what the tables have, numbers included, but for those of groups.
func (n *node) text() string {
	var lines []string
	body := func(p classify.Program) string {
		b := n.tables.Programs[p]
		out := []string{fmt.Sprint("else ", n.tables.Codes[b.Else])}
		for k, c := range b.Port {
			out = append(out, fmt.Sprint(k, c, n.tables.Codes[c]))
		}
		for k, c := range b.Proto {
			out = append(out, fmt.Sprint(k, c, n.tables.Codes[c]))
		}
		sort.Strings(out)
		return strings.Join(out, ";")
	}
	for key, g := range n.groups {
		for f, p := range n.tables.World[g.id] {
			lines = append(lines, fmt.Sprint(key, " world ", f, " ", p, body(p)))
		}
		for net, c := range n.tables.Classes {
			if p, ok := n.tables.Entries[classify.Entry{Group: g.id, Class: c}]; ok {
				lines = append(lines, fmt.Sprint(key, " ", net, " ", c, p, body(p)))
			}
		}
	}
	sort.Strings(lines)
	return fmt.Sprintf("%d places, %d entries, %d programs, %d codes\n", len(n.tables.Classes), len(n.tables.Entries), len(n.tables.Programs), len(n.tables.Codes)) +
		strings.Join(lines, "\n")
}

// afresh is a node that receives at once what n received in many changes.
func (n *node) afresh(t *testing.T) *node {
	f := newNode("h1")
	f.sets = n.sets
	f.state = classify.New(classify.Limits{}, f.sets)
	f.policies, f.endpoints = n.policies, n.endpoints
	for _, p := range n.policies {
		f.state.SetPolicy(p)
	}
	for _, e := range n.endpoints {
		f.regroup(e, 1)
	}
	f.flush(t)
	return f
}

// TestTablesAreVerdict: over random worlds, on random paths, the look-ups give the decision that the rules give, by the same
// rule; and what stands in the tables in the end is what a fresh start makes.
func TestTablesAreVerdict(t *testing.T) {
	seed := seedtest.New(t)
	var allowed, asked int
	met := map[string]int{}
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, i))
		w := calctest.Random(rng, calctest.Config{})
		n := newNode("h1")
		n.graph.Update(w.State())
		n.merge(n.graph.Flush())
		n.flush(t)
		for range 8 {
			a, q := n.compare(t, rng, 60)
			allowed, asked = allowed+a, asked+q
			n.compareHosts(t, rng, 60, met)
			for range 1 + rng.IntN(6) {
				n.graph.Update(w.Step())
			}
			n.merge(n.graph.Flush())
			n.flush(t)
			if got, want := n.text(), n.afresh(t).text(); got != want {
				a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
				for k := range min(len(a), len(b)) {
					if a[k] != b[k] {
						t.Fatalf("world %d: the tables have, after steps and of a fresh start\n%s\n%s", i, a[k], b[k])
					}
				}
			}
		}
	}
	t.Logf("%d packets, %.0f %% allowed; of host endpoints: %v", asked, 100*float64(allowed)/float64(asked), met)
	for _, stage := range stageNames {
		if met[stage+", allowed"] == 0 || met[stage+", denied"] == 0 {
			t.Errorf("host endpoints were not asked at the stage %s, or said one thing only", stage)
		}
	}
	if share := float64(allowed) / float64(asked); share < 0.05 || share > 0.95 {
		t.Errorf("%.2f of the packets are allowed: the worlds say too little", share)
	}
}

// TestAPassInAProfileAsksTheNext: profiles of Kubernetes or Calico have no such rule; whoever sends one must not stop the agent.
func TestAPassInAProfileAsksTheNext(t *testing.T) {
	first, second := intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: "first"}, intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: "second"}
	state := classify.New(classify.Limits{}, sets{})
	state.SetPolicy(intent.Policy{ID: first, Ingress: []intent.Rule{{Action: intent.Pass, Src: intent.Peer{Ports: []intent.PortRange{{Min: 1, Max: 9}}}}, {}}})
	state.SetPolicy(intent.Policy{ID: second, Ingress: []intent.Rule{{Action: intent.Allow}}})
	state.SetWalk(1, classify.Walk{Profiles: []intent.PolicyID{first, second}})
	tables := classify.Tables{}
	if err := tables.Apply(state.Flush()); err != nil {
		t.Fatal(err)
	}
	for port, want := range map[uint16]rules.Action{5: rules.Allow, 10: rules.Deny} {
		p := classify.Packet{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), Proto: 6, SrcPort: port, DstPort: 80}
		if way, err := tables.Ask(1, p.Src, p, sets{}); err != nil || way.Decided.Action != want {
			t.Errorf("from port %d: %v, %v; want %v", port, way.Decided.Action, err, want)
		}
	}
}
