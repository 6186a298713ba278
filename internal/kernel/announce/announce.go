// Package announce sees how a virtual machine says that it has come to a host: by a gratuitous ARP packet (RFC 5227), or by a request of RARP
// (RFC 903), which the hypervisor sends in its name.
//
// In: an interface, and the hardware address of the machine. Out: what the machine announces there; the kernel passes over what other hardware
// addresses send, and what is sent to the machine. Sockets belong to the network namespace of the thread that opened them. They need root.
package announce

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MAC is a hardware address.
type MAC [6]byte

// ParseMAC reads one.
func ParseMAC(text string) (MAC, error) {
	hw, err := net.ParseMAC(text)
	if err != nil {
		return MAC{}, err
	}
	if len(hw) != len(MAC{}) {
		return MAC{}, fmt.Errorf("hardware address %s: want six bytes", text)
	}
	return MAC(hw), nil
}

// Announcement is one. Both tell who sent it.
type Announcement struct {
	MAC  MAC
	Addr netip.Addr // of ARP: the address that is announced; not valid: it was RARP, which announces the hardware address alone
}

// A machine announces itself a few times. One that sends more than this many packets of ARP within a period is received again after it.
const (
	most   = 64
	period = time.Second
)

// Socket is one on a link. One goroutine may receive; any may close it.
type Socket struct {
	link int
	file *os.File
	raw  syscall.RawConn
	done chan struct{}

	closing sync.Once
	// Packets that were looked at since.
	looked int
	since  time.Time
}

// Open opens a socket on the link of an index, for what a machine with this hardware address sends.
func Open(link int, of MAC) (*Socket, error) {
	s, err := open(link, of)
	if err != nil {
		return nil, fmt.Errorf("listen for a machine on link %d: %w", link, err)
	}
	return s, nil
}

func open(link int, of MAC) (*Socket, error) {
	// Of no protocol until it has the filter, so that nothing else is in its queue.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &Socket{link: link, file: os.NewFile(uintptr(fd), "packet"), done: make(chan struct{})}
	filter := filterOf(of)
	err = os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
	if err == nil { // a flood must not fill the host's memory
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10))
	}
	if err == nil {
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link, Protocol: all}))
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		_ = s.file.Close()
		return nil, err
	}
	return s, nil
}

const (
	header  = 14 // of Ethernet
	size    = 28 // of ARP and RARP over Ethernet with addresses of IPv4
	reverse = 3  // the operation of a request of RARP
)

// filterOf lets ARP and RARP through that a hardware address sent, and that came in by the link.
func filterOf(of MAC) []unix.SockFilter {
	const packetType = 1<<32 - 0x1000 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE of linux/filter.h
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12}, // EtherType
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_ARP, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_RARP, Jf: 7},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 6}, // source
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(of[:]), Jf: 5},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 10},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(of[4:])), Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: packetType},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OUTGOING, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

// Close closes the socket, and ends Next with os.ErrClosed.
func (s *Socket) Close() error {
	s.closing.Do(func() { close(s.done) })
	return s.file.Close()
}

// Next waits for an announcement. An interface that goes down ends it with an error.
func (s *Socket) Next() (Announcement, error) {
	buf := make([]byte, header+size)
	for {
		var n int
		var fault error
		err := s.raw.Read(func(fd uintptr) bool {
			n, _, fault = unix.Recvfrom(int(fd), buf, 0)
			return fault != unix.EAGAIN && fault != unix.EINTR
		})
		if err == nil {
			err = os.NewSyscallError("recvfrom", fault)
		}
		if err == nil {
			err = s.budget()
		}
		select {
		case <-s.done:
			err = os.ErrClosed
		default:
		}
		if err != nil {
			return Announcement{}, fmt.Errorf("listen for a machine on link %d: %w", s.link, err)
		}
		if a, ok := Parse(buf[:n]); ok {
			return a, nil
		}
	}
}

// budget waits after too many packets.
func (s *Socket) budget() error {
	if time.Since(s.since) >= period {
		s.looked, s.since = 0, time.Now()
	}
	if s.looked++; s.looked <= most {
		return nil
	}
	rest := time.NewTimer(period - time.Since(s.since))
	defer rest.Stop()
	select {
	case <-rest.C:
		return nil
	case <-s.done:
		return os.ErrClosed
	}
}

// Parse reads a frame; false: it announces nothing. An announcement of ARP is a request or a reply whose sender and target have one address; of
// RARP, a request about the sender's own hardware address. In both the sender is who sent the frame.
func Parse(frame []byte) (a Announcement, ok bool) {
	if len(frame) < header+size {
		return a, false
	}
	p := frame[header:]
	if binary.BigEndian.Uint16(p) != 1 || binary.BigEndian.Uint16(p[2:]) != unix.ETH_P_IP || p[4] != 6 || p[5] != 4 {
		return a, false
	}
	sender, from, target, to := MAC(p[8:14]), [4]byte(p[14:18]), MAC(p[18:24]), [4]byte(p[24:28])
	if a.MAC = MAC(frame[6:12]); a.MAC != sender || a.MAC == (MAC{}) {
		return Announcement{}, false
	}
	switch op := binary.BigEndian.Uint16(p[6:]); binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_ARP:
		a.Addr = netip.AddrFrom4(from)
		ok = (op == 1 || op == 2) && from == to && !a.Addr.IsUnspecified()
	case unix.ETH_P_RARP:
		ok = op == reverse && sender == target
	}
	if !ok {
		return Announcement{}, false
	}
	return a, true
}

// Frame is how a machine announces an address of IPv4 by ARP, or, if it is not valid, itself by RARP.
func (a Announcement) Frame() []byte {
	kind, op, addr := uint16(unix.ETH_P_RARP), uint16(reverse), [4]byte{}
	if a.Addr.IsValid() {
		kind, op, addr = unix.ETH_P_ARP, 1, a.Addr.As4()
	}
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, a.MAC[:]...)
	for _, n := range []uint16{kind, 1, unix.ETH_P_IP, 6<<8 | 4, op} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	b = append(append(b, a.MAC[:]...), addr[:]...)
	target := a.MAC
	if kind == unix.ETH_P_ARP {
		target = MAC{}
	}
	return append(append(b, target[:]...), addr[:]...)
}
