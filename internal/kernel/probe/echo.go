// Package probe probes other hosts: whether a packet of a size reaches them, and whether another host has an address.
//
// In: addresses and links. Out: what was answered in time. Probes go out of the network namespace of the calling thread,
// see netns; they need root.
package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/checksum"
)

// ErrNoReply: nothing came back in time.
var ErrNoReply = errors.New("no answer")

// ErrTooLarge: this host, or a router on the path by ICMP, does not forward packets of that size.
var ErrTooLarge = errors.New("larger than the way takes")

const (
	echo4, echoReply4 = 8, 0
	echo6, echoReply6 = 128, 129
	icmpHeader        = 8
	ip4Header         = 20
	ip6Header         = 40
)

var sequence atomic.Uint32

// Echo sends an ICMP echo request that makes an IP packet of size bytes and must not be cut in pieces, and waits for the
// answer, which is as large. What the host remembers of the way's MTU is passed over. The packet has a mark: with that of encrypted packets it
// is not led into the device which encrypts, see [rtnl.Handle.EncryptedMark].
func Echo(dst netip.Addr, size int, mark uint32, within time.Duration) error {
	fd, err := openEcho(dst, mark)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	seq := sequence.Add(1)
	msg := echoMessage(dst, size, seq)
	deadline := time.Now().Add(within)
	switch err := unix.Send(fd, msg, 0); {
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("%d bytes to %s: %w", size, dst, ErrTooLarge)
	case err != nil:
		return fmt.Errorf("echo to %s: %w", dst, os.NewSyscallError("send", err))
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := receive(fd, buf, deadline)
		if err != nil {
			return fmt.Errorf("%d bytes to %s: %w", size, dst, err)
		}
		if isReply(buf[:n], dst.Is4(), msg) {
			return nil
		}
	}
}

func openEcho(dst netip.Addr, mark uint32) (int, error) {
	family, proto := unix.AF_INET6, unix.IPPROTO_ICMPV6
	var at unix.Sockaddr = &unix.SockaddrInet6{Addr: dst.As16()}
	level, option, probe := unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	if dst.Is4() {
		family, proto, at = unix.AF_INET, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: dst.As4()}
		level, option, probe = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return 0, os.NewSyscallError("raw socket", err)
	}
	err = unix.SetsockoptInt(fd, level, option, probe)
	if err == nil && !dst.Is4() {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}
	if err == nil {
		err = unix.Connect(fd, at)
	}
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("echo to %s: %w", dst, err)
	}
	return fd, nil
}

// echoMessage is an ICMP message; of IPv6 the kernel fills the checksum in.
func echoMessage(dst netip.Addr, size int, seq uint32) []byte {
	header, kind := ip6Header, byte(echo6)
	if dst.Is4() {
		header, kind = ip4Header, echo4
	}
	m := make([]byte, max(size-header, icmpHeader))
	m[0] = kind
	binary.BigEndian.PutUint16(m[4:], uint16(os.Getpid()))
	binary.BigEndian.PutUint16(m[6:], uint16(seq))
	if dst.Is4() {
		binary.BigEndian.PutUint16(m[2:], checksum.Internet(0, m))
	}
	return m
}

// isReply reports whether what came is the answer to a message, whole.
func isReply(b []byte, four bool, asked []byte) bool {
	want := byte(echoReply6)
	if four { // raw sockets of IPv4 show the IP header too
		if len(b) < ip4Header {
			return false
		}
		b, want = b[min(int(b[0]&0xf)*4, len(b)):], echoReply4
	}
	return len(b) == len(asked) && b[0] == want && string(b[4:8]) == string(asked[4:8])
}

// receive waits for a message, at most until the deadline.
func receive(fd int, buf []byte, deadline time.Time) (int, error) {
	n, _, err := receiveFrom(fd, buf, deadline)
	return n, err
}

// receiveFrom also says which address sent it; the zero value: the socket is not of IP.
func receiveFrom(fd int, buf []byte, deadline time.Time) (int, netip.Addr, error) {
	for {
		n, at, err := unix.Recvfrom(fd, buf, 0)
		if err == nil {
			return n, addressOf(at), nil
		}
		if errors.Is(err, unix.EMSGSIZE) {
			return 0, netip.Addr{}, ErrTooLarge
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return 0, netip.Addr{}, os.NewSyscallError("receive", err)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, netip.Addr{}, ErrNoReply
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, netip.Addr{}, os.NewSyscallError("poll", err)
		}
	}
}

func addressOf(at unix.Sockaddr) netip.Addr {
	switch s := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(s.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(s.Addr)
	}
	return netip.Addr{}
}
