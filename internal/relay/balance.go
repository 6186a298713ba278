package relay

import (
	"context"
	"time"

	"github.com/twillnet/twill/api"
)

// Limits say how many clients a relay has. A client is a process of a host, with one connection.
type Limits struct {
	Most  int // one more is refused, and told to ask another relay; zero means 10,000
	Least int // with fewer, none is sent away; zero means 400, less than zero none

	Every time.Duration // between two that are sent away; zero means 1s
}

const (
	mostClients  = 10_000
	leastClients = 400
	moveEvery    = time.Second
	// keepAll is for how long no client is sent away after one came back: the other relays are dead, full, or out of its reach.
	keepAll = 5 * time.Minute
)

// SetRelays says how many relays there are, this one among them; fewer than two, or not known: no client is sent away.
func (s *Server) SetRelays(n int) { s.relays.Store(int64(n)) }

// balance sends clients to other relays, one at a time, while there are more than this relay's share.
func (s *Server) balance(ctx context.Context) {
	every := s.cfg.Limits.Every
	if every == 0 {
		every = moveEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var until time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.connected.cameBack() {
			until = time.Now().Add(keepAll)
			s.cfg.Log.Warn("a client that was sent to another relay came back; sending none for a while", "relays", s.relays.Load(), "retry_in", keepAll)
		}
		clients, programs := s.connected.programs()
		if time.Now().Before(until) || clients <= share(clients, s.nodes()*programs, int(s.relays.Load()), s.cfg.Limits) {
			continue
		}
		if s.connected.sendAway() {
			s.cfg.Meter.Clients(0, true)
		}
	}
}

// share is how many clients a relay may have: a fifth more than its part of all, so that those which chose at random stay where they are.
// All is what the Nodes say: as many as there are, times the programs of each that read by a relay. Relays that nobody counts have no shares.
func share(has, all, relays int, l Limits) int {
	if relays < 2 {
		return has
	}
	n := (max(has, all)*12 + 10*relays - 1) / (10 * relays) // rounded up
	least := l.Least
	if least == 0 {
		least = leastClients
	}
	return max(n, least)
}

// nodes is how many Nodes the datastore has; none: they are not followed.
func (s *Server) nodes() int {
	c := s.chains[api.KeyPrefix(api.KindNode, "")]
	if c == nil {
		return 0
	}
	return c.keys()
}
