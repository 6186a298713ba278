// Package syncer follows a store.
//
// In: a [datastore.Store], listed and then watched. Out: [Batch], the
// difference between what was sent to the reader and what the store holds.
//
// Each update is a key with its present value, or nil if it is gone. Any
// history may be skipped, only the latest value counts; what is pending for a
// slow reader is bounded by keys, not by events. Losing the watch, or the
// history that it needs, shows only as a status: the reader sees no gap and
// nothing twice. InSync is set exactly when it is true.
package syncer

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Status is the state of synchronisation with the store.
type Status int

const (
	WaitForDatastore Status = iota // the store does not answer
	ResyncInProgress               // some prefix is not listed yet, or must be listed again
	InSync                         // every prefix was listed and is watched
)

func (s Status) String() string {
	switch s {
	case WaitForDatastore:
		return "wait-for-ready"
	case ResyncInProgress:
		return "resync"
	case InSync:
		return "in-sync"
	}
	return "unknown"
}

// Batch is what changed since the last batch. The reader owns it.
type Batch struct {
	Updates []api.Update // one for each key, in no order that matters
	Status  Status       // after the updates

	// InSync is true once everything that the store held at start was sent. It
	// stays true: without the store the resources become stale, not fewer.
	InSync bool

	// Positions are how far the reader has come, by prefix: all that the store held at one is in what was sent. A prefix that was never listed has none.
	Positions map[string]datastore.Position
}

// Config configures a Syncer.
type Config struct {
	Prefixes []string // empty means all resources, api.ResourcesPrefix

	MinBackoff time.Duration // from the begin of an attempt that fails to the next, doubled at each, with jitter, and the least wait; zero means 100ms
	MaxBackoff time.Duration // zero means 3s

	Logger *slog.Logger // nil: silent
}

// Syncer follows a store. See Run.
type Syncer struct {
	store datastore.Store
	cfg   Config
	out   chan Batch
	in    chan event
	ahead chan event // pieces of first lists, which wait for the reader
	known chan []string
	pings chan struct{}
	looks chan look
}

// look asks the loop something about a prefix: whether a list is other than what the reader has, or will have, or whether changes leave nothing of that.
type look struct {
	prefix string
	items  []api.Update
	of     func(m *merge, prefix string, items []api.Update) bool
	answer chan bool
}

// New returns a syncer, which does nothing until Run.
func New(store datastore.Store, cfg Config) *Syncer {
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, 100*time.Millisecond)
	cfg.MaxBackoff = max(cmp.Or(cfg.MaxBackoff, 3*time.Second), cfg.MinBackoff)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Prefixes = disjoint(cfg.Prefixes)
	return &Syncer{store: store, cfg: cfg, out: make(chan Batch), in: make(chan event), ahead: make(chan event), known: make(chan []string), pings: make(chan struct{}), looks: make(chan look)}
}

// Batches delivers the changes. It is closed when Run returns.
func (s *Syncer) Batches() <-chan Batch { return s.out }

// Run follows the store until ctx ends, and returns why it ended. Call it once.
func (s *Syncer) Run(ctx context.Context) error {
	defer close(s.out)
	var feeds sync.WaitGroup
	defer feeds.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, prefix := range s.cfg.Prefixes {
		f := &feed{s: s, dates: datastore.DatesOf(s.store), index: i, prefix: prefix, log: s.cfg.Logger.With("prefix", prefix)}
		feeds.Go(func() { f.run(ctx) })
	}
	return s.loop(ctx)
}

// Ping returns when the loop has completed a turn, as a probe of liveness.
func (s *Syncer) Ping(ctx context.Context) error {
	select {
	case s.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Know must be called by a reader before it writes or deletes keys, if it uses what it wrote from then on. Their later updates are
// sent, also where they are no difference to what was sent: another writer may delete a key before the reader received it. An
// update of such a key may be older than what the reader wrote.
func (s *Syncer) Know(ctx context.Context, keys ...string) error {
	select {
	case s.known <- keys:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop owns the merge. It always accepts changes, so a slow reader
// makes the pending set grow by key, and blocks no feed. Only a first list waits for the reader, so that it is not in memory whole.
func (s *Syncer) loop(ctx context.Context) error {
	m := newMerge(len(s.cfg.Prefixes))
	for {
		var out chan Batch
		if m.hasPending() {
			out = s.out
		}
		ahead := s.ahead
		if len(m.batch.Updates) > keptKeys {
			ahead = nil
		}
		select {
		case e := <-s.in:
			s.apply(m, e)
		case e := <-ahead:
			s.apply(m, e)
		case out <- m.batch:
			m.delivered()
		case keys := <-s.known:
			m.know(keys)
		case l := <-s.looks:
			l.answer <- l.of(m, l.prefix, l.items)
		case <-s.pings:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask asks the loop about what the reader has, or will have once it takes what is pending.
func (s *Syncer) ask(ctx context.Context, of func(*merge, string, []api.Update) bool, prefix string, items []api.Update) (bool, error) {
	l := look{prefix, items, of, make(chan bool, 1)}
	select {
	case s.looks <- l:
		return <-l.answer, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (s *Syncer) apply(m *merge, e event) {
	before := m.batch.Status
	m.apply(e)
	if m.batch.Status != before {
		s.cfg.Logger.Info("datastore", "status", m.batch.Status.String())
	}
}

// send hands an event to the loop.
func (s *Syncer) send(ctx context.Context, e event) error {
	to := s.in
	if e.piece {
		to = s.ahead
	}
	select {
	case to <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// disjoint drops prefixes that others cover: a key must have one feed.
func disjoint(prefixes []string) []string {
	if len(prefixes) == 0 {
		return []string{api.ResourcesPrefix}
	}
	sorted := slices.Sorted(slices.Values(prefixes))
	kept := sorted[:1]
	for _, p := range sorted[1:] {
		if !strings.HasPrefix(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept
}

// wait pauses after the given number of failures in a row, of which the last attempt began at a time: what it took counts, so that who was
// answered nothing for long asks again at once. The jitter keeps a thousand agents from coming back at the same moment.
func (s *Syncer) wait(ctx context.Context, failures int, began time.Time) error {
	d := s.cfg.MaxBackoff
	if shift := failures - 1; shift < 30 && s.cfg.MinBackoff<<shift < d {
		d = s.cfg.MinBackoff << max(shift, 0)
	}
	d = max(d-time.Since(began), min(d, s.cfg.MinBackoff))
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
