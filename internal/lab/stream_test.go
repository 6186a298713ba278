package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// stream is a flow of numbered packets or words, until stopped.
type stream struct {
	name     string
	allowed  bool
	end      chan struct{}
	sent     atomic.Uint64
	received atomic.Uint64
	wrong    atomic.Pointer[string] // what went wrong first
	done     chan struct{}          // closed when the receiver has ended
	finish   func()                 // ends the receiver
}

func (s *stream) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.wrong.CompareAndSwap(nil, &text)
}

func (w *Workload) addr(v6 bool) netip.Addr { return pick(v6, w.V4, w.V6) }

// between is the pause between packets: ten thousand in a second from twelve streams would measure queues, not policy.
const between = 2 * time.Millisecond

var nextPort uint16 = 20000

// startUDP sends numbered datagrams from a socket of a to one of b.
func startUDP(t *testing.T, l *Lab, a, b *Workload, v6, allowed bool) *stream {
	t.Helper()
	nextPort++
	to := netip.AddrPortFrom(b.addr(v6), nextPort)
	var rx, tx *net.UDPConn
	must(t, inside(l.Spec.workloadNS(*b), func() (err error) { rx, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to)); return err }))
	must(t, rx.SetReadBuffer(4<<20))
	must(t, inside(l.Spec.workloadNS(*a), func() (err error) {
		tx, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.addr(v6), nextPort)), net.UDPAddrFromAddrPort(to))
		return err
	}))
	s := &stream{name: fmt.Sprintf("udp %s -> %s v6=%v", a.Name, b.Name, v6), allowed: allowed, end: make(chan struct{}), done: make(chan struct{})}
	s.finish = func() { _ = rx.SetReadDeadline(time.Now().Add(time.Second)) }
	go func() { // receiver: counts, and wants each number once and in order
		defer close(s.done)
		defer rx.Close()
		buf := make([]byte, 16)
		for {
			n, err := rx.Read(buf)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					s.fail("receive: %v", err)
				}
				return
			}
			if got := binary.BigEndian.Uint64(buf[:n]); got != s.received.Load() && s.allowed {
				s.fail("datagram %d came where %d was due", got, s.received.Load())
			}
			s.received.Add(1)
		}
	}()
	go func() {
		defer tx.Close()
		tick := time.NewTicker(between)
		defer tick.Stop()
		for {
			select {
			case <-s.end:
				return
			case <-tick.C:
			}
			if _, err := tx.Write(binary.BigEndian.AppendUint64(nil, s.sent.Load())); err != nil && s.allowed {
				s.fail("send: %v", err)
			}
			s.sent.Add(1)
		}
	}()
	return s
}

// startTCP opens one connection from a to b and keeps numbered words flowing through it.
func startTCP(t *testing.T, l *Lab, a, b *Workload, v6 bool) *stream {
	t.Helper()
	nextPort++
	to := netip.AddrPortFrom(b.addr(v6), nextPort)
	var lis net.Listener
	must(t, inside(l.Spec.workloadNS(*b), func() (err error) { lis, err = net.Listen("tcp", to.String()); return err }))
	var tx net.Conn
	must(t, inside(l.Spec.workloadNS(*a), func() (err error) {
		tx, err = (&net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: a.addr(v6).AsSlice()}}).Dial("tcp", to.String())
		return err
	}))
	rx, err := lis.Accept()
	must(t, err)
	lis.Close()
	s := &stream{name: fmt.Sprintf("tcp %s -> %s v6=%v", a.Name, b.Name, v6), allowed: true, end: make(chan struct{}), done: make(chan struct{})}
	s.finish = func() {}
	go func() {
		defer close(s.done)
		defer rx.Close()
		var b [8]byte
		for {
			if _, err := io.ReadFull(rx, b[:]); err != nil {
				if !errors.Is(err, io.EOF) {
					s.fail("receive: %v", err)
				}
				return
			}
			if got := binary.BigEndian.Uint64(b[:]); got != s.received.Load() {
				s.fail("word %d came where %d was due", got, s.received.Load())
			}
			s.received.Add(1)
		}
	}()
	go func() {
		defer tx.Close()
		tick := time.NewTicker(between)
		defer tick.Stop()
		for {
			select {
			case <-s.end:
				return
			case <-tick.C:
			}
			if _, err := tx.Write(binary.BigEndian.AppendUint64(nil, s.sent.Load())); err != nil {
				s.fail("send: %v", err)
				return
			}
			s.sent.Add(1)
		}
	}()
	return s
}

// stop ends the stream and judges it.
func (s *stream) stop(t *testing.T) {
	t.Helper()
	close(s.end)
	s.finish()
	<-s.done
	sent, received := s.sent.Load(), s.received.Load()
	if why := s.wrong.Load(); why != nil {
		t.Errorf("%s: %s", s.name, *why)
	}
	switch {
	case sent < 100:
		t.Errorf("%s: only %d were sent; the test saw too little", s.name, sent)
	case s.allowed && received != sent:
		t.Errorf("%s: %d of %d lost", s.name, sent-received, sent)
	case !s.allowed && received != 0:
		t.Errorf("%s: %d of %d passed, want none", s.name, received, sent)
	}
	t.Logf("%s: sent %d, received %d", s.name, sent, received)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
