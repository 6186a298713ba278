package fib

import "time"

// Grace is how long routes of others stay from now on.
func (t *Table) Grace(d time.Duration) { t.grace = d }

// Clock has f called with each wait for which routes keep the elevated metric, and what ends it, instead of a timer.
func (t *Table) Clock(f func(wait time.Duration, over func())) {
	t.moves.after = func(d time.Duration, over func()) func() {
		f(d, over)
		return func() {}
	}
}

// Listens reports whether the Table listens for a machine.
func (t *Table) Listens() bool {
	for _, at := range t.moves.all {
		if at.listener != nil {
			return true
		}
	}
	return false
}

// Moving is the number of machines that move.
func (t *Table) Moving() int { return len(t.moves.all) }
