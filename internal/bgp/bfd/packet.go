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

// String returns the RFC's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Diag says why a session is in its state (RFC 5880, 4.1).
type Diag uint8

// Diagnostics that are sent, or interpreted.
const (
	DiagNone           Diag = 0
	DiagExpired        Diag = 1 // control detection time expired
	DiagNeighbour      Diag = 3 // neighbour signaled session down
	DiagAdministrative Diag = 7 // administratively down
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

// Packet is a control packet without authentication (RFC 5880, 4.1). The fields of demand mode and echo are left out: neither
// is supported.
type Packet struct {
	State                              State
	Diag                               Diag
	Poll, Final                        bool
	ControlPlaneIndependent            bool // the C bit
	Multiplier                         uint8
	MyDiscriminator, YourDiscriminator uint32        // discriminators
	DesiredMinTx                       time.Duration // Desired Min TX Interval
	RequiredMinRx                      time.Duration // Required Min RX Interval; 0: the sender wants no packets
}

// errNotControlPacket is returned for what RFC 5880, 6.8.6 discards.
var errNotControlPacket = errors.New("no BFD control packet")

// Parse reads a datagram's payload; an error means that it must be discarded.
func Parse(b []byte) (Packet, error) {
	if len(b) < packetSize || int(b[3]) < packetSize || int(b[3]) > len(b) {
		return Packet{}, fmt.Errorf("%w: %d bytes", errNotControlPacket, len(b))
	}
	switch flags := b[1]; {
	case b[0]>>5 != version:
		return Packet{}, fmt.Errorf("%w: version %d", errNotControlPacket, b[0]>>5)
	case flags&flagAuthentication != 0:
		return Packet{}, fmt.Errorf("%w: authenticated, which is not configured", errNotControlPacket)
	case flags&flagMultipoint != 0:
		return Packet{}, fmt.Errorf("%w: multipoint", errNotControlPacket)
	case flags&flagPoll != 0 && flags&flagFinal != 0:
		return Packet{}, fmt.Errorf("%w: poll and final", errNotControlPacket)
	}
	micro := func(at int) time.Duration {
		return time.Duration(binary.BigEndian.Uint32(b[at:])) * time.Microsecond
	}
	p := Packet{
		State: State(b[1] >> 6), Diag: Diag(b[0] & 0x1f),
		Poll: b[1]&flagPoll != 0, Final: b[1]&flagFinal != 0, ControlPlaneIndependent: b[1]&flagIndependent != 0,
		Multiplier: b[2], MyDiscriminator: binary.BigEndian.Uint32(b[4:]), YourDiscriminator: binary.BigEndian.Uint32(b[8:]),
		DesiredMinTx: micro(12), RequiredMinRx: micro(16),
	}
	switch {
	case p.Multiplier == 0:
		return Packet{}, fmt.Errorf("%w: multiplier 0", errNotControlPacket)
	case p.MyDiscriminator == 0:
		return Packet{}, fmt.Errorf("%w: no discriminator", errNotControlPacket)
	case p.YourDiscriminator == 0 && p.State != Down && p.State != AdminDown:
		return Packet{}, fmt.Errorf("%w: state %s without having heard us", errNotControlPacket, p.State)
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
	if p.ControlPlaneIndependent {
		flags |= flagIndependent
	}
	b = append(b, version<<5|byte(p.Diag)&0x1f, flags, p.Multiplier, packetSize)
	b = binary.BigEndian.AppendUint32(b, p.MyDiscriminator)
	b = binary.BigEndian.AppendUint32(b, p.YourDiscriminator)
	b = binary.BigEndian.AppendUint32(b, uint32(p.DesiredMinTx/time.Microsecond))
	b = binary.BigEndian.AppendUint32(b, uint32(p.RequiredMinRx/time.Microsecond))
	return binary.BigEndian.AppendUint32(b, 0) // no echoes
}
