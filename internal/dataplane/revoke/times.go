package revoke

import "time"

// Each pass has the kernel walk all the buckets of its table, 262,144 of them here, however few flows there are, which takes 10 ms. What the
// changes deny is dropped meanwhile by the kernel's second look at established flows, in the direction in which they began, so
// that a pass has time: what it brings is that replies end, too, and that each packet costs one decision less.
const (
	// quiet is how long the first change after a pause waits for its pass: those that come with it are one.
	quiet = 50 * time.Millisecond
	// defaultShare makes of passes of 10 ms one in 2 s, while there are changes.
	defaultShare = 200
	// maxRest bounds the pause after a pass, and so how long replies of a flow that is denied pass.
	maxRest = 2 * time.Second
	// maxDelay bounds the pause before a pass that judges all flows, since policy was not in force: the kernel does not look at them again.
	maxDelay = 100 * time.Millisecond
	// lookShare: the flows that are known to be cut are looked at in a tenth of a processor at most, while changes go on. Who waits is somebody whom
	// policy allows, so that the share is more than that of passes. Ten flows are a wait of a millisecond, and 10,000 at most one of maxRest.
	lookShare = 10
	// settling is how long new workloads wait for their pass.
	settling = 5 * time.Second
)

// times are what the next pass waits for. A zero time is in the past, or, of expiry, nothing to wait for.
type times struct {
	delay  time.Time // before it, no pass begins
	rest   time.Time // before it, none that may wait
	look   time.Time // before it, the flows that are known to be cut are not looked at
	urgent time.Time // when the first change was taken that the next pass is for
	fresh  time.Time // likewise of changes that only brought new workloads
	expiry time.Time // when addresses without a workload are looked at
}

// due returns when the next pass is to begin, if something asks for one. One that judges all flows begins at once; one for changes that may
// deny something after a quiet moment, and after a rest that keeps passes to their share of a processor; one for new
// workloads later.
func (d *Driver) due() (at time.Time, some bool) {
	t := d.times
	switch {
	case d.all:
		return t.delay, d.ready
	case d.urgent:
		return latest(t.urgent.Add(quiet), t.rest), d.ready
	}
	return latest(t.fresh.Add(settling), t.rest), d.ready && len(d.touched.addrs) > 0
}

// next returns when Run has something to do, if nobody wakes it.
func (d *Driver) next() (at time.Time, some bool) {
	at, some = d.due()
	sooner := func(t time.Time) {
		if !some || t.Before(at) {
			at, some = t, true
		}
	}
	if e := d.times.expiry; !e.IsZero() {
		sooner(e)
	}
	if d.ready && d.news.some() {
		sooner(d.times.look)
	}
	return at, some
}

// hurry has a pass follow that is not only for new workloads.
func (d *Driver) hurry() {
	if !d.urgent {
		d.urgent, d.times.urgent = true, time.Now()
	}
}

// rest has the next pass wait for as long as one that ended asks for.
func (d *Driver) rest(p Pass) {
	now := time.Now()
	delay, rest := min(9*p.Took, maxDelay), min(time.Duration(d.cfg.Share-1)*p.Took, maxRest)
	if p.Err != nil {
		delay, rest = max(delay, d.cfg.Retry), max(rest, d.cfg.Retry)
	} else {
		d.times.fresh = time.Time{}
	}
	d.times.delay, d.times.rest = now.Add(delay), now.Add(rest)
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
