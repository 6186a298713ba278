package dataplane

import "time"

// turns says when a driver is tried next: with news at once, and what failed after waits that double. News neither ends
// such a wait nor begins it anew, since most of it has nothing to do with what failed. It has no clock: who asks gives the
// time.
type turns struct {
	first, longest time.Duration // the wait after a first failure, and the longest

	news     bool      // something has come since the last try
	failures int       // of what failed, since the last success
	retryAt  time.Time // when what failed is tried again; zero: nothing failed
	newsAt   time.Time // until then news waits, because the driver failed as a whole; zero: it waits for nothing
}

// pace bounds how often a driver that fails as a whole is tried because of news: any of it may be the remedy.
const pace = time.Second

// failure is what a try came to.
type failure struct {
	retry bool // what failed before was tried, too
	whole bool // nothing could be done, so that the next news would fail, too
	fresh bool // something failed that was in order before
	// within is the longest wait; zero: that of the turns. See Awaiting.
	within time.Duration
}

// again: the wait of what failed is over.
func (t *turns) again(now time.Time) bool { return !t.retryAt.IsZero() && !now.Before(t.retryAt) }

// due: there is something to try.
func (t *turns) due(now time.Time) bool { return t.again(now) || t.news && !now.Before(t.newsAt) }

// next is when something is to be tried, if nothing comes before; zero: never.
func (t *turns) next() time.Time {
	if t.news && !t.newsAt.IsZero() && (t.retryAt.IsZero() || t.newsAt.Before(t.retryAt)) {
		return t.newsAt
	}
	return t.retryAt
}

// succeeded: nothing is left to try.
func (t *turns) succeeded() {
	t.news, t.failures, t.retryAt, t.newsAt = false, 0, time.Time{}, time.Time{}
}

// failed takes note of a failure, and returns how long what failed waits from now.
func (t *turns) failed(now time.Time, f failure) time.Duration {
	switch {
	case t.retryAt.IsZero():
		t.failures = 1
		t.retryAt = now.Add(t.wait())
	case f.retry:
		t.failures++
		t.retryAt = now.Add(t.wait())
	case f.fresh && !f.whole && t.retryAt.After(now.Add(pace)):
		// What failed just now must not wait as long as what has failed for ever, nor may a stream of failures make
		// the driver try all of them all the time.
		for t.failures > 1 && t.wait() > pace {
			t.failures--
		}
		t.retryAt = now.Add(max(t.wait(), pace))
	}
	if by := now.Add(f.within); f.within > 0 && t.retryAt.After(by) {
		t.retryAt = by
	}
	t.newsAt = time.Time{}
	if f.whole {
		t.newsAt = now.Add(min(t.wait(), pace))
	}
	return t.retryAt.Sub(now)
}

// wait is the wait after so many failures.
func (t *turns) wait() time.Duration {
	if shift := min(t.failures-1, 20); t.first<<shift < t.longest {
		return t.first << shift
	}
	return t.longest
}
