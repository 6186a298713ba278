// Package status reports the state of a node into the datastore.
//
// In: the state of each local endpoint, and of the agent itself, as the agent
// learns it. Out: the keys that upstream's agent writes, with upstream's fields
// and in addition ours, which its readers ignore. The agent's own key expires
// unless it is refreshed, or, where the datastore's keys do not expire, has the
// time of its expiry: then the node counts as down. [Alive] decides for both.
//
// A key is written when its value has changed, the one that waits longest
// first, and no more than 50 in a second. A summary says which policies are in force; in a datastore that makes endpoints of something else
// (datastore.Deriving) it has their states, too, which then have no keys. What cannot be written is tried again
// without end. At start, what a former agent wrote is taken over or removed; every three minutes, endpoints' keys that others have
// deleted, changed or added are corrected.
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
	writeInterval     = 20 * time.Millisecond // between writes: 50 in a second
	minReportInterval = time.Second           // between two reports of the agent, when its state changes
	minRetry          = time.Second
	maxRetry          = 30 * time.Second
	relistInterval    = 3 * time.Minute // between lists of the datastore; upstream's agent: 180 endpointReportingDelays
)

// Endpoint is the state of one endpoint, as it is stored.
type Endpoint struct {
	Status string `json:"status"` // Up, Down or Error
	// Reason is why it is not up.
	Reason string `json:"reason,omitempty"`
	// Chains is why its policy is asked rule by rule although the settings want it to be look-ups; empty: it is not so.
	Chains string `json:"chains,omitempty"`
	// Note is what else there is to say while it is up: that its virtual machine comes from another host.
	Note string `json:"note,omitempty"`
}

// States of an endpoint.
const (
	Up    = "up"
	Down  = "down"  // not in force, without an error: such as an interface that is down
	Error = "error" // it cannot be brought into force, or must not be
)

// Process is the state of an agent, as it is stored. The first three fields are upstream's.
type Process struct {
	Time        string   `json:"time"`         // of the report, RFC 3339, UTC
	Uptime      float64  `json:"uptime"`       // seconds
	FirstUpdate bool     `json:"first_update"` // of this run of the agent
	Version     string   `json:"version,omitempty"`
	Ready       bool     `json:"ready"`
	Errors      []string `json:"errors,omitempty"` // problems of the host as a whole
	// Expires is when the report expires, by the agent's clock, RFC 3339, UTC. Empty where keys expire: then the
	// key is deleted. See Alive.
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

// Reporter writes status. It is safe for concurrent use.
type Reporter struct {
	cfg     Config
	wake    chan struct{}
	answers chan struct{}

	mu        sync.Mutex
	settings  Settings
	frozen    bool
	endpoints map[intent.EndpointID]Endpoint
	updated   map[intent.EndpointID]bool // of endpoints: Set or removed since take
	complete  bool                       // endpoints has all endpoints
	versions  Versions                   // of policies in force
	failed    map[string]string          // policies that are not, by key
	nodes     int                        // of the cluster
	touched   bool                       // the agent's own state has changed
	changed   bool                       // something of the above has changed since take
	writeErr  error                      // the error of the last write; nil: it succeeded

	w writer // used by Run only
}

// New returns a Reporter, which writes nothing until Run.
func New(cfg Config) *Reporter {
	return &Reporter{cfg: cfg, wake: make(chan struct{}, 1), answers: make(chan struct{}, 1), endpoints: map[intent.EndpointID]Endpoint{}, updated: map[intent.EndpointID]bool{}}
}

// Configure changes the settings.
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

// Set sets the state of endpoints.
func (r *Reporter) Set(states map[intent.EndpointID]Endpoint) {
	r.change(func() bool {
		for id, e := range states {
			r.endpoints[id], r.updated[id] = e, true
		}
		return len(states) > 0
	})
}

// Remove removes endpoints.
func (r *Reporter) Remove(ids []intent.EndpointID) {
	r.change(func() bool {
		for _, id := range ids {
			delete(r.endpoints, id)
			r.updated[id] = true
		}
		return len(ids) > 0
	})
}

// Complete notes that all endpoints were Set. No endpoint is written before.
func (r *Reporter) Complete() { r.change(func() bool { r.complete = true; return true }) }

// WriteError returns the error of the last write; nil: it succeeded. With [datastore.ErrFull] nobody can
// write to it.
func (r *Reporter) WriteError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeErr
}

// Touch notes that the result of Config.Host has changed.
func (r *Reporter) Touch() { r.change(func() bool { r.touched = true; return true }) }

// Answers notes that the datastore answers again: what could not be written is tried again once it is the node's turn, and not only after the
// wait that an outage has made long.
func (r *Reporter) Answers() {
	select {
	case r.answers <- struct{}{}:
	default:
	}
}

func (r *Reporter) change(f func() bool) {
	r.mu.Lock()
	changed := f()
	r.changed = r.changed || changed
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
	r.w = writer{cfg: r.cfg, started: time.Now(), since: map[string]time.Time{}, dirty: map[string]bool{}}
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
		select {
		case <-r.answers: // what it answers now is seen at once
		default:
		}
		next, err := r.w.step(ctx, time.Now())
		r.mu.Lock()
		r.writeErr = err
		r.mu.Unlock()
		// News does not shorten this wait: it is what bounds the writes, and
		// after a failure the store is in trouble as it is.
		rest, answers := time.After(r.w.rest(err)), r.answers
		if err == nil {
			answers = nil
		} else {
			next = 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rest:
		case <-answers:
			next = turn(r.w.at.node, r.w.nodes)
		}
		if next >= 0 {
			timer.Reset(next)
		}
	}
}

// take passes changes to the writer: mostly none, between two of many writes.
func (r *Reporter) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.w
	if !r.changed && w.want != nil {
		return
	}
	r.changed = false
	at := place{r.settings.Region, r.cfg.Node}
	restart := w.want == nil || at != w.at || w.settings.Endpoints != r.settings.Endpoints
	if at != w.at {
		w.at, w.listed, w.first, w.reportAt = at, false, false, time.Time{}
	}
	if w.settings.Interval != r.settings.Interval {
		w.reportAt = time.Time{}
	}
	w.settings, w.complete, w.frozen = r.settings, r.complete, r.frozen
	if r.touched {
		w.reportAt, r.touched = earlier(w.reportAt, w.reported.Add(minReportInterval)), false
	}
	if restart {
		w.want, w.all = map[string]string{}, true
		for id := range r.endpoints {
			r.updated[id] = true
		}
	}
	for id := range r.updated {
		if key, ok := at.endpoint(id); ok {
			delete(w.want, key)
			w.dirty[key] = true
		}
	}
	apart := r.endpointsApart()
	for id := range r.updated {
		e, is := apart[id]
		if key, ok := at.endpoint(id); ok && is {
			value, _ := json.Marshal(e)
			w.want[key] = string(value)
		}
	}
	clear(r.updated)
	w.nodes = r.nodes
	if w.dirty[at.summary()] = true; r.settings.Interval > 0 {
		w.want[at.summary()] = r.summary(at)
	} else {
		delete(w.want, at.summary())
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// writer is the state of Run.
type writer struct {
	cfg      Config
	settings Settings
	at       place
	want     map[string]string
	dirty    map[string]bool // keys in which want or wrote may have changed since oldest
	all      bool            // all keys may have
	complete bool
	frozen   bool

	wrote    map[string]string // the datastore's content, as far as known
	listed   bool              // wrote has all keys, as of the last list
	listAt   time.Time         // when to list again
	since    map[string]time.Time
	started  time.Time
	reportAt time.Time // zero: now
	reported time.Time
	first    bool // the first report was made

	nodes     int
	summaryAt time.Time // not before it
	failures  int
}

// step does the one thing that is due, and returns when to call it again; negative: after a change.
func (w *writer) step(ctx context.Context, now time.Time) (time.Duration, error) {
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
	if due := w.due(key); due.After(now) {
		return sooner(next, due.Sub(now)), nil
	}
	if key == w.at.summary() {
		w.wroteSummary(now)
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

// oldest returns the key that differs and is due first.
func (w *writer) oldest(now time.Time) string {
	differs := func(key string) bool {
		value, wanted := w.want[key]
		has, written := w.wrote[key]
		return wanted != written || value != has
	}
	if w.all {
		for _, keys := range []map[string]string{w.want, w.wrote} {
			for key := range keys {
				w.dirty[key] = true
			}
		}
	}
	for key := range w.dirty {
		if _, ok := w.since[key]; !differs(key) {
			delete(w.since, key)
		} else if !ok {
			w.since[key] = now
		}
	}
	clear(w.dirty)
	w.all = false
	if len(w.since) == 0 {
		return ""
	}
	return slices.MinFunc(slices.Collect(maps.Keys(w.since)), func(a, b string) int {
		// The key of a former version goes just before its successor comes (%2F is less than %2f): meanwhile the endpoint is not reported.
		return cmp.Or(w.due(a).Compare(w.due(b)), cmp.Compare(current(a), current(b)), cmp.Compare(a, b))
	})
}

func (w *writer) write(ctx context.Context, key string) error {
	w.dirty[key] = true
	value, wanted := w.want[key]
	if !wanted {
		if err := w.cfg.Store.Delete(ctx, key, api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
		delete(w.wrote, key)
		if now := current(key); now != key { // to upstream's plugin in Neutron the last event is how the endpoint is, whichever key it is of
			delete(w.wrote, now)
			w.dirty[now] = true
		}
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
	prefixes := w.at.prefixes()
	if w.cfg.inSummary() {
		prefixes = nil
	}
	for _, prefix := range prefixes {
		all, err := w.cfg.Store.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, kv := range all.Items {
			found[kv.Key] = string(kv.Value)
		}
	}
	switch kv, err := w.cfg.Store.Get(ctx, w.at.summary()); {
	case err == nil:
		found[kv.Key] = string(kv.Value)
	case !errors.Is(err, datastore.ErrNotFound):
		return err
	}
	for key, value := range w.wrote {
		if key != w.at.summary() && !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			found[key] = value
		}
	}
	wait := relistInterval
	if !w.listed {
		wait = rand.N(relistInterval) // nodes that began together, as after a power cut, do not all list together from then on
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

// rest returns the wait after a step.
func (w *writer) rest(err error) time.Duration {
	if err == nil {
		w.failures = 0
		return writeInterval
	}
	if w.failures == 0 {
		w.cfg.Log.Warn("status is not written; trying again", "err", err)
	}
	w.failures++
	return min(minRetry<<min(w.failures-1, 10), maxRetry)
}
