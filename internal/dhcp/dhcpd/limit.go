package dhcpd

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	perSecond = 10   // requests of an interface that are looked at
	atOnce    = 20   // that may come after a pause
	mostLinks = 4096 // that are remembered before those that rest are forgotten
)

// limiter is a token bucket for each interface, so that no machine takes the server from the others. Zero is ready to use.
type limiter struct{ links map[int]*rate.Limiter }

// allow reports whether one more request of an interface is looked at.
func (l *limiter) allow(link int, now time.Time) bool {
	if l.links == nil {
		l.links = map[int]*rate.Limiter{}
	}
	b, known := l.links[link]
	if !known {
		l.forget(now)
		b = rate.NewLimiter(perSecond, atOnce)
		l.links[link] = b
	}
	return b.AllowN(now, 1)
}

// forget deletes those that are as new ones would be.
func (l *limiter) forget(now time.Time) {
	if len(l.links) < mostLinks {
		return
	}
	for link, b := range l.links {
		if b.TokensAt(now) >= atOnce {
			delete(l.links, link)
		}
	}
}
