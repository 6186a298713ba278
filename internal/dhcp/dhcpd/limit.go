package dhcpd

import "time"

const (
	perSecond = 10   // requests of an interface that are looked at
	atOnce    = 20   // that may come after a pause
	mostLinks = 4096 // that are remembered before those that rest are forgotten
)

// limiter is a token bucket for each interface, so that no machine takes the server from the others. Zero is ready to use.
type limiter struct{ links map[int]bucket }

type bucket struct {
	tokens float64
	at     time.Time
}

// allow reports whether one more request of an interface is looked at.
func (l *limiter) allow(link int, now time.Time) bool {
	if l.links == nil {
		l.links = map[int]bucket{}
	}
	b, known := l.links[link]
	if !known {
		l.forget(now)
		b = bucket{atOnce, now}
	}
	b = bucket{b.full(now), now}
	ok := b.tokens >= 1
	if ok {
		b.tokens--
	}
	l.links[link] = b
	return ok
}

// full is what a bucket has by now.
func (b bucket) full(now time.Time) float64 {
	return min(b.tokens+max(now.Sub(b.at).Seconds(), 0)*perSecond, atOnce)
}

// forget deletes those that are as new ones would be.
func (l *limiter) forget(now time.Time) {
	if len(l.links) < mostLinks {
		return
	}
	for link, b := range l.links {
		if b.full(now) == atOnce {
			delete(l.links, link)
		}
	}
}
