package packet

import (
	"fmt"
	"hash/crc32"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Socket sends and receives on all links of the network namespace in which it was opened.
type Socket struct{ fd int }

// Seen is a packet that arrived.
type Seen struct {
	Packet
	Link   int    // index of the link
	Quoted Packet // what an ICMP error is about; the zero value: this is none
}

// Open opens a socket in the calling thread's network namespace.
func Open() (*Socket, error) {
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("packet socket buffer", err)
	}
	return &Socket{fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Send puts a frame on a link.
func (s *Socket) Send(link int, frame []byte) error {
	if err := unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link}); err != nil {
		return fmt.Errorf("send on link %d: %w", link, err)
	}
	return nil
}

// Receive returns the next IP packet that arrived (not what was sent here); false when the time is up.
func (s *Socket) Receive(deadline time.Time) (Seen, bool, error) {
	buf := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			left := time.Until(deadline)
			if left <= 0 {
				return Seen{}, false, nil
			}
			fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, int(left/time.Millisecond)+1); err != nil && err != unix.EINTR {
				return Seen{}, false, os.NewSyscallError("poll", err)
			}
			continue
		case err != nil:
			return Seen{}, false, os.NewSyscallError("receive", err)
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		if !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if p, ok := Parse(buf[:n]); ok {
			s := Seen{Packet: p, Link: ll.Ifindex}
			s.Quoted, _ = Quoted(buf[14:n])
			return s, true, nil
		}
	}
}

// Host sends packets as a process of the host does whose network namespace it was opened in.
type Host struct{ v4, v6 int }

// OpenHost opens sockets in the calling thread's network namespace.
func OpenHost() (h *Host, err error) {
	h = &Host{v4: -1, v6: -1}
	if h.v4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err == nil {
		h.v6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	}
	if err != nil {
		h.Close()
		return nil, os.NewSyscallError("raw socket", err)
	}
	return h, nil
}

// Close closes the sockets.
func (h *Host) Close() {
	for _, fd := range []int{h.v4, h.v6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Send sends a packet; a rule that drops it is no error.
func (h *Host) Send(p Packet) error {
	ip := p.Frame(MAC{}, MAC{})[14:]
	var err error
	if p.Dst.Is4() {
		err = unix.Sendto(h.v4, ip, 0, &unix.SockaddrInet4{Addr: p.Dst.As4()})
	} else {
		err = unix.Sendto(h.v6, ip, 0, &unix.SockaddrInet6{Addr: p.Dst.As16()})
	}
	if err != nil && err != unix.EPERM { // the kernel's error for what an output rule drops
		return fmt.Errorf("send to %s: %w", p.Dst, err)
	}
	return nil
}
