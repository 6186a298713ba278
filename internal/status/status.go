// Package status keeps the datastore told of how a node does.
//
// In: the state of each local endpoint, and of the agent itself, as the agent
// learns it. Out: the keys that upstream's agent writes, with upstream's fields
// and beside them ours, which its readers ignore. The agent's own key goes by
// itself when nobody confirms it, or, where the datastore's keys do not expire,
// says until when it holds: then the node is down. [Alive] judges both.
//
// A key is written when its value has changed, the one that waits longest
// first, and no more than 50 in a second. What cannot be written is tried again
// for ever. At start, what an agent before this one wrote is taken over or removed; every three minutes, what somebody has
// deleted, changed or added of the endpoints' keys is put right.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
)

const (
	pace     = 20 * time.Millisecond // between writes: 50 in a second
	soonest  = time.Second           // between two reports of the agent, when its state changes
	minRetry = time.Second
	maxRetry = 30 * time.Second
	relist   = 3 * time.Minute // between looks at what the datastore has; upstream's agent: 180 endpointReportingDelays
)

// Endpoint is the state of one endpoint, as it is stored.
type Endpoint struct {
	Status string `json:"status"` // Up, Down or Error
	// Reason is why it is not up.
	Reason string `json:"reason,omitempty"`
}

// States of an endpoint.
const (
	Up    = "up"
	Down  = "down"  // nothing is wrong with it, but it is not in force, such as an interface that is down
	Error = "error" // it cannot be brought into force, or must not be
)

// Process is the state of an agent, as it is stored. The first three fields are upstream's.
type Process struct {
	Time        string   `json:"time"`         // of the report, RFC 3339, UTC
	Uptime      float64  `json:"uptime"`       // seconds
	FirstUpdate bool     `json:"first_update"` // of this run of the agent
	Version     string   `json:"version,omitempty"`
	Ready       bool     `json:"ready"`
	Errors      []string `json:"errors,omitempty"` // what is wrong with the host as a whole
	// Expires is until when the report says that the agent lives, by its clock, RFC 3339, UTC. Empty where keys expire: then the
	// key goes. See Alive.
	Expires string `json:"expires,omitempty"`
}

// Settings of a Reporter; all can be changed while it runs.
type Settings struct {
	Region    string
	Interval  time.Duration // between reports of the agent; zero: none
	TTL       time.Duration // of such a report
	Endpoints bool          // report these
	Delay     time.Duration // for which changes of an endpoint are gathered
}

// Config of a Reporter.
type Config struct {
	Node    string
	Version string
	Store   datastore.Store
	Host    func() (ready bool, errs []string) // asked at each report of the agent
	Log     *slog.Logger
}

// Reporter writes status. Any goroutine may use it.
type Reporter struct {
	cfg  Config
	wake chan struct{}

	mu        sync.Mutex
	settings  Settings
	frozen    bool
	endpoints map[intent.EndpointID]Endpoint
	fresh     map[intent.EndpointID]bool // of endpoints: Set or removed since take
	complete  bool                       // endpoints has all that there are
	touched   bool                       // the agent's own state has changed
	news      bool                       // something of the above has changed since take
	trouble   error                      // why nothing could be written when it was last tried

	w writer // Run's alone
}

// New returns a Reporter, which writes nothing until Run.
func New(cfg Config) *Reporter {
	return &Reporter{cfg: cfg, wake: make(chan struct{}, 1), endpoints: map[intent.EndpointID]Endpoint{}, fresh: map[intent.EndpointID]bool{}}
}

// Configure takes settings over.
func (r *Reporter) Configure(s Settings) {
	r.change(func() bool {
		changed := r.settings != s
		r.settings = s
		return changed
	})
}

// Freeze stops all writing, until it is called with false.
func (r *Reporter) Freeze(frozen bool) {
	r.change(func() bool { r.frozen = frozen; return true })
}

// Set says how endpoints are.
func (r *Reporter) Set(states map[intent.EndpointID]Endpoint) {
	r.change(func() bool {
		for id, e := range states {
			r.endpoints[id], r.fresh[id] = e, true
		}
		return len(states) > 0
	})
}

// Remove says that endpoints are no more.
func (r *Reporter) Remove(ids []intent.EndpointID) {
	r.change(func() bool {
		for _, id := range ids {
			delete(r.endpoints, id)
			r.fresh[id] = true
		}
		return len(ids) > 0
	})
}

// Complete says that what was Set is all there is. Nothing is written of endpoints before.
func (r *Reporter) Complete() { r.change(func() bool { r.complete = true; return true }) }

// Trouble is why the datastore took nothing when it was last written to; nil: it did. With [datastore.ErrFull] nobody can
// write to it.
func (r *Reporter) Trouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trouble
}

// Touch says that what Config.Host answers has changed.
func (r *Reporter) Touch() { r.change(func() bool { r.touched = true; return true }) }

func (r *Reporter) change(f func() bool) {
	r.mu.Lock()
	changed := f()
	r.news = r.news || changed
	r.mu.Unlock()
	if !changed {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run writes until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	r.w = writer{cfg: r.cfg, started: time.Now(), since: map[string]time.Time{}, look: map[string]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		case <-timer.C:
		}
		r.take()
		next, err := r.w.turn(ctx, time.Now())
		r.mu.Lock()
		r.trouble = err
		r.mu.Unlock()
		// News does not shorten this wait: it is what bounds the writes, and
		// after a failure the store is in trouble as it is.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.w.rest(err)):
		}
		if err != nil {
			next = 0
		}
		if next >= 0 {
			timer.Reset(next)
		}
	}
}

// take hands what was said to the writer: mostly nothing, between two of many writes.
func (r *Reporter) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.w
	if !r.news && w.want != nil {
		return
	}
	r.news = false
	at := place{r.settings.Region, r.cfg.Node}
	anew := w.want == nil || at != w.at || w.settings.Endpoints != r.settings.Endpoints
	if at != w.at {
		w.at, w.listed, w.first, w.reportAt = at, false, false, time.Time{}
	}
	if w.settings.Interval != r.settings.Interval {
		w.reportAt = time.Time{}
	}
	w.settings, w.complete, w.frozen = r.settings, r.complete, r.frozen
	if r.touched {
		w.reportAt, r.touched = earlier(w.reportAt, w.reported.Add(soonest)), false
	}
	if anew {
		w.want, w.all = map[string]string{}, true
		for id := range r.endpoints {
			r.fresh[id] = true
		}
	}
	for id := range r.fresh {
		if key, ok := at.endpoint(id); ok {
			delete(w.want, key)
			w.look[key] = true
		}
	}
	for id := range r.fresh {
		e, is := r.endpoints[id]
		if key, ok := at.endpoint(id); ok && is && r.settings.Endpoints {
			value, _ := json.Marshal(e)
			w.want[key] = string(value)
		}
	}
	clear(r.fresh)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// writer is Run's own.
type writer struct {
	cfg      Config
	settings Settings
	at       place
	want     map[string]string
	look     map[string]bool // keys in which want or wrote may have changed since oldest
	all      bool            // any may have
	complete bool
	frozen   bool

	wrote    map[string]string // what the datastore has, as far as is known
	listed   bool              // wrote holds all, as it was before listAt
	listAt   time.Time         // when to look again
	since    map[string]time.Time
	started  time.Time
	reportAt time.Time // zero: now
	reported time.Time
	first    bool // the first report was made
	failures int
}

// turn does the one thing that is due, and says in how long to look again; negative: when there is news.
func (w *writer) turn(ctx context.Context, now time.Time) (time.Duration, error) {
	if w.frozen {
		return -1, nil
	}
	next := time.Duration(-1)
	if w.settings.Interval > 0 {
		if !now.Before(w.reportAt) {
			return 0, w.report(ctx, now)
		}
		next = w.reportAt.Sub(now)
	}
	if !w.complete {
		return next, nil
	}
	if !w.listed || w.settings.Endpoints && !now.Before(w.listAt) {
		return 0, w.list(ctx, now)
	}
	if w.settings.Endpoints {
		next = sooner(next, w.listAt.Sub(now))
	}
	key := w.oldest(now)
	if key == "" {
		return next, nil
	}
	if due := w.since[key].Add(w.settings.Delay); due.After(now) {
		return sooner(next, due.Sub(now)), nil
	}
	return 0, w.write(ctx, key)
}

// sooner is the shorter of two waits, of which the first may be none at all.
func sooner(next, wait time.Duration) time.Duration {
	if next < 0 || wait < next {
		return wait
	}
	return next
}

// oldest is the key that differs for longest.
func (w *writer) oldest(now time.Time) string {
	differs := func(key string) bool {
		value, wanted := w.want[key]
		has, written := w.wrote[key]
		return wanted != written || value != has
	}
	if w.all {
		for _, keys := range []map[string]string{w.want, w.wrote} {
			for key := range keys {
				w.look[key] = true
			}
		}
	}
	for key := range w.look {
		if _, ok := w.since[key]; !differs(key) {
			delete(w.since, key)
		} else if !ok {
			w.since[key] = now
		}
	}
	clear(w.look)
	w.all = false
	if len(w.since) == 0 {
		return ""
	}
	return slices.MinFunc(slices.Collect(maps.Keys(w.since)), func(a, b string) int {
		return cmp.Or(w.since[a].Compare(w.since[b]), cmp.Compare(a, b))
	})
}

func (w *writer) write(ctx context.Context, key string) error {
	w.look[key] = true
	value, wanted := w.want[key]
	if !wanted {
		if err := w.cfg.Store.Delete(ctx, key, api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
		delete(w.wrote, key)
		return nil
	}
	if err := datastore.Put(ctx, w.cfg.Store, api.Update{Key: key, Value: []byte(value)}); err != nil {
		return err
	}
	w.wrote[key] = value
	return nil
}

// list finds what an agent before this one wrote, and what became of what this one did. What was written for another region, of
// which it does not ask, stays known, so that it is removed.
func (w *writer) list(ctx context.Context, now time.Time) error {
	found := map[string]string{}
	for _, prefix := range w.at.prefixes() {
		all, err := w.cfg.Store.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, kv := range all.Items {
			found[kv.Key] = string(kv.Value)
		}
	}
	for key, value := range w.wrote {
		if !slices.ContainsFunc(w.at.prefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			found[key] = value
		}
	}
	wait := relist
	if !w.listed {
		wait = rand.N(relist) // nodes that began together, as after a power cut, do not all list together from then on
	}
	w.wrote, w.listed, w.listAt, w.all = found, true, now.Add(wait), true
	return nil
}

func (w *writer) report(ctx context.Context, now time.Time) error {
	ready, errs := w.cfg.Host()
	p := Process{
		Time: now.UTC().Format(time.RFC3339), Uptime: now.Sub(w.started).Seconds(), FirstUpdate: !w.first,
		Version: w.cfg.Version, Ready: ready, Errors: errs,
	}
	expiring, expires := w.cfg.Store.(datastore.Expiring)
	if !expires {
		p.Expires = now.Add(w.settings.TTL).UTC().Format(time.RFC3339)
	}
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if kv := (api.Update{Key: w.at.process(), Value: value}); expires {
		err = expiring.PutFor(ctx, kv, w.settings.TTL)
	} else {
		err = datastore.Put(ctx, w.cfg.Store, kv)
	}
	if err != nil {
		return err
	}
	if err := datastore.Put(ctx, w.cfg.Store, api.Update{Key: w.at.lastProcess(), Value: value}); err != nil {
		return err
	}
	w.first, w.reported, w.reportAt = true, now, now.Add(w.settings.Interval)
	return nil
}

// rest is the wait after a turn.
func (w *writer) rest(err error) time.Duration {
	if err == nil {
		w.failures = 0
		return pace
	}
	if w.failures == 0 {
		w.cfg.Log.Warn("status is not written; trying again", "err", err)
	}
	w.failures++
	return min(minRetry<<min(w.failures-1, 10), maxRetry)
}
