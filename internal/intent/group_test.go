package intent

import (
	"slices"
	"testing"
)

func TestGroupsHaveOneIDIfTheyAreEqual(t *testing.T) {
	a, b := PolicyID{"NetworkPolicy", "prod", "a"}, PolicyID{"NetworkPolicy", "prod", "b"}
	tiers := func(name string, end Action, in, out []PolicyID) []Tier {
		return []Tier{{Name: name, Default: end, Ingress: in, Egress: out}}
	}
	ab := []PolicyID{a, b}
	groups := func() map[string]*Group { // each has lists of its own
		normal := Stages{Normal: tiers("t", Deny, slices.Clone(ab), nil)}
		return map[string]*Group{
			"nothing":               GroupOf(Stages{}),
			"two policies":          GroupOf(normal),
			"in another order":      GroupOf(Stages{Normal: tiers("t", Deny, []PolicyID{b, a}, nil)}),
			"outbound":              GroupOf(Stages{Normal: tiers("t", Deny, nil, ab)}),
			"one in each direction": GroupOf(Stages{Normal: tiers("t", Deny, ab[:1], ab[1:])}),
			"of another tier":       GroupOf(Stages{Normal: tiers("u", Deny, ab, nil)}),
			"that passes":           GroupOf(Stages{Normal: tiers("t", Pass, ab, nil)}),
			"in two tiers":          GroupOf(Stages{Normal: append(tiers("t", Deny, ab[:1], nil), tiers("t", Deny, ab[1:], nil)...)}),
			"forwarded":             GroupOf(Stages{Forward: normal.Normal}),
			"untracked":             GroupOf(Stages{Untracked: normal.Normal}),
			"before DNAT":           GroupOf(Stages{PreDNAT: normal.Normal}),
			"with a profile":        GroupOf(normal, PolicyID{Kind: "Profile", Name: "p"}),
			"profiles alone":        GroupOf(Stages{}, a, b),
			"profiles, turned":      GroupOf(Stages{}, b, a),
			"staged":                NewGroup(normal, &Stages{}, nil),
			"staged, and more":      NewGroup(normal, &Stages{Normal: normal.Normal}, nil),
			"a text in parts":       GroupOf(Stages{}, PolicyID{"Profile", "", "ab"}),
			"in other parts":        GroupOf(Stages{}, PolicyID{"Profile", "a", "b"}),
		}
	}
	one, other := groups(), groups()
	for x, g := range one {
		for y, h := range other {
			if (g.ID == h.ID) != (x == y) {
				t.Errorf("%s is %s, %s is %s", x, g.ID, y, h.ID)
			}
		}
	}
	normal := Stages{Normal: tiers("t", Deny, ab, nil)}
	if GroupOf(normal).ID != GroupOf(normal.Summed()).ID {
		t.Error("a sum that was worked out before gives another ID")
	}
}

func TestGroupsKnowWhoHasAPolicy(t *testing.T) {
	p, q := PolicyID{Kind: "Profile", Name: "p"}, PolicyID{Kind: "Profile", Name: "q"}
	web := Endpoint{ID: EndpointID{Workload, "prod", "web"}, Group: GroupOf(Stages{Normal: []Tier{{Ingress: []PolicyID{q}, Egress: []PolicyID{q}}}}, p)}
	twin := Endpoint{ID: EndpointID{Workload, "prod", "twin"}, Group: GroupOf(web.Group.Stages, p)}
	other := Endpoint{ID: EndpointID{Workload, "prod", "other"}, Group: GroupOf(Stages{}, p)}
	bare := Endpoint{ID: EndpointID{Workload, "prod", "bare"}}
	var x Groups
	want := func(what string, groups int, ofP, ofQ []Endpoint) {
		t.Helper()
		if n := len(x.Present()); n != groups {
			t.Errorf("%s: %d groups, want %d", what, n, groups)
		}
		for _, c := range []struct {
			id   PolicyID
			want []Endpoint
		}{{p, ofP}, {q, ofQ}} {
			is := map[EndpointID]bool{}
			for e := range x.Users(c.id) {
				is[e] = true
			}
			if len(is) != len(c.want) || slices.ContainsFunc(c.want, func(e Endpoint) bool { return !is[e.ID] }) {
				t.Errorf("%s: %v have %s, want %v", what, is, c.id, c.want)
			}
		}
	}
	want("nobody", 0, nil, nil)
	for _, e := range []Endpoint{web, twin, other, bare} {
		x.Join(e)
	}
	want("all", 3, []Endpoint{web, twin, other}, []Endpoint{web, twin})
	if ids := x.Policies(web.Group.ID); !slices.Equal(ids, []PolicyID{p, q}) {
		t.Errorf("policies are %v", ids)
	}
	x.Leave(web)
	want("one left", 3, []Endpoint{twin, other}, []Endpoint{twin})
	x.Leave(web) // who is gone is gone
	x.Leave(twin)
	want("its twin, too", 2, []Endpoint{other}, nil)
	x.Leave(other)
	x.Leave(bare)
	want("all left", 0, nil, nil)
	if len(x.users) != 0 {
		t.Errorf("it remembers %v", x.users)
	}
}
