package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"

	"github.com/twillnet/twill/internal/kernel/packet"
)

// patience is for what must happen; nothing waits for it unless a test fails.
const patience = 2 * time.Minute

const protoTCP, protoUDP, protoSCTP = 6, 17, 132

var protocols = map[string]uint8{"TCP": protoTCP, "UDP": protoUDP, "SCTP": protoSCTP}

// cell is one question of cyclonus, asked of the kernel.
type cell struct {
	job      *probe.Job
	from, to *pod
	fd       int // -1: none
	passed   bool
	dropped  bool
}

// tuple is how a cell's packets look on any link.
type tuple struct {
	src, dst     netip.Addr
	proto        uint8
	sport, dport uint16
}

func tupleOf(p packet.Packet) tuple { return tuple{p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort} }

func cut(key string) (namespace, name string, ok bool) { return strings.Cut(key, "/") }

// connect opens a connection for each cell, and waits until each has come through or a host has reported that it dropped it.
// Both at once would be a drop that is none.
func (c *cluster) connect(family int, cells []*cell) {
	c.t.Helper()
	pending := map[tuple]*cell{}
	byFD := map[int]*cell{}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	must(c.t, err)
	defer unix.Close(epoll)
	for _, x := range cells {
		at := tuple{x.from.addrs[family], x.to.addrs[family], protocols[string(x.job.Protocol)], x.from.next, uint16(x.job.ResolvedPort)}
		x.from.next++
		x.fd = -1
		pending[at] = x
		if at.proto == protoSCTP {
			must(c.t, x.from.raw.Send(packet.Packet{Src: at.src, Dst: at.dst, Proto: at.proto, SrcPort: at.sport, DstPort: at.dport}))
			continue
		}
		x.from.Do(func() { x.fd, err = dial(at) })
		must(c.t, err)
		byFD[x.fd] = x
		events := uint32(unix.EPOLLIN)
		if at.proto == protoTCP {
			events = unix.EPOLLOUT
		}
		must(c.t, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, x.fd, &unix.EpollEvent{Events: events, Fd: int32(x.fd)}))
	}
	w := waiting{c, pending, byFD, epoll}
	for deadline := time.Now().Add(patience); w.undecided() > 0 && time.Now().Before(deadline); {
		w.round(time.Millisecond)
	}
	w.round(0) // what was dropped, and came nevertheless
	for _, x := range cells {
		if x.fd >= 0 {
			unix.Close(x.fd)
		}
	}
}

// dial begins a connection in the namespace of the calling thread.
func dial(at tuple) (fd int, err error) {
	domain, typ := unix.AF_INET, unix.SOCK_STREAM
	if at.src.Is6() {
		domain = unix.AF_INET6
	}
	if at.proto == protoUDP {
		typ = unix.SOCK_DGRAM
	}
	fd, err = unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if at.proto == protoTCP { // closing ends the connection at once
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(at.src, at.sport))
	}
	if err == nil {
		err = unix.Connect(fd, sockaddr(at.dst, at.dport))
	}
	if errors.Is(err, unix.EINPROGRESS) {
		err = nil
	}
	if err == nil && at.proto == protoUDP {
		_, err = unix.Write(fd, []byte("twill"))
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("%+v: %w", at, err), unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}

type waiting struct {
	*cluster
	cells map[tuple]*cell
	byFD  map[int]*cell
	epoll int
}

func (w waiting) undecided() (n int) {
	for _, x := range w.cells {
		if !x.passed && !x.dropped {
			n++
		}
	}
	return n
}

// round takes what has happened, and waits so long if nothing has.
func (w waiting) round(wait time.Duration) {
	w.t.Helper()
	for _, h := range w.hosts {
		for {
			p, ok, err := h.drops.Receive(time.Now())
			must(w.t, err)
			if !ok {
				break
			}
			if seen, ip := packet.ParseIP(p.Payload); ip && w.cells[tupleOf(seen)] != nil {
				w.cells[tupleOf(seen)].dropped = true
			}
		}
		if h.drops.Lost() > 0 {
			w.t.Fatal("reports of drops were lost")
		}
	}
	for _, p := range w.pods {
		for {
			seen, ok, err := p.wire.Receive(time.Now())
			must(w.t, err)
			if !ok {
				break
			}
			x := w.cells[tupleOf(seen.Packet)]
			if seen.Proto == protoSCTP && x != nil && x.to == p {
				x.passed = true
			}
		}
	}
	events := make([]unix.EpollEvent, 1000)
	n, err := unix.EpollWait(w.epoll, events, int(wait.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return
	}
	must(w.t, err)
	for _, e := range events[:n] {
		w.came(int(e.Fd))
	}
}

func (w waiting) came(fd int) {
	w.t.Helper()
	x := w.byFD[fd]
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	must(w.t, err)
	if code != 0 {
		w.t.Errorf("%s: %v", x, unix.Errno(code))
	}
	x.passed = true
	must(w.t, unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil))
}

func (x *cell) String() string {
	return fmt.Sprintf("%s → %s %s/%d", x.job.FromKey, x.job.ToKey, x.job.Protocol, x.job.ResolvedPort)
}

// fate is what became of the cell's packets.
func (x *cell) fate(t *testing.T) (allowed bool) {
	t.Helper()
	if x.passed == x.dropped {
		t.Errorf("%s: came through: %v, reported as dropped: %v", x, x.passed, x.dropped)
	}
	return x.passed
}
