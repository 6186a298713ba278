// Package nflog receives packets that rules of the kernel log to a group (nfnetlink_log).
//
// In: a group (see numbers.go in package kernel), which rules name. Out: a [Packet] for each one that they report, with the
// prefix of the rule. A [Conn] belongs to the network namespace in which it was opened. While nobody has a group open, a
// report costs the kernel next to nothing.
package nflog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nlsock"
)

// Packet is what a rule reported.
type Packet struct {
	Prefix  string // of the rule
	In, Out int    // indexes of the interfaces; zero: none (yet)
	Mark    uint32 // of the packet
	Early   bool   // it was reported before it was routed
	Payload []byte // from its IP header on, as much as was asked for; valid until the next Receive
}

// Config sets what is copied, and when.
type Config struct {
	Group   uint16
	Snaplen uint32        // bytes of each packet; zero means 128, for headers
	Wait    time.Duration // how long the kernel may collect packets before it sends them; zero means 10ms
	Collect uint32        // and how many; zero means 64
}

// Conn is a socket for one group. It must be used by one goroutine; any may call Lost.
type Conn struct {
	sock *nlsock.Socket
	buf  []byte
	rest []byte // of the last datagram, not looked at yet
	lost atomic.Uint64
}

// Sizes of the socket: what one datagram may hold, and how much may wait for us.
const (
	readSize      = 256 << 10
	receiveBuffer = 4 << 20
)

// Messages and attributes of linux/netfilter/nfnetlink_log.h.
const (
	msgPacket = 0
	msgConfig = 1

	attrHeader     = 1 // whose third byte is the hook
	attrIfindexIn  = 4
	attrIfindexOut = 5
	attrPayload    = 9
	attrMark       = 2
	attrPrefix     = 10

	cfgCommand   = 1
	cfgMode      = 2
	cfgTimeout   = 4
	cfgThreshold = 5

	commandBind = 1
	copyPacket  = 2
)

// Open binds a group in the network namespace of the calling thread.
func Open(cfg Config) (*Conn, error) {
	if cfg.Snaplen == 0 {
		cfg.Snaplen = 128
	}
	if cfg.Wait == 0 {
		cfg.Wait = 10 * time.Millisecond
	}
	if cfg.Collect == 0 {
		cfg.Collect = 64
	}
	sock, err := nlsock.Open(receiveBuffer)
	if err != nil {
		return nil, fmt.Errorf("nflog: %w", err)
	}
	c := &Conn{sock: sock, buf: make([]byte, readSize)}
	if err := c.setUp(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("nflog group %d: %w", cfg.Group, err), sock.Close())
	}
	return c, nil
}

func (c *Conn) setUp(cfg Config) error {
	mode := append(binary.BigEndian.AppendUint32(nil, cfg.Snaplen), copyPacket, 0)
	for _, a := range [][]byte{
		attribute(cfgCommand, []byte{commandBind}),
		attribute(cfgMode, mode),
		attribute(cfgTimeout, binary.BigEndian.AppendUint32(nil, uint32(cfg.Wait/(10*time.Millisecond)))),
		attribute(cfgThreshold, binary.BigEndian.AppendUint32(nil, cfg.Collect)),
	} {
		if err := c.configure(cfg.Group, a); err != nil {
			return err
		}
	}
	return nil
}

// configure sends one setting of a group and waits for the kernel's answer. Packets may come before it; those are lost.
func (c *Conn) configure(group uint16, attr []byte) error {
	m := make([]byte, unix.SizeofNlMsghdr)
	m = append(m, unix.AF_UNSPEC, 0, byte(group>>8), byte(group))
	m = append(m, attr...)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], unix.NFNL_SUBSYS_ULOG<<8|msgConfig)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(c.sock.FD(), m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		n, _, err := unix.Recvfrom(c.sock.FD(), c.buf, 0)
		if err != nil {
			return err
		}
		typ, body, _, ok := next(c.buf[:n])
		if !ok || typ != unix.NLMSG_ERROR {
			continue
		}
		switch err := nlsock.Errno(body); {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return &kernel.UnsupportedError{Feature: "NFLOG", Err: err}
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EPERM): // EPERM: the group is bound by another socket
			return fmt.Errorf("another process reads this group, or this one lacks CAP_NET_ADMIN: %w", err)
		default:
			return err
		}
	}
}

func attribute(typ uint16, data []byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	a = append(binary.NativeEndian.AppendUint16(a, typ), data...)
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}

// Lost counts how often the kernel dropped reports since the socket's buffer was full.
func (c *Conn) Lost() uint64 { return c.lost.Load() }

// Receive returns the next packet. It waits for one until the deadline, and is false then.
func (c *Conn) Receive(deadline time.Time) (Packet, bool, error) {
	for {
		for len(c.rest) > 0 {
			typ, body, rest, ok := next(c.rest)
			if c.rest = rest; ok && typ == unix.NFNL_SUBSYS_ULOG<<8|msgPacket {
				return decode(body), true, nil
			}
		}
		n, err := c.read(deadline)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			c.lost.Add(1)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ETIMEDOUT):
			return Packet{}, false, nil
		case err != nil:
			return Packet{}, false, fmt.Errorf("nflog: %w", err)
		default:
			c.rest = c.buf[:n]
		}
	}
}

func (c *Conn) read(deadline time.Time) (int, error) {
	for {
		n, _, err := unix.Recvfrom(c.sock.FD(), c.buf, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		wait := time.Until(deadline)
		if wait <= 0 {
			return 0, unix.ETIMEDOUT
		}
		fds := []unix.PollFd{{Fd: int32(c.sock.FD()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int((wait+time.Millisecond-1)/time.Millisecond)); err != nil {
			return 0, err
		}
	}
}

// Close unbinds the group.
func (c *Conn) Close() error { return c.sock.Close() }

// next takes one message off b; false if b is cut off.
func next(b []byte) (typ uint16, body, rest []byte, ok bool) {
	if len(b) < unix.SizeofNlMsghdr {
		return 0, nil, nil, false
	}
	size := int(binary.NativeEndian.Uint32(b))
	if size < unix.SizeofNlMsghdr || size > len(b) {
		return 0, nil, nil, false
	}
	return binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size], b[min((size+3)&^3, len(b)):], true
}

// decode reads a packet's message, behind whose netfilter header are attributes.
func decode(b []byte) (p Packet) {
	for b = b[min(4, len(b)):]; len(b) >= 4; {
		size, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < 4 || size > len(b) {
			return p
		}
		v := b[4:size]
		switch {
		case typ == attrPrefix && len(v) > 0:
			p.Prefix = string(v[:len(v)-1])
		case typ == attrHeader && len(v) >= 3:
			p.Early = v[2] == unix.NF_INET_PRE_ROUTING
		case typ == attrMark && len(v) == 4:
			p.Mark = binary.BigEndian.Uint32(v)
		case typ == attrPayload:
			p.Payload = v
		case typ == attrIfindexIn && len(v) == 4:
			p.In = int(binary.BigEndian.Uint32(v))
		case typ == attrIfindexOut && len(v) == 4:
			p.Out = int(binary.BigEndian.Uint32(v))
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return p
}
