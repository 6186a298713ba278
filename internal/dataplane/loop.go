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

// Config is what a Loop is made of.
type Config struct {
	Policy     Driver   // decides which packets pass; nil: nothing does, and forwarding waits for nobody
	Forwarding []Driver // lead packets to endpoints; each is applied after Policy, in this order
	Followers  []Follower

	Retry    time.Duration // wait after a first failure, doubled with each more; zero means 100ms
	MaxRetry time.Duration // the longest such wait; zero means 30s
	Resync   time.Duration // how often to read back and undo what others changed; zero means 90s, negative never

	Outcomes func([]intent.Outcome) // told what became of intents, from the loop's goroutine; nil: nobody is
	Observer Observer               // nil: nobody watches
	Log      *slog.Logger           // nil: nowhere
}

// Observer is told, from the loop's goroutine, what it does; metrics and health are made of it.
type Observer interface {
	Applied(driver string, took time.Duration, err error)
	Resynced(driver string, took time.Duration, err error)
	Repaired(driver string, cause intent.Cause, n int)
	Merged() // one batch was taken over; the next Round without a pending driver brings it into force
	// Round is the end of one turn of all drivers. Settled: nothing is left to do, or to try again. Pending are the drivers
	// that have not done what was merged, since they failed as a whole, or wait to be tried. What failed alone is no such
	// thing: its outcome says so.
	Round(settled bool, pending []string)
}

// Loop carries batches and interface events to the drivers.
type Loop struct {
	cfg     Config
	drivers []*drive // Policy first
	gate    gate
	backlog *backlog                   // for the followers
	shut    map[intent.EndpointID]shut // for which a follower was not ready
	fates   fates
	drift   chan drift
	pings   chan struct{}
	started bool // a batch has come; before, nobody knows what should be, so nothing is applied
}

// drift is a note of one driver.
type drift struct {
	d    *drive
	note func()
}

// drive is a driver and what the loop knows about it.
type drive struct {
	Driver
	turns
	name     string
	read     bool // it was read back at least once
	stale    bool // its idea of the kernel is in doubt, and is to be read back
	broken   bool // the last Apply failed as a whole
	retry    bool // in this round, what failed is tried again
	resyncAt time.Time
	bad      map[intent.Key]bool // intents that failed alone
	untried  map[intent.Key]bool // endpoints and routes that changed since the last try
	said     string              // the last failure that was logged
}

// New returns a Loop; Run makes it work.
func New(cfg Config) *Loop {
	setDefault(&cfg.Retry, 100*time.Millisecond)
	setDefault(&cfg.MaxRetry, 30*time.Second)
	setDefault(&cfg.Resync, 90*time.Second)
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{cfg: cfg, gate: newGate(cfg.Policy == nil), backlog: newBacklog(), shut: map[intent.EndpointID]shut{}, fates: newFates(), drift: make(chan drift), pings: make(chan struct{})}
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

// Run works until the context ends or batches is closed. What is in the kernel then stays there.
func (l *Loop) Run(ctx context.Context, batches <-chan intent.Batch, links <-chan []ifmon.Change) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, d := range l.drivers {
		if a, ok := d.Driver.(Drifting); ok {
			go l.listen(ctx, d, a.Drift())
		}
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

// Ping returns when the loop has come round: it lives.
func (l *Loop) Ping(ctx context.Context) error {
	select {
	case l.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain takes whatever has come while the last round ran, so that one round does it all.
func (l *Loop) drain(batches <-chan intent.Batch, links <-chan []ifmon.Change) {
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				return // Run will see it too
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
	l.fates.forget(b.Removed)
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

// listen passes a driver's notes on until the context ends.
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
			l.fates.add(d, w.Withdraw(ctx)) // what is left, Apply tries again
		}
	}
	for _, d := range l.drivers {
		l.apply(ctx, d, now)
	}
	if out := l.fates.take(l.untried); len(out) > 0 && l.cfg.Outcomes != nil {
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

// turn: in this round, the driver is to work. One that could not be read back does so with what it knew before, if it was
// ever read: changes must not wait for that, and the kernel's answers show where it is wrong.
func (d *drive) turn(now time.Time) bool { return d.read && (d.retry || d.due(now)) }

// resync reads a driver back: now and then, before what failed is tried again, and before news if nothing is known or the
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

// every is how often a driver is read back.
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
		// A policy driver that cannot even read back has secured nothing of what is new.
		if policy && !d.read {
			l.fates.add(d, l.gate.blame(errNotReadBack))
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
		return // we are leaving, which is nobody's failure
	}
	if policy && err == nil {
		outcomes = l.shutOutcomes(outcomes)
	}
	fresh, recovered := d.note(outcomes, err)
	if policy {
		l.secure(err, recovered)
	}
	l.fates.add(d, outcomes)
	l.settle(d, now, fresh, errors.Join(err, firstError(outcomes)))
}

// repaired tells once what a driver put right.
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

const maxNamed = 5 // repairs named in one line of the log

// secure notes what the policy driver brought into force, and tells those that wait for it.
func (l *Loop) secure(err error, anew bool) {
	p := l.drivers[0]
	if err != nil {
		l.fates.add(p, l.gate.blame(err))
		return
	}
	if a, ok := p.Driver.(Lapsing); ok && a.Lapsed() {
		anew = true
	}
	settled, opened := l.gate.secure(p.bad)
	if l.gate.sync { // before, the kernel has what an earlier agent left
		l.inForce(anew)
	}
	l.fates.add(p, settled) // the driver's own words, if it has any, come after
	if !opened {
		return
	}
	for _, d := range l.drivers[1:] {
		if _, ok := d.Driver.(Gated); ok {
			d.news = true
		}
	}
}

// inForce tells the followers what is in force now.
func (l *Loop) inForce(anew bool) {
	if !l.backlog.some && !anew {
		return
	}
	b := l.backlog.take()
	for n, e := range b.Endpoints {
		if s, is := l.shut[e.ID]; is {
			b.Endpoints[n] = s.closed()
		}
	}
	for _, f := range l.cfg.Followers {
		f.InForce(b, anew)
	}
}

// note takes over what fails, and reports whether some of it did not before, and whether something does so no more.
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

// settle notes what came of a turn, and whether there is to be another soon.
func (l *Loop) settle(d *drive, now time.Time, fresh bool, err error) {
	f := failure{retry: d.retry && !d.stale, whole: d.broken, fresh: fresh} // if it is stale, that was a failure already
	d.news, d.stale = false, d.stale || d.broken
	switch {
	case d.broken || len(d.bad) > 0:
		l.failed(d, now, "apply", f, err)
	case !d.stale:
		d.succeeded()
		d.said = ""
	}
}

// failed leaves what failed for a later time. It is logged when it is new, and when it was tried again.
func (l *Loop) failed(d *drive, now time.Time, op string, f failure, err error) {
	if a, ok := errors.AsType[Awaiting](err); ok {
		f.within = a.RetryWithin()
	}
	wait := d.turns.failed(now, f)
	again := f.retry && (f.within == 0 || d.failures&(d.failures-1) == 0) // of waits that do not grow, fewer and fewer are logged
	if err == nil || !again && !f.fresh && d.said == err.Error() {
		return
	}
	d.said = err.Error()
	l.cfg.Log.Error(op, "driver", d.name, "err", err, "failures", d.failures, "retry_in", wait)
}

// wake sets the timer to when the next driver wants a turn.
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

// nobody watches.
type nobody struct{}

func (nobody) Applied(string, time.Duration, error)  {}
func (nobody) Resynced(string, time.Duration, error) {}
func (nobody) Repaired(string, intent.Cause, int)    {}
func (nobody) Merged()                               {}
func (nobody) Round(bool, []string)                  {}
