// Package felixbackend is a driver whose dataplane is a program that the agent starts, and to which it speaks as upstream's agent does: by file
// descriptors 3 and 4 (docs/felixbackend.md, decision 083).
//
// In: [intent.Batch] from the loop, settings, and the path of a program. Out: messages of api/felixpb, first all that the node should be and InSync, then
// changes; and outcomes, made of what the program says about endpoints. When the program ends, what it programmed stays, nothing new is called in
// force, and it is started again and given everything.
package felixbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/unsent"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// Config is what a Driver needs.
type Config struct {
	Program string // its absolute path
	Node    string // this host's name in the datastore
	// Keys is called with the public key of this host's end of WireGuard, when the program says it; nil: not called.
	Keys     func(kind intent.TunnelKind, public string)
	Patience time.Duration // how long Apply waits for the program, before it says so in an error and is called again; zero: 2 s
	// Backoff is how long a program that ended stays so at first, doubled with each end that comes soon, up to MaxBackoff; zero: 1 s, and 30 s.
	Backoff, MaxBackoff time.Duration
	Log                 *slog.Logger // nil: nothing is logged
}

// lived is how long a program must have run, so that its end is a new fault.
const lived = time.Minute

// Driver is a dataplane in a program. Make it with New.
type Driver struct {
	cfg     Config
	state   *unsent.State
	program *conn // nil: none runs
	to      *translator
	writing bool                         // a batch is on its way
	batch   *batch                       // that one
	keys    []intent.Key                 // what is in it
	synced  bool                         // InSync was sent
	first   map[intent.EndpointID]bool   // endpoints of the first state that the program has not spoken of
	words   map[intent.EndpointID]string // what it said
	failed  map[intent.Key]bool          // tried again by Retry
	logged  map[string]bool              // what was logged about this program
	again   time.Time                    // no program is started before
	wait    time.Duration
	notes   chan func()
	woken   chan struct{} // has one if something has happened

	mu      sync.Mutex
	config  map[string]string // as it should be
	sent    map[string]string // as the program has it; not shared
	running *conn             // for Run
	over    bool              // Run has ended
}

// New returns a Driver that has started nothing yet.
func New(cfg Config) *Driver {
	for at, value := range map[*time.Duration]time.Duration{&cfg.Patience: 2 * time.Second, &cfg.Backoff: time.Second, &cfg.MaxBackoff: 30 * time.Second} {
		if *at == 0 {
			*at = value
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{cfg: cfg, state: unsent.New(), failed: map[intent.Key]bool{}, notes: make(chan func()), woken: make(chan struct{}, 1)}
}

// Run gives the loop a turn whenever something has happened. When ctx ends it ends the program, and returns once that has ended.
func (d *Driver) Run(ctx context.Context) error {
	defer d.close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.woken:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d.notes <- func() {}: // Apply finds it
		}
	}
}

func (d *Driver) close() {
	d.mu.Lock()
	d.over = true
	c := d.running
	d.mu.Unlock()
	if c != nil {
		c.end()
	}
}

func (d *Driver) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// Configure says what settings are in effect, by upstream's names. It may be called from any goroutine; the map must not be changed.
func (d *Driver) Configure(config map[string]string) {
	d.mu.Lock()
	same := maps.Equal(d.config, config)
	d.config = config
	d.mu.Unlock()
	if !same {
		d.wake()
	}
}

// Merge implements [dataplane.Driver].
func (d *Driver) Merge(b intent.Batch) {
	d.state.Merge(b)
	for _, k := range b.Removed {
		delete(d.failed, k)
		if id, is := k.(intent.EndpointID); is {
			delete(d.first, id)
			delete(d.words, id)
		}
	}
}

// Links implements [dataplane.LinkAware]: the program sees interfaces itself.
func (d *Driver) Links([]ifmon.Change) {}

// Drift implements [dataplane.Drifting].
func (d *Driver) Drift() <-chan func() { return d.notes }

// Resync implements [dataplane.Driver]. What others change is for the program to find and to repair.
func (d *Driver) Resync(context.Context) error { return nil }

// Retry implements [dataplane.Driver]. An endpoint that the program has not spoken of is not sent again: it has it.
func (d *Driver) Retry() {
	for k := range d.failed {
		d.state.Again(k)
	}
}

// Apply implements [dataplane.Driver]. It sends nothing until all is known, so that what comes before InSync is complete.
func (d *Driver) Apply(ctx context.Context) (out []intent.Outcome, err error) {
	if !d.state.InSync() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Patience)
	defer cancel()
	if err := d.start(); err != nil {
		return nil, err
	}
	for read := 0; ; {
		if !d.writing {
			d.send()
		}
		if more := len(d.program.inbox) > 0; !d.writing && len(d.first) == 0 && (!more || read >= longestInbox) {
			if more {
				d.wake()
			}
			return out, nil
		}
		select {
		case <-d.program.written:
			d.writing = false
			out = append(out, d.arrived()...)
		case m := <-d.program.inbox:
			out = append(out, d.read(m)...)
			read++
		case <-d.program.ended:
			return out, d.lose()
		case <-ctx.Done():
			if err := d.late(); err != nil {
				return out, away{err, time.Second}
			}
			return out, nil
		}
	}
}

// late is what the program has not done yet.
func (d *Driver) late() error {
	if d.writing {
		return fmt.Errorf("dataplane driver %s has not read a change that it was sent", d.program.name)
	}
	for id := range d.first {
		return fmt.Errorf("dataplane driver %s has not spoken of %d endpoints that it was sent before InSync, such as %s", d.program.name, len(d.first), id)
	}
	return nil
}

// start starts the program if none runs, and none has ended a moment ago.
func (d *Driver) start() error {
	if d.program != nil {
		select {
		case <-d.program.ended:
			return d.lose()
		default:
			return nil
		}
	}
	if left := time.Until(d.again); left > 0 {
		return away{fmt.Errorf("dataplane driver %s has ended and is started again in %s", d.cfg.Program, left.Round(time.Second)), left}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return away{errors.New("the agent ends"), time.Second}
	}
	c, err := start(d.cfg.Program, d.wake)
	if err != nil {
		return d.later(fmt.Errorf("start dataplane driver: %w", err))
	}
	d.cfg.Log.Info("a dataplane driver was started", "program", d.cfg.Program, "pid", c.PID())
	d.program, d.running, d.to, d.writing, d.synced, d.sent = c, c, newTranslator(d.cfg.Node), false, false, nil
	d.first, d.words, d.logged = map[intent.EndpointID]bool{}, map[intent.EndpointID]string{}, map[string]bool{}
	d.state.Begin()
	return nil
}

// later puts the next start off.
func (d *Driver) later(err error) error {
	d.wait = min(max(2*d.wait, d.cfg.Backoff), d.cfg.MaxBackoff)
	d.again = time.Now().Add(d.wait)
	return away{err, d.wait}
}

// lose forgets the program, and returns why it ended.
func (d *Driver) lose() error {
	err := fmt.Errorf("dataplane driver %s has ended, and what it programmed stays: %w", d.program.name, d.program.err)
	if time.Since(d.program.began) > lived {
		d.wait = 0
	}
	d.program, d.first, d.writing = nil, nil, false
	return d.later(err)
}

// send sends what the program does not have, if there is something.
func (d *Driver) send() {
	d.mu.Lock()
	config := d.config
	d.mu.Unlock()
	var messages []*pb.ToDataplane
	if d.sent == nil || !maps.Equal(config, d.sent) {
		messages = append(messages, &pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: &pb.ConfigUpdate{Config: config}}})
		if d.sent = config; config == nil {
			d.sent = map[string]string{}
		}
	}
	items, keys := d.state.Take()
	if len(items) > 0 || d.to.all || !d.synced {
		d.batch = d.to.translate(items)
		messages = append(messages, d.batch.messages()...)
	} else {
		d.batch = &batch{}
	}
	if len(messages) == 0 && d.synced {
		return
	}
	if !d.synced {
		d.synced = true
		messages = append(messages, &pb.ToDataplane{Payload: &pb.ToDataplane_InSync{InSync: &pb.InSync{}}})
		for _, k := range keys {
			if id, is := k.(intent.EndpointID); is && d.batch.refused[id] == nil {
				d.first[id] = true
			}
		}
	}
	d.writing, d.keys = true, keys
	d.program.batches <- messages // has room: there is one at a time
}

// arrived returns the outcomes of what the program has been sent. Of endpoints it says itself how they are; of all else the protocol says nothing, so
// that it counts as in force.
func (d *Driver) arrived() (out []intent.Outcome) {
	for _, k := range d.keys {
		if d.state.Waits(k) || !d.state.Has(k) {
			continue // it has changed since
		}
		id, endpoint := k.(intent.EndpointID)
		switch err := d.batch.refused[k]; {
		case err != nil:
			out = append(out, d.noted(intent.Outcome{Key: k, Err: err, Final: !endpoint}))
		case endpoint:
			out = append(out, d.noted(outcome(id, d.words[id])))
		default:
			out = append(out, intent.Outcome{Key: k})
		}
	}
	return out
}

// noted records what Retry tries again.
func (d *Driver) noted(o intent.Outcome) intent.Outcome {
	_, waits := o.Err.(silent) //nolint:errorlint // made by outcome
	if delete(d.failed, o.Key); o.Err != nil && !o.Final && !waits {
		d.failed[o.Key] = true
	}
	return o
}

// away is why the program does not do its part.
type away struct {
	error
	within time.Duration // a try before does not help
}

// RetryWithin implements [dataplane.Awaiting].
func (a away) RetryWithin() time.Duration { return max(a.within, time.Millisecond) }

func (a away) Unwrap() error { return a.error }

// silent is the error of an endpoint that the program has not spoken of.
type silent struct{}

func (silent) Error() string { return "the dataplane driver has not said that it is up" }

// RetryWithin implements [dataplane.Awaiting].
func (silent) RetryWithin() time.Duration { return time.Second }
