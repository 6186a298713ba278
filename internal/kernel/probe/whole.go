package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const udpHeader = 8

// Whole sends UDP, to who sends back what comes, in an IP packet as large as the interface takes, that nobody may cut in pieces, and wants all of it back. It needs
// no rights. The size is the packet's; without an answer the error is [ErrNoReply], and the size what was sent.
func Whole(ctx context.Context, to netip.AddrPort) (size int, err error) {
	c, err := new(net.Dialer).DialContext(ctx, "udp", to.String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if size, err = uncut(c.(*net.UDPConn), to.Addr().Is4()); err != nil {
		return 0, err
	}
	header := ip6Header + udpHeader
	if to.Addr().Is4() {
		header = ip4Header + udpHeader
	}
	sent := make([]byte, max(size-header, 1))
	_, _ = rand.Read(sent) // never fails
	if end, is := ctx.Deadline(); is {
		_ = c.SetDeadline(end) // of an open socket
	}
	if _, err := c.Write(sent); err != nil {
		return size, fmt.Errorf("%d bytes to %s: %w", size, to.Addr(), err)
	}
	b := make([]byte, len(sent)+1)
	for {
		n, err := c.Read(b)
		if err != nil {
			return size, fmt.Errorf("%d bytes to %s: %w", size, to.Addr(), ErrNoReply)
		}
		if bytes.Equal(b[:n], sent) {
			return size, nil
		}
	}
}

// uncut has a connected socket send packets whole, whatever is known of the way, and returns how large the interface by which they leave lets them be.
func uncut(c *net.UDPConn, v4 bool) (mtu int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	level, option, probe := unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	if v4 {
		level, option, probe = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	}
	if controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, probe) }); controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, os.NewSyscallError("setsockopt MTU_DISCOVER", err)
	}
	from := c.LocalAddr().(*net.UDPAddr).IP
	links, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(addrs, func(a net.Addr) bool { n, is := a.(*net.IPNet); return is && n.IP.Equal(from) }) {
			return min(l.MTU, 1<<16-1), nil
		}
	}
	return 0, fmt.Errorf("no interface has the address %s", from)
}
