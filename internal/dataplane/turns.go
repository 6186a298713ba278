package dataplane

import "time"

// turns schedules the attempts of a driver: changes at once, and what failed after waits that double. A change neither ends
// such a wait nor restarts it, since most changes have nothing to do with what failed. It has no clock: the caller passes the
// time.
type turns struct {
	first, longest time.Duration // the wait after a first failure, and the longest

	news     bool      // a change was merged since the last attempt
	failures int       // consecutive, since the last success
	retryAt  time.Time // when what failed is tried again; zero: nothing failed
	newsAt   time.Time // changes wait until then, because the driver failed as a whole; zero: they do not wait
}

// pace bounds how often a driver that fails as a whole is tried because of changes, any of which may remove the cause.
const pace = time.Second

// failure is the result of a failed attempt.
type failure struct {
	retry bool // earlier failures were tried, too
	whole bool // nothing could be applied, so that the next change would fail, too
	fresh bool // something failed that did not before
	// within is the longest wait; zero: that of the turns. See Awaiting.
	within time.Duration
}

// again reports whether the wait after a failure is over.
func (t *turns) again(now time.Time) bool { return !t.retryAt.IsZero() && !now.Before(t.retryAt) }

// due reports whether there is something to try.
func (t *turns) due(now time.Time) bool { return t.again(now) || t.news && !now.Before(t.newsAt) }

// next returns when to try next if no change comes before; zero: never.
func (t *turns) next() time.Time {
	if t.news && !t.newsAt.IsZero() && (t.retryAt.IsZero() || t.newsAt.Before(t.retryAt)) {
		return t.newsAt
	}
	return t.retryAt
}

// succeeded notes that nothing is left to try.
func (t *turns) succeeded() {
	t.news, t.failures, t.retryAt, t.newsAt = false, 0, time.Time{}, time.Time{}
}

// failed schedules the next attempt after a failure, and returns the wait until it from now.
func (t *turns) failed(now time.Time, f failure) time.Duration {
	switch {
	case t.retryAt.IsZero():
		t.failures = 1
		t.retryAt = now.Add(t.wait())
	case f.retry:
		t.failures++
		t.retryAt = now.Add(t.wait())
	case f.fresh && !f.whole && t.retryAt.After(now.Add(pace)):
		// A new failure must not wait as long as an old one, nor may a stream of failures make
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

// wait returns the wait after t.failures failures.
func (t *turns) wait() time.Duration {
	if shift := min(t.failures-1, 20); t.first<<shift < t.longest {
		return t.first << shift
	}
	return t.longest
}
