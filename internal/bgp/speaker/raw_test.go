package speaker_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// Messages made by hand, so that they can be wrong (RFC 4271, 4).
const (
	msgOpen         = 1
	msgUpdate       = 2
	msgNotification = 3
	msgKeepalive    = 4
	headerLength    = 19
)

func message(kind byte, body []byte) []byte {
	out := make([]byte, headerLength, headerLength+len(body))
	for i := range 16 {
		out[i] = 0xff
	}
	binary.BigEndian.PutUint16(out[16:], uint16(headerLength+len(body)))
	out[18] = kind
	return append(out, body...)
}

// openFrom is what a peer says first; its capabilities are those of IPv4, and graceful restart, unless others are given.
func openFrom(id string, as uint32, capabilities ...byte) []byte {
	if capabilities == nil {
		capabilities = []byte{1, 4, 0, 1, 0, 1, 64, 6, 0, 60, 0, 1, 1, 0x80}
		capabilities = append(capabilities, 65, 4)
		capabilities = binary.BigEndian.AppendUint32(capabilities, as)
	}
	router := netip.MustParseAddr(id).As4()
	body := append([]byte{4, byte(as >> 8), byte(as), 0, 0}, router[:]...) // a hold time of 0: nobody keeps it alive (RFC 4271, 4.2)
	if len(capabilities) > 0 {
		body = append(body, byte(len(capabilities)+2), 2, byte(len(capabilities)))
	} else {
		body = append(body, 0)
	}
	return message(msgOpen, append(body, capabilities...))
}

// attribute is one path attribute.
func attribute(flags, code byte, value ...byte) []byte {
	if len(value) > 255 {
		return append([]byte{flags | 0x10, code, byte(len(value) >> 8), byte(len(value))}, value...)
	}
	return append([]byte{flags, code, byte(len(value))}, value...)
}

// Attributes of an internal route.
var (
	origin    = attribute(0x40, 1, 0)
	asPath    = attribute(0x40, 2)
	localPref = attribute(0x40, 5, 0, 0, 0, 100)
)

func nextHopOf(addr string) []byte {
	a := netip.MustParseAddr(addr).As4()
	return attribute(0x40, 3, a[:]...)
}

// wire is a list of prefixes as messages have it.
func wire(dsts ...netip.Prefix) []byte {
	var out []byte
	for _, p := range dsts {
		a := p.Addr().As4()
		out = append(append(out, byte(p.Bits())), a[:(p.Bits()+7)/8]...)
	}
	return out
}

// update has withdrawn routes, attributes and routes.
func update(withdrawn, attributes, routes []byte) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(withdrawn)))
	body = binary.BigEndian.AppendUint16(append(body, withdrawn...), uint16(len(attributes)))
	return message(msgUpdate, append(append(body, attributes...), routes...))
}

// endOfRIB sends the End-of-RIB markers.
var endOfRIB = update(nil, nil, nil)

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// raw is a peer that sends what a test gives it.
type raw struct {
	net.Conn
	addr string
}

// callRaw connects to the speaker from a namespace; nothing is sent yet.
func callRaw(ns *netnstest.NS, from, to string) (*raw, error) {
	c, err := ns.DialTCP(netip.AddrPortFrom(netip.MustParseAddr(from), 0), netip.AddrPortFrom(netip.MustParseAddr(to), 179), time.Now().Add(patience))
	if err != nil {
		return nil, err
	}
	return &raw{c, from}, nil
}

// establish says OPEN and KEEPALIVE, and waits for those of the other end.
func (r *raw) establish(as uint32) error {
	if _, err := r.Write(openFrom(r.addr, as)); err != nil {
		return err
	}
	for _, want := range []byte{msgOpen, msgKeepalive} {
		kind, body, err := r.next(patience)
		if err != nil {
			return err
		}
		if kind != want {
			return fmt.Errorf("the other end says %d %v, want %d", kind, body, want)
		}
	}
	_, err := r.Write(message(msgKeepalive, nil))
	return err
}

// next reads a message.
func (r *raw) next(within time.Duration) (kind byte, body []byte, err error) {
	if err := r.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, nil, err
	}
	var head [headerLength]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint16(head[16:]))
	if n < headerLength {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	body = make([]byte, n-headerLength)
	_, err = io.ReadFull(r, body)
	return head[18], body, err
}

// ended reads to the end, and returns the notification that came before it; nil if there was none.
func (r *raw) ended(within time.Duration) ([]byte, error) {
	var notification []byte
	for {
		kind, body, err := r.next(within)
		switch {
		case errors.Is(err, io.EOF), err != nil && !isTimeout(err):
			return notification, nil
		case err != nil:
			return nil, fmt.Errorf("the session goes on: %w", err)
		case kind == msgNotification:
			notification = body
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
