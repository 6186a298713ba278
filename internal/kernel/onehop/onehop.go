// Package onehop exchanges UDP datagrams with neighbours, and discards those from farther away by their TTL (RFC 5082).
//
// In: datagrams for a neighbour. They leave by its link and by no other, with the greatest TTL and before other traffic.
// Out: datagrams that arrived with the greatest TTL, which no router has touched (RFC 5082), each with the link and the
// address that it came from. Sockets belong to the namespace of the thread that opened them.
package onehop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxTTL = 255
	// networkControl is the traffic class of routing protocols, CS6.
	networkControl = 0xc0
	// Source ports, of RFC 5881, 4.
	firstPort, lastPort = 49152, 65535
	portTries           = 64
	receiveBuffer       = 4 << 20
	datagram            = 512 // longer ones are cut off
)

// From is the source of a datagram.
type From struct {
	Addr netip.Addr
	Link int // the link's index
}

// Receiver receives what neighbours send to one port. It must be used by one goroutine; any may Wake it.
//
// It waits in Go's poller and not in a system call: each call that blocks wakes the runtime's monitor, which then looks
// around for a millisecond and costs ten times what the packet does.
type Receiver struct {
	file    *os.File
	raw     syscall.RawConn
	wakeFD  chan struct{}
	timer   *time.Timer
	buf     [datagram]byte
	control [256]byte
	length  int // of a datagram that Wait found, and Receive has not returned; else -1
	from    From
	badTTL  atomic.Uint64

	mu    sync.Mutex // guards woken, together with the deadline
	woken bool
}

// BadTTL is how many datagrams came from farther away.
func (r *Receiver) BadTTL() uint64 { return r.badTTL.Load() }

// Listen receives both families, or IPv4 alone where the kernel has no IPv6.
func Listen(port uint16) (*Receiver, error) {
	fd, err := listen6(port)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		fd, err = listen4(port)
	}
	return receiver(fd, port, err)
}

func receiver(fd int, port uint16, err error) (*Receiver, error) {
	if err != nil {
		return nil, fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
	r := &Receiver{file: os.NewFile(uintptr(fd), "udp"), wakeFD: make(chan struct{}, 1), timer: time.NewTimer(0), length: -1}
	if r.raw, err = r.file.SyscallConn(); err != nil {
		_ = r.file.Close()
		return nil, fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
	return r, nil
}

// option is one of a socket's.
type option struct{ level, name, value int }

func open(family int, options []option, at unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = unix.Close(fd)
			return -1, os.NewSyscallError("setsockopt", err)
		}
	}
	if at == nil {
		return fd, nil
	}
	if err := unix.Bind(fd, at); err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

func listen6(port uint16) (int, error) {
	return open(unix.AF_INET6, []option{
		{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0},
		{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1},
		{unix.SOL_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
		{unix.SOL_IP, unix.IP_RECVTTL, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer},
	}, &unix.SockaddrInet6{Port: int(port)})
}

func listen4(port uint16) (int, error) {
	return open(unix.AF_INET, []option{
		{unix.SOL_IP, unix.IP_PKTINFO, 1}, {unix.SOL_IP, unix.IP_RECVTTL, 1}, {unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer},
	}, &unix.SockaddrInet4{Port: int(port)})
}

// Close closes the socket.
func (r *Receiver) Close() error { return r.file.Close() }

// Wake ends a Wait or Rest, this or the next.
func (r *Receiver) Wake() {
	r.mu.Lock()
	r.woken = true
	_ = r.file.SetReadDeadline(time.Unix(1, 0)) // an error means that it is closed
	r.mu.Unlock()
	select {
	case r.wakeFD <- struct{}{}:
	default:
	}
}

// Wait returns when there is a datagram, after Wake, or when the time is over.
func (r *Receiver) Wait(most time.Duration) error {
	r.mu.Lock()
	if r.woken || r.length >= 0 {
		r.woken = false
		r.mu.Unlock()
		return nil
	}
	err := r.file.SetReadDeadline(time.Now().Add(max(most, 0)))
	r.mu.Unlock()
	if err == nil {
		err = r.raw.Read(func(fd uintptr) bool { return !r.next(int(fd)) })
	}
	r.mu.Lock()
	r.woken = false
	r.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for datagrams: %w", err)
	}
	return nil
}

// Pause returns when the time is over, or after Wake. Datagrams that come meanwhile are there after it.
func (r *Receiver) Pause(d time.Duration) {
	r.timer.Reset(d)
	select {
	case <-r.timer.C:
	case <-r.wakeFD:
	}
}

// Receive returns a datagram that has arrived, valid until the next call; false if there is none.
func (r *Receiver) Receive() ([]byte, From, bool) {
	if r.length < 0 {
		_ = r.raw.Control(func(fd uintptr) { r.next(int(fd)) }) // it is closed: nothing comes
	}
	if r.length < 0 {
		return nil, From{}, false
	}
	n := r.length
	r.length = -1
	return r.buf[:n], r.from, true
}

// next receives a datagram from one hop away. It reports whether there was none and the caller must wait.
func (r *Receiver) next(fd int) (none bool) {
	for {
		n, cn, _, from, err := unix.Recvmsg(fd, r.buf[:], r.control[:], 0)
		switch {
		case err == unix.EAGAIN:
			return true
		case err == unix.EINTR:
			continue
		case err != nil: // a pending ICMP error of an earlier datagram, cleared by reading it
			return false
		}
		link, ttl := arrival(r.control[:cn])
		if ttl != maxTTL {
			r.badTTL.Add(1)
			continue
		}
		r.length, r.from = n, From{addrOf(from), link}
		return false
	}
}

func addrOf(s unix.Sockaddr) netip.Addr {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(s.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(s.Addr).Unmap()
	}
	return netip.Addr{}
}

// arrival reads link and TTL from control messages; both families' mean the same on a socket of both.
func arrival(b []byte) (link, ttl int) {
	for len(b) >= unix.CmsgLen(0) {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			break
		}
		b = rest
		switch {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_TTL && len(data) >= 4,
			h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_HOPLIMIT && len(data) >= 4:
			ttl = int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.SOL_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			link = int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			link = int(binary.NativeEndian.Uint32(data[16:]))
		}
	}
	return link, ttl
}

// Sender sends to one neighbour, always from the same port.
type Sender struct {
	fd int
	to unix.Sockaddr
}

// Dial makes a sender. Without a source address the kernel chooses one.
func Dial(link int, source netip.Addr, to netip.AddrPort) (*Sender, error) {
	var err error
	for range portTries {
		var s *Sender
		if s, err = dial(link, netip.AddrPortFrom(source, uint16(firstPort+rand.IntN(lastPort-firstPort+1))), to); err == nil {
			return s, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("send from %s to %s: %w", source, to, err)
}

func dial(link int, from, to netip.AddrPort) (*Sender, error) {
	family, options := unix.AF_INET6, []option{
		{unix.SOL_IPV6, unix.IPV6_V6ONLY, 1}, {unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, maxTTL}, {unix.SOL_IPV6, unix.IPV6_TCLASS, networkControl},
	}
	var at, dst unix.Sockaddr
	if to.Addr().Is4() {
		family, options = unix.AF_INET, []option{{unix.SOL_IP, unix.IP_TTL, maxTTL}, {unix.SOL_IP, unix.IP_TOS, networkControl}}
		a := &unix.SockaddrInet4{Port: int(from.Port())}
		if from.Addr().IsValid() {
			a.Addr = from.Addr().As4()
		}
		at, dst = a, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		a := &unix.SockaddrInet6{Port: int(from.Port())}
		if from.Addr().IsValid() {
			a.Addr = from.Addr().As16()
		}
		at, dst = a, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
		if to.Addr().IsLinkLocalUnicast() {
			dst.(*unix.SockaddrInet6).ZoneId = uint32(link)
		}
	}
	options = append(options, option{unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, link})
	fd, err := open(family, options, at)
	if err != nil {
		return nil, err
	}
	return &Sender{fd, dst}, nil
}

// Send sends a datagram.
func (s *Sender) Send(b []byte) error {
	return os.NewSyscallError("sendto", unix.Sendto(s.fd, b, unix.MSG_DONTWAIT, s.to))
}

// Close closes the socket.
func (s *Sender) Close() error { return unix.Close(s.fd) }
