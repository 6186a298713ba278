package intent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
)

// GroupID is a hash of the content of a group: two groups have one ID if they are equal, on any host and after any restart. Users
// choose what is hashed, so it has 128 bits, which makes it infeasible to find two groups with one.
type GroupID [16]byte

// String returns hexadecimal digits.
func (id GroupID) String() string { return hex.EncodeToString(id[:]) }

// Group is the policies of endpoints: all that have the same policies in the same order, and the same profiles, share one value.
// It must not be changed. Make it with NewGroup.
type Group struct {
	ID GroupID
	Stages
	Profiles []PolicyID
	Staged   *Group // as it would be if staged policies were enforced; nil: no staged policy changes it
}

// Stages are tiers by stage (docs/design/stages.md). A workload has only Normal; a host may have all four.
type Stages struct {
	Untracked, PreDNAT, Normal, Forward []Tier

	sum GroupID // zero: not computed yet
}

// Tier is the policies of one tier that apply to an endpoint, in order. A
// direction without any policy is skipped; otherwise it ends in Default.
type Tier struct {
	Name            string
	Default         Action // Deny or Pass
	Ingress, Egress []PolicyID
}

// Lists returns the tiers of each stage, in the order in which a packet meets the stages.
func (s *Stages) Lists() [4][]Tier { return [4][]Tier{s.Untracked, s.PreDNAT, s.Normal, s.Forward} }

// Summed returns the same with its part of a [GroupID] computed, for groups that differ only in profiles.
func (s Stages) Summed() Stages {
	if s.sum != (GroupID{}) {
		return s
	}
	var b []byte
	for _, tiers := range s.Lists() {
		b = binary.AppendUvarint(b, uint64(len(tiers)))
		for _, t := range tiers {
			b = append(appendText(b, t.Name), byte(t.Default))
			b = appendPolicies(appendPolicies(b, t.Ingress), t.Egress)
		}
	}
	s.sum = hashed(b)
	return s
}

// NewGroup returns the group with these tiers and profiles, in their orders; staged are the tiers as they would be if staged policies were
// enforced, or nil.
func NewGroup(enforced Stages, staged *Stages, profiles []PolicyID) *Group {
	g := &Group{Stages: enforced.Summed(), Profiles: profiles}
	var room [256]byte
	b := append(room[:0], g.sum[:]...)
	if staged != nil {
		g.Staged = NewGroup(*staged, nil, profiles)
		b = append(b, g.Staged.ID[:]...)
	}
	g.ID = hashed(appendPolicies(b, profiles))
	return g
}

// GroupOf is NewGroup without staged policies.
func GroupOf(s Stages, profiles ...PolicyID) *Group { return NewGroup(s, nil, profiles) }

func hashed(b []byte) GroupID {
	sum := sha256.Sum256(b)
	return GroupID(sum[:16])
}

func appendPolicies(b []byte, ids []PolicyID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = appendText(appendText(appendText(b, id.Kind), id.Namespace), id.Name)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// IDs returns those of all policies and profiles of the group as enforced, each once: profiles first, then tiers.
func (g *Group) IDs() []PolicyID {
	var out []PolicyID
	seen := map[PolicyID]struct{}{}
	add := func(ids []PolicyID) {
		for _, id := range ids {
			if _, twice := seen[id]; !twice {
				seen[id] = struct{}{}
				out = append(out, id)
			}
		}
	}
	add(g.Profiles)
	for _, tiers := range g.Lists() {
		for _, t := range tiers {
			add(t.Ingress)
			add(t.Egress)
		}
	}
	return out
}

// none is the group of endpoints without policies.
var none Group

// Policies returns the endpoint's group, or an empty one. It is never nil.
func (e Endpoint) Policies() *Group {
	if e.Group == nil {
		return &none
	}
	return e.Group
}

// AsStaged returns the endpoint as it would be if staged policies were enforced.
func (e Endpoint) AsStaged() Endpoint {
	if s := e.Policies().Staged; s != nil {
		e.Group = s
	}
	return e
}

// Groups indexes endpoints by group and groups by policy. The zero value is empty.
type Groups struct {
	byID  map[GroupID]*members
	users map[PolicyID]map[GroupID]struct{}
}

type members struct {
	policies  []PolicyID
	endpoints map[EndpointID]struct{}
}

// Join adds an endpoint, which must be in no group.
func (x *Groups) Join(e Endpoint) {
	g := e.Policies()
	m := x.byID[g.ID]
	if m == nil {
		if x.byID == nil {
			x.byID, x.users = map[GroupID]*members{}, map[PolicyID]map[GroupID]struct{}{}
		}
		m = &members{policies: g.IDs(), endpoints: map[EndpointID]struct{}{}}
		x.byID[g.ID] = m
		for _, id := range m.policies {
			if x.users[id] == nil {
				x.users[id] = map[GroupID]struct{}{}
			}
			x.users[id][g.ID] = struct{}{}
		}
	}
	m.endpoints[e.ID] = struct{}{}
}

// Leave removes an endpoint, as it was passed to Join; call it before it joins another group.
func (x *Groups) Leave(e Endpoint) {
	id := e.Policies().ID
	m := x.byID[id]
	if m == nil {
		return
	}
	if delete(m.endpoints, e.ID); len(m.endpoints) > 0 {
		return
	}
	delete(x.byID, id)
	for _, p := range m.policies {
		if delete(x.users[p], id); len(x.users[p]) == 0 {
			delete(x.users, p)
		}
	}
}

// Policies returns those of a group with endpoints, each once, and nil for any other; the list must not be changed.
func (x *Groups) Policies(of GroupID) []PolicyID {
	if m := x.byID[of]; m != nil {
		return m.policies
	}
	return nil
}

// Users yields each endpoint with a policy or profile, in no order.
func (x *Groups) Users(of PolicyID) iter.Seq[EndpointID] {
	return func(yield func(EndpointID) bool) {
		for id := range x.users[of] {
			for e := range x.byID[id].endpoints {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Present returns the groups with endpoints, in the order of their IDs.
func (x *Groups) Present() []GroupID {
	return slices.SortedFunc(maps.Keys(x.byID), func(a, b GroupID) int { return slices.Compare(a[:], b[:]) })
}
