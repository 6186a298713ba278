package world

import (
	"slices"

	"github.com/twillnet/twill/api"
)

// staged is a staged policy, and what it would do if it were enforced.
type staged struct {
	policy
	deletes bool
	kind    string // of the policy of the same name that it replaces
}

// stage adds a staged policy. One that cannot be read would do nothing, and so do the actions Learn and Ignore of
// older versions.
func (w *World) stage(s api.Stored, p policy, action, kind string) {
	if s.Closed == "" && (action == "" || action == "Set" || action == "Delete") {
		w.staged = append(w.staged, staged{p, action == "Delete", kind})
	}
}

// Staged returns the world in which all staged policies are enforced: each replaces the policy with its name
// and tier, or removes it.
func (w *World) Staged() *World {
	out := *w
	out.policies = slices.Clone(w.policies)
	for _, s := range w.staged {
		out.policies = slices.DeleteFunc(out.policies, func(p policy) bool {
			return p.ref.Kind == s.kind && p.ref.Namespace == s.ref.Namespace && p.placed == s.placed && p.tier() == s.tier()
		})
	}
	for _, s := range w.staged {
		if !s.deletes {
			out.policies = append(out.policies, s.policy)
		}
	}
	return &out
}
