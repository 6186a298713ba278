// Package remote is a driver whose dataplane is another process: it gets what this node should be by the protocol of api/dataplanepb, and says
// what of it is in force (docs/remote-dataplane.md).
//
// In: [intent.Batch] from the loop, and the address of a driver that serves the protocol.
// Out: items and commits on one stream, and the outcomes that come back. A stream begins with all that should be; when it ends, the driver
// keeps what it has in force, whatever was not committed is sent again with the next one, and nothing is called in force meanwhile.
package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane/unsent"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// Config is where the driver is.
type Config struct {
	Address string // unix:///PATH of a socket
	Node    string // this host's name in the datastore
	Version string // of the agent
	// Patience is how long Apply waits for a driver, before it says so in an error and is called again; zero: 2 s.
	Patience time.Duration
	Log      *slog.Logger // nil: nothing is logged
}

// Driver is a dataplane in another process. Make it with New.
type Driver struct {
	cfg    Config
	state  *unsent.State
	stream *stream
	ask    bool // a commit is sent even with nothing in it
	waits  bool // for the answer to a commit
	sent   []intent.Key
	failed map[intent.Key]bool // tried again by Retry
	kernel atomic.Bool         // the last stream was to one that programs this host's kernel
	notes  chan func()
	woken  chan struct{}   // has one if a stream brought something
	life   context.Context //nolint:containedctx // of streams, which outlive the Apply that opens them
	end    context.CancelFunc
}

// New returns a Driver that has not connected yet.
func New(cfg Config) *Driver {
	if cfg.Patience == 0 {
		cfg.Patience = 2 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancel(context.Background())
	return &Driver{cfg: cfg, state: unsent.New(), failed: map[intent.Key]bool{}, notes: make(chan func()), woken: make(chan struct{}, 1), life: life, end: end}
}

// Run gives the loop a turn whenever a stream brought something, and ends the stream when ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	defer d.end()
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

func (d *Driver) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// Merge implements [dataplane.Driver].
func (d *Driver) Merge(b intent.Batch) {
	d.state.Merge(b)
	for _, k := range b.Removed {
		delete(d.failed, k)
	}
}

// Links implements [dataplane.LinkAware]: the other process sees interfaces itself.
func (d *Driver) Links([]ifmon.Change) {}

// Drift implements [dataplane.Drifting].
func (d *Driver) Drift() <-chan func() { return d.notes }

// Resync implements [dataplane.Driver]. What others change is for the other process to find and to repair; whether it answers, the next Apply finds.
func (d *Driver) Resync(context.Context) error {
	d.ask = true
	return nil
}

// Kernel reports whether the driver programs this host's kernel. It may be called from any goroutine.
func (d *Driver) Kernel() bool { return d.kernel.Load() }

// Retry implements [dataplane.Driver].
func (d *Driver) Retry() {
	for k := range d.failed {
		d.state.Again(k)
	}
}

// Apply implements [dataplane.Driver]. It sends nothing until all is known, so that the first commit is complete.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if !d.state.InSync() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Patience)
	defer cancel()
	if err := d.connect(ctx); err != nil {
		return nil, away{err}
	}
	var out []intent.Outcome
	for {
		more, err := d.read()
		if out = append(out, more...); err != nil {
			return out, away{err}
		}
		if !d.waits && !d.send() {
			return out, nil
		}
		select {
		case <-d.stream.news:
		case <-d.stream.ended:
			return out, away{d.lose()}
		case <-ctx.Done():
			return out, away{fmt.Errorf("dataplane driver %s has had a change for a while and has not answered that it is in force", d.stream.name)}
		}
	}
}

// connect opens a stream if there is none.
func (d *Driver) connect(ctx context.Context) error {
	if d.stream != nil {
		select {
		case <-d.stream.ended:
			_ = d.lose() // was returned when it was noted
		default:
			return nil
		}
	}
	s, err := open(ctx, d.life, d.cfg)
	if err != nil {
		return fmt.Errorf("dataplane driver at %s: %w", d.cfg.Address, err)
	}
	d.cfg.Log.Info("a dataplane driver has taken over", "driver", s.name, "release", s.release, "address", d.cfg.Address)
	d.stream, d.waits, d.sent, d.ask = s, false, nil, true
	d.kernel.Store(s.kernel)
	d.state.Begin()
	go s.receive(d.wake)
	go s.transmit()
	return nil
}

// lose forgets the stream, and returns why it ended.
func (d *Driver) lose() error {
	err := fmt.Errorf("dataplane driver %s: %w", d.stream.name, d.stream.err)
	d.stream, d.waits = nil, false
	return err
}

// send sends a commit, and reports whether there was something to send.
func (d *Driver) send() bool {
	items, keys := d.state.Take()
	if len(items) == 0 && !d.ask {
		return false
	}
	d.ask = false
	d.waits, d.sent = true, keys
	d.stream.commits <- each(items, encode) // has room: there is one at a time
	return true
}

// read takes what the stream has brought: answers, and outcomes that came by themselves.
func (d *Driver) read() (out []intent.Outcome, err error) {
	for _, m := range d.stream.read() {
		if x := m.GetChanged(); x != nil {
			out = append(out, d.outcomes([]*pb.Outcome{x})...)
		}
		a := m.GetCommitted()
		if a == nil {
			continue
		}
		d.waits = false
		if a.GetError() != "" {
			d.stream.fail(errors.New(a.GetError()))
			<-d.stream.ended
			return out, d.lose()
		}
		out = append(out, d.answered(d.outcomes(a.GetOutcomes()))...)
	}
	return out, nil
}

// answered returns the outcomes of all that was in the last commit and has not changed since.
func (d *Driver) answered(not []intent.Outcome) []intent.Outcome {
	bad := map[intent.Key]bool{}
	for _, o := range not {
		bad[o.Key] = true
	}
	for _, k := range d.sent {
		if !bad[k] && !d.state.Waits(k) {
			delete(d.failed, k)
			not = append(not, intent.Outcome{Key: k})
		}
	}
	return not
}

// outcomes are those of items that there are, and records what Retry tries again. A driver may still send others, of items that were removed meanwhile.
func (d *Driver) outcomes(list []*pb.Outcome) (out []intent.Outcome) {
	for _, o := range list {
		var r reading
		k := r.key(o.GetKey())
		if err := r.err(); err != nil {
			d.cfg.Log.Warn("a dataplane driver says something of no item", "driver", d.stream.name, "err", err)
			continue
		}
		if !d.state.Has(k) {
			continue
		}
		x := intent.Outcome{Key: k, Final: o.GetFinal(), Reason: o.GetReason(), Note: o.GetNote()}
		if o.GetError() != "" {
			x.Err = errors.New(o.GetError())
		}
		if delete(d.failed, k); x.Err != nil && !x.Final {
			d.failed[k] = true
		}
		out = append(out, x)
	}
	return out
}

// away is why another process does not do its part. That it does again, nobody announces.
type away struct{ error }

// RetryWithin implements [dataplane.Awaiting].
func (away) RetryWithin() time.Duration { return time.Second }

func (a away) Unwrap() error { return a.error }
