package dataplane

import (
	"context"
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
	Merged() // one batch was taken over; the next Round that is settled brings it into force
	// Round is the end of one turn of all drivers. Settled: nothing is left to do, or to try again.
	Round(settled bool)
}

// Loop carries batches and interface events to the drivers.
type Loop struct {
	cfg     Config
	drivers []*drive // Policy first
	gate    gate
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
	name     string
	dirty    bool // something new to apply
	stale    bool // its idea of the kernel is to be read back first
	failures int  // since the last success
	retryAt  time.Time
	resyncAt time.Time
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
	l := &Loop{cfg: cfg, gate: newGate(cfg.Policy == nil), fates: newFates(), drift: make(chan drift), pings: make(chan struct{})}
	drivers := cfg.Forwarding
	if cfg.Policy != nil {
		drivers = append([]Driver{cfg.Policy}, drivers...)
	}
	for _, d := range drivers {
		l.drivers = append(l.drivers, &drive{Driver: d, name: nameOf(d), stale: true})
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
	l.fates.forget(b.Removed)
	for _, d := range l.drivers {
		d.Merge(b)
		d.dirty = true
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
			d.dirty = true
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
	n.d.dirty = true
}

// round gives each driver that is due its turn: removals from the forwarding drivers in reverse, then policy, then
// the forwarding drivers. So nothing leads to an endpoint before its policy is in force, or after it is gone.
func (l *Loop) round(ctx context.Context) {
	if !l.started {
		return
	}
	now := time.Now()
	for _, d := range l.drivers {
		l.resync(ctx, d, now)
	}
	for _, d := range slices.Backward(l.drivers) {
		if w, ok := d.Driver.(Withdrawer); ok && d.due(now) && !d.stale {
			l.fates.add(d, w.Withdraw(ctx)) // what is left, Apply tries again
		}
	}
	for _, d := range l.drivers {
		l.apply(ctx, d, now)
	}
	if out := l.fates.take(); len(out) > 0 && l.cfg.Outcomes != nil {
		l.cfg.Outcomes(out)
	}
	l.cfg.Observer.Round(!slices.ContainsFunc(l.drivers, func(d *drive) bool { return d.dirty || d.stale || !d.retryAt.IsZero() }))
}

func (l *Loop) resync(ctx context.Context, d *drive, now time.Time) {
	every := l.every(d)
	periodic := every > 0 && !now.Before(d.resyncAt)
	if !periodic && !d.again(now) && !(d.stale && d.due(now)) {
		return
	}
	d.resyncAt = now.Add(max(every, 0))
	began := time.Now()
	err := d.Resync(ctx)
	l.cfg.Observer.Resynced(d.name, time.Since(began), err)
	if err != nil {
		d.stale = true
		l.failed(d, now, "resync", err)
		return
	}
	d.stale, d.dirty = false, true
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
	if !d.due(now) || d.stale {
		// A policy driver that cannot even read back has secured nothing of what is new.
		if policy && d.stale {
			l.fates.add(d, l.gate.blame(errNotReadBack))
		}
		return
	}
	began := time.Now()
	outcomes, err := d.Apply(ctx)
	l.cfg.Observer.Applied(d.name, time.Since(began), err)
	l.repaired(d)
	if ctx.Err() != nil {
		return // we are leaving, which is nobody's failure
	}
	if policy {
		l.secure(outcomes, err)
	}
	l.settle(d, now, outcomes, err)
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
}

const maxNamed = 5 // repairs named in one line of the log

// secure notes what the policy driver brought into force, and wakes the drivers that wait for it.
func (l *Loop) secure(outcomes []intent.Outcome, err error) {
	if err != nil {
		l.fates.add(l.drivers[0], l.gate.blame(err))
		return
	}
	settled, opened := l.gate.secure(outcomes)
	l.fates.add(l.drivers[0], settled) // the driver's own words, if it has any, come after
	if !opened {
		return
	}
	for _, d := range l.drivers[1:] {
		if _, ok := d.Driver.(Gated); ok {
			d.dirty = true
		}
	}
}

// settle notes what came of a turn, and whether there is to be another soon.
func (l *Loop) settle(d *drive, now time.Time, outcomes []intent.Outcome, err error) {
	l.fates.add(d, outcomes)
	switch one := firstError(outcomes); {
	case err != nil:
		d.stale = true
		l.failed(d, now, "apply", err)
	case one != nil:
		l.failed(d, now, "apply", one)
	default:
		d.dirty, d.failures, d.retryAt = false, 0, time.Time{}
	}
}

// failed leaves the driver's work pending, for a later time or the next news, whichever is first.
func (l *Loop) failed(d *drive, now time.Time, op string, err error) {
	wait := l.cfg.MaxRetry
	if shift := min(d.failures, 20); l.cfg.Retry<<shift < wait {
		wait = l.cfg.Retry << shift
	}
	d.failures++
	d.dirty, d.retryAt = false, now.Add(wait)
	l.cfg.Log.Error(op, "driver", d.name, "err", err, "failures", d.failures, "retry_in", wait)
}

// due: there is news, or the wait after a failure is over.
func (d *drive) due(now time.Time) bool { return d.dirty || d.again(now) }

// again: the wait after a failure is over. What the driver believes of the kernel is then in doubt.
func (d *drive) again(now time.Time) bool { return !d.retryAt.IsZero() && !now.Before(d.retryAt) }

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
			earlier(d.retryAt)
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
func (nobody) Round(bool)                            {}
