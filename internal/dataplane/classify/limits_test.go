package classify_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// bad is a State with groups of whom nothing bad is known, and what came of it.
type bad struct {
	t      *testing.T
	sets   sets
	state  *classify.State
	tables classify.Tables
	plain  map[classify.Group]string
}

func newBad(t *testing.T, limits classify.Limits) *bad {
	b := &bad{t: t, sets: sets{}, plain: map[classify.Group]string{}}
	b.state = classify.New(limits, b.sets)
	return b
}

// group asks a group about policies.
func (b *bad) group(id classify.Group, policies ...intent.Policy) {
	w := classify.Walk{Direction: intent.Ingress, Tiers: []classify.Tier{{Name: "default"}}}
	for _, p := range policies {
		b.state.SetPolicy(p)
		w.Tiers[0].Policies = append(w.Tiers[0].Policies, p.ID)
	}
	b.state.SetWalk(id, w)
}

// flush applies what changed, and returns how many steps that took.
func (b *bad) flush() int {
	b.t.Helper()
	before := b.state.Work()
	d := b.state.Flush()
	if err := b.tables.Apply(d); err != nil {
		b.t.Fatal(err)
	}
	b.state.Committed()
	for ; d != nil; d = d.Next {
		for g, why := range d.Plain {
			b.plain[g] = why
		}
	}
	return b.state.Work() - before
}

// only demands that a group is left out, with a reason that has these words, and no other group; and that it took at most so many steps.
func (b *bad) only(id classify.Group, words string, steps, most int) {
	b.t.Helper()
	for g, why := range b.plain {
		if g != id && why != "" {
			b.t.Errorf("group %d is left out, which has done nothing: %s", g, why)
		}
	}
	if why := b.plain[id]; words == "" && why != "" || words != "" && !strings.Contains(why, words) {
		b.t.Errorf("the group is left out because %q, want %q", why, words)
	}
	if steps > most {
		b.t.Errorf("it took %d steps, more than %d", steps, most)
	}
}

func (b *bad) members(set intent.SetID, from, to int, in func(i int) bool) {
	b.sets[set] = map[intent.Member]bool{}
	for i := from; i < to; i++ {
		if in(i) {
			b.sets[set][intent.Member{Prefix: address(i)}] = true
		}
	}
}

func named(name string, rs ...intent.Rule) intent.Policy {
	return intent.Policy{ID: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: name}, Tier: "default", Ingress: rs}
}

func from(port uint16, sets ...intent.SetID) intent.Rule {
	return intent.Rule{Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: sets}, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}}
}

// TestSelectorsThatMakeEachAddressAClass: eleven selectors, each of half of the addresses, multiply the entries of all groups. The group
// that asks for them is left out, and no other; when they are gone, it comes back.
func TestSelectorsThatMakeEachAddressAClass(t *testing.T) {
	const addrs, others, bits = 2048, 12, 11
	b := newBad(t, classify.Limits{Entries: 2 * addrs})
	b.members("all", 0, addrs, func(int) bool { return true })
	for g := range others {
		b.group(classify.Group(g+1), named(fmt.Sprint("good", g), from(80, "all")))
	}
	b.flush()
	if got := len(b.tables.Entries); got != others {
		t.Fatalf("%d entries, want one for each of %d groups", got, others)
	}
	var rs []intent.Rule
	for bit := range bits {
		set := intent.SetID(fmt.Sprint("bit", bit))
		b.members(set, 0, addrs, func(i int) bool { return i>>bit&1 == 1 })
		rs = append(rs, from(uint16(1000+bit), set))
	}
	const evil classify.Group = 99
	b.group(evil, named("evil", rs...))
	steps := b.flush()
	t.Logf("%d steps", steps)
	b.only(evil, "too many classes of addresses", steps, 40*addrs*bits)
	if got := len(b.tables.Entries); got != others {
		t.Errorf("%d entries are left, want %d: what only the one that was left out asked for is still there", got, others)
	}
	b.group(evil, named("evil", rs[:2]...))
	b.only(evil, "", b.flush(), 40*addrs*bits)
	if got, want := len(b.tables.Entries), 4*others+3; got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
}

// TestRulesThatCannotBeCompared: a thousand rules, each with ranges of its own, for peers in all combinations of ten sets.
func TestRulesThatCannotBeCompared(t *testing.T) {
	const limit = 1 << 18
	b := newBad(t, classify.Limits{Steps: limit})
	b.members("all", 0, 1024, func(int) bool { return true })
	b.group(1, named("good", from(80, "all")))
	var rs []intent.Rule
	for i := range 1000 {
		set := intent.SetID(fmt.Sprint("bit", i%10))
		if i < 10 {
			b.members(set, 0, 1024, func(a int) bool { return a>>i&1 == 1 })
		}
		r := from(0, set)
		r.Dst.Ports = nil
		for k := range 8 {
			at := uint16(i*60 + k*7)
			r.Dst.Ports = append(r.Dst.Ports, intent.PortRange{Min: at, Max: at + uint16(i%5)})
		}
		rs = append(rs, r)
	}
	b.group(2, named("evil", rs...))
	steps := b.flush()
	t.Logf("%d steps", steps)
	if b.plain[2] == "" {
		t.Error("the group is not left out")
	}
	b.only(2, b.plain[2], steps, 2*limit)

	// The addresses change, and the policy does not: it is tried again, but not for each of them.
	sum := 0
	for i := range 3000 {
		m := []intent.Member{{Prefix: address(5000 + i%7)}}
		d := intent.MemberDelta{Set: "all", Added: m}
		if b.sets["all"][m[0]] {
			d = intent.MemberDelta{Set: "all", Removed: m}
		}
		b.sets["all"][m[0]] = len(d.Added) > 0
		if len(d.Removed) > 0 {
			delete(b.sets["all"], m[0])
		}
		b.state.Change(d)
		sum += b.flush()
	}
	if most := 3000 * 200; sum > most {
		t.Errorf("3,000 changes of members took %d steps, more than %d", sum, most)
	}
	b.group(2, named("evil", rs[:2]...))
	b.only(2, "", b.flush(), 2*limit)
}

// TestASetWithAllPorts: a set of named ports has 20,000 of them, and rules ask for it at the peer and at the endpoint.
func TestASetWithAllPorts(t *testing.T) {
	const ports = 20_000
	for _, dir := range []intent.Direction{intent.Ingress, intent.Egress} {
		b := newBad(t, classify.Limits{})
		b.sets["ports"] = map[intent.Member]bool{}
		for i := range ports {
			b.sets["ports"][intent.Member{Prefix: address(i), Proto: 6, Port: uint16(i + 1)}] = true
		}
		p := named("evil")
		r := intent.Rule{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{PortSets: []intent.SetID{"ports"}}}
		if p.Ingress = []intent.Rule{r, r, r, r}; dir == intent.Egress {
			p.Ingress, p.Egress = nil, p.Ingress
		}
		b.state.SetPolicy(p)
		b.state.SetWalk(2, classify.Walk{Direction: dir, Tiers: []classify.Tier{{Name: "default", Policies: []intent.PolicyID{p.ID}}}})
		b.members("all", 0, 64, func(int) bool { return true })
		b.group(1, named("good", from(80, "all")))
		steps := b.flush()
		t.Logf("%s: %d steps", dir, steps)
		b.only(2, "names too many", steps, 10*ports)
	}
}

// TestEveryAddressIsNoClass: a rule for all addresses but some costs the classes of these.
func TestEveryAddressIsNoClass(t *testing.T) {
	b := newBad(t, classify.Limits{})
	b.members("all", 0, 1000, func(int) bool { return true })
	b.group(1, named("good", from(80, "all")))
	b.flush()
	r := from(443)
	r.Src.Nets, r.Src.NotNets = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	b.group(2, named("world", r))
	b.only(2, "", b.flush(), 100)
	for peer, want := range map[string]bool{"10.0.0.1": true, "203.0.113.1": true, "192.0.2.1": false} {
		way, err := b.tables.Ask(2, netip.MustParseAddr(peer), classify.Packet{Proto: 6, DstPort: 443}, b.sets)
		if err != nil || way.Decided.By.Allowed != want {
			t.Errorf("%s: %+v, %v; want allowed=%v", peer, way, err, want)
		}
	}
}

// TestLimitedTablesAreVerdict: over random worlds and paths, with limits that are met all the time, each group is either left out or
// decided as by verdict, and no more is kept than the limits allow.
func TestLimitedTablesAreVerdict(t *testing.T) {
	seed := seedtest.New(t)
	var asked, plain, groups int
	for i := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, i))
		w := calctest.Random(rng, calctest.Config{})
		limits := classify.Limits{Branches: 2 + rng.IntN(6), Cells: 2 + rng.IntN(20), Entries: 4 + rng.IntN(60), Names: 2 + rng.IntN(20), Steps: 200 + rng.IntN(3000)}
		n := newNode("h1")
		n.state = classify.New(limits, n.sets)
		n.graph.Update(w.State())
		for range 8 {
			n.merge(n.graph.Flush())
			n.flush(t)
			_, q := n.compare(t, rng, 60)
			asked += q
			if got := len(n.tables.Entries); got > limits.Entries {
				t.Fatalf("world %d: %d entries, at most %d are allowed", i, got, limits.Entries)
			}
			for _, g := range n.groups {
				if groups++; n.plain[g.id] != "" {
					plain++
				}
			}
			n.graph.Update(w.Step())
		}
	}
	t.Logf("%d packets; %d of %d groups were left out", asked, plain, groups)
	if share := float64(plain) / float64(groups); share < 0.02 || share > 0.9 || asked == 0 {
		t.Errorf("%.2f of the groups are left out: the limits say too little", share)
	}
}

// TestManyPoliciesWithPortsOfTheirOwn: ten thousand policies, each with a rule for a port of its own, for peers of which there are a hundred
// kinds. Work follows from the rules of each kind, not from rules times ports.
func TestManyPoliciesWithPortsOfTheirOwn(t *testing.T) {
	const policies, kinds = 10_000, 100
	b := newBad(t, classify.Limits{})
	for k := range kinds {
		b.members(intent.SetID(fmt.Sprint("kind", k)), 0, 2*kinds, func(a int) bool { return a%kinds == k })
	}
	var all []intent.Policy
	for i := range policies {
		r := from(uint16(8000+i), intent.SetID(fmt.Sprint("kind", i%kinds)))
		all = append(all, named(fmt.Sprint("p", i), r))
	}
	b.group(1, all...)
	steps := b.flush()
	t.Logf("%d steps", steps)
	b.only(1, "", steps, 40*policies)
	for i := range 3 * kinds {
		addr, port := address(i%kinds).Addr(), uint16(8000+i*33)
		way, err := b.tables.Ask(1, addr, classify.Packet{Proto: 6, DstPort: port}, b.sets)
		if want := (i*33)%kinds == i%kinds; err != nil || way.Decided.By.Allowed != want {
			t.Errorf("%s to %d: %+v, %v; want allowed=%v", addr, port, way, err, want)
		}
	}
}
