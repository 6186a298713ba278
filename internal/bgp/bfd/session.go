package bfd

import (
	"fmt"
	"time"
)

// Timing is the interval at which packets are sent and required, and the detection multiplier.
type Timing struct {
	Interval   time.Duration
	Multiplier uint8
}

const (
	// slowInterval is the shortest transmit interval of a session that is not up (RFC 5880, 6.8.3).
	slowInterval = time.Second
	// adminDownPackets are sent at close: more than one, so that a lost one does not become a loss of the path at the peer.
	adminDownPackets  = 3
	adminDownInterval = 50 * time.Millisecond
)

// session is one end of a session: RFC 5880, asynchronous mode. It has no clock: callers pass the time, which must not go
// back. See newSession.
type session struct {
	timing Timing
	local  uint32
	random func() float64 // in [0, 1)

	state State
	diag  Diag
	since time.Time
	why   string // why it is not up
	// lost: it was up until the path failed, and has not come up since.
	lost   bool
	losses uint64

	// From the last packet received.
	remote      uint32 // its discriminator; 0: no packet within a detection time
	remoteState State
	independent bool
	multiplier  uint8
	remoteMinTx time.Duration
	remoteMinRx time.Duration

	// What packets announce (desired, required), and what is in use until the peer has confirmed it with a final (active).
	desiredMinTx, requiredMinRx time.Duration
	activeTx, activeRx          time.Duration
	poll                        bool
	polledTx                    time.Duration
	polledRx                    time.Duration
	sent                        Packet // the last one, without poll and final
	sendAt, expiresAt           time.Time
	adminDownsLeft              int // AdminDown packets still to be sent
}

// newSession returns a session in state Down.
func newSession(local uint32, t Timing, now time.Time, random func() float64) *session {
	s := &session{timing: t, local: local, random: random, state: Down, since: now, sendAt: now, remoteMinRx: time.Microsecond, why: "no packet yet"}
	s.desiredMinTx, s.requiredMinRx = max(t.Interval, slowInterval), t.Interval
	s.activeTx, s.activeRx = s.desiredMinTx, s.requiredMinRx
	return s
}

// setTiming changes the timing of a session without taking it down.
func (s *session) setTiming(t Timing, now time.Time) {
	s.timing = t
	s.negotiate(now)
}

// negotiate announces new intervals to the peer (RFC 5880, 6.8.3). While the session is up, a slower transmit interval and
// a faster receive interval take effect only when the peer has answered the poll with a final.
func (s *session) negotiate(now time.Time) {
	tx, rx := s.timing.Interval, s.timing.Interval
	if s.state != Up {
		tx = max(tx, slowInterval)
	}
	s.desiredMinTx, s.requiredMinRx = tx, rx
	if s.state != Up {
		s.activeTx, s.activeRx, s.poll = tx, rx, false
		return
	}
	if s.activeTx == tx && s.activeRx == rx && !s.poll {
		return
	}
	s.activeTx, s.activeRx = min(s.activeTx, tx), max(s.activeRx, rx)
	if !s.poll {
		s.startPoll(now)
	}
}

// startPoll begins a poll sequence (RFC 5880, 6.5).
func (s *session) startPoll(now time.Time) {
	s.poll, s.polledTx, s.polledRx = true, s.desiredMinTx, s.requiredMinRx
	s.sendAt = now
}

// onFinal ends a poll sequence, and starts the next if the intervals changed meanwhile.
func (s *session) onFinal(now time.Time) {
	s.poll = false
	if s.polledTx != s.desiredMinTx || s.polledRx != s.requiredMinRx {
		s.startPoll(now)
		return
	}
	s.activeTx, s.activeRx = s.desiredMinTx, s.requiredMinRx
}

// detection returns the detection time (RFC 5880, 6.8.4).
func (s *session) detection() time.Duration {
	return time.Duration(s.multiplier) * max(s.activeRx, s.remoteMinTx)
}

// receive handles a packet of this session (RFC 5880, 6.8.6). It returns a reply if one is needed at once: to a poll.
func (s *session) receive(p Packet, now time.Time) (reply Packet, needed bool) {
	if s.state == AdminDown {
		return Packet{}, false
	}
	s.remote, s.remoteState, s.independent, s.multiplier = p.MyDiscriminator, p.State, p.ControlPlaneIndependent, p.Multiplier
	faster := p.RequiredMinRx < s.remoteMinRx || s.remoteMinRx == 0
	if s.remoteMinTx, s.remoteMinRx = p.DesiredMinTx, p.RequiredMinRx; faster {
		s.schedule(now)
	}
	if s.poll && p.Final {
		s.onFinal(now)
	}
	s.transition(p, now)
	s.expiresAt = now.Add(s.detection())
	if s.packet() != s.sent {
		s.sendAt = now // a change is sent at once
	}
	if !p.Poll {
		return Packet{}, false
	}
	reply = s.packet()
	s.sent = reply
	reply.Final = true
	return reply, true
}

// transition is the state machine (RFC 5880, 6.2).
func (s *session) transition(p Packet, now time.Time) {
	switch {
	case p.State == AdminDown:
		if s.lost, s.why = false, "administratively down at the neighbour"; s.state != Down {
			s.setState(Down, DiagNeighbour, s.why, now)
		}
	case p.State == Down && s.state == Up:
		s.neighbourDown(p.Diag, now)
	case p.State == Down && s.state == Down:
		s.setState(Init, s.diag, "the neighbour has not heard us yet", now)
	case p.State == Init && s.state != Up, p.State == Up && s.state == Init:
		s.setState(Up, DiagNone, "", now)
	}
}

// neighbourDown handles state Down from the peer. If its detection time expired, packets to it are lost on the way, and the path
// counts as lost; if it restarted, or gives no reason, not.
func (s *session) neighbourDown(diagnostic Diag, now time.Time) {
	switch diagnostic {
	case DiagNone, DiagNeighbour, DiagAdministrative:
		s.setState(Down, DiagNeighbour, "the neighbour restarted the session", now)
	default:
		s.setState(Down, DiagNeighbour, fmt.Sprintf("the neighbour does not hear us (diagnostic %d)", diagnostic), now)
		s.lost, s.losses = true, s.losses+1
	}
}

// setState changes the state.
func (s *session) setState(to State, diag Diag, why string, now time.Time) {
	s.state, s.diag, s.why, s.since = to, diag, why, now
	if to == Up {
		s.lost = false
	}
	s.negotiate(now)
}

// tick runs the timers, at the time that next returned; it returns a packet if one is to be sent.
func (s *session) tick(now time.Time) (Packet, bool) {
	if !s.expiresAt.IsZero() && !now.Before(s.expiresAt) {
		s.expire(now)
	}
	if s.sendAt.IsZero() || now.Before(s.sendAt) {
		return Packet{}, false
	}
	if s.state == AdminDown {
		s.sendAt = now.Add(adminDownInterval)
		if s.adminDownsLeft--; s.adminDownsLeft == 0 {
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

// expire handles the end of the detection time without a packet.
func (s *session) expire(now time.Time) {
	s.remote, s.expiresAt, s.poll = 0, time.Time{}, false
	switch s.state {
	case Up:
		why := fmt.Sprintf("no packet for %s", s.detection().Round(time.Millisecond))
		s.setState(Down, DiagExpired, why, now)
		s.lost, s.losses = true, s.losses+1
	case Init:
		s.setState(Down, DiagExpired, "no packet any more", now)
	default:
		return
	}
	s.sendAt = now
}

// schedule sets the transmit timer with jitter: up to a quarter earlier, so that sessions do not synchronise; with a
// multiplier of 1 at least a tenth earlier (RFC 5880, 6.8.7).
func (s *session) schedule(now time.Time) {
	if s.remoteMinRx == 0 {
		s.sendAt = time.Time{}
		return
	}
	share := 1 - s.random()/4
	if s.timing.Multiplier == 1 {
		share = 0.9 - s.random()*0.15
	}
	s.sendAt = now.Add(time.Duration(float64(s.interval()) * share))
}

// interval is the transmit interval before jitter.
func (s *session) interval() time.Duration { return max(s.activeTx, s.remoteMinRx) }

// packet returns the packet that describes the session now.
func (s *session) packet() Packet {
	return Packet{
		State: s.state, Diag: s.diag, ControlPlaneIndependent: true, Multiplier: s.timing.Multiplier,
		MyDiscriminator: s.local, YourDiscriminator: s.remote, DesiredMinTx: s.desiredMinTx, RequiredMinRx: s.requiredMinRx,
	}
}

// close takes the session administratively down; closed reports when all AdminDown packets are sent.
func (s *session) close(now time.Time) {
	if s.state == AdminDown {
		return
	}
	s.state, s.diag, s.since, s.poll = AdminDown, DiagAdministrative, now, false
	s.expiresAt, s.sendAt, s.adminDownsLeft = time.Time{}, now, adminDownPackets
}

// closed reports whether close was called and all AdminDown packets are sent.
func (s *session) closed() bool { return s.state == AdminDown && s.adminDownsLeft == 0 }

// next returns when to call tick; the zero value: not before a packet arrives.
func (s *session) next() time.Time {
	switch {
	case s.sendAt.IsZero():
		return s.expiresAt
	case s.expiresAt.IsZero() || s.sendAt.Before(s.expiresAt):
		return s.sendAt
	}
	return s.expiresAt
}
