package desired

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

// members are the addresses of each set.
type members map[intent.SetID]map[string]bool

func (m members) clone() members {
	out := members{}
	for id, addrs := range m {
		out[id] = maps.Clone(addrs)
	}
	return out
}

// judge asks rules about an address that sees before until it has made so many look-ups, and after from then on.
func judge(rs []intent.Rule, addr string, before, after members, left int) intent.Action {
	look := func(id intent.SetID) bool {
		state := after
		if left > 0 {
			state = before
		}
		left--
		return state[id][addr]
	}
	for _, r := range rs {
		for _, id := range r.Src.Sets {
			if look(id) {
				return r.Action
			}
		}
		for _, id := range r.Src.NotSets {
			if !look(id) {
				return r.Action
			}
		}
	}
	return intent.Deny
}

// TestAnAddressThatMovesIsJudgedAsBeforeOrAfter: moves of which each order but one opens something, and how many steps they take.
func TestAnAddressThatMovesIsJudgedAsBeforeOrAfter(t *testing.T) {
	allow, deny := intent.Allow, intent.Deny
	rule := func(a intent.Action, id intent.SetID) intent.Rule {
		return intent.Rule{Action: a, Src: intent.Peer{Sets: []intent.SetID{id}}}
	}
	unless := func(a intent.Action, id intent.SetID) intent.Rule {
		return intent.Rule{Action: a, Src: intent.Peer{NotSets: []intent.SetID{id}}}
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
		{"one set alone", []intent.Rule{rule(allow, "a")}, "a", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const x = "10.0.0.1"
			s := New(Config{})
			s.Merge(intent.Batch{InSync: true, Policies: []intent.Policy{{ID: intent.PolicyID{Kind: "NetworkPolicy", Name: "p"}, Ingress: tt.rules}}})
			now := members{"always": {x: true}, "a": {}, "b": {}, "c": {}, "d": {}}
			var pending []Move
			for _, id := range strings.Fields(tt.from) {
				now[intent.SetID(id)][x] = true
				pending = append(pending, Move{Set: intent.SetID(id), Addr: x})
			}
			for _, id := range strings.Fields(tt.to) {
				pending = append(pending, Move{Set: intent.SetID(id), Addr: x, Joins: true})
			}
			states := []members{now}
			var m Mover
			for len(pending) > 0 {
				due, more := m.Next(s, pending)
				next := states[len(states)-1].clone()
				var rest []Move
				for i, c := range pending {
					if more && !slices.Contains(due, i) {
						rest = append(rest, c)
						continue
					}
					if delete(next[c.Set], c.Addr); c.Joins {
						next[c.Set][c.Addr] = true
					}
				}
				states, pending = append(states, next), rest
			}
			last := len(states) - 1
			if last != tt.steps {
				t.Errorf("%d steps, want %d", last, tt.steps)
			}
			is := judge(tt.rules, x, nil, states[0], 0)
			if is != judge(tt.rules, x, nil, states[last], 0) {
				return // it may be judged as either meanwhile
			}
			for i := range last {
				for left := range len(tt.rules) + 1 {
					if got := judge(tt.rules, x, states[i], states[i+1], left); got != is && (is == deny || tt.steps < 4) {
						t.Errorf("step %d, after %d look-ups: %v, but %v before and after", i+1, left, got, is)
					}
				}
			}
		})
	}
}

// TestTwoThatMoveAtOnceLeaveBeforeTheyJoin: where a rule allows by both ends, one found as before and the other as after would match what neither does.
func TestTwoThatMoveAtOnceLeaveBeforeTheyJoin(t *testing.T) {
	s := New(Config{})
	both := intent.Rule{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{"a"}}, Dst: intent.Peer{Sets: []intent.SetID{"b"}}}
	s.Merge(intent.Batch{InSync: true, Policies: []intent.Policy{{ID: intent.PolicyID{Kind: "NetworkPolicy", Name: "p"}, Ingress: []intent.Rule{both}}}})
	moves := []Move{{Set: "a", Addr: "x"}, {Set: "d", Addr: "x", Joins: true}, {Set: "c", Addr: "y"}, {Set: "b", Addr: "y", Joins: true}}
	var m Mover
	var order []int
	for left := slices.Clone(moves); len(left) > 0; {
		due, more := m.Next(s, left)
		if !more {
			due = []int{0}
		}
		for _, at := range due {
			order = append(order, slices.Index(moves, left[at]))
		}
		left = slices.DeleteFunc(left, func(c Move) bool { return slices.Contains(order, slices.Index(moves, c)) })
	}
	if slices.Index(order, 0) > slices.Index(order, 3) {
		t.Errorf("the source leaves after the destination has joined: %v", order)
	}
}
