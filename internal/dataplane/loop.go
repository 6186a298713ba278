package dataplane

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// Config has the drivers and observers of a Loop.
type Config struct {
	Policy     Driver   // decides which packets pass; nil: forwarding waits for no policy
	Forwarding []Driver // route packets to endpoints; each is applied after Policy, in this order
	Followers  []Follower
	// LinksFirst has batches wait for the first report of interfaces, which has all. So a first batch that comes at once is not answered by saying of each
	// interface that it is absent.
	LinksFirst bool

	Retry    time.Duration // wait after a first failure, doubled with each more; zero means 100ms
	MaxRetry time.Duration // the longest such wait; zero means 30s
	Resync   time.Duration // how often to read back and undo what others changed; zero means 90s, negative never

	Outcomes func([]intent.Outcome) // called with changed outcomes from the loop's goroutine; nil: not called
	Observer Observer               // nil: none
	Log      *slog.Logger           // nil: nothing is logged
}

// Observer is called from the loop's goroutine with what it does; it feeds metrics and health.
type Observer interface {
	Applied(driver string, took time.Duration, err error)
	Resynced(driver string, took time.Duration, err error)
	Repaired(driver string, cause intent.Cause, n int)
	Merged() // one batch was merged; the next Round without a pending driver brings it into force
	// Round is the end of one turn of all drivers. Settled: nothing is left to do, or to try again. Pending are the drivers
	// that have not done what was merged, since they failed as a whole, or wait to be tried. An intent that failed alone does not make its
	// driver pending: its outcome has the error.
	Round(settled bool, pending []string)
}

// Loop passes batches and interface events to the drivers.
type Loop struct {
	cfg      Config
	drivers  []*drive // Policy first
	gate     gate
	backlog  *backlog                   // for the followers
	shut     map[intent.EndpointID]shut // endpoints for which a Preparer was not ready
	outcomes jointOutcomes
	drift    chan drift
	pings    chan struct{}
	ended    chan struct{} // closed when Run returns
	rechecks rechecks
	started  bool // a batch has come; before, the desired state is unknown, so nothing is applied
}

// drift is a function from one driver's Drift.
type drift struct {
	d    *drive
	note func()
}

// drive is a driver and its state in the loop.
type drive struct {
	Driver
	turns
	name       string
	read       bool // it was read back at least once
	stale      bool // its cached actual state may be wrong, and it must be read back
	broken     bool // the last Apply failed as a whole
	retry      bool // in this round, what failed is tried again
	resyncAt   time.Time
	bad        map[intent.Key]bool // intents that failed alone
	untried    map[intent.Key]bool // endpoints and routes that changed since the last try
	lastLogged string              // the last failure that was logged
}

// New returns a Loop; Run makes it work.
func New(cfg Config) *Loop {
	setDefault(&cfg.Retry, 100*time.Millisecond)
	setDefault(&cfg.MaxRetry, 30*time.Second)
	setDefault(&cfg.Resync, 90*time.Second)
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{cfg: cfg, gate: newGate(cfg.Policy == nil), backlog: newBacklog(), shut: map[intent.EndpointID]shut{}, outcomes: newJointOutcomes(), drift: make(chan drift), pings: make(chan struct{}), ended: make(chan struct{})}
	drivers := cfg.Forwarding
	if cfg.Policy != nil {
		drivers = append([]Driver{cfg.Policy}, drivers...)
	}
	for _, d := range drivers {
		l.drivers = append(l.drivers, &drive{
			Driver: d, name: nameOf(d), stale: true, bad: map[intent.Key]bool{}, untried: map[intent.Key]bool{}, turns: turns{first: cfg.Retry, longest: cfg.MaxRetry},
		})
	}
	return l
}

// Run works until the context ends or batches is closed. The content of the kernel then stays.
func (l *Loop) Run(ctx context.Context, batches <-chan intent.Batch, links <-chan []ifmon.Change) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer close(l.ended)
	for _, d := range l.drivers {
		if a, ok := d.Driver.(Drifting); ok {
			go l.listen(ctx, d, a.Drift())
		}
	}
	held := batches
	if l.cfg.LinksFirst {
		batches = nil
	}
	for {
		l.wake(timer)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-batches:
			if !ok {
				return nil
			}
			l.merge(b)
		case c := <-links:
			l.links(c)
			batches = held
		case n := <-l.drift:
			l.drifted(n)
		case <-l.pings:
			continue
		case <-timer.C:
		}
		l.drain(batches, links)
		l.round(ctx)
	}
}

// Ping returns nil once the loop has handled it, or the context's error.
func (l *Loop) Ping(ctx context.Context) error {
	select {
	case l.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain takes everything that came during the last round, so that one round applies it all.
func (l *Loop) drain(batches <-chan intent.Batch, links <-chan []ifmon.Change) {
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				return // Run will see the close too
			}
			l.merge(b)
		case c := <-links:
			l.links(c)
		case n := <-l.drift:
			l.drifted(n)
		default:
			return
		}
	}
}

func (l *Loop) merge(b intent.Batch) {
	l.gate.merge(b)
	l.backlog.add(b)
	for _, f := range l.cfg.Followers {
		if r, ok := f.(Routed); ok && len(b.Routes)+len(b.Removed) > 0 {
			r.Routes(b.Routes, b.Removed)
		}
	}
	l.outcomes.forget(b.Removed)
	for _, d := range l.drivers {
		d.Merge(b)
		d.news = true
		d.track(b)
		if every := l.every(d); b.Host != nil && every > 0 {
			if soon := time.Now().Add(every); soon.Before(d.resyncAt) {
				d.resyncAt = soon
			}
		}
	}
	l.started = true
	l.cfg.Observer.Merged()
}

func (l *Loop) links(changes []ifmon.Change) {
	for _, d := range l.drivers {
		if a, ok := d.Driver.(LinkAware); ok {
			a.Links(changes)
			d.news = true
		}
	}
	for _, f := range l.cfg.Followers {
		if a, ok := f.(LinkAware); ok {
			a.Links(changes)
		}
	}
}

// listen passes a driver's functions on until the context ends.
func (l *Loop) listen(ctx context.Context, d *drive, notes <-chan func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case note := <-notes:
			select {
			case l.drift <- drift{d, note}:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *Loop) drifted(n drift) {
	n.note()
	n.d.news = true
}

// round gives each driver that is due its turn: removals from the forwarding drivers in reverse, then policy, then
// the forwarding drivers. So nothing leads to an endpoint before its policy is in force, or after it is gone.
func (l *Loop) round(ctx context.Context) {
	if !l.started {
		return
	}
	now := time.Now()
	for _, d := range l.drivers {
		d.retry = d.again(now)
		l.resync(ctx, d, now)
	}
	for _, d := range slices.Backward(l.drivers) {
		if w, ok := d.Driver.(Withdrawer); ok && d.turn(now) {
			l.outcomes.add(d, w.Withdraw(ctx)) // what fails is tried again by Apply
		}
	}
	for _, d := range l.drivers {
		l.apply(ctx, d, now)
	}
	if out := l.outcomes.take(l.untried); len(out) > 0 && l.cfg.Outcomes != nil {
		l.cfg.Outcomes(out)
	}
	settled, pending := true, []string(nil)
	for _, d := range l.drivers {
		settled = settled && !d.news && !d.stale && d.retryAt.IsZero()
		if d.news || d.broken || !d.read {
			pending = append(pending, d.name)
		}
	}
	l.cfg.Observer.Round(settled, pending)
}

// turn reports whether the driver works in this round. One that could not be read back works with the state of an earlier reading, if there
// is one: changes must not wait for a reading, and the kernel's errors show where the state is wrong.
func (d *drive) turn(now time.Time) bool { return d.read && (d.retry || d.due(now)) }

// resync reads a driver back: periodically, before what failed is tried again, and before a change if nothing was read yet or the
// last Apply failed as a whole.
func (l *Loop) resync(ctx context.Context, d *drive, now time.Time) {
	every := l.every(d)
	periodic := every > 0 && !now.Before(d.resyncAt)
	if !periodic && !d.retry && !(d.stale && (d.broken || !d.read) && d.due(now)) {
		return
	}
	d.resyncAt = now.Add(max(every, 0))
	if b, ok := d.Driver.(Background); ok && d.read && !d.retry && !d.stale &&
		b.ReadBack(ctx, func(took time.Duration, err error) { l.cfg.Observer.Resynced(d.name, took, err) }) {
		return
	}
	began := time.Now()
	err := d.Resync(ctx)
	l.cfg.Observer.Resynced(d.name, time.Since(began), err)
	if err != nil {
		d.stale = true
		l.failed(d, now, "resync", failure{retry: d.retry, whole: d.broken || !d.read}, err)
		return
	}
	d.stale, d.read, d.news = false, true, true
	d.newsAt = time.Time{}
}

// every returns how often a driver is read back.
func (l *Loop) every(d *drive) time.Duration {
	if r, ok := d.Driver.(Refreshing); ok {
		if every, known := r.Refresh(); known {
			return every
		}
	}
	return l.cfg.Resync
}

func (l *Loop) apply(ctx context.Context, d *drive, now time.Time) {
	policy := l.cfg.Policy != nil && d == l.drivers[0]
	if g, ok := d.Driver.(Gated); ok && !policy {
		g.Gate(l.gate.ready, l.gate.held)
	}
	if !d.turn(now) {
		// A policy driver that was never read back has secured none of the changes.
		if policy && !d.read {
			l.outcomes.add(d, l.gate.failAll(errNotReadBack))
		}
		return
	}
	if policy && l.gate.sync {
		l.prepare()
	}
	if d.retry {
		d.Retry()
	}
	began := time.Now()
	outcomes, err := d.Apply(ctx)
	l.cfg.Observer.Applied(d.name, time.Since(began), err)
	l.repaired(d)
	clear(d.untried)
	if ctx.Err() != nil {
		return // the context has ended, which is not a failure
	}
	if policy && err == nil {
		outcomes = l.shutOutcomes(outcomes)
	}
	fresh, recovered := d.note(outcomes, err)
	if policy {
		l.secure(err, recovered)
	}
	l.outcomes.add(d, outcomes)
	l.settle(d, now, fresh, errors.Join(err, firstError(outcomes)))
}

// repaired logs what a driver repaired, once.
func (l *Loop) repaired(d *drive) {
	r, ok := d.Driver.(Repairing)
	if !ok {
		return
	}
	count := map[intent.Cause]int{}
	what := map[intent.Cause][]string{}
	for _, x := range r.Repairs() {
		if count[x.Cause]++; count[x.Cause] <= maxNamed {
			what[x.Cause] = append(what[x.Cause], x.What)
		}
	}
	for _, cause := range []intent.Cause{intent.ByEvent, intent.ByReadBack} {
		if n := count[cause]; n > 0 {
			l.cfg.Log.Warn("somebody changed what is ours; repaired", "driver", d.name, "cause", cause, "count", n, "what", what[cause])
			l.cfg.Observer.Repaired(d.name, cause, n)
		}
	}
	if n := count[intent.ByTakeOver]; n > 0 {
		l.cfg.Log.Info("took over what another agent left", "driver", d.name, "count", n, "what", what[intent.ByTakeOver])
		l.cfg.Observer.Repaired(d.name, intent.ByTakeOver, n)
	}
}

const maxNamed = 5 // repairs listed in one line of the log

// secure records what the policy driver brought into force, and opens the gate for the endpoints that wait for it.
func (l *Loop) secure(err error, lapsed bool) {
	p := l.drivers[0]
	if err != nil {
		l.outcomes.add(p, l.gate.failAll(err))
		return
	}
	if a, ok := p.Driver.(Lapsing); ok && a.Lapsed() {
		lapsed = true
	}
	settled, opened := l.gate.secure(p.bad)
	if l.gate.sync { // before, the kernel has what an earlier agent left
		l.inForce(lapsed)
	}
	l.outcomes.add(p, settled) // an outcome of the driver's own replaces it
	if !opened {
		return
	}
	for _, d := range l.drivers[1:] {
		if _, ok := d.Driver.(Gated); ok {
			d.news = true
		}
	}
}

// inForce passes what is in force now to the followers.
func (l *Loop) inForce(lapsed bool) {
	if !l.backlog.some && !lapsed {
		return
	}
	b := l.backlog.take()
	for n, e := range b.Endpoints {
		if s, is := l.shut[e.ID]; is {
			b.Endpoints[n] = s.closed()
		}
	}
	for _, f := range l.cfg.Followers {
		f.InForce(b, lapsed)
	}
	l.recheck()
}

// note records the failures, and reports whether there is a new one, and whether an earlier one is gone.
func (d *drive) note(outcomes []intent.Outcome, err error) (fresh, recovered bool) {
	recovered, d.broken = d.broken && err == nil, err != nil
	for _, o := range outcomes {
		if o.Err == nil || o.Final {
			recovered = recovered || d.bad[o.Key]
			delete(d.bad, o.Key)
			continue
		}
		fresh = fresh || !d.bad[o.Key]
		d.bad[o.Key] = true
	}
	return fresh, recovered
}

// settle records the result of a turn, and schedules the next one.
func (l *Loop) settle(d *drive, now time.Time, fresh bool, err error) {
	f := failure{retry: d.retry && !d.stale, whole: d.broken, fresh: fresh} // stale: that failure was recorded before
	d.news, d.stale = false, d.stale || d.broken
	switch {
	case d.broken || len(d.bad) > 0:
		l.failed(d, now, "apply", f, err)
	case !d.stale:
		d.succeeded()
		d.lastLogged = ""
	}
}

// failed schedules the next attempt. The failure is logged when it is new, and when it was tried again.
func (l *Loop) failed(d *drive, now time.Time, op string, f failure, err error) {
	if a, ok := errors.AsType[Awaiting](err); ok {
		f.within = a.RetryWithin()
	}
	wait := d.turns.failed(now, f)
	again := f.retry && (f.within == 0 || d.failures&(d.failures-1) == 0) // at constant intervals, the logged ones become fewer and fewer
	if err == nil || !again && !f.fresh && d.lastLogged == err.Error() {
		return
	}
	d.lastLogged = err.Error()
	l.cfg.Log.Error(op, "driver", d.name, "err", err, "failures", d.failures, "retry_in", wait)
}

// wake sets the timer for the next driver that wants a turn.
func (l *Loop) wake(timer *time.Timer) {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if l.started {
		for _, d := range l.drivers {
			earlier(d.next())
			if l.every(d) > 0 {
				earlier(d.resyncAt)
			}
		}
	}
	if next.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(time.Until(next))
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// noObserver is an Observer that does nothing.
type noObserver struct{}

func (noObserver) Applied(string, time.Duration, error)  {}
func (noObserver) Resynced(string, time.Duration, error) {}
func (noObserver) Repaired(string, intent.Cause, int)    {}
func (noObserver) Merged()                               {}
func (noObserver) Round(bool, []string)                  {}
