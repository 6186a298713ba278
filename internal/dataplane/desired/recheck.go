package desired

import (
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Chains that decide about established flows again. They exist only while some interface is rechecked.
const (
	recheckOut  = "recheck-from-workload"
	recheckIn   = "recheck-to-workload"
	recheckHost = "recheck-to-host"
)

// recheck is whose established flows are decided about again, since policy may allow less than when they began: from the change
// on, until somebody has looked at each of them and marked what is denied (docs/decisions/032).
type recheck struct {
	links map[string]uint64 // interfaces, with the number of the last change that concerns them
	last  uint64            // change
}

// Standing is the number of the last change that concerns an interface whose established flows are decided about again; zero: none is.
func (s *State) Standing() (upTo uint64) {
	for _, n := range s.recheck.links {
		upTo = max(upTo, n)
	}
	return upTo
}

// Judged says that somebody looked at all flows that the changes up to a number concern: what they deny is marked.
func (s *State) Judged(upTo uint64) {
	for link, n := range s.recheck.links {
		if n <= upTo {
			delete(s.recheck.links, link)
			s.dirtyLinks[link] = struct{}{}
		}
	}
	s.recheckChains()
}

// Resume says that an interface is rechecked in the kernel, by an earlier agent, which did not get to the end of it.
func (s *State) Resume(link string) {
	if s.cfg.Recheck {
		s.again(link)
	}
}

// again has the established flows of an interface decided about again. Call recheckChains after it.
func (s *State) again(link string) {
	_, is := s.recheck.links[link]
	s.recheck.last++
	s.recheck.links[link] = s.recheck.last
	if is {
		return // only its number changes
	}
	s.dirtyLinks[link] = struct{}{}
	if len(s.recheck.links) == 1 {
		s.recheckChains()
	}
}

// recheckChains wants the chains, or does not. They are base chains of their own, so that a change does not make the stages anew, and
// so that nothing is left of them. What they accept, and what is no concern of theirs, the stages accept, unless its flow
// is marked: then those drop it, and say why.
func (s *State) recheckChains() {
	if len(s.recheck.links) == 0 {
		for _, name := range []string{recheckOut, recheckIn, recheckHost} {
			s.drop(name, nil)
		}
		return
	}
	chain := func(name string, hook Hook, g Guard, side rules.Side) {
		g.If = []Cond{{Kind: Rechecked, Side: side}}
		s.want(Chain{Name: name, Hook: &hook, Recheck: true, Guards: []Guard{{If: []Cond{{Kind: Revoked}}, Do: Skip}, g}})
	}
	chain(recheckOut, Hook{At: Forward, Priority: -5}, Guard{Do: Dispatch, Map: Sends}, rules.Src)
	chain(recheckIn, Hook{At: Forward, Priority: -4}, Guard{Do: Dispatch, Map: Receives}, rules.Dst)
	chain(recheckHost, Hook{At: Input, Priority: -1}, Guard{Do: Goto, Target: chainToHost}, rules.Src)
}

// stricter are the workloads that there are for whom a batch may deny what was allowed. It is asked before the batch is merged: one that
// gets a policy or a set with it is in the batch itself. Before the source is in sync nobody is asked, since nothing comes into
// force, and at the end of that all flows are judged.
func (s *State) stricter(b intent.Batch) map[intent.EndpointID]struct{} {
	if !s.cfg.Recheck || !s.inSync || s.host.KeepDenied || b.Host != nil && b.Host.KeepDenied {
		return nil
	}
	policies := map[intent.PolicyID]struct{}{}
	for _, p := range b.Policies {
		policies[p.ID] = struct{}{}
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.PolicyID); ok {
			policies[id] = struct{}{}
		}
	}
	for set, change := range b.SetChanges() {
		for id := range s.setUsers[set] {
			if s.policies[id].use(set).Denies(change) {
				policies[id] = struct{}{}
			}
		}
	}
	out := map[intent.EndpointID]struct{}{}
	for p := range policies {
		for id := range s.groups.Users(p) {
			out[id] = struct{}{}
		}
	}
	for _, e := range b.Endpoints {
		if s.endpoints[e.ID] != nil {
			out[e.ID] = struct{}{}
		}
	}
	return out
}

// recheckEndpoints has the established flows of workloads decided about again, if they still are there.
func (s *State) recheckEndpoints(ids map[intent.EndpointID]struct{}) {
	for id := range ids {
		if e := s.endpoints[id]; e != nil && id.Kind == intent.Workload && e.Link != "" && len(e.Link) <= maxLink {
			s.again(e.Link)
		}
	}
}
