// Package bfd tells within a second that a neighbour cannot be reached, whatever BGP still believes.
//
// In: the neighbours that are wanted, and their packets: RFC 5880 in asynchronous mode, over one hop (RFC 5881), without
// authentication, echoes or demand mode. Out: a [Status] for each neighbour, to who watches.
//
// One goroutine owns all sessions; it waits for packets and times, and for nothing else. Before it believes that a
// neighbour is silent it has read all that has arrived, so that a process that was not scheduled blames nobody.
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

// Peer is a neighbour that is wanted.
type Peer struct {
	Addr   netip.Addr
	Source netip.Addr // zero: the kernel chooses
	Timing Timing
}

// Status says how the session with a neighbour is. Two that are equal mean the same.
type Status struct {
	Peer      netip.Addr `json:"peer"`
	State     string     `json:"state"` // Up, Init, Down; Off: there is no session, and Why says why not
	Since     time.Time  `json:"since"`
	Interval  Period     `json:"interval,omitempty"`  // between packets that are sent, at most
	Detection Period     `json:"detection,omitempty"` // how long nothing may come
	Why       string     `json:"why,omitempty"`       // it is not up
	// Lost: it was up, and then the path died; until it is up again. What else takes a session down says nothing of the path.
	Lost   bool   `json:"lost,omitempty"`
	Losses uint64 `json:"losses,omitempty"` // how often that was so
	// Independent: the neighbour's BFD goes on while its BGP restarts. If it falls silent, it is not because of a restart.
	Independent bool `json:"independent,omitempty"`
}

// Period is a time span that is written as people do: 300ms.
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

// Off is the state of a neighbour with which there is no session.
const Off = "Off"

// Config is all that an engine must be told.
type Config struct {
	// Way returns the link on which a neighbour is, or why it is on none.
	Way func(netip.Addr) (link int, err error)
	Log *slog.Logger
	// Late is told how late a packet was sent; nil: nobody cares.
	Late func(time.Duration)
}

const (
	lookAgain = 5 * time.Second // for the link of who is on none
	// As many packets are read before times are looked at as may have come while this process was not scheduled; but a
	// flood must not keep it from sending.
	perTurn, perPeer = 256, 16
	idle             = time.Hour
	// breath is how long nothing is done after something was: what comes meanwhile is done at once, which with hundreds of
	// sessions is far cheaper than to wake for each packet.
	breath = 10 * time.Millisecond
)

// Engine runs sessions. Use New and Run.
type Engine struct {
	cfg   Config
	rx    *onehop.Receiver
	board board
	count counts

	mu   sync.Mutex // guards asks
	asks []func()

	members map[netip.Addr]*member
	numbers map[uint32]bool // discriminators that are taken
	times   timetable
	buf     []byte
	ending  bool
	dirty   bool // statuses are others than those shown
}

// member is a neighbour with what it takes to speak to it.
type member struct {
	peer    Peer
	session *session
	link    int // 0: on none
	out     *onehop.Sender
	why     string // there is no link, or nothing can be sent
	at      time.Time
	index   int // in the timetable
	leaving bool
	shown   Status
}

// New opens the engine's socket in the namespace of the calling thread.
func New(cfg Config) (*Engine, error) {
	rx, err := onehop.Listen(Port)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, rx: rx, members: map[netip.Addr]*member{}, numbers: map[uint32]bool{}}
	e.board.changed = make(chan struct{})
	return e, nil
}

// Want says with whom there are to be sessions. Who is not wanted any more is told.
func (e *Engine) Want(peers []Peer) { e.ask(func() { e.want(peers, time.Now()) }) }

// Changed says that links or routes are others than before.
func (e *Engine) Changed() { e.ask(func() { e.find(time.Now()) }) }

// ask has the loop do something.
func (e *Engine) ask(f func()) {
	e.mu.Lock()
	e.asks = append(e.asks, f)
	e.mu.Unlock()
	e.rx.Wake()
}

// Run keeps sessions until the context ends. Then it tells all neighbours that it stops on purpose, and returns.
func (e *Engine) Run(ctx context.Context) error {
	defer e.rx.Close()
	stop := context.AfterFunc(ctx, func() {
		e.ask(func() {
			e.ending = true
			e.want(nil, time.Now())
		})
	})
	defer stop()
	look := time.Now().Add(lookAgain)
	for !e.ending || len(e.members) > 0 {
		wait := min(time.Until(look), idle)
		if len(e.times) > 0 {
			wait = min(wait, time.Until(e.times[0].at))
		}
		if err := e.rx.Wait(wait); err != nil {
			return err
		}
		e.hear()
		e.answer()
		if now := time.Now(); !now.Before(look) {
			e.find(now)
			look = now.Add(lookAgain)
		}
		e.turn(time.Now())
		e.publish()
		e.rx.Rest(breath)
	}
	return ctx.Err()
}

// hear takes in what has arrived.
func (e *Engine) hear() {
	now := time.Now()
	for range perTurn + perPeer*len(e.members) {
		b, from, ok := e.rx.Receive()
		if !ok {
			return
		}
		p, err := Parse(b)
		if err != nil {
			e.count.invalid.Add(1)
			continue
		}
		m := e.whose(p, from)
		if m == nil {
			e.count.strange.Add(1)
			continue
		}
		e.count.received.Add(1)
		if reply, answers := m.session.receive(p, now); answers {
			e.send(m, reply)
		}
		e.reschedule(m)
	}
}

// whose finds the session that a packet is for. The number alone is not believed: it must come from where the neighbour is.
func (e *Engine) whose(p Packet, from onehop.From) *member {
	m := e.members[from.Addr]
	if m == nil || m.link != from.Link || p.Yours != 0 && p.Yours != m.session.local {
		return nil
	}
	return m
}

func (e *Engine) answer() {
	e.mu.Lock()
	asks := e.asks
	e.asks = nil
	e.mu.Unlock()
	for _, f := range asks {
		f()
	}
}

// turn does what is due.
func (e *Engine) turn(now time.Time) {
	for len(e.times) > 0 && !e.times[0].at.After(now) {
		m := e.times[0]
		due := m.session.sendAt
		if p, send := m.session.tick(now); send {
			if e.cfg.Late != nil {
				e.cfg.Late(now.Sub(due))
			}
			e.send(m, p)
		}
		if m.session.over() {
			e.drop(m)
			continue
		}
		e.reschedule(m)
	}
}

func (e *Engine) send(m *member, p Packet) {
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

func (e *Engine) reschedule(m *member) {
	if m.at = m.session.next(); m.at.IsZero() {
		m.at = time.Now().Add(idle)
	}
	heap.Fix(&e.times, m.index)
	e.note(m)
}

// note sees whether a status changed.
func (e *Engine) note(m *member) {
	is, was := m.status(), m.shown
	if is == was {
		return
	}
	m.shown, e.dirty = is, true
	switch up := Up.String(); {
	case is.State == up && was.State != up:
		e.cfg.Log.Info("BFD is up", "peer", is.Peer, "interval", is.Interval)
	case was.State == up && is.State != up:
		e.cfg.Log.Warn("BFD is down", "peer", is.Peer, "why", is.Why, "dead", is.Lost)
	}
}

// want makes the sessions those with the given peers.
func (e *Engine) want(peers []Peer, now time.Time) {
	wanted := map[netip.Addr]bool{}
	for _, p := range peers {
		wanted[p.Addr] = true
		switch m := e.members[p.Addr]; {
		case e.ending:
		case m == nil:
			e.join(p, now)
		case m.leaving || m.peer.Source != p.Source:
			e.drop(m)
			e.join(p, now)
		case m.peer.Timing != p.Timing:
			m.peer = p
			m.session.retime(p.Timing, now)
			e.reschedule(m)
		}
	}
	for addr, m := range e.members {
		if wanted[addr] || m.leaving {
			continue
		}
		m.leaving = true
		m.session.close(now)
		if e.reschedule(m); m.out == nil {
			e.drop(m)
		}
	}
	e.find(now)
}

func (e *Engine) join(p Peer, now time.Time) {
	number := rand.Uint32()
	for number == 0 || e.numbers[number] {
		number = rand.Uint32()
	}
	m := &member{peer: p, session: newSession(number, p.Timing, now, rand.Float64)}
	e.members[p.Addr], e.numbers[number] = m, true
	heap.Push(&e.times, m)
	e.reschedule(m)
}

func (e *Engine) drop(m *member) {
	heap.Remove(&e.times, m.index)
	delete(e.members, m.peer.Addr)
	delete(e.numbers, m.session.local)
	e.dirty = true
	e.unlink(m)
}

func (e *Engine) unlink(m *member) {
	if m.out != nil {
		_ = m.out.Close()
	}
	m.out, m.link = nil, 0
}

// find looks on which links neighbours are. A session that is up stays where it is: if its link is gone, silence will tell.
func (e *Engine) find(now time.Time) {
	for _, m := range e.members {
		if m.leaving || m.session.state == Up {
			continue
		}
		link, err := e.cfg.Way(m.peer.Addr)
		if err == nil && link == m.link {
			continue
		}
		e.unlink(m)
		if err == nil {
			m.out, err = onehop.Dial(link, m.peer.Source, netip.AddrPortFrom(m.peer.Addr, Port))
		}
		if err != nil {
			m.why = err.Error()
			e.note(m)
			continue
		}
		m.link, m.why, m.session.sendAt = link, "", now
		e.reschedule(m)
	}
}

// publish shows how all sessions are, if it is not as before.
func (e *Engine) publish() {
	if !e.dirty {
		return
	}
	e.dirty = false
	all := make([]Status, 0, len(e.members))
	for _, m := range e.members {
		if !m.leaving {
			all = append(all, m.shown)
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return a.Peer.Compare(b.Peer) })
	e.board.show(all)
}

func (m *member) status() Status {
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

// timetable is a heap of members by when they are to be looked at.
type timetable []*member

func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push is part of heap.Interface.
func (t *timetable) Push(x any) {
	m := x.(*member)
	m.index = len(*t)
	*t = append(*t, m)
}

// Pop is part of heap.Interface.
func (t *timetable) Pop() any {
	last := len(*t) - 1
	m := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return m
}
