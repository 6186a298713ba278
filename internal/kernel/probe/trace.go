package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Hop is who answered to a packet on its way.
type Hop struct {
	From netip.Addr
	What Answer
}

// Answer is what came back.
type Answer uint8

// Answers.
const (
	Arrived  Answer = iota + 1 // it reached its destination, and its answer came back whole
	Passed                     // it came as far as From, whose hop was its last
	TooLarge                   // From did not send it on, since the next link takes less
)

// Trace sends an echo request as [Echo] does, that goes over so many hops at most, and says who answered: [ErrNoReply] if nobody
// did, [ErrTooLarge] if it is too large for this host's own link.
func Trace(dst netip.Addr, size, hops int, mark uint32, within time.Duration) (Hop, error) {
	fd, err := openTrace(dst, hops, mark)
	if err != nil {
		return Hop{}, err
	}
	defer unix.Close(fd)
	msg := echoMessage(dst, size, sequence.Add(1))
	var at unix.Sockaddr = &unix.SockaddrInet6{Addr: dst.As16()}
	if dst.Is4() {
		at = &unix.SockaddrInet4{Addr: dst.As4()}
	}
	deadline := time.Now().Add(within)
	switch err := unix.Sendto(fd, msg, 0, at); {
	case errors.Is(err, unix.EMSGSIZE):
		return Hop{}, fmt.Errorf("%d bytes to %s: %w", size, dst, ErrTooLarge)
	case err != nil:
		return Hop{}, fmt.Errorf("echo to %s: %w", dst, os.NewSyscallError("send", err))
	}
	buf := make([]byte, 1<<16)
	for {
		n, from, err := receiveFrom(fd, buf, deadline)
		if err != nil {
			return Hop{}, fmt.Errorf("%d bytes to %s over %d hops: %w", size, dst, hops, err)
		}
		if from == dst && isReply(buf[:n], dst.Is4(), msg) {
			return Hop{from, Arrived}, nil
		}
		if what := about(buf[:n], dst.Is4(), msg); what != 0 {
			return Hop{from, what}, nil
		}
	}
}

// openTrace opens a socket that hears of everybody, and not of the destination alone.
func openTrace(dst netip.Addr, hops int, mark uint32) (int, error) {
	family, proto, level := unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.IPPROTO_IPV6
	options := [][2]int{{unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE}, {unix.IPV6_DONTFRAG, 1}, {unix.IPV6_UNICAST_HOPS, hops}}
	if dst.Is4() {
		family, proto, level = unix.AF_INET, unix.IPPROTO_ICMP, unix.IPPROTO_IP
		options = [][2]int{{unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE}, {unix.IP_TTL, hops}}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return 0, os.NewSyscallError("raw socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("echo to %s: %w", dst, err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, level, o[0], o[1]); err != nil {
			unix.Close(fd)
			return 0, fmt.Errorf("echo to %s: %w", dst, err)
		}
	}
	return fd, nil
}

// about says what an error of ICMP says about a message: zero if it is about another (RFC 792, RFC 4443).
func about(b []byte, four bool, sent []byte) Answer {
	const unreachable4, needsFragments, exceeded4, tooBig6, exceeded6 = 3, 4, 11, 2, 3
	inner := ip6Header
	if four {
		if len(b) < ip4Header {
			return 0
		}
		b = b[min(int(b[0]&0xf)*4, len(b)):]
		if len(b) < icmpHeader+ip4Header {
			return 0
		}
		inner = int(b[icmpHeader]&0xf) * 4
	}
	if len(b) < icmpHeader+inner+icmpHeader {
		return 0
	}
	if of := b[icmpHeader+inner:]; of[0] != sent[0] || binary.BigEndian.Uint32(of[4:]) != binary.BigEndian.Uint32(sent[4:]) {
		return 0
	}
	switch {
	case four && b[0] == unreachable4 && b[1] == needsFragments, !four && b[0] == tooBig6:
		return TooLarge
	case four && b[0] == exceeded4, !four && b[0] == exceeded6:
		return Passed
	}
	return 0
}
