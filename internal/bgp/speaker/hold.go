package speaker

import (
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// Times for which routes that nobody tells any more stay.
const (
	// linger is how long they stay after a peer said that it has told all. A reflector that restarts may say so before
	// it has heard of its other clients, whose routes it tells a moment later.
	linger = 5 * time.Second
	// lingerMost is how long sessions that come up one after the other can make them stay.
	lingerMost = 30 * time.Second
)

// hold says whether learned routes that nobody tells may go. The zero value: not before there is a plan.
type hold struct {
	planned bool
	until   time.Time           // routes of a former speaker stay, at most until then; zero: there are none
	waiting map[netip.Addr]bool // peers of the first plan that have not told all yet
	lingers time.Time           // all stay until then
	since   time.Time           // it lingers
}

// begin is told the first plan, and whether a former speaker left routes.
func (h *hold) begin(p plan.Plan, left bool, now time.Time) {
	h.planned = true
	if !left {
		return
	}
	h.until, h.waiting = now.Add(p.Restart()), map[netip.Addr]bool{}
	for _, s := range p.Sessions {
		h.waiting[s.Peer] = true
	}
}

// complete is told that a peer has told all.
func (h *hold) complete(peer netip.Addr, now time.Time) {
	delete(h.waiting, peer)
	if len(h.waiting) == 0 {
		h.until = time.Time{}
	}
	if !now.Before(h.lingers) {
		h.since = now
	}
	if most := h.since.Add(lingerMost); now.Add(linger).Before(most) {
		h.lingers = now.Add(linger)
	} else {
		h.lingers = most
	}
}

// forget is told that there is no session with a peer any more.
func (h *hold) forget(peer netip.Addr) {
	delete(h.waiting, peer)
	if len(h.waiting) == 0 {
		h.until = time.Time{}
	}
}

// end lets all go at once.
func (h *hold) end() { *h = hold{planned: true} }

// next is when routes may go; the zero value if they may now, and never if only a plan is waited for.
func (h *hold) next(now time.Time) (at time.Time, holds bool) {
	if !h.planned {
		return time.Time{}, true
	}
	at = h.until
	if h.lingers.After(at) {
		at = h.lingers
	}
	return at, at.After(now)
}
