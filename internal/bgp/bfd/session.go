package bfd

import (
	"fmt"
	"time"
)

// Timing is how often packets are sent and wanted, and how many may be missing.
type Timing struct {
	Interval   time.Duration
	Multiplier uint8
}

const (
	// slow is how often a session sends that is not up, at most (RFC 5880, 6.8.3).
	slow = time.Second
	// farewells are so many that a lost one does not make the neighbour believe that the path is dead.
	farewells     = 3
	farewellEvery = 50 * time.Millisecond
)

// session is one end of a session: RFC 5880, asynchronous mode. It has no clock: it is told the time, which never goes
// back. See newSession.
type session struct {
	timing Timing
	local  uint32
	random func() float64 // in [0, 1)

	state State
	diag  Diag
	since time.Time
	why   string // it is not up
	// lost: it was up, and then the path died; until it is up again.
	lost   bool
	losses uint64

	// What the neighbour said last.
	remote      uint32 // its discriminator; 0: it has said nothing for a detection time
	remoteState State
	independent bool
	multiplier  uint8
	theirTx     time.Duration
	theirRx     time.Duration

	// What is told, and what holds until the neighbour has confirmed it.
	tx, rx         time.Duration
	effTx, effRx   time.Duration
	poll           bool
	polledTx       time.Duration
	polledRx       time.Duration
	sent           Packet // the last one, without poll and final
	sendAt, deadAt time.Time
	goodbyes       int // left to be sent
}

// newSession begins in state Down.
func newSession(local uint32, t Timing, now time.Time, random func() float64) *session {
	s := &session{timing: t, local: local, random: random, state: Down, since: now, sendAt: now, theirRx: time.Microsecond, why: "no packet yet"}
	s.tx, s.rx = max(t.Interval, slow), t.Interval
	s.effTx, s.effRx = s.tx, s.rx
	return s
}

// retime changes the timing; the session stays as it is.
func (s *session) retime(t Timing, now time.Time) {
	s.timing = t
	s.propose(now)
}

// propose tells the neighbour what holds from now on (RFC 5880, 6.8.3): while the session is up, it is sent less often,
// and expected more often, only after the neighbour has said that it knows.
func (s *session) propose(now time.Time) {
	tx, rx := s.timing.Interval, s.timing.Interval
	if s.state != Up {
		tx = max(tx, slow)
	}
	s.tx, s.rx = tx, rx
	if s.state != Up {
		s.effTx, s.effRx, s.poll = tx, rx, false
		return
	}
	if s.effTx == tx && s.effRx == rx && !s.poll {
		return
	}
	s.effTx, s.effRx = min(s.effTx, tx), max(s.effRx, rx)
	if !s.poll {
		s.ask(now)
	}
}

// ask begins a poll sequence.
func (s *session) ask(now time.Time) {
	s.poll, s.polledTx, s.polledRx = true, s.tx, s.rx
	s.sendAt = now
}

// confirmed ends a poll sequence, and begins the next if something changed since it began.
func (s *session) confirmed(now time.Time) {
	s.poll = false
	if s.polledTx != s.tx || s.polledRx != s.rx {
		s.ask(now)
		return
	}
	s.effTx, s.effRx = s.tx, s.rx
}

// detection is how long nothing may come.
func (s *session) detection() time.Duration {
	return time.Duration(s.multiplier) * max(s.effRx, s.theirTx)
}

// receive takes in a packet that is for this session (RFC 5880, 6.8.6), and returns an answer if it needs one at once.
func (s *session) receive(p Packet, now time.Time) (reply Packet, answers bool) {
	if s.state == AdminDown {
		return Packet{}, false
	}
	s.remote, s.remoteState, s.independent, s.multiplier = p.Mine, p.State, p.Independent, p.Multiplier
	sooner := p.Receive < s.theirRx || s.theirRx == 0
	if s.theirTx, s.theirRx = p.Transmit, p.Receive; sooner {
		s.schedule(now)
	}
	if s.poll && p.Final {
		s.confirmed(now)
	}
	s.heed(p, now)
	s.deadAt = now.Add(s.detection())
	if s.packet() != s.sent {
		s.sendAt = now // the neighbour should know at once
	}
	if !p.Poll {
		return Packet{}, false
	}
	reply = s.packet()
	s.sent = reply
	reply.Final = true
	return reply, true
}

// heed is the state machine.
func (s *session) heed(p Packet, now time.Time) {
	switch {
	case p.State == AdminDown:
		if s.lost, s.why = false, "the neighbour has turned it off"; s.state != Down {
			s.turn(Down, DiagNeighbour, s.why, now)
		}
	case p.State == Down && s.state == Up:
		s.signaled(p.Diag, now)
	case p.State == Down && s.state == Down:
		s.turn(Init, s.diag, "the neighbour has not heard us yet", now)
	case p.State == Init && s.state != Up, p.State == Up && s.state == Init:
		s.turn(Up, DiagNone, "", now)
	}
}

// signaled: the neighbour says that its session is down. If it lost us on the way, what we send to it is lost; if it
// began anew, or gives no reason, nothing is.
func (s *session) signaled(theirs Diag, now time.Time) {
	switch theirs {
	case DiagNone, DiagNeighbour, DiagAdministrative:
		s.turn(Down, DiagNeighbour, "the neighbour began anew", now)
	default:
		s.turn(Down, DiagNeighbour, fmt.Sprintf("the neighbour does not hear us (diagnostic %d)", theirs), now)
		s.lost, s.losses = true, s.losses+1
	}
}

// turn goes to another state.
func (s *session) turn(to State, diag Diag, why string, now time.Time) {
	s.state, s.diag, s.why, s.since = to, diag, why, now
	if to == Up {
		s.lost = false
	}
	s.propose(now)
}

// tick is called at next, and returns a packet if one is due.
func (s *session) tick(now time.Time) (Packet, bool) {
	if !s.deadAt.IsZero() && !now.Before(s.deadAt) {
		s.silent(now)
	}
	if s.sendAt.IsZero() || now.Before(s.sendAt) {
		return Packet{}, false
	}
	if s.state == AdminDown {
		s.sendAt = now.Add(farewellEvery)
		if s.goodbyes--; s.goodbyes == 0 {
			s.sendAt = time.Time{}
		}
		return s.packet(), true
	}
	s.sent = s.packet()
	s.schedule(now)
	p := s.sent
	p.Poll = s.poll
	return p, true
}

// silent: nothing came within the detection time.
func (s *session) silent(now time.Time) {
	s.remote, s.deadAt, s.poll = 0, time.Time{}, false
	switch s.state {
	case Up:
		why := fmt.Sprintf("no packet for %s", s.detection().Round(time.Millisecond))
		s.turn(Down, DiagExpired, why, now)
		s.lost, s.losses = true, s.losses+1
	case Init:
		s.turn(Down, DiagExpired, "no packet any more", now)
	default:
		return
	}
	s.sendAt = now
}

// schedule says when to send next: sooner than agreed by up to a quarter, so that sessions do not fall into step; with a
// multiplier of 1 by at least a tenth (RFC 5880, 6.8.7).
func (s *session) schedule(now time.Time) {
	if s.theirRx == 0 {
		s.sendAt = time.Time{}
		return
	}
	share := 1 - s.random()/4
	if s.timing.Multiplier == 1 {
		share = 0.9 - s.random()*0.15
	}
	s.sendAt = now.Add(time.Duration(float64(s.interval()) * share))
}

// interval is how often packets are sent.
func (s *session) interval() time.Duration { return max(s.effTx, s.theirRx) }

// packet is what there is to say now.
func (s *session) packet() Packet {
	return Packet{
		State: s.state, Diag: s.diag, Independent: true, Multiplier: s.timing.Multiplier,
		Mine: s.local, Yours: s.remote, Transmit: s.tx, Receive: s.rx,
	}
}

// close tells the neighbour that this end stops on purpose. It is over when over says so.
func (s *session) close(now time.Time) {
	if s.state == AdminDown {
		return
	}
	s.state, s.diag, s.since, s.poll = AdminDown, DiagAdministrative, now, false
	s.deadAt, s.sendAt, s.goodbyes = time.Time{}, now, farewells
}

// over reports whether a closed session has said all that it has to say.
func (s *session) over() bool { return s.state == AdminDown && s.goodbyes == 0 }

// next is when to tick; the zero value: not before a packet comes.
func (s *session) next() time.Time {
	switch {
	case s.sendAt.IsZero():
		return s.deadAt
	case s.deadAt.IsZero() || s.sendAt.Before(s.deadAt):
		return s.sendAt
	}
	return s.deadAt
}
