package speaker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// The library tells a peer all routes when its session comes up, and from a moment later on each change. A change in
// between reaches nobody: it is in neither. So a peer is told all again a little later, if anything moved meanwhile.
const (
	// catchUpAfter is when the library surely tells changes.
	catchUpAfter = time.Second
	// blind is how long it may take the library to tell all routes, before it says that the session is up.
	blind = 10 * time.Second
	// perTurn is how many are told all again before other things have their turn.
	perTurn = 8
)

// catchUp tells all again to those who may have missed something. It returns when it is to be asked again; the zero
// value: not before a session comes up.
func (b *library) catchUp(ctx context.Context, now time.Time) (next time.Time, err error) {
	resets := 0
	for peer, since := range b.young {
		if resets == perTurn {
			return now, err
		}
		if due := since.Add(catchUpAfter); now.Before(due) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(b.young, peer)
		if _, open := b.open[peer]; !open || !b.missed(peer, since) {
			continue
		}
		resets++
		e := b.srv.ResetPeer(ctx, &api.ResetPeerRequest{Address: peer.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT})
		if e != nil {
			err = errors.Join(err, fmt.Errorf("tell %s all again: %w", peer, e))
		}
	}
	return next, err
}

// missed reports whether a route of somebody else moved at about the time at which a session came up.
func (b *library) missed(peer netip.Addr, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for who, at := range b.moved {
		if who != peer && at.After(since.Add(-blind)) {
			return true
		}
	}
	return false
}

// defers reports whether the library tells a peer nothing yet, and so nothing has passed it by: not before all others
// are there and have told theirs, or the time for that is over.
func (b *library) defers(peer netip.Addr) bool {
	if !b.open[peer].restarting || time.Since(b.begun) > deferral*time.Second {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.open {
		if other != peer && !b.seen[other].Up {
			return true
		}
	}
	return false
}
