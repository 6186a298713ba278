package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/seedtest"
)

// stepped is a kernel that remembers the sets as they were after each transaction.
type stepped struct {
	*kernelConn
	t      *testing.T
	d      *Driver
	states []map[string][]nftables.Element
}

func (s *stepped) Commit(b *nftables.Batch) error {
	if err := s.kernelConn.Commit(b); err != nil {
		return err
	}
	rs, err := s.List(kernel.TableName)
	if err != nil {
		s.t.Fatal(err)
	}
	state := map[string][]nftables.Element{}
	for _, set := range rs.Sets {
		state[set.Name] = set.Elements
	}
	s.states = append(s.states, state)
	return nil
}

// glance is a packet that looks into one state until it has made some look-ups, and into the next from then on.
type glance struct {
	before, after map[string][]nftables.Element
	left          int
}

func (g *glance) in(kind string, id intent.SetID, a netip.Addr) bool {
	state := g.after
	if g.left > 0 {
		state = g.before
	}
	g.left--
	x := string(a.AsSlice())
	return slices.ContainsFunc(state[setName(kind, intent.IPv4, id)], func(el nftables.Element) bool {
		last := el.End
		if last == nil {
			last = el.Key
		}
		return string(el.Key) <= x && x <= string(last)
	})
}

// judge does what the kernel's rules do: a selection is two sets, one after the other. Nothing matched: denied.
func (g *glance) judge(rs []intent.Rule, a netip.Addr) intent.Action {
	for _, r := range rs {
		for _, id := range r.Src.Sets {
			if g.in("hosts", id, a) || g.in("nets", id, a) {
				return r.Action
			}
		}
		for _, id := range r.Src.NotSets {
			if !g.in("hosts", id, a) && !g.in("nets", id, a) {
				return r.Action
			}
		}
	}
	return intent.Deny
}

// TestWhatMovesIsJudgedAsBeforeOrAfter moves addresses between sets of random rules, and lets a packet look at any moment: between two
// transactions and, after each number of look-ups, while one goes in. The kernel lets it see two that follow each other at most.
func TestWhatMovesIsJudgedAsBeforeOrAfter(t *testing.T) {
	t.Parallel()
	rng := seedtest.Rand(t)
	const (
		rules = 7
		each  = 3 // sets whose members are allowed more, and as many whose members are denied more
	)
	asked, several := 0, 0
	for world := range 16 {
		rs, sets := movingRules(rng, rules, each), movingSets(each)
		k := newStepped(t, rs, sets...)
		members := map[intent.SetID][]intent.Member{}
		for range 12 {
			k.states = k.states[len(k.states)-1:]
			change := intent.Batch{}
			kinds, negated := map[byte]bool{}, false
			for _, id := range sets {
				if rng.IntN(2) == 0 {
					continue
				}
				now := movingMembers(rng)
				if fmt.Sprint(now) != fmt.Sprint(members[id]) {
					kinds[id[0]] = true
					negated = negated || slices.ContainsFunc(rs, func(r intent.Rule) bool { return slices.Contains(r.Src.NotSets, id) })
					change.Members = append(change.Members, intent.MemberDelta{Set: id, Removed: members[id], Added: now})
				}
				members[id] = now
			}
			k.d.Merge(change)
			apply(t, k.d)
			several += len(k.states) - 1
			for _, a := range []string{"10.0.0.1", "10.0.0.2"} {
				asked += k.look(t, rs, netip.MustParseAddr(a), len(kinds) == 1 && !negated)
			}
			if t.Failed() {
				t.Fatalf("world %d, rules:\n%s", world, rulesText(rs))
			}
		}
	}
	if asked < 100 || several < 100 {
		t.Errorf("%d packets had one verdict before and after, of %d transactions: too few to show anything", asked, several)
	}
}

// look asks at any moment of the steps about a packet whose verdict is the same before and after. What is allowed may be
// denied meanwhile, unless only what allows changes, or only what denies, and no rule asks for what is not in a set.
func (s *stepped) look(t *testing.T, rs []intent.Rule, a netip.Addr, gentle bool) (asked int) {
	t.Helper()
	last := len(s.states) - 1
	is := (&glance{after: s.states[0]}).judge(rs, a)
	if is != (&glance{after: s.states[last]}).judge(rs, a) || is == intent.Allow && !gentle {
		return 0
	}
	for i := range last {
		for after := range 2*len(rs) + 1 {
			if got := (&glance{s.states[i], s.states[i+1], after}).judge(rs, a); got != is {
				t.Errorf("from %s: %v before and after, but %v after %d look-ups, step %d of %d", a, is, got, after, i+1, last)
			}
		}
	}
	return 1
}

func movingSets(each int) (out []intent.SetID) {
	for i := range each {
		out = append(out, intent.SetID(fmt.Sprintf("opens%d", i)), intent.SetID(fmt.Sprintf("closes%d", i)))
	}
	return out
}

func movingRules(rng *rand.Rand, n, each int) (rs []intent.Rule) {
	for range n {
		r := intent.Rule{Action: []intent.Action{intent.Allow, intent.Deny}[rng.IntN(2)]}
		kind, not := "opens", rng.IntN(3) == 0
		if (r.Action == intent.Deny) != not {
			kind = "closes"
		}
		set := []intent.SetID{intent.SetID(fmt.Sprint(kind, rng.IntN(each)))}
		if r.Src.Sets = set; not {
			r.Src.Sets, r.Src.NotSets = nil, set
		}
		rs = append(rs, r)
	}
	return rs
}

func movingMembers(rng *rand.Rand) (out []intent.Member) {
	for _, m := range []string{"10.0.0.1/32", "10.0.0.2/32", "10.0.0.0/30", "10.0.0.0/24"} {
		if rng.IntN(4) == 0 {
			out = append(out, member(m))
		}
	}
	return out
}

func rulesText(rs []intent.Rule) string {
	var b strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&b, "%v in %v, not in %v\n", r.Action, r.Src.Sets, r.Src.NotSets)
	}
	return b.String()
}

// TestStepsByHand are moves of which each order but one opens something.
func TestStepsByHand(t *testing.T) {
	t.Parallel()
	allow, deny := intent.Allow, intent.Deny
	rule := func(a intent.Action, sets ...intent.SetID) intent.Rule {
		return intent.Rule{Action: a, Src: inSet(sets...)}
	}
	unless := func(a intent.Action, sets ...intent.SetID) intent.Rule {
		return intent.Rule{Action: a, Src: intent.Peer{NotSets: sets}}
	}
	for _, tt := range []struct {
		name     string
		rules    []intent.Rule
		from, to string // sets
		steps    int
	}{
		{"from an allowing set to another", []intent.Rule{rule(allow, "b"), rule(allow, "a")}, "a", "b", 2},
		{"from a denying set to another", []intent.Rule{rule(deny, "b"), rule(deny, "a"), rule(allow, "always")}, "a", "b", 2},
		{"into a denying set and an allowing one", []intent.Rule{rule(deny, "b"), rule(allow, "c")}, "", "b c", 2},
		{"out of a denying set and an allowing one", []intent.Rule{rule(deny, "b"), rule(allow, "c")}, "b c", "", 2},
		{"between sets outside of which all is denied", []intent.Rule{unless(deny, "a"), unless(deny, "b"), rule(allow, "always")}, "a", "b", 2},
		{"between sets outside of which all is allowed", []intent.Rule{rule(deny, "b"), unless(allow, "a")}, "a", "b", 2},
		{"from all that a packet can be in to all else", []intent.Rule{rule(deny, "b"), rule(deny, "a"), rule(allow, "c"), rule(allow, "d")}, "a c", "b d", 4},
		{"what only joins has no order", []intent.Rule{rule(allow, "a"), rule(allow, "b"), rule(allow, "always")}, "", "a b", 1},
		{"what only leaves has none, either", []intent.Rule{rule(allow, "a"), rule(allow, "b"), rule(allow, "always")}, "a b", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newStepped(t, tt.rules, "a", "b", "c", "d", "always")
			x := netip.MustParseAddr("10.0.0.1")
			k.move(member("10.0.0.1/32"), "", "always "+tt.from)
			k.states = k.states[len(k.states)-1:]
			k.move(member("10.0.0.1/32"), tt.from, tt.to)
			if n := len(k.states) - 1; n != tt.steps {
				t.Errorf("%d transactions, want %d", n, tt.steps)
			}
			if k.look(t, tt.rules, x, true) == 0 {
				t.Error("it is judged otherwise before than after")
			}
		})
	}
}

// TestTwoThatMoveAreNotOldAndNew: a rule asks for both ends, and each moves. Where one is found as before and the other as after, or
// both as both, the rule would match what it matches neither before nor after.
func TestTwoThatMoveAreNotOldAndNew(t *testing.T) {
	t.Parallel()
	k := newStepped(t, []intent.Rule{{Action: intent.Allow, Src: inSet("a"), Dst: inSet("b")}}, "a", "b", "c", "d")
	x, y := member("10.0.0.1/32"), member("10.0.0.2/32")
	k.move(x, "", "a")
	k.move(y, "", "c")
	k.states = k.states[len(k.states)-1:]
	k.d.Merge(intent.Batch{Members: []intent.MemberDelta{
		{Set: "a", Removed: []intent.Member{x}},
		{Set: "d", Added: []intent.Member{x}},
		{Set: "c", Removed: []intent.Member{y}},
		{Set: "b", Added: []intent.Member{y}},
	}})
	apply(t, k.d)
	steps := len(k.states) - 1
	for i := range steps { // the source is looked up before the step, or the destination
		for _, g := range []glance{{k.states[i], k.states[i+1], 1}, {k.states[i+1], k.states[i], 1}} {
			if g.in("hosts", "a", x.Prefix.Addr()) && g.in("hosts", "b", y.Prefix.Addr()) {
				t.Errorf("step %d of %d: the source is still in its set, and the destination already in its own", i+1, steps)
			}
		}
	}
	if steps < 2 {
		t.Errorf("%d transactions, want several", steps)
	}
}

// newStepped is a driver with a policy of these rules, and sets that stay what they are but for their members.
func newStepped(t *testing.T, rs []intent.Rule, sets ...intent.SetID) *stepped {
	t.Helper()
	k := &stepped{kernelConn: newKernel(t), t: t}
	k.d = New(k, Config{})
	b := pair([]intent.Tier{{Name: "t", Ingress: ids("moving"), Default: intent.Deny}}, pol("moving", rs, nil))
	all := intent.Rule{Action: intent.Log}
	for _, id := range sets { // two members that stay, and a rule that needs it
		b.IPSets = append(b.IPSets, intent.IPSet{ID: id, Members: []intent.Member{member("198.51.100.1/32"), member("198.51.100.128/25")}})
		all.Src.NotSets = append(all.Src.NotSets, id)
	}
	b.Policies = append(b.Policies, pol("uses-all", []intent.Rule{all}, nil))
	tiers := slices.Clone(b.Endpoints[0].Policies().Normal)
	tiers[0].Ingress = ids("moving", "uses-all")
	intenttest.Normal(&b.Endpoints[0], tiers...)
	k.d.Merge(b)
	apply(t, k.d)
	return k
}

// move takes a member out of sets and puts it into others.
func (s *stepped) move(m intent.Member, from, to string) {
	s.t.Helper()
	var b intent.Batch
	for _, id := range strings.Fields(from) {
		b.Members = append(b.Members, intent.MemberDelta{Set: intent.SetID(id), Removed: []intent.Member{m}})
	}
	for _, id := range strings.Fields(to) {
		b.Members = append(b.Members, intent.MemberDelta{Set: intent.SetID(id), Added: []intent.Member{m}})
	}
	s.d.Merge(b)
	apply(s.t, s.d)
}
