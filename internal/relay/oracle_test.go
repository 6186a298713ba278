package relay

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/syncer"
)

// world is a store, a relay that comes and goes, and agents behind it, in virtual time.
type world struct {
	*testing.T
	store     *memstore.Store
	mergeFrom int             // of relays that begin; zero: as they have it
	prefixes  []string        // that relays follow
	parts     []string        // that relays which begin hand on apart
	ever      map[string]bool // KEY=VALUE that the store ever had

	mu     sync.Mutex
	server *Server // nil: none runs
	stop   func()
	lies   func(*pipe, *relaypb.Frame) *relaypb.Frame // nil: what is sent arrives
	gates  map[*pipe]bool                             // streams, and whether they are frozen
	meter  counts
}

// counts is a Meter.
type counts struct {
	mu                       sync.Mutex
	made, sent, ended, moved map[string]int
}

func (c *counts) Streams(int)             {}
func (c *counts) Made(kind string, _ int) { c.count(&c.made, kind) }
func (c *counts) Sent(kind string, _ int) { c.count(&c.sent, kind) }
func (c *counts) Ended(reason string)     { c.count(&c.ended, reason) }

func (c *counts) Read(string, int, int) {}

func (c *counts) Clients(_ int, moved bool) {
	if moved {
		c.count(&c.moved, "")
	}
}

func (c *counts) count(what *map[string]int, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *what == nil {
		*what = map[string]int{}
	}
	(*what)[kind]++
}

// of is a count, which it sets to zero.
func (c *counts) of(what *map[string]int, kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := (*what)[kind]
	delete(*what, kind)
	return n
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, prefixes: []string{"/x/", "/y/"}, store: memstore.New(), ever: map[string]bool{}, gates: map[*pipe]bool{}}
	t.Cleanup(w.kill)
	return w
}

// restart has a new relay in the place of one that runs.
func (w *world) restart(keep int) {
	w.kill()
	s := NewServer(w.store, ServerConfig{Prefixes: w.prefixes, Parts: w.parts, Keep: keep, Meter: &w.meter})
	if w.mergeFrom > 0 {
		for _, c := range s.chains {
			c.mergeFrom = w.mergeFrom
		}
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.stop = s, func() { cancel(); <-done }
}

func (w *world) kill() {
	w.mu.Lock()
	stop := w.stop
	w.server, w.stop = nil, nil
	w.mu.Unlock()
	w.cut(nil)
	if stop != nil {
		stop()
	}
}

// cut ends streams that were chosen; nil: all.
func (w *world) cut(chosen func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.gates {
		if chosen == nil || chosen() {
			p.cancel()
		}
	}
}

// freeze holds streams that were chosen, or lets all go.
func (w *world) freeze(chosen func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, frozen := range w.gates {
		switch {
		case !frozen && chosen():
			p.gate, w.gates[p] = make(chan struct{}), true
		case frozen && !chosen():
			close(p.gate)
			p.gate, w.gates[p] = nil, false
		}
	}
}

// pipe is a stream without a network.
type pipe struct {
	w      *world
	ctx    context.Context
	cancel context.CancelFunc
	frames chan *relaypb.Frame
	end    chan struct{}
	err    error
	gate   chan struct{} // not nil: what is sent waits until it is closed
}

func (w *world) open(ctx context.Context, req *relaypb.FollowRequest) (frames, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server == nil {
		return nil, status.Error(codes.Unavailable, "no relay runs")
	}
	p := &pipe{w: w, frames: make(chan *relaypb.Frame), end: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(ctx)
	w.gates[p] = false
	go func(s *Server) {
		defer close(p.end)
		defer p.cancel()
		err := s.follow(p.ctx, req, p.send)
		if p.err = statusOf(err); err == nil {
			p.err = io.EOF
		}
		w.mu.Lock()
		delete(w.gates, p)
		w.mu.Unlock()
	}(w.server)
	return p, nil
}

func (p *pipe) send(f *relaypb.Frame) error {
	p.w.mu.Lock()
	gate, lies := p.gate, p.w.lies
	if lies != nil {
		f = lies(p, proto.CloneOf(f))
	}
	p.w.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
	select {
	case p.frames <- f:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) Recv() (*relaypb.Frame, error) {
	select {
	case f := <-p.frames:
		return f, nil
	case <-p.end:
		return nil, p.err
	}
}

// write sets a key; an empty value deletes it.
func (w *world) write(key, value string) {
	w.Helper()
	if value == "" {
		_ = w.store.Delete(w.Context(), key, api.Revision{}) // may be missing
		return
	}
	w.ever[key+"="+value] = true
	if err := datastore.Put(w.Context(), w.store, api.Update{Key: key, Value: []byte(value)}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) holds() map[string]string {
	w.Helper()
	out := map[string]string{}
	snap, err := w.store.List(w.Context(), "/")
	if err != nil {
		w.Fatal(err)
	}
	for _, kv := range snap.Items {
		out[kv.Key] = string(kv.Value)
	}
	return out
}

// agent is one that goes by what it is told.
type agent struct {
	*world
	source *syncer.Syncer
	reads  []string
	has    map[string]string
	count  int
	last   syncer.Batch
}

func (w *world) agent(cfg ClientConfig) *agent { return w.reader(cfg, "/x/", "/y/") }

// reader is an agent that reads some prefixes.
func (w *world) reader(cfg ClientConfig, prefixes ...string) *agent {
	c := newClient(w.store, cfg, w.open, func() error { return nil })
	a := &agent{world: w, source: syncer.New(c, syncer.Config{Prefixes: prefixes}), reads: prefixes, has: map[string]string{}}
	go func() { _ = a.source.Run(w.Context()) }()
	return a
}

// takes has the agent receive for a time, and then whatever is at hand.
func (a *agent) takes(d time.Duration) {
	a.Helper()
	for timer := time.NewTimer(d); ; {
		select {
		case b := <-a.source.Batches():
			a.take(b)
			continue
		case <-timer.C:
		}
		return
	}
}

func (a *agent) take(b syncer.Batch) {
	a.Helper()
	for _, u := range b.Updates {
		a.count++
		if _, known := a.has[u.Key]; u.Value == nil && !known {
			a.Errorf("%s is gone, and was never told of", u.Key)
		} else if u.Value == nil {
			delete(a.has, u.Key)
			continue
		}
		if a.has[u.Key] = string(u.Value); !a.ever[u.Key+"="+string(u.Value)] {
			a.Errorf("%s has %q, which it never had", u.Key, u.Value)
		}
	}
	if a.last.InSync && !b.InSync {
		a.Error("InSync was taken back")
	}
	if b.InSync && !a.last.InSync && len(a.has) < a.atLeast() {
		a.Errorf("in sync with %d keys", len(a.has))
	}
	a.last = b
}

// atLeast is how many keys there are that are never deleted.
func (w *world) atLeast() (n int) {
	for range 3 {
		n++
	}
	return n
}

func (a *agent) equals(what string) {
	a.Helper()
	want := a.holds()
	maps.DeleteFunc(want, func(key, _ string) bool {
		return !slices.ContainsFunc(a.reads, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	if !maps.Equal(a.has, want) {
		a.Errorf("%s: the agent has %v, the store %v", what, a.has, want)
	}
	if a.last.Status != syncer.InSync || !a.last.InSync {
		a.Errorf("%s: status %v, in sync %v", what, a.last.Status, a.last.InSync)
	}
}

// TestWhatAClientEndsWithIsWhatTheStoreHolds: writes, slow and frozen and cut clients, relays that are killed and others that begin, that forget
// soon and that answer what nobody said; stores that are away, forget, and are put back.
func TestWhatAClientEndsWithIsWhatTheStoreHolds(t *testing.T) {
	merged := 0
	seedtest.Each(t, []uint64{4095759718}, 60, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(t)
			for i := range w.atLeast() {
				w.write(fmt.Sprint("/x/always", i), "1")
			}
			w.parts, w.mergeFrom = []string{"/x/always", "/x/k1", "/y/k"}, 1+r.IntN(3)
			agents := []*agent{
				w.agent(ClientConfig{}), w.agent(ClientConfig{Fallback: time.Minute}), w.reader(ClientConfig{}, w.parts...),
				w.reader(ClientConfig{Fallback: time.Minute}, "/x/always", "/y/"), w.agent(ClientConfig{}),
			}
			for range 150 {
				w.step(r)
				for i, a := range agents {
					if i+1 < len(agents) || r.IntN(20) == 0 { // the last is slow
						a.takes(time.Duration(r.IntN(3000)) * time.Millisecond)
					}
				}
			}
			w.heal(r)
			for i, a := range agents {
				a.takes(2 * time.Minute)
				a.equals(fmt.Sprint("agent ", i))
			}
			fresh := w.agent(ClientConfig{}) // which lists
			fresh.takes(time.Minute)
			fresh.equals("one that begins")
			merged += w.meter.of(&w.meter.made, "merged")
		})
	})
	if merged == 0 {
		t.Error("no client was ever so slow that changes were sent to it as one")
	}
}

func (w *world) step(r *rand.Rand) {
	some := func() bool { return r.IntN(3) == 0 }
	switch key := fmt.Sprintf("/%c/k%d", "xy"[r.IntN(2)], r.IntN(5)); r.IntN(16) {
	case 0:
		w.restart([]int{1, 200, 1 << 20}[r.IntN(3)])
	case 1:
		w.kill()
	case 2:
		w.cut(some)
	case 3, 4:
		w.freeze(some)
	case 5:
		w.lie(r)
	case 6:
		w.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
		w.store.DropWatches(nil)
		<-time.After(time.Duration(r.IntN(5000)) * time.Millisecond)
		w.store.Fail(nil)
	case 7:
		_ = w.store.Compact(w.Context(), datastore.Position{})
	case 8:
		if r.IntN(4) == 0 {
			backup := memstore.New()
			for key, value := range w.holds() {
				_ = datastore.Put(w.Context(), backup, api.Update{Key: key, Value: []byte(value)})
			}
			w.store.Rewind(backup)
		}
	default:
		for range 1 + r.IntN(4) {
			w.write(key, []string{"", fmt.Sprint(r.IntN(1000)), fmt.Sprint(r.IntN(1000))}[r.IntN(3)])
		}
	}
}

// lie has the relay say what is not so, or not any more.
func (w *world) lie(r *rand.Rand) {
	kind, seed := r.IntN(6), r.Uint64()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lies = nil
	if kind > 3 {
		return
	}
	own := rand.New(rand.NewPCG(seed, 1))
	before := map[*pipe]*relaypb.Frame{}
	w.lies = func(p *pipe, f *relaypb.Frame) *relaypb.Frame { // the lock is held
		if own.IntN(4) > 0 {
			before[p] = f
			return f
		}
		switch {
		case kind == 0 && before[p] != nil:
			return before[p] // again, in the place of another
		case kind == 1:
			f.Number += uint64(own.IntN(3))
		case kind == 2 && len(f.Body) > 0:
			f.Body[own.IntN(len(f.Body))] ^= 1 << own.IntN(8)
		case kind == 3:
			f.Epoch, f.Snapshot = []string{"", "other", f.Epoch}[own.IntN(3)], own.IntN(2) == 0
		}
		return f
	}
}

// heal ends all faults.
func (w *world) heal(r *rand.Rand) {
	w.mu.Lock()
	w.lies = nil
	running := w.server != nil
	w.mu.Unlock()
	w.freeze(func() bool { return false })
	if !running || r.IntN(2) == 0 {
		w.restart(1 << 20)
	}
	w.write("/y/last", "1")
}
