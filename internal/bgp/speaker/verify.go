package speaker

import (
	"context"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
)

// BFD reports a path as down when its own packets do not arrive. The path may be down, or the peer's BFD
// may have stopped: a process that is stopped or starved, a filter on its port. So the peer's kernel is sent an ICMP echo: it
// replies while the path works in both directions and the host is up, which is what routes need. While it replies,
// nothing is withdrawn (RFC 5882, 4.3, leaves to the implementation what a loss leads to), and echoes go on;
// without a reply the path is down, as BFD said (decision 021).
const (
	// firstEchoTimeout bounds each of the first echoes, of which one may be lost or late: on a link a kernel replies within milliseconds, and
	// routes of a dead host are to be removed within three intervals and 0.3 s.
	firstEchoTimeout = 100 * time.Millisecond
	firstEchoes      = 2
	// echoInterval and askLater are for all others: by then the path has outlived BFD's verdict.
	echoInterval = 300 * time.Millisecond
	echoTimeout  = time.Second
)

// verification is a peer whose path is down for BFD, while it replies to echoes.
type verification struct {
	lost  bfd.Status
	first bool // as in dead
	stop  context.CancelFunc
}

// verifyPath sends echoes to a peer whose BFD is lost. Without Config.Echo, BFD alone decides.
func (s *Speaker) verifyPath(ctx context.Context, lost bfd.Status, first bool) {
	s.stopVerifying(lost.Peer)
	if s.cfg.Echo == nil {
		s.onPathDown(ctx, lost, first)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	v := &verification{lost, first, stop}
	s.live.verifying[lost.Peer] = v
	go func() {
		answered := false
		for range firstEchoes {
			answered = answered || s.cfg.Echo(lost.Peer, firstEchoTimeout) == nil
		}
		for ; answered; answered = s.cfg.Echo(lost.Peer, echoTimeout) == nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(echoInterval):
			}
		}
		select {
		case s.live.echoLost <- v:
		case <-ctx.Done():
		}
	}()
}

// onEchoLost: the path of a suspect does not answer either.
func (s *Speaker) onEchoLost(ctx context.Context, v *verification) {
	peer := v.lost.Peer
	if s.live.verifying[peer] != v {
		return // BFD has come back, or has said something else since
	}
	s.stopVerifying(peer)
	s.onPathDown(ctx, v.lost, v.first)
	s.fib.deadPeers = s.live.deadPeers
	s.fib.markAllDirty()
}

// stopVerifying ends the questions about a peer.
func (s *Speaker) stopVerifying(peer netip.Addr) {
	if v := s.live.verifying[peer]; v != nil {
		v.stop()
		delete(s.live.verifying, peer)
	}
}
