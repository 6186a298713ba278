package speaker

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// liveness is what BFD says of the paths to peers. BFD runs in a process of its own, so that it says so also while this
// one restarts.
type liveness struct {
	heard bool // from that process, since it was connected
	all   map[netip.Addr]bfd.Status
	dead  map[netip.Addr]bool // peers on whose routes nothing may be sent, until they are heard of again
	// suspects are those whose BFD is lost while their path answers; silent is where those come that answer no more.
	suspects map[netip.Addr]*suspect
	silent   chan *suspect
}

// alive takes in what BFD says now; nil: nobody says anything any more.
func (s *Speaker) alive(ctx context.Context, statuses []bfd.Status) {
	l := &s.live
	if statuses == nil {
		l.heard, l.all = false, nil // who was dead stays so until BGP or BFD says otherwise
		for peer := range maps.Clone(l.suspects) {
			s.trust(peer)
		}
		return
	}
	was, first := l.all, !l.heard
	l.heard, l.all = true, map[netip.Addr]bfd.Status{}
	for _, is := range statuses {
		l.all[is.Peer] = is
		switch before, known := was[is.Peer]; {
		case is.State == bfd.Up.String():
			delete(l.dead, is.Peer)
			s.trust(is.Peer)
		case is.Lost && (first || !known || is.Losses != before.Losses):
			s.suspect(ctx, is, first)
		}
	}
	s.fib.dead = l.dead
	s.fib.everything()
}

// dead: there was a path to a peer, and there is none any more. What is true of a session decides what that means
// (RFC 5882, 4.3): if it stands, or if the peer's BFD does not stop when its BGP does, the peer forwards nothing and its
// routes go, those kept for a restart too. Else the peer's BGP had gone first and took BFD with it, as a restart does.
func (s *Speaker) dead(ctx context.Context, is bfd.Status, first bool) {
	stands := s.bgp != nil && s.bgp.stands(is.Peer)
	if stands && first {
		return // it came up after the path had died, without BFD: we have just begun to listen
	}
	if !stands && !is.Independent {
		return
	}
	s.live.dead[is.Peer] = true
	if s.bgp == nil {
		return
	}
	if err := s.bgp.reopen(ctx, is.Peer, "BFD: "+is.Why); err != nil {
		s.trouble("session "+is.Peer.String(), err)
	}
}

// of is what is said of the path to one peer.
func (l *liveness) of(w plan.Session) bfd.Status {
	is, known := l.all[w.Peer]
	switch {
	case w.BFD.Interval == 0:
		is = bfd.Status{Peer: w.Peer, State: bfd.Off, Why: "turned off"}
	case !l.heard:
		is = bfd.Status{Peer: w.Peer, State: bfd.Off, Why: "no BFD daemon answers on this host"}
	case !known:
		is = bfd.Status{Peer: w.Peer, State: bfd.Off, Why: "not begun yet"}
	case l.suspects[w.Peer] != nil:
		is.Why += ", yet the path answers: its BFD has stopped, or its packets are dropped"
	}
	return is
}

// stands reports whether a session is up.
func (b *library) stands(peer netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[peer].Up
}

// reopen ends a session, with all that the library keeps of it, and begins it anew.
func (b *library) reopen(ctx context.Context, peer netip.Addr, why string) error {
	is, open := b.open[peer]
	if !open {
		return nil
	}
	if err := b.anew(ctx, peer, is, why); err != nil {
		return err
	}
	b.log.Warn("its routes go", "peer", peer, "why", why)
	return nil
}

// anew makes a session again.
func (b *library) anew(ctx context.Context, peer netip.Addr, is wanted, why string) error {
	is.notified, is.restarting = 0, false
	if err := b.close(ctx, peer, is); err != nil {
		return err
	}
	if err := b.add(ctx, peer, is); err != nil {
		return err
	}
	b.mu.Lock()
	b.seen[peer] = phase{Since: time.Now(), Why: why}
	b.mu.Unlock()
	return nil
}
