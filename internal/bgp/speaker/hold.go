package speaker

import (
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// Times for which routes stay that no peer advertises any more.
const (
	// linger is how long they stay after a peer's End-of-RIB. A reflector that restarts may send it before
	// it has learned from its other clients, whose routes it sends a moment later.
	linger = 5 * time.Second
	// maxLinger bounds that time when sessions come up one after the other.
	maxLinger = 30 * time.Second
)

// hold decides when stale routes may be removed (RFC 4724). The zero value: not before there is a plan.
type hold struct {
	hasPlan     bool
	until       time.Time           // routes of a former speaker stay, at most until then; zero: there are none
	awaiting    map[netip.Addr]bool // peers of the first plan without End-of-RIB yet
	lingerUntil time.Time           // all stay until then
	lingerSince time.Time           // when lingering began
}

// begin takes the first plan, and whether a former speaker left routes.
func (h *hold) begin(p plan.Plan, left bool, now time.Time) {
	h.hasPlan = true
	if !left {
		return
	}
	h.until, h.awaiting = now.Add(p.Restart()), map[netip.Addr]bool{}
	for _, s := range p.Sessions {
		h.awaiting[s.Peer] = true
	}
}

// endOfRIB handles a peer's End-of-RIB.
func (h *hold) onEndOfRIB(peer netip.Addr, now time.Time) {
	delete(h.awaiting, peer)
	if len(h.awaiting) == 0 {
		h.until = time.Time{}
	}
	if !now.Before(h.lingerUntil) {
		h.lingerSince = now
	}
	if most := h.lingerSince.Add(maxLinger); now.Add(linger).Before(most) {
		h.lingerUntil = now.Add(linger)
	} else {
		h.lingerUntil = most
	}
}

// removePeer stops waiting for a peer without a session.
func (h *hold) removePeer(peer netip.Addr) {
	delete(h.awaiting, peer)
	if len(h.awaiting) == 0 {
		h.until = time.Time{}
	}
}

// end removes the hold at once.
func (h *hold) end() { *h = hold{hasPlan: true} }

// next returns until when stale routes stay, and whether they do; the zero time with true: until there is a plan.
func (h *hold) next(now time.Time) (at time.Time, holds bool) {
	if !h.hasPlan {
		return time.Time{}, true
	}
	at = h.until
	if h.lingerUntil.After(at) {
		at = h.lingerUntil
	}
	return at, at.After(now)
}
