// Package nlsock opens netlink sockets to netfilter, and reads the status with which the kernel ends an answer.
//
// In: how much room answers need. Out: a [Socket] in the network namespace of the calling thread. What is said through
// it is its owner's, and so is that only one goroutine speaks at a time.
package nlsock

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Socket is a descriptor that is closed once: its number may be another file's afterwards.
type Socket struct{ fd int }

// Open opens and binds a socket with so many bytes of room for answers, which do not repeat the question.
func Open(receive int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = ReceiveBuffer(fd, receive)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up netlink socket: %w", err), unix.Close(fd))
	}
	return &Socket{fd}, nil
}

// FD is the descriptor, -1 once it is closed.
func (s *Socket) FD() int { return s.fd }

// Close closes the socket; a second time does nothing.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// ReceiveBuffer makes room for n bytes of answers.
func ReceiveBuffer(fd, n int) error { return force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, n) }

// SendBuffer makes room for questions of n bytes.
func SendBuffer(fd, n int) error { return force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, n) }

// force goes beyond the system's limit if it may, and to the limit if not.
func force(fd, forced, plain, n int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, n); err == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, n)
}

// Errno reads the status with which errors and dumps end: zero is none.
func Errno(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if e := int32(binary.NativeEndian.Uint32(body)); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}
