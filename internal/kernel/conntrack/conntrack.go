// Package conntrack reads and changes the kernel's connection tracking table.
//
// In and out: [Flow] values; a [Conn] belongs to the network namespace in which it was opened. [Conn.Each] reads the
// table, [Conn.Find] what became of single flows, [Conn.Mark] changes bits of the marks of flows that were read, with a mask, so that the bits of others stay, and
// [Conn.Forget] deletes flows. Only the tuple, the mark and a flag are sent: whatever else a flow has stays as it is, and what is
// gone is not made anew.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nlsock"
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
	// AnyWindow has the kernel take any sequence number of a TCP connection for one of its own, as the sysctl
	// net.netfilter.nf_conntrack_tcp_be_liberal does for all. It is for a connection whose packets were dropped for a while.
	//
	// The kernel forgets the windows of all connections when the last rule that asks for their state goes (nf_ct_tcp_fixup), and
	// learns them again from the packets that it sees, also those that we drop. If it sees data of one end and then a keepalive of the
	// other, whose sequence number is one less than the next (RFC 9293, 3.8.4), it holds the ACK in all that the first end
	// sends for one of data not sent yet, and what it holds for invalid is dropped for ever.
	AnyWindow bool
}

// Conn is two netlink sockets. Any goroutine may use it. What reads the table takes turns, and so does what changes it; a change does not
// wait for a reading.
type Conn struct{ readings, requests *socket }

// socket is a netlink socket, used by one goroutine at a time.
type socket struct {
	mu   sync.Mutex
	sock *nlsock.Socket
	seq  uint32
	buf  []byte
}

// What one message of the kernel may hold, and how many answers may wait for us.
const (
	readSize      = 64 << 10
	receiveBuffer = 8 << 20
	batch         = 500 // requests sent before their answers are read
)

// Open opens the sockets in the network namespace of the calling thread.
func Open() (*Conn, error) {
	readings, err := open()
	if err != nil {
		return nil, err
	}
	requests, err := open()
	if err != nil {
		return nil, errors.Join(err, readings.sock.Close())
	}
	return &Conn{readings: readings, requests: requests}, nil
}

func open() (*socket, error) {
	sock, err := nlsock.Open(receiveBuffer)
	if err != nil {
		return nil, fmt.Errorf("conntrack: %w", err)
	}
	// An answer that does not come must not stop the agent for ever.
	if err := unix.SetsockoptTimeval(sock.FD(), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return nil, errors.Join(fmt.Errorf("conntrack: set up netlink socket: %w", err), sock.Close())
	}
	return &socket{sock: sock, buf: make([]byte, readSize)}, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	var errs []error
	for _, s := range []*socket{c.readings, c.requests} {
		s.mu.Lock()
		errs = append(errs, s.sock.Close())
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Each reads the flows of both families and hands each to f, once or, if the table changes meanwhile, more often.
func (c *Conn) Each(f func(Flow)) error {
	s := c.readings
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dump(unix.AF_UNSPEC, nil, f)
}

// EachOf reads the flows that some addresses began, and those that they answer, and hands each to f, once or more often. The kernel finds
// those of an IPv4 address (CTA_FILTER, Linux 5.8), by a walk of the table for each of the two. Its filter for IPv6 addresses finds
// the others instead (seen on 6.18), so of that family all are read once. The error is a kernel.UnsupportedError if the kernel
// has no filter; f may have been called by then.
func (c *Conn) EachOf(of map[netip.Addr]bool, f func(Flow)) error {
	s := c.readings
	s.mu.Lock()
	defer s.mu.Unlock()
	six := false
	for a := range of {
		if a.Is6() {
			six = true
			continue
		}
		for _, side := range []uint16{filterOriginal, filterReply} {
			if err := s.only(side, a, f); err != nil {
				return err
			}
		}
	}
	if !six {
		return nil
	}
	return s.dump(unix.AF_INET6, nil, func(flow Flow) {
		if of[flow.Original.Src] || of[flow.Reply.Src] {
			f(flow)
		}
	})
}

// only reads the flows of which one direction comes from an address.
func (s *socket) only(side uint16, src netip.Addr, f func(Flow)) error {
	ignored := false
	err := s.dump(unix.AF_INET, encodeFilter(side, src), func(flow Flow) {
		if is := [...]netip.Addr{filterOriginal: flow.Original.Src, filterReply: flow.Reply.Src}[side]; is != src {
			ignored = true // an older kernel passes over attributes that it does not know
			return
		}
		f(flow)
	})
	if ignored || errors.Is(err, unix.EINVAL) {
		return &kernel.UnsupportedError{Feature: "dumps of some connections", Err: err}
	}
	return err
}

// Count returns how many flows there are.
func (c *Conn) Count() (int, error) {
	s := c.requests
	s.mu.Lock()
	defer s.mu.Unlock()
	n := -1
	err := s.send(s.message(unix.NLM_F_ACK, msgStats, unix.AF_UNSPEC, nil))
	for acked := false; err == nil && !acked; {
		err = s.receive(func(m message) error {
			if m.typ == unix.NLMSG_ERROR {
				acked = true
				return nlsock.Errno(m.body)
			}
			attrs(m.body, func(typ uint16, v []byte) {
				if typ == statsEntries {
					n = int(be32(v))
				}
			})
			return nil
		})
	}
	if err == nil && n < 0 {
		err = errors.New("the kernel does not say")
	}
	if err != nil {
		return 0, fmt.Errorf("conntrack: count flows: %w", unsupported(err))
	}
	return n, nil
}

// dump reads the flows of a family that the kernel finds by a filter; nil: all.
func (s *socket) dump(family uint8, filter []byte, f func(Flow)) error {
	if err := s.send(s.message(unix.NLM_F_DUMP, msgGet, family, filter)); err != nil {
		return err
	}
	for done := false; !done; {
		err := s.receive(func(m message) error {
			switch m.typ {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				done = true
				return nlsock.Errno(m.body)
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
	n, err := c.requests.request(len(changes), func(i int) []byte { return c.requests.about(msgNew, changes[i].Flow, encode(changes[i])) }, nil)
	if err != nil {
		err = fmt.Errorf("conntrack: mark flows: %w", unsupported(err))
	}
	return n, err
}

// Forget deletes flows, and returns how many there were. The next packet of a flow that goes on is judged as its first.
func (c *Conn) Forget(flows []Flow) (int, error) {
	n, err := c.requests.request(len(flows), func(i int) []byte { return c.requests.about(msgDelete, flows[i], encodeName(flows[i])) }, nil)
	if err != nil {
		err = fmt.Errorf("conntrack: delete flows: %w", unsupported(err))
	}
	return n, err
}

// Find returns, as they are now, the flows that began with the same packets as some that were read. Those that are gone are left out. The kernel
// finds each by itself, and does not walk its table.
func (c *Conn) Find(flows []Flow) ([]Flow, error) {
	began := make(map[Tuple]bool, len(flows))
	for _, f := range flows {
		began[f.Original] = true
	}
	found := make([]Flow, 0, len(flows))
	_, err := c.requests.request(len(flows), func(i int) []byte { return c.requests.about(msgGet, flows[i], encodeName(flows[i])) }, func(f Flow) {
		if began[f.Original] { // else what was asked for is how the other end answers
			delete(began, f.Original)
			found = append(found, f)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("conntrack: find flows: %w", unsupported(err))
	}
	return found, nil
}

// about makes a request about one flow.
func (s *socket) about(typ uint16, f Flow, body []byte) []byte {
	family := uint8(unix.AF_INET)
	if f.Original.Src.Is6() {
		family = unix.AF_INET6
	}
	return s.message(unix.NLM_F_ACK, typ, family, body)
}

// request sends n requests, hands the flows that are answers to got, and returns how many were done. Those about flows that are gone are none.
func (s *socket) request(n int, make func(i int) []byte, got func(Flow)) (done int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for from := 0; from < n && err == nil; from += batch {
		var msgs []byte
		to := min(from+batch, n)
		for i := from; i < to; i++ {
			msgs = append(msgs, make(i)...)
		}
		var some int
		some, err = s.exchange(msgs, to-from, got)
		done += some
	}
	return done, err
}

func (s *socket) exchange(msgs []byte, n int, got func(Flow)) (done int, _ error) {
	if err := s.send(msgs); err != nil {
		return 0, err
	}
	var first error
	for left := n; left > 0; {
		err := s.receive(func(m message) error {
			if m.typ != unix.NLMSG_ERROR {
				if flow, ok := decode(m.body); ok && got != nil {
					got(flow)
				}
				return nil
			}
			left--
			switch err := nlsock.Errno(m.body); {
			case err == nil:
				done++
			case errors.Is(err, unix.ENOENT):
			case first == nil:
				first = err
			}
			return nil
		})
		if err != nil {
			return done, err
		}
	}
	return done, first
}

// unsupported converts the errors of a kernel without conntrack over netlink to kernel.UnsupportedError.
func unsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return &kernel.UnsupportedError{Feature: "conntrack over netlink", Err: err}
	}
	return err
}

func (s *socket) message(flags, typ uint16, family uint8, body []byte) []byte {
	s.seq++
	m := make([]byte, unix.SizeofNlMsghdr+4, unix.SizeofNlMsghdr+4+len(body))
	m = append(m, body...)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], unix.NFNL_SUBSYS_CTNETLINK<<8|typ)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(m[8:], s.seq)
	m[unix.SizeofNlMsghdr] = family
	return m
}

// send sends messages, after it has thrown away what an exchange that failed left behind.
func (s *socket) send(b []byte) error {
	for {
		_, _, err := unix.Recvfrom(s.sock.FD(), s.buf, unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return unix.Sendto(s.sock.FD(), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// message is what the kernel sent; the body of a flow begins after the netfilter header.
type message struct {
	typ  uint16
	body []byte
}

func (s *socket) receive(f func(message) error) error {
	n, _, err := unix.Recvfrom(s.sock.FD(), s.buf, 0)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return err
	}
	for b := s.buf[:n]; len(b) >= unix.SizeofNlMsghdr; {
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
