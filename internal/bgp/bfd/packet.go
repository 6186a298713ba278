package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// State of a session (RFC 5880, 4.1).
type State uint8

// States, by their numbers in packets.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

var stateNames = [...]string{"AdminDown", "Down", "Init", "Up"}

// String is the name that the RFC has.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Diag says why a session is in its state (RFC 5880, 4.1).
type Diag uint8

// Diagnostics that are sent, or that mean something here.
const (
	DiagNone           Diag = 0
	DiagExpired        Diag = 1 // nothing came within the detection time
	DiagNeighbour      Diag = 3 // the neighbour said that its session is down
	DiagAdministrative Diag = 7
)

// Layout of a packet.
const (
	packetSize         = 24
	version            = 1
	flagPoll           = 0x20
	flagFinal          = 0x10
	flagIndependent    = 0x08
	flagAuthentication = 0x04
	flagMultipoint     = 0x01
)

// Packet is a control packet without authentication (RFC 5880, 4.1). Of demand mode and echoes nothing is kept: neither
// is spoken.
type Packet struct {
	State       State
	Diag        Diag
	Poll, Final bool
	Independent bool // BFD goes on while the control plane restarts (the C bit)
	Multiplier  uint8
	Mine, Yours uint32        // discriminators
	Transmit    time.Duration // how often the sender would like to send, at most
	Receive     time.Duration // how often it is able to hear; 0: it wants to hear nothing
}

// errPacket: what RFC 5880, 6.8.6 has discarded.
var errPacket = errors.New("no BFD control packet")

// Parse reads what came in a datagram.
func Parse(b []byte) (Packet, error) {
	if len(b) < packetSize || int(b[3]) < packetSize || int(b[3]) > len(b) {
		return Packet{}, fmt.Errorf("%w: %d bytes", errPacket, len(b))
	}
	switch flags := b[1]; {
	case b[0]>>5 != version:
		return Packet{}, fmt.Errorf("%w: version %d", errPacket, b[0]>>5)
	case flags&flagAuthentication != 0:
		return Packet{}, fmt.Errorf("%w: authenticated, which nobody asked for", errPacket)
	case flags&flagMultipoint != 0:
		return Packet{}, fmt.Errorf("%w: multipoint", errPacket)
	case flags&flagPoll != 0 && flags&flagFinal != 0:
		return Packet{}, fmt.Errorf("%w: poll and final", errPacket)
	}
	micro := func(at int) time.Duration {
		return time.Duration(binary.BigEndian.Uint32(b[at:])) * time.Microsecond
	}
	p := Packet{
		State: State(b[1] >> 6), Diag: Diag(b[0] & 0x1f),
		Poll: b[1]&flagPoll != 0, Final: b[1]&flagFinal != 0, Independent: b[1]&flagIndependent != 0,
		Multiplier: b[2], Mine: binary.BigEndian.Uint32(b[4:]), Yours: binary.BigEndian.Uint32(b[8:]),
		Transmit: micro(12), Receive: micro(16),
	}
	switch {
	case p.Multiplier == 0:
		return Packet{}, fmt.Errorf("%w: multiplier 0", errPacket)
	case p.Mine == 0:
		return Packet{}, fmt.Errorf("%w: no discriminator", errPacket)
	case p.Yours == 0 && p.State != Down && p.State != AdminDown:
		return Packet{}, fmt.Errorf("%w: state %s without having heard us", errPacket, p.State)
	}
	return p, nil
}

// Append adds the packet's bytes to b.
func (p Packet) Append(b []byte) []byte {
	flags := byte(p.State) << 6
	if p.Poll {
		flags |= flagPoll
	}
	if p.Final {
		flags |= flagFinal
	}
	if p.Independent {
		flags |= flagIndependent
	}
	b = append(b, version<<5|byte(p.Diag)&0x1f, flags, p.Multiplier, packetSize)
	b = binary.BigEndian.AppendUint32(b, p.Mine)
	b = binary.BigEndian.AppendUint32(b, p.Yours)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Transmit/time.Microsecond))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Receive/time.Microsecond))
	return binary.BigEndian.AppendUint32(b, 0) // no echoes
}
