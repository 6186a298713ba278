package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/nlsock"
)

// Buffers: the answers to a batch must fit the receive buffer, and the batch itself the send buffer. Their defaults lose
// answers after some 300 messages. The send buffer grows with the batches.
const (
	receiveBuffer = 8 << 20
	sendBuffer    = 4 << 20
	readSize      = 64 << 10
)

// Conn is a netlink socket, bound for life to the network namespace in which it was opened. It may be used by many
// goroutines; they take turns.
type Conn struct {
	mu   sync.Mutex
	sock *nlsock.Socket
	port uint32 // by which the kernel knows the socket
	seq  uint32
	sndb int
	rbuf []byte

	watcher *Watcher // of others' changes; nil: there is none
}

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Conn, error) {
	sock, err := nlsock.Open(receiveBuffer)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	c := &Conn{sock: sock, seq: 1, rbuf: make([]byte, readSize)}
	if err = c.setSendBuffer(sendBuffer); err == nil { // and errors shall say where they are
		err = unix.SetsockoptInt(sock.FD(), unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	}
	if err == nil {
		c.port, err = portOf(sock.FD())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nftables: set up netlink socket: %w", err), sock.Close())
	}
	return c, nil
}

// Close closes the socket; what was committed stays.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock.Close()
}

// portOf is the netlink port of a socket that is bound, by which the kernel says whose a change or a table is.
func portOf(fd int) (uint32, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	a, ok := sa.(*unix.SockaddrNetlink)
	if !ok {
		return 0, errNoAnswer
	}
	return a.Pid, nil
}

func (c *Conn) setSendBuffer(n int) error {
	c.sndb = n
	return nlsock.SendBuffer(c.sock.FD(), n)
}

// take reserves n sequence numbers, never using zero.
func (c *Conn) take(n uint32) uint32 {
	if c.seq+n < c.seq {
		c.seq = 1
	}
	base := c.seq
	c.seq += n
	return base
}

// GenID is the generation of the ruleset: every committed transaction of anyone adds one.
func (c *Conn) GenID() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.genID()
}

func (c *Conn) genID() (uint32, error) {
	var e encoder
	seq := c.take(1)
	e.begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, 0, 0, seq)
	var gen uint32
	found := false
	err := c.request(e.buf, seq, false, func(m message) error {
		as, err := parseAttrs(m.body)
		if err != nil {
			return err
		}
		gen, found = as.u32(unix.NFTA_GEN_ID), true
		return nil
	})
	if err == nil && !found {
		err = errNoAnswer
	}
	if err != nil {
		return 0, fmt.Errorf("nftables: read generation: %w", err)
	}
	return gen, nil
}

var errNoAnswer = errors.New("the kernel did not answer")

// message is one netlink message of an answer.
type message struct {
	typ, flags uint16
	seq        uint32
	family     uint8
	body       []byte // the attributes; for errors and the end of a dump, all that follows the header
}

var errShortMessage = errors.New("message from the kernel is cut short")

// eachMessage walks the messages of a datagram.
func eachMessage(b []byte, f func(message) error) error {
	for len(b) >= headerLen {
		n := int(binary.NativeEndian.Uint32(b))
		if n < headerLen || n > len(b) {
			return errShortMessage
		}
		m := message{
			typ: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
			seq: binary.NativeEndian.Uint32(b[8:]), body: b[headerLen:n],
		}
		if m.typ >= unix.NLMSG_MIN_TYPE {
			if len(m.body) < nfgenLen {
				return errShortMessage
			}
			m.family, m.body = m.body[0], m.body[nfgenLen:]
		}
		if err := f(m); err != nil {
			return err
		}
		b = b[min(padded(n), len(b)):]
	}
	return nil
}

// receive reads one datagram. The kernel answers while it is asked, so there is never anything to wait for; the next
// part of a dump is made while the last one is read.
func (c *Conn) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(c.sock.FD(), c.rbuf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return c.rbuf[:n], nil
	}
}

// drain throws away what an earlier exchange left behind.
func (c *Conn) drain() {
	for {
		if _, err := c.receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// request sends one message and hands over each message of the answer. A dump during which anybody changed anything in
// the namespace is errDumpInterrupted, after all of it was handed over.
func (c *Conn) request(msg []byte, seq uint32, dump bool, f func(message) error) error {
	c.drain()
	if err := unix.Sendto(c.sock.FD(), msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var first error
	interrupted, done := false, false
	for !done {
		b, err := c.receive()
		if errors.Is(err, unix.EAGAIN) {
			if dump && first == nil {
				first = errNoAnswer
			}
			break
		}
		if err != nil {
			return err
		}
		err = eachMessage(b, func(m message) error {
			if m.seq != seq {
				return nil
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			if m.typ == unix.NLMSG_ERROR || m.typ == unix.NLMSG_DONE {
				done = true
				return nlsock.Errno(m.body)
			}
			if first != nil {
				return nil
			}
			return f(m)
		})
		if err != nil && first == nil {
			first = err
		}
	}
	if first == nil && interrupted {
		first = errDumpInterrupted
	}
	return first
}

var errDumpInterrupted = errors.New("ruleset changed while it was read")
