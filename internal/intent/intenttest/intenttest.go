// Package intenttest replaces policies of endpoints in tests, one list at a time.
//
// In: an endpoint. Out: the same with another group, since groups must not be changed.
package intenttest

import "github.com/twillnet/twill/internal/intent"

// Normal gives an endpoint the tiers of that stage.
func Normal(e *intent.Endpoint, tiers ...intent.Tier) {
	change(e, func(s *intent.Stages) { s.Normal = tiers })
}

// Forward gives an endpoint the tiers of that stage.
func Forward(e *intent.Endpoint, tiers ...intent.Tier) {
	change(e, func(s *intent.Stages) { s.Forward = tiers })
}

// PreDNAT gives an endpoint the tiers of that stage.
func PreDNAT(e *intent.Endpoint, tiers ...intent.Tier) {
	change(e, func(s *intent.Stages) { s.PreDNAT = tiers })
}

// Untracked gives an endpoint the tiers of that stage.
func Untracked(e *intent.Endpoint, tiers ...intent.Tier) {
	change(e, func(s *intent.Stages) { s.Untracked = tiers })
}

// Profiles gives an endpoint these.
func Profiles(e *intent.Endpoint, ids ...intent.PolicyID) {
	e.Group = intent.GroupOf(lists(e), ids...)
}

// Staged has staged policies, if they were enforced, remove all of an endpoint's tiers.
func Staged(e *intent.Endpoint) {
	e.Group = intent.NewGroup(lists(e), &intent.Stages{}, e.Policies().Profiles)
}

func change(e *intent.Endpoint, f func(*intent.Stages)) {
	s := lists(e)
	f(&s)
	e.Group = intent.GroupOf(s, e.Policies().Profiles...)
}

// lists returns an endpoint's tiers without the computed sum.
func lists(e *intent.Endpoint) intent.Stages {
	g := e.Policies()
	return intent.Stages{Untracked: g.Untracked, PreDNAT: g.PreDNAT, Normal: g.Normal, Forward: g.Forward}
}
