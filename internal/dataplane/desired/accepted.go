package desired

import (
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Stages of what is nobody's policy to decide about, and must pass all the same: what goes between this host and others through tunnels, and what a
// workload needs of its host. They come after all that may drop it, and are there where others decide in the backend's tables, too: see [Config.Shared].
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
	if between := s.betweenHosts(intent.Egress); len(between) > 0 {
		s.own(baseAcceptedOut, &Hook{At: Output, Priority: 4, Accept: true}, between)
	} else if s.inSync {
		s.drop(baseAcceptedOut, nil)
	}
}
