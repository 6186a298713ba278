// Package bfd detects within a second that a neighbour cannot be reached, long before BGP's hold time ends.
//
// In: the configured peers, and their control packets: RFC 5880 in asynchronous mode, over one hop (RFC 5881), without
// authentication, echo or demand mode. Out: a [Status] for each peer.
//
// One goroutine owns all sessions; it waits for packets and timers, and for nothing else. Before a detection time counts as
// expired, all packets that have arrived are read, so that a process that was not scheduled takes no session down.
package bfd

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/kernel/onehop"
)

// Port is where neighbours listen (RFC 5881, 4).
const Port = 3784

// Peer is a neighbour to keep a session with.
type Peer struct {
	Addr   netip.Addr
	Source netip.Addr // zero: the kernel chooses
	Timing Timing
}

// Status is the state of the session with one peer. It is comparable.
type Status struct {
	Peer      netip.Addr `json:"peer"`
	State     string     `json:"state"` // Up, Init, Down (RFC 5880, 4.1); Off: there is no session, see Why
	Since     time.Time  `json:"since"`
	Interval  Period     `json:"interval,omitempty"`  // the longest time between packets that are sent
	Detection Period     `json:"detection,omitempty"` // the detection time (RFC 5880, 6.8.4)
	Why       string     `json:"why,omitempty"`       // why it is not up
	// Lost: it was up until the path failed, and has not come up since. A session that the peer took down on purpose is not lost.
	Lost   bool   `json:"lost,omitempty"`
	Losses uint64 `json:"losses,omitempty"` // how often the path failed
	// Independent is the peer's C bit: its BFD goes on while its control plane restarts, so that a restart is no reason for Lost.
	Independent bool `json:"independent,omitempty"`
}

// Period is a duration that is written as text, such as 300ms.
type Period time.Duration

// String is part of fmt.Stringer.
func (p Period) String() string { return time.Duration(p).Round(time.Millisecond).String() }

// MarshalText is part of encoding.TextMarshaler.
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is part of encoding.TextUnmarshaler.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// Off is the state of a peer with which there is no session.
const Off = "Off"

// Config is what an engine needs.
type Config struct {
	// Link returns the index of the link on which a peer is, or an error if it is on none.
	Link func(netip.Addr) (link int, err error)
	Log  *slog.Logger
	// OnSend receives how late each packet was sent; may be nil.
	OnSend func(time.Duration)
}

const (
	resolveInterval = 5 * time.Second // between look-ups of the links of peers whose session is not up
	// Packets read before timers are looked at: as many as may have arrived while this process was not scheduled, yet not so
	// many that a flood keeps it from sending.
	batchSize, batchSizePerPeer = 256, 16
	maxWait                     = time.Hour
	// batchDelay is the pause after each turn of the loop: packets that arrive meanwhile are handled together, which with hundreds of
	// sessions costs far less than to wake for each packet.
	batchDelay = 10 * time.Millisecond
)

// Engine runs sessions. Use New and Run.
type Engine struct {
	cfg       Config
	rx        *onehop.Receiver
	published publishedStatuses
	count     counts

	mu       sync.Mutex // guards asks
	requests []func()

	neighbours     map[netip.Addr]*neighbour
	discriminators map[uint32]bool // those in use
	timers         timerHeap
	buf            []byte
	stopping       bool
	dirty          bool // a status differs from the published one
}

// neighbour is a peer, its session, and the socket to it.
type neighbour struct {
	peer    Peer
	session *session
	link    int // index; 0: none
	out     *onehop.Sender
	why     string    // why there is no link, or why packets cannot be sent
	at      time.Time // when its timer runs out
	index   int       // in the timetable
	closing bool
	status  Status
}

// New opens the engine's socket in the namespace of the calling thread.
func New(cfg Config) (*Engine, error) {
	rx, err := onehop.Listen(Port)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, rx: rx, neighbours: map[netip.Addr]*neighbour{}, discriminators: map[uint32]bool{}}
	e.published.changed = make(chan struct{})
	return e, nil
}

// SetPeers replaces the configured peers. A session that is not among them any more is closed with AdminDown.
func (e *Engine) SetPeers(peers []Peer) { e.request(func() { e.setPeers(peers, time.Now()) }) }

// LinksChanged has the links of peers looked up again, after links or routes changed.
func (e *Engine) LinksChanged() { e.request(func() { e.resolveLinks(time.Now()) }) }

// request runs f in the loop.
func (e *Engine) request(f func()) {
	e.mu.Lock()
	e.requests = append(e.requests, f)
	e.mu.Unlock()
	e.rx.Wake()
}

// Run keeps sessions until the context ends; then it sends AdminDown to all peers and returns the context's error.
func (e *Engine) Run(ctx context.Context) error {
	defer e.rx.Close()
	stop := context.AfterFunc(ctx, func() {
		e.request(func() {
			e.stopping = true
			e.setPeers(nil, time.Now())
		})
	})
	defer stop()
	look := time.Now().Add(resolveInterval)
	for !e.stopping || len(e.neighbours) > 0 {
		wait := min(time.Until(look), maxWait)
		if len(e.timers) > 0 {
			wait = min(wait, time.Until(e.timers[0].at))
		}
		if err := e.rx.Wait(wait); err != nil {
			return err
		}
		e.receive()
		e.runRequests()
		if now := time.Now(); !now.Before(look) {
			e.resolveLinks(now)
			look = now.Add(resolveInterval)
		}
		e.runTimers(time.Now())
		e.publish()
		e.rx.Pause(batchDelay)
	}
	return ctx.Err()
}

// receive handles the packets that have arrived.
func (e *Engine) receive() {
	now := time.Now()
	for range batchSize + batchSizePerPeer*len(e.neighbours) {
		b, from, ok := e.rx.Receive()
		if !ok {
			return
		}
		p, err := Parse(b)
		if err != nil {
			e.count.invalid.Add(1)
			continue
		}
		m := e.demux(p, from)
		if m == nil {
			e.count.noSession.Add(1)
			continue
		}
		e.count.received.Add(1)
		if reply, needed := m.session.receive(p, now); needed {
			e.send(m, reply)
		}
		e.reschedule(m)
	}
}

// demux finds the session of a packet. The discriminator alone is not trusted: address and link must be the peer's, too.
func (e *Engine) demux(p Packet, from onehop.From) *neighbour {
	m := e.neighbours[from.Addr]
	if m == nil || m.link != from.Link || p.YourDiscriminator != 0 && p.YourDiscriminator != m.session.local {
		return nil
	}
	return m
}

func (e *Engine) runRequests() {
	e.mu.Lock()
	requests := e.requests
	e.requests = nil
	e.mu.Unlock()
	for _, f := range requests {
		f()
	}
}

// runTimers handles the timers that have run out.
func (e *Engine) runTimers(now time.Time) {
	for len(e.timers) > 0 && !e.timers[0].at.After(now) {
		m := e.timers[0]
		due := m.session.sendAt
		if p, send := m.session.tick(now); send {
			if e.cfg.OnSend != nil {
				e.cfg.OnSend(now.Sub(due))
			}
			e.send(m, p)
		}
		if m.session.closed() {
			e.remove(m)
			continue
		}
		e.reschedule(m)
	}
}

func (e *Engine) send(m *neighbour, p Packet) {
	if m.out == nil {
		return
	}
	e.buf = p.Append(e.buf[:0])
	if err := m.out.Send(e.buf); err != nil {
		m.why = err.Error()
		e.count.unsent.Add(1)
		return
	}
	m.why = ""
	e.count.sent.Add(1)
}

func (e *Engine) reschedule(m *neighbour) {
	if m.at = m.session.next(); m.at.IsZero() {
		m.at = time.Now().Add(maxWait)
	}
	heap.Fix(&e.timers, m.index)
	e.updateStatus(m)
}

// updateStatus takes over a changed status, and logs it.
func (e *Engine) updateStatus(m *neighbour) {
	is, was := m.currentStatus(), m.status
	if is == was {
		return
	}
	m.status, e.dirty = is, true
	switch up := Up.String(); {
	case is.State == up && was.State != up:
		e.cfg.Log.Info("BFD is up", "peer", is.Peer, "interval", is.Interval)
	case was.State == up && is.State != up:
		e.cfg.Log.Warn("BFD is down", "peer", is.Peer, "why", is.Why, "dead", is.Lost)
	}
}

// setPeers is SetPeers, in the loop.
func (e *Engine) setPeers(peers []Peer, now time.Time) {
	wanted := map[netip.Addr]bool{}
	for _, p := range peers {
		wanted[p.Addr] = true
		switch m := e.neighbours[p.Addr]; {
		case e.stopping:
		case m == nil:
			e.add(p, now)
		case m.closing || m.peer.Source != p.Source:
			e.remove(m)
			e.add(p, now)
		case m.peer.Timing != p.Timing:
			m.peer = p
			m.session.setTiming(p.Timing, now)
			e.reschedule(m)
		}
	}
	for addr, m := range e.neighbours {
		if wanted[addr] || m.closing {
			continue
		}
		m.closing = true
		m.session.close(now)
		if e.reschedule(m); m.out == nil {
			e.remove(m)
		}
	}
	e.resolveLinks(now)
}

func (e *Engine) add(p Peer, now time.Time) {
	number := rand.Uint32()
	for number == 0 || e.discriminators[number] {
		number = rand.Uint32()
	}
	m := &neighbour{peer: p, session: newSession(number, p.Timing, now, rand.Float64)}
	e.neighbours[p.Addr], e.discriminators[number] = m, true
	heap.Push(&e.timers, m)
	e.reschedule(m)
}

func (e *Engine) remove(m *neighbour) {
	heap.Remove(&e.timers, m.index)
	delete(e.neighbours, m.peer.Addr)
	delete(e.discriminators, m.session.local)
	e.dirty = true
	e.unlink(m)
}

func (e *Engine) unlink(m *neighbour) {
	if m.out != nil {
		_ = m.out.Close()
	}
	m.out, m.link = nil, 0
}

// resolveLinks looks up the links of peers. A session that is up keeps its link: if the link is gone, its detection time expires.
func (e *Engine) resolveLinks(now time.Time) {
	for _, m := range e.neighbours {
		if m.closing || m.session.state == Up {
			continue
		}
		link, err := e.cfg.Link(m.peer.Addr)
		if err == nil && link == m.link {
			continue
		}
		e.unlink(m)
		if err == nil {
			m.out, err = onehop.Dial(link, m.peer.Source, netip.AddrPortFrom(m.peer.Addr, Port))
		}
		if err != nil {
			m.why = err.Error()
			e.updateStatus(m)
			continue
		}
		m.link, m.why, m.session.sendAt = link, "", now
		e.reschedule(m)
	}
}

// publish publishes the statuses, if one changed.
func (e *Engine) publish() {
	if !e.dirty {
		return
	}
	e.dirty = false
	all := make([]Status, 0, len(e.neighbours))
	for _, m := range e.neighbours {
		if !m.closing {
			all = append(all, m.status)
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return a.Peer.Compare(b.Peer) })
	e.published.set(all)
}

func (m *neighbour) currentStatus() Status {
	s := m.session
	out := Status{
		Peer: m.peer.Addr, State: s.state.String(), Since: s.since, Interval: Period(s.interval()), Detection: Period(s.detection()),
		Why: s.why, Lost: s.lost, Losses: s.losses, Independent: s.independent,
	}
	if s.state != Up {
		out.Interval, out.Detection = 0, 0
		out.Why = cmp.Or(m.why, s.why)
	}
	if m.link == 0 && !s.lost {
		out.State = Off
	}
	return out
}

// timerHeap is a heap of members by when they are to be looked at.
type timerHeap []*neighbour

func (t timerHeap) Len() int           { return len(t) }
func (t timerHeap) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timerHeap) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push is part of heap.Interface.
func (t *timerHeap) Push(x any) {
	m := x.(*neighbour)
	m.index = len(*t)
	*t = append(*t, m)
}

// Pop is part of heap.Interface.
func (t *timerHeap) Pop() any {
	last := len(*t) - 1
	m := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return m
}
