package desired

import (
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Stages of what must pass, whatever others decide: what goes between this host and others through tunnels, and what a workload needs of its host, which
// no policy is asked about; and what processes of the host send, if policy is asked about it later. They come after all that may drop it, and are there where
// others decide in the backend's tables, too: see [Config.Shared].
const (
	baseAcceptedIn  = "input-accepted"
	baseAcceptedOut = "output-accepted"
)

// accepted makes those stages desired. Until the source is in sync they stay as an earlier agent left them: the sets of hosts are not complete.
func (s *State) accepted() {
	if !s.cfg.Shared {
		return
	}
	workload := slices.Concat([]Guard{{If: fromWorkload(), Do: Call, Target: chainServices}}, s.served())
	s.own(baseAcceptedIn, &Hook{At: Input, Priority: 4, Accept: true}, append(s.betweenHosts(intent.Ingress), workload...))
	if sent := append(s.betweenHosts(intent.Egress), s.askedLater()...); len(sent) > 0 {
		s.own(baseAcceptedOut, &Hook{At: Output, Priority: 4, Accept: true}, sent)
	} else if s.inSync {
		s.drop(baseAcceptedOut, nil)
	}
}

// askedLater passes what processes of the host send by an interface whose host endpoint is asked about it, which is after routing: what its policy denies
// is dropped there. Of what was translated the interface is not known yet, so that upstream does not accept it here, either.
func (s *State) askedLater() []Guard {
	if len(s.hosts.sends) == 0 {
		return nil
	}
	gs := []Guard{
		{If: onLink(intent.Egress, "lo"), Do: Return},
		{If: []Cond{{Kind: Translated}}, Do: Return, Comment: "translated"},
	}
	for _, g := range s.passWorkloads(intent.Egress) { // no policy is asked about it
		g.Do = Return
		gs = append(gs, g)
	}
	for _, g := range s.hosts.sends {
		gs = append(gs, Guard{If: g.If, Do: Pass, Comment: g.Comment})
	}
	return gs
}
