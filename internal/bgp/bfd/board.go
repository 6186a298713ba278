package bfd

import (
	"sync"
	"sync/atomic"
)

// board shows statuses to who watches. Who is slow sees what is now, and not all that was.
type board struct {
	mu      sync.Mutex // guards the rest
	all     []Status
	changed chan struct{} // closed when all is replaced
}

func (b *board) show(all []Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = all
	close(b.changed)
	b.changed = make(chan struct{})
}

// Statuses are those of all wanted neighbours by address, not to be changed; the channel is closed when there are others.
func (e *Engine) Statuses() ([]Status, <-chan struct{}) {
	e.board.mu.Lock()
	defer e.board.mu.Unlock()
	return e.board.all, e.board.changed
}

// counts are what an engine did since it was made.
type counts struct {
	sent, unsent, received, strange, invalid atomic.Uint64
}

// Counts are packets since the engine was made.
type Counts struct {
	Sent, Unsent, Received uint64
	Strange                uint64 // of nobody who is wanted, or not from where it is
	Invalid                uint64 // no packets of BFD
	Far                    uint64 // from farther away than one hop
}

// Counts says what the engine did.
func (e *Engine) Counts() Counts {
	return Counts{
		Sent: e.count.sent.Load(), Unsent: e.count.unsent.Load(), Received: e.count.received.Load(),
		Strange: e.count.strange.Load(), Invalid: e.count.invalid.Load(), Far: e.rx.Far(),
	}
}
