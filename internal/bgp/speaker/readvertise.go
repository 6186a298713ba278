package speaker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// The library sends a peer all routes when its session comes up, and from a moment later on each change. A change in
// between is in neither. So all routes are advertised to a peer again a little later, if any changed meanwhile.
const (
	// readvertiseAfter is when the library surely sends changes.
	readvertiseAfter = time.Second
	// maxInitialUpdate is how long the library may take to send all routes, before it reports that the session is up.
	maxInitialUpdate = 10 * time.Second
	// resetsPerTurn is how many sessions are refreshed in one turn of the loop.
	resetsPerTurn = 8
)

// readvertise sends all routes again to peers that may have missed a change. It returns when to call it again; the zero
// time: not before a session comes up.
func (b *library) readvertise(ctx context.Context, now time.Time) (next time.Time, err error) {
	resets := 0
	for peer, since := range b.newlyUp {
		if resets == resetsPerTurn {
			return now, err
		}
		if due := since.Add(readvertiseAfter); now.Before(due) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(b.newlyUp, peer)
		if _, open := b.open[peer]; !open || !b.mayHaveMissed(peer, since) {
			continue
		}
		resets++
		e := b.srv.ResetPeer(ctx, &api.ResetPeerRequest{Address: peer.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT})
		if e != nil {
			err = errors.Join(err, fmt.Errorf("advertise to %s again: %w", peer, e))
		}
	}
	return next, err
}

// mayHaveMissed reports whether a route of another source changed at about the time at which a session came up.
func (b *library) mayHaveMissed(peer netip.Addr, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for source, at := range b.lastChange {
		if source != peer && at.After(since.Add(-maxInitialUpdate)) {
			return true
		}
	}
	return false
}

// deferring reports whether the library defers its routes to a peer (RFC 4724, 4.1), so that it can have missed none: until all others
// are up and have sent End-of-RIB, or the deferral time is over.
func (b *library) deferring(peer netip.Addr) bool {
	if !b.open[peer].restarting || time.Since(b.started) > deferralTime*time.Second {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.open {
		if other != peer && !b.sessionStates[other].Up {
			return true
		}
	}
	return false
}
