package bfd

import (
	"sync"
	"sync/atomic"
)

// published shows statuses to who watches. Who is slow sees what is now, and not all that was.
type publishedStatuses struct {
	mu      sync.Mutex // guards the rest
	all     []Status
	changed chan struct{} // closed, and replaced, whenever all changes
}

func (b *publishedStatuses) set(all []Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = all
	close(b.changed)
	b.changed = make(chan struct{})
}

// Statuses returns the status of each configured peer, sorted by address; the caller must not change it. The channel is closed at the
// next change.
func (e *Engine) Statuses() ([]Status, <-chan struct{}) {
	e.published.mu.Lock()
	defer e.published.mu.Unlock()
	return e.published.all, e.published.changed
}

// counts are the counters behind [Counts].
type counts struct {
	sent, unsent, received, noSession, invalid atomic.Uint64
}

// Counts counts packets since New.
type Counts struct {
	Sent, Unsent, Received uint64
	NoSession              uint64 // from no configured peer, on another link, or with another session's discriminator
	Invalid                uint64 // discarded by RFC 5880, 6.8.6
	BadTTL                 uint64 // received with a TTL below 255 (RFC 5881, 5)
}

// Counts returns the counters.
func (e *Engine) Counts() Counts {
	return Counts{
		Sent: e.count.sent.Load(), Unsent: e.count.unsent.Load(), Received: e.count.received.Load(),
		NoSession: e.count.noSession.Load(), Invalid: e.count.invalid.Load(), BadTTL: e.rx.BadTTL(),
	}
}
