package speaker

import (
	"context"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
)

// BFD says that a path is dead when no packets of its own come. That can be a path that is dead, and it can be a BFD that
// has stopped: a process that is stopped or starved, a filter on its port. So the peer's kernel is asked, by an echo: it
// answers while the path is alive in both directions and the host forwards, which is what routes need. While it answers,
// nothing is withdrawn (RFC 5882, 4.3, leaves to the implementation what a loss leads to), and it is asked again and again;
// with the first silence the path is dead, as BFD said (decision 021).
const (
	// askFirst bounds the first question: on a link a kernel answers within milliseconds, and a dead host is to be forgotten
	// within three intervals and 0.3 s.
	askFirst = 100 * time.Millisecond
	// askEvery and askLater are of all others: by then the path has been alive for longer than BFD said.
	askEvery = 300 * time.Millisecond
	askLater = time.Second
)

// suspect is a peer of whom BFD says that its path is dead, while the path answers.
type suspect struct {
	lost  bfd.Status
	first bool // as in dead
	stop  context.CancelFunc
}

// suspect asks whether a path is dead indeed. Whoever cannot ask believes BFD.
func (s *Speaker) suspect(ctx context.Context, lost bfd.Status, first bool) {
	s.trust(lost.Peer)
	if s.cfg.Answers == nil {
		s.dead(ctx, lost, first)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	who := &suspect{lost, first, stop}
	s.live.suspects[lost.Peer] = who
	go func() {
		for within := askFirst; s.cfg.Answers(lost.Peer, within) == nil; within = askLater {
			select {
			case <-ctx.Done():
				return
			case <-time.After(askEvery):
			}
		}
		select {
		case s.live.silent <- who:
		case <-ctx.Done():
		}
	}()
}

// silent: the path of a suspect does not answer either.
func (s *Speaker) silent(ctx context.Context, who *suspect) {
	peer := who.lost.Peer
	if s.live.suspects[peer] != who {
		return // BFD has come back, or has said something else since
	}
	s.trust(peer)
	s.dead(ctx, who.lost, who.first)
	s.fib.dead = s.live.dead
	s.fib.everything()
}

// trust ends the questions about a peer.
func (s *Speaker) trust(peer netip.Addr) {
	if who := s.live.suspects[peer]; who != nil {
		who.stop()
		delete(s.live.suspects, peer)
	}
}
