// Package leader chooses one of several processes, by a lease that they share.
//
// In: a [Lock], which holds one [Record] and lets nobody write over what he has not seen. Out: one call at a time, in one
// of the processes, of a function that may go on as long as its context does.
//
// As Kubernetes' own components do it, and on the same record, no clock is compared with another's: who waits takes a lease for expired
// when it has not changed for its duration by the waiter's own clock, and who holds one gives it up earlier, a deadline after the last
// renewal was sent. The context ends at that deadline, whatever the request for the next renewal does.
package leader

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Record is what a lease says.
type Record struct {
	Holder            string // who leads; empty: it was given up
	Duration          time.Duration
	Acquired, Renewed time.Time
	Transitions       int // how often another took it over
}

// Lock holds a record.
type Lock interface {
	// Get returns the record, and its version; an empty version: there is none.
	Get(ctx context.Context) (Record, string, error)
	// Put replaces the record of a version, or of an empty one makes it, and returns the new version. ErrChanged: somebody was quicker.
	Put(ctx context.Context, r Record, version string) (string, error)
}

// ErrChanged is the error of a Put over a record that has changed.
var ErrChanged = errors.New("the lease has changed")

// Config of an Elector. Durations that are zero are those of Kubernetes' components.
type Config struct {
	Lock     Lock
	ID       string        // of this process, unlike that of any other, also of one before it
	Duration time.Duration // for which a lease holds without a renewal; zero means 15s
	Deadline time.Duration // after which a leader without a renewal gives up, shorter than Duration; zero means 10s
	Retry    time.Duration // between renewals, and looks at the lease of another; zero means 2s
	Log      *slog.Logger  // nil: silent
}

// Elector is one candidate. Run is called once; the other methods are for any goroutine.
type Elector struct {
	cfg Config

	// Run's alone.
	seen    string    // the version that the lease had when it was last seen to change
	since   time.Time // and when that was
	version string    // of the lease that is held
	logged  string    // the last error

	mu     sync.Mutex
	leader string // who leads, as far as is known
	turn   time.Time
	err    error // of the last turn
}

// New returns a candidate.
func New(cfg Config) *Elector {
	cfg.Duration = cmp.Or(cfg.Duration, 15*time.Second)
	cfg.Deadline = cmp.Or(cfg.Deadline, 10*time.Second)
	cfg.Retry = cmp.Or(cfg.Retry, 2*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Elector{cfg: cfg, turn: time.Now(), err: errors.New("the lease has not been looked at yet")}
}

// State returns who leads, as far as is known, how long ago the lease was last looked at or renewed, and the error of that.
func (e *Elector) State() (holder string, age time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader, time.Since(e.turn), e.err
}

// Leads reports whether this process has the lease.
func (e *Elector) Leads() bool {
	holder, _, _ := e.State()
	return holder == e.cfg.ID
}

// Run is a candidate until the context ends, and calls lead whenever it is elected, with a context that ends with the lease. It waits for
// lead to return, and only then gives the lease up, or is a candidate again. Lead that returns by itself ends Run, with its error.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		r, won, err := e.acquire(ctx)
		e.note(r.Holder, err)
		if !won {
			wait(ctx, e.cfg.Retry)
			continue
		}
		e.cfg.Log.Info("leads", "id", e.cfg.ID)
		err = e.lead(ctx, r, lead)
		e.note("", nil)
		if err != nil {
			return err
		}
		e.cfg.Log.Info("does not lead any more", "id", e.cfg.ID)
	}
	return ctx.Err()
}

// acquire looks at the lease once, and takes it if it is nobody's or has expired. It returns the record that holds now.
func (e *Elector) acquire(ctx context.Context) (r Record, won bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Deadline)
	defer cancel()
	r, version, err := e.cfg.Lock.Get(ctx)
	if err != nil {
		return r, false, err
	}
	if version != e.seen {
		e.seen, e.since = version, time.Now()
	}
	if version != "" && r.Holder != "" && time.Since(e.since) < r.Duration {
		return r, false, nil
	}
	start := time.Now()
	mine := Record{Holder: e.cfg.ID, Duration: e.cfg.Duration, Acquired: start, Renewed: start, Transitions: r.Transitions}
	if version != "" {
		mine.Transitions++
	}
	e.version, err = e.cfg.Lock.Put(ctx, mine, version)
	if errors.Is(err, ErrChanged) {
		return Record{}, false, nil // another was quicker
	}
	return mine, err == nil, err
}

// lead calls the function while it renews the lease.
func (e *Elector) lead(ctx context.Context, r Record, lead func(context.Context) error) error {
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- lead(leading) }()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		stop(e.renew(leading, r))
	}()
	err := <-done
	ended := leading.Err() == nil // by itself
	stop(nil)
	<-lost
	if ctx.Err() != nil || ended {
		e.release(context.WithoutCancel(ctx), r)
	}
	if ended {
		return cmp.Or(err, errors.New("what the leader runs has ended"))
	}
	return nil
}

// errLost: another has the lease, or may have it.
var errLost = errors.New("the lease is lost")

// renew renews the lease until that fails for too long, or the context ends. r.Renewed is when the last renewal was sent.
func (e *Elector) renew(ctx context.Context, r Record) error {
	for {
		deadline := r.Renewed.Add(e.cfg.Deadline)
		wait(ctx, min(e.cfg.Retry, time.Until(deadline)))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		start := time.Now()
		if !start.Before(deadline) {
			e.cfg.Log.Warn("the lease could not be renewed: stops to act", "within", e.cfg.Deadline.String())
			return errLost
		}
		try, cancel := context.WithDeadline(ctx, deadline)
		next := r
		next.Renewed = start
		err := e.put(try, next)
		cancel()
		if errors.Is(err, errLost) {
			e.cfg.Log.Warn("another has taken the lease: stops to act")
			return err
		}
		if ctx.Err() == nil {
			e.note(e.cfg.ID, err)
		}
		if err == nil {
			r = next
		}
	}
}

// put writes the lease that is held. A lease that has changed may be what an earlier request wrote whose answer was lost.
func (e *Elector) put(ctx context.Context, r Record) error {
	version, err := e.cfg.Lock.Put(ctx, r, e.version)
	if errors.Is(err, ErrChanged) {
		now, changed, gerr := e.cfg.Lock.Get(ctx)
		switch {
		case gerr != nil:
			return gerr
		case changed == "" || now.Holder != e.cfg.ID:
			return errLost
		}
		version, err = e.cfg.Lock.Put(ctx, r, changed)
	}
	if err == nil {
		e.version = version
	}
	return err
}

// release gives the lease up, so that others need not wait until it expires.
func (e *Elector) release(ctx context.Context, r Record) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Retry)
	defer cancel()
	r.Holder, r.Duration, r.Renewed = "", time.Second, time.Now()
	if err := e.put(ctx, r); err != nil {
		e.cfg.Log.Warn("the lease is not given up: it expires", "err", err)
	}
}

// note keeps what State says, and logs an error once.
func (e *Elector) note(holder string, err error) {
	e.mu.Lock()
	e.turn, e.err = time.Now(), err
	changed := holder != e.leader && holder != "" && err == nil
	if err == nil {
		e.leader = holder
	}
	e.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != e.logged {
		e.cfg.Log.Warn("the lease cannot be read or written; trying again", "err", err)
	}
	e.logged = text
	if changed && holder != e.cfg.ID {
		e.cfg.Log.Info("another leads", "leader", holder)
	}
}

// wait waits, or until the context ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
