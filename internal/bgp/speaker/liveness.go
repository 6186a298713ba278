package speaker

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// liveness is BFD's state of the paths to peers. BFD runs in a process of its own, so that it works also while this
// one restarts.
type liveness struct {
	connected bool // to that process
	all       map[netip.Addr]bfd.Status
	deadPeers map[netip.Addr]bool // peers whose path is down, until BFD or BGP is up again
	// verifying are those whose BFD is lost while their path answers; silent is where those come that answer no more.
	verifying map[netip.Addr]*verification
	echoLost  chan *verification
}

// onBFD takes over BFD's statuses; nil: the BFD daemon is gone.
func (s *Speaker) onBFD(ctx context.Context, statuses []bfd.Status) {
	l := &s.live
	if statuses == nil {
		l.connected, l.all = false, nil // a dead peer stays so until BGP or BFD is up again
		for peer := range maps.Clone(l.verifying) {
			s.stopVerifying(peer)
		}
		return
	}
	was, first := l.all, !l.connected
	l.connected, l.all = true, map[netip.Addr]bfd.Status{}
	for _, is := range statuses {
		l.all[is.Peer] = is
		switch before, known := was[is.Peer]; {
		case is.State == bfd.Up.String():
			delete(l.deadPeers, is.Peer)
			s.stopVerifying(is.Peer)
		case is.Lost && (first || !known || is.Losses != before.Losses):
			s.verifyPath(ctx, is, first)
		}
	}
	s.fib.deadPeers = l.deadPeers
	s.fib.markAllDirty()
}

// onPathDownhandles the loss of the path to a peer. The state of its session decides what that means
// (RFC 5882, 4.3): if it is up, or if the peer's BFD does not stop when its BGP does, the peer forwards nothing and its
// routes are removed, those retained for a restart too. Else the peer's BGP stopped first, and its BFD with it, as in a restart.
func (s *Speaker) onPathDown(ctx context.Context, is bfd.Status, first bool) {
	isUp := s.bgp != nil && s.bgp.isUp(is.Peer)
	if isUp && first {
		return // the session came up after the path failed, without BFD; we have just connected to BFD
	}
	if !isUp && !is.Independent {
		return
	}
	s.live.deadPeers[is.Peer] = true
	if s.bgp == nil {
		return
	}
	if err := s.bgp.reset(ctx, is.Peer, "BFD: "+is.Why); err != nil {
		s.setProblem("session "+is.Peer.String(), err)
	}
}

// status returns the BFD status of one session's path.
func (l *liveness) status(w plan.Session) bfd.Status {
	is, known := l.all[w.Peer]
	switch {
	case w.BFD.Interval == 0:
		is = bfd.Status{Peer: w.Peer, State: bfd.Off, Why: "turned off"}
	case !l.connected:
		is = bfd.Status{Peer: w.Peer, State: bfd.Off, Why: "no BFD daemon answers on this host"}
	case !known:
		is = bfd.Status{Peer: w.Peer, State: bfd.Off, Why: "not begun yet"}
	case l.verifying[w.Peer] != nil:
		is.Why += ", yet the peer answers echo requests: its BFD has stopped, or its packets are dropped"
	}
	return is
}

// isUp reports whether a session is up.
func (b *library) isUp(peer netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessionStates[peer].Up
}

// reset ends a session, with all that the library keeps of it, and begins it anew.
func (b *library) reset(ctx context.Context, peer netip.Addr, why string) error {
	is, open := b.open[peer]
	if !open {
		return nil
	}
	if err := b.recreate(ctx, peer, is, why); err != nil {
		return err
	}
	b.log.Warn("its routes go", "peer", peer, "why", why)
	return nil
}

// recreate makes a session again.
func (b *library) recreate(ctx context.Context, peer netip.Addr, is peerSession, why string) error {
	is.notified, is.restarting = 0, false
	if err := b.close(ctx, peer, is); err != nil {
		return err
	}
	if err := b.add(ctx, peer, is); err != nil {
		return err
	}
	b.mu.Lock()
	b.sessionStates[peer] = sessionState{Since: time.Now(), Why: why}
	b.mu.Unlock()
	return nil
}
