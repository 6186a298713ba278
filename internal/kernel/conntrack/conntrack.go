// Package conntrack is the door to the kernel's table of connections.
//
// In and out: [Flow] values; a [Conn] belongs to the network namespace in which it was opened. [Conn.Each] reads the
// table, [Conn.Mark] changes bits of the marks of flows that were read, with a mask, so that the bits of others stay.
// Only the tuple and the mark are sent: whatever else a flow has stays as it is, and what is gone is not made anew.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel"
)

// Tuple is one direction of a flow. Of ICMP, the ports are zero.
type Tuple struct {
	Src, Dst           netip.Addr
	Proto              uint8
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8
	ICMPID             uint16
}

// Flow is one entry of the table.
type Flow struct {
	Original Tuple // as the first packet came
	Reply    Tuple // as answers come; its source is where the first packet went after DNAT
	Master   Tuple // of the flow that announced this one (such as FTP's); without addresses: none
	Mark     uint32
	Zone     uint16
}

// Change is a new value for the bits of a flow's mark that are in Mask.
type Change struct {
	Flow       Flow
	Mark, Mask uint32
}

// Conn is a netlink socket. Any goroutine may use it; they take turns.
type Conn struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	buf []byte
}

// What one message of the kernel may hold, and how many answers may wait for us.
const (
	readSize      = 64 << 10
	receiveBuffer = 8 << 20
	batch         = 500 // changes sent before their answers are read
)

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("conntrack: open netlink socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	}
	if err == nil { // an answer that does not come must not stop the agent for ever
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("conntrack: set up netlink socket: %w", err), unix.Close(fd))
	}
	return &Conn{fd: fd, buf: make([]byte, readSize)}, nil
}

// Close closes the socket.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return nil
	}
	err := unix.Close(c.fd)
	c.fd = -1
	return err
}

// Each reads the flows of both families and hands each to f, once or, if the table changes meanwhile, more often.
func (c *Conn) Each(f func(Flow)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	msg := c.message(unix.NLM_F_DUMP, msgGet, unix.AF_UNSPEC, nil)
	if err := c.send(msg); err != nil {
		return err
	}
	for done := false; !done; {
		err := c.receive(func(m message) error {
			switch m.typ {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				done = true
				return errnoOf(m.body)
			}
			if flow, ok := decode(m.body); ok {
				f(flow)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("conntrack: read the table: %w", unsupported(err))
		}
	}
	return nil
}

// Mark makes changes, and returns how many flows have them now. Flows that are gone are passed over.
func (c *Conn) Mark(changes []Change) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := 0
	for len(changes) > 0 {
		part := changes[:min(batch, len(changes))]
		changes = changes[len(part):]
		n, err := c.markSome(part)
		changed += n
		if err != nil {
			return changed, fmt.Errorf("conntrack: mark flows: %w", unsupported(err))
		}
	}
	return changed, nil
}

func (c *Conn) markSome(changes []Change) (changed int, _ error) {
	var msgs []byte
	for _, ch := range changes {
		family := uint8(unix.AF_INET)
		if ch.Flow.Original.Src.Is6() {
			family = unix.AF_INET6
		}
		msgs = append(msgs, c.message(unix.NLM_F_ACK, msgNew, family, encode(ch))...)
	}
	if err := c.send(msgs); err != nil {
		return 0, err
	}
	var first error
	for left := len(changes); left > 0; {
		err := c.receive(func(m message) error {
			if m.typ != unix.NLMSG_ERROR {
				return nil
			}
			left--
			switch err := errnoOf(m.body); {
			case err == nil:
				changed++
			case errors.Is(err, unix.ENOENT):
			case first == nil:
				first = err
			}
			return nil
		})
		if err != nil {
			return changed, err
		}
	}
	return changed, first
}

// unsupported makes what a kernel without conntrack over netlink says an error that callers know.
func unsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return &kernel.UnsupportedError{Feature: "conntrack over netlink", Err: err}
	}
	return err
}

func (c *Conn) message(flags, typ uint16, family uint8, body []byte) []byte {
	c.seq++
	m := make([]byte, unix.SizeofNlMsghdr+4, unix.SizeofNlMsghdr+4+len(body))
	m = append(m, body...)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], unix.NFNL_SUBSYS_CTNETLINK<<8|typ)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(m[8:], c.seq)
	m[unix.SizeofNlMsghdr] = family
	return m
}

// send sends messages, after it has thrown away what an exchange that failed left behind.
func (c *Conn) send(b []byte) error {
	for {
		_, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// message is what the kernel sent; the body of a flow begins after the netfilter header.
type message struct {
	typ  uint16
	body []byte
}

func (c *Conn) receive(f func(message) error) error {
	n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return err
	}
	for b := c.buf[:n]; len(b) >= unix.SizeofNlMsghdr; {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return errors.New("the kernel's message is cut off")
		}
		m := message{binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size]}
		if m.typ != unix.NLMSG_DONE && m.typ != unix.NLMSG_ERROR {
			m.body = m.body[min(4, len(m.body)):]
		}
		if err := f(m); err != nil {
			return err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

func errnoOf(b []byte) error {
	if len(b) < 4 {
		return nil
	}
	if e := int32(binary.NativeEndian.Uint32(b)); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}
