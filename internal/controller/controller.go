// Package controller runs control loops: changes in the datastore become keys in a work queue, and each key is reconciled until what
// it stands for is as it should be.
//
// In: updates of some prefixes, which the controller watches itself or is handed, and keys that somebody enqueues. Out: calls of
// [Config.Observe], which takes an update and returns the keys that it concerns, and of [Config.Reconcile], which brings what a key
// stands for to its desired state.
//
// What holds:
//   - Observe and Reconcile are called by one goroutine, that of Run: what they share needs no lock.
//   - A key is in the queue once, at the earliest time for which it was asked. An update that arrives while its key is reconciled puts
//     it back, so that none is lost. Any history may be skipped: of updates of one key that nobody has observed yet, the last counts.
//   - Reconcile sees all updates that arrived before it began. It is not called before the datastore is in sync, nor while that says
//     that it is not ready (datastoreReady); what is due then waits. The call that runs when this becomes known ends as it would.
//   - An error is tried again after a while that doubles, by key, until there is none; an update of the key does not wait for that.
//
// Two loops are no controllers. BGP's (bgp/daemon) writes nothing to the datastore. What it makes, the plan, it must hand out again when a
// file of passwords has changed, before the datastore answers, from the plan on disk, and while that is not ready; a controller calls
// nothing then, and to pause as one does it asks its own resources. Package status watches nothing: it writes what it is given, at a
// rate limit for all keys together, which a queue by due time does not have.
package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/syncer"
)

// Config of a Controller.
type Config struct {
	Name     string   // what it reconciles, for the log
	Prefixes []string // of keys whose updates concern it
	// Store is watched for Prefixes. Nil: the caller watches the datastore, and calls Update.
	Store datastore.Store
	// Know is that of the syncer whose updates are passed to Update. Nil: Reconcile writes none of these keys.
	Know func(ctx context.Context, keys ...string) error
	// Observe takes a change of the datastore, and returns the keys to reconcile, which need not be keys of the datastore.
	Observe func(api.Update) []string
	// Reconcile brings a key to its desired state, and returns when to call it again without an update; zero: not at all. An
	// error with a time is tried again then, one without after a back-off, and one that is [Terminal] only after an update.
	Reconcile func(ctx context.Context, key string) (again time.Time, err error)

	MinBackoff time.Duration // wait after a key's first failure, doubled at each; zero means 1s
	MaxBackoff time.Duration // zero means 30s
	// Log has each error of a key once, and again when it has changed. Nil: silent.
	Log *slog.Logger
}

// Controller is a control loop. It is safe for concurrent use.
type Controller struct {
	cfg    Config
	source *syncer.Syncer // nil without Store
	wake   chan struct{}

	mu      sync.Mutex
	pending []api.Update // not observed yet, one for each key
	at      map[string]int
	synced  bool
	queue   queue

	// Used by Run's goroutine only.
	ready    api.Readiness
	failures map[string]int    // in a row, by key
	logged   map[string]string // the last error, by key
}

// New returns a Controller, which calls nothing until Run.
func New(cfg Config) *Controller {
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, time.Second)
	cfg.MaxBackoff = max(cmp.Or(cfg.MaxBackoff, 30*time.Second), cfg.MinBackoff)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		cfg: cfg, wake: make(chan struct{}, 1), at: map[string]int{}, queue: newQueue(), failures: map[string]int{}, logged: map[string]string{},
	}
	if cfg.Store != nil {
		prefixes := append(slices.Clone(cfg.Prefixes), api.KeyPrefix(api.KindClusterInformation, ""))
		c.source = syncer.New(cfg.Store, syncer.Config{Prefixes: prefixes, Logger: cfg.Log})
		c.cfg.Know = c.source.Know
	}
	return c
}

// Synced reports whether all existing keys were passed: before, nothing is reconciled.
func (c *Controller) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

// Know is called by Reconcile before it writes or deletes a key of Prefixes, if it then goes by what it wrote, without waiting until
// Observe has that: see [syncer.Syncer.Know].
func (c *Controller) Know(ctx context.Context, key string) error {
	if c.cfg.Know == nil {
		return nil
	}
	return c.cfg.Know(ctx, key)
}

// readiness is the key of ClusterInformation, whose datastoreReady says whether the datastore may be acted upon.
var readiness = api.KeyPrefix(api.KindClusterInformation, "") + "default"

// Update passes changes of the datastore, and inSync once all existing keys were passed. Keys without one of the prefixes are ignored.
func (c *Controller) Update(us []api.Update, inSync bool) {
	c.mu.Lock()
	changed := inSync && !c.synced
	c.synced = c.synced || inSync
	for _, u := range us {
		if u.Key != readiness && !slices.ContainsFunc(c.cfg.Prefixes, func(p string) bool { return strings.HasPrefix(u.Key, p) }) {
			continue
		}
		changed = true
		if i, ok := c.at[u.Key]; ok {
			c.pending[i] = u
			continue
		}
		c.at[u.Key] = len(c.pending)
		c.pending = append(c.pending, u)
	}
	c.mu.Unlock()
	if changed {
		c.signal()
	}
}

// Enqueue has a key reconciled after a delay, or earlier if it is queued for an earlier time.
func (c *Controller) Enqueue(key string, after time.Duration) {
	c.mu.Lock()
	c.queue.add(key, time.Now().Add(after))
	c.mu.Unlock()
	c.signal()
}

func (c *Controller) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run reconciles until the context ends, and then returns once the call that runs has returned. Call it once.
func (c *Controller) Run(ctx context.Context) error {
	if c.source == nil {
		return c.loop(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.source.Run(ctx) })
	group.Go(func() error { return c.loop(ctx) })
	group.Go(func() error {
		for b := range c.source.Batches() { // closed when the source ends
			c.Update(b.Updates, b.InSync)
		}
		return nil
	})
	return group.Wait()
}

func (c *Controller) loop(ctx context.Context) error {
	due := time.NewTimer(0)
	defer due.Stop()
	for ctx.Err() == nil {
		key, next, ok := c.next()
		if ok {
			c.reconcile(ctx, key)
			continue
		}
		due.Stop()
		if !next.IsZero() {
			due.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-due.C:
		}
	}
	return ctx.Err()
}

// next takes the key that has been due longest from the queue, or returns when one will be due; zero: not before an update.
func (c *Controller) next() (key string, next time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe()
	if !c.synced || c.ready.Frozen() || c.queue.empty() {
		return "", time.Time{}, false
	}
	now := time.Now()
	if first := c.queue.first(); first.due.After(now) {
		return "", first.due, false
	}
	return c.queue.take(), time.Time{}, true
}

// observe passes pending updates to Observe. The lock is held, except during these calls.
func (c *Controller) observe() {
	for len(c.pending) > 0 {
		us := c.pending
		c.pending = nil
		clear(c.at)
		c.mu.Unlock()
		var keys []string
		for _, u := range us {
			if u.Key == readiness {
				c.ready = c.ready.AfterUpdate(u)
			} else {
				keys = append(keys, c.cfg.Observe(u)...)
			}
		}
		c.mu.Lock()
		now := time.Now()
		for _, key := range keys {
			c.queue.add(key, now)
		}
	}
}

func (c *Controller) reconcile(ctx context.Context, key string) {
	again, err := c.cfg.Reconcile(ctx, key)
	if ctx.Err() != nil {
		return
	}
	c.log(key, err)
	switch {
	case err == nil, IsTerminal(err):
		delete(c.failures, key)
	default:
		c.failures[key]++
		if again.IsZero() {
			again = time.Now().Add(c.backoff(c.failures[key]))
		}
	}
	if again.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.add(key, again)
}

// backoff returns the wait after a number of failures in a row, at least one.
func (c *Controller) backoff(failures int) time.Duration {
	wait := c.cfg.MinBackoff
	for range failures - 1 {
		if wait >= c.cfg.MaxBackoff {
			break
		}
		wait *= 2
	}
	return min(wait, c.cfg.MaxBackoff)
}

func (c *Controller) log(key string, err error) {
	if err == nil {
		delete(c.logged, key)
		return
	}
	if text := err.Error(); c.logged[key] != text {
		c.logged[key] = text
		c.cfg.Log.Warn(c.cfg.Name, "key", key, "err", err)
	}
}

// Terminal marks an error that a retry cannot fix: the resource must change first. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminal{err}
}

// IsTerminal reports whether an error, or one that it wraps, is [Terminal].
func IsTerminal(err error) bool {
	var end terminal
	return errors.As(err, &end)
}

type terminal struct{ error }

func (t terminal) Unwrap() error { return t.error }
