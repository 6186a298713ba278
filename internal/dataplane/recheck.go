package dataplane

import (
	"sync"
	"time"
)

// linger is how long established flows are decided about again after they were judged. The kernel validates its table when the rules for that
// come, which takes milliseconds, and not when they concern more interfaces: of changes one after the other, the first pays for it.
const linger = time.Second

// rechecks is what was judged, and has not been passed on to the policy driver.
type rechecks struct {
	mu   sync.Mutex
	upTo uint64 // the number of the last change that was judged; zero: none
}

// recheck has the policy driver learn when the flows were judged about which it decides again.
func (l *Loop) recheck() {
	p := l.drivers[0]
	r, ok := p.Driver.(Rechecking)
	if !ok {
		return
	}
	upTo := r.Standing()
	if upTo == 0 {
		return
	}
	for _, f := range l.cfg.Followers {
		if j, ok := f.(Judging); ok {
			j.WhenJudged(func() { l.judged(p, r, upTo) })
		}
	}
}

// judged takes note that the changes up to a number were judged. The driver learns it after a while, from the loop's goroutine. Whoever calls
// waits for nobody.
func (l *Loop) judged(p *drive, r Rechecking, upTo uint64) {
	l.rechecks.mu.Lock()
	defer l.rechecks.mu.Unlock()
	waits := l.rechecks.upTo > 0
	l.rechecks.upTo = max(l.rechecks.upTo, upTo)
	if waits {
		return
	}
	go func() {
		select {
		case <-time.After(linger):
		case <-l.ended:
			return
		}
		select {
		case l.drift <- drift{p, func() { r.Judged(l.rechecks.take()) }}:
		case <-l.ended:
		}
	}()
}

func (x *rechecks) take() (upTo uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	upTo, x.upTo = x.upTo, 0
	return upTo
}
