package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twillnet/twill/internal/kernel/nlsock"
)

// between is the pause between words: ten thousand in a second from twelve streams would measure queues, not policy.
const between = 2 * time.Millisecond

// enough is how many words of a stream must have been sent before it is judged.
const enough = 100

// numbered is a flow of numbered words, datagrams or eight bytes each of one
// connection, until closed: it tells loss, what comes twice, and what should not pass. Datagrams may overtake each other: a sender that goes from one
// processor to another leaves some behind in the queue of the first.
type numbered struct {
	name     string
	ordered  bool
	pace     time.Duration          // the pause between words
	sent     atomic.Uint64          // words sent: the next has this number
	received atomic.Uint64          // words received
	due      atomic.Uint64          // one more than the highest received
	wrong    atomic.Pointer[string] // the first of what went wrong
	lacks    gaps
	end      chan struct{} // closed: stop sending
	unsent   chan struct{} // closed when the sender has ended
	done     chan struct{} // closed when the receiver has ended
	rx, tx   net.Conn
}

// gaps are numbers below the highest received that have not come.
type gaps struct {
	mu  sync.Mutex
	all map[uint64]bool
}

// add notes that the numbers from one to before another are overtaken.
func (g *gaps) add(from, to uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := from; n < to; n++ {
		g.all[n] = true
	}
}

// fill notes that a number came after all, and reports whether it was missing.
func (g *gaps) fill(n uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.all[n]
	delete(g.all, n)
	return was
}

// err says what has not come; nil: all has.
func (g *gaps) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.all) == 0 {
		return nil
	}
	return fmt.Errorf("%d words were overtaken and have not come, the first of them %d", len(g.all), slices.Min(slices.Collect(maps.Keys(g.all))))
}

// forget forgives what has not come.
func (g *gaps) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.all)
}

func (s *numbered) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.wrong.CompareAndSwap(nil, &text)
}

func newNumbered(proto string, pace time.Duration, a, b end, v6 bool) *numbered {
	return &numbered{
		name: fmt.Sprintf("%s %s -> %s", proto, a.addr(v6), b.addr(v6)), ordered: proto == "tcp", pace: pace, lacks: gaps{all: map[uint64]bool{}},
		end: make(chan struct{}), unsent: make(chan struct{}), done: make(chan struct{}),
	}
}

// sendUDP sends numbered datagrams from a to b, at a pace.
func sendUDP(pace time.Duration, a, b end, port uint16, v6 bool) (*numbered, error) {
	s := newNumbered("udp", pace, a, b, v6)
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.addr(v6), port))
	err := inside(b.ns, func() error {
		rx, err := net.ListenUDP("udp", to)
		if err != nil {
			return err
		}
		s.rx = rx
		return keepWaiting(rx)
	})
	if err == nil {
		err = inside(a.ns, func() (err error) {
			s.tx, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.addr(v6), 0)), to)
			return err
		})
	}
	if err != nil {
		if s.rx != nil {
			_ = s.rx.Close()
		}
		return nil, err
	}
	go s.receive(func(b []byte) error {
		n, err := s.rx.Read(b)
		if err == nil && n != len(b) {
			err = fmt.Errorf("a datagram of %d bytes", n)
		}
		return err
	})
	go s.send(func(error) bool { return true }) // refused or unreachable: the receiver misses it
	return s, nil
}

// keepWaiting makes room for the words of some ten seconds, beyond the system's limit: a reader that a busy machine does not run for one loses none.
func keepWaiting(rx *net.UDPConn) error {
	raw, err := rx.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = nlsock.ReceiveBuffer(int(fd), 4<<20) })
	return errors.Join(err, set)
}

// sendTCP opens one connection from a to b and keeps numbered words flowing through it, at a pace.
func sendTCP(ctx context.Context, pace time.Duration, a, b end, port uint16, v6 bool) (*numbered, error) {
	s := newNumbered("tcp", pace, a, b, v6)
	to := netip.AddrPortFrom(b.addr(v6), port)
	var lis net.Listener
	err := inside(b.ns, func() (err error) {
		lis, err = (&net.ListenConfig{}).Listen(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer lis.Close()
	err = inside(a.ns, func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: a.addr(v6).AsSlice()}}
		s.tx, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.rx, err = lis.Accept(); err != nil {
		return nil, errors.Join(err, s.tx.Close())
	}
	go s.receive(func(b []byte) error { _, err := io.ReadFull(s.rx, b); return err })
	go s.send(func(err error) bool {
		if err != nil {
			s.fail("send: %v", err)
		}
		return err == nil
	})
	return s, nil
}

// send writes a word at each tick; goesOn says whether an error is the end.
func (s *numbered) send(goesOn func(error) bool) {
	defer close(s.unsent)
	tick := time.NewTicker(s.pace)
	defer tick.Stop()
	for {
		select {
		case <-s.end:
			return
		case <-tick.C:
		}
		_, err := s.tx.Write(binary.BigEndian.AppendUint64(nil, s.sent.Load()))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // by stopSending: this word was never sent
		}
		s.sent.Add(1)
		if !goesOn(err) {
			return
		}
	}
}

// receive counts, and wants each number once, and in order if they are of a connection.
func (s *numbered) receive(read func([]byte) error) {
	defer close(s.done)
	var b [8]byte
	for {
		if err := read(b[:]); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.fail("receive: %v", err)
			}
			return
		}
		got := binary.BigEndian.Uint64(b[:])
		switch due := s.due.Load(); {
		case got == due:
		case s.ordered:
			s.fail("word %d came where %d was due", got, due)
		case got > due:
			s.lacks.add(due, got)
		case !s.lacks.fill(got):
			s.fail("word %d came again", got)
		}
		s.due.Store(max(s.due.Load(), got+1))
		s.received.Add(1)
	}
}

// stopSending ends the sender; what is on its way arrives until close.
func (s *numbered) stopSending() {
	close(s.end)
	_ = s.tx.SetWriteDeadline(time.Now()) // a connection that is cut holds Write
	<-s.unsent
}

// close ends the stream after stopSending.
func (s *numbered) close() {
	_ = s.tx.Close()
	_ = s.rx.Close()
	<-s.done
}
