package chaostest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// What policy says of a flow.
const (
	steady  = "steady"  // always allowed
	toggled = "toggled" // allowed and denied in turn, by one policy
	denied  = "denied"  // never allowed
)

const (
	wordEvery    = 20 * time.Millisecond  // pause between words: so many flows are to measure policy, not queues
	attemptEvery = 100 * time.Millisecond // pause between attempts to connect
	attemptWait  = 150 * time.Millisecond // for which an attempt waits: all is on this machine
)

// open is what a window's begin is while policy does not deny.
const open = ^uint64(0)

// flow is a stream of numbered words from one workload to another, or a row of attempts to connect. A number is never
// used twice, so that a word says when it was sent.
type flow struct {
	name   string
	policy string
	proto  string // udp, tcp, or connect: attempts
	leak   func(f *flow, word uint64)

	sent     atomic.Uint64 // the next word has this number
	next     atomic.Uint64 // one more than the highest that arrived
	received atomic.Uint64
	missing  atomic.Uint64 // that had not come when a later one did
	last     atomic.Int64  // when the last one came
	silence  atomic.Int64  // the longest pause between two that came, since it was read last
	shut     atomic.Uint64 // words of this number and later must not come; or open
	broken   atomic.Pointer[string]

	stop chan struct{}
	work sync.WaitGroup
	tx   net.Conn
	rx   net.Conn
	ends [2]end
}

func (f *flow) breaks(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	f.broken.CompareAndSwap(nil, &why)
}

// arrived takes note of a word that came.
func (f *flow) arrived(word uint64) {
	now := time.Now().UnixNano()
	if last := f.last.Swap(now); last != 0 {
		f.silence.Store(max(f.silence.Load(), now-last))
	}
	f.received.Add(1)
	if next := f.next.Load(); word >= next {
		f.missing.Add(word - next)
		f.next.Store(word + 1)
	}
	if from := f.shut.Load(); word >= from {
		f.leak(f, word)
	}
}

// end is where a flow begins or ends.
type end struct {
	ns   string
	addr netip.Addr
}

// begin starts a flow from a to b.
func (f *flow) begin(a, b end, port uint16) error {
	f.stop, f.ends = make(chan struct{}), [2]end{a, b}
	f.shut.Store(open)
	if f.policy == denied {
		f.shut.Store(0)
	}
	to := netip.AddrPortFrom(b.addr, port)
	switch f.proto {
	case "udp":
		return f.beginUDP(a, b, to)
	case "tcp":
		return f.beginTCP(a, b, to)
	}
	return f.beginAttempts(a, b, to)
}

func (f *flow) beginUDP(a, b end, to netip.AddrPort) error {
	err := inside(b.ns, func() error {
		rx, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		f.rx = rx
		return rx.SetReadBuffer(1 << 20)
	})
	if err == nil {
		err = inside(a.ns, func() (err error) {
			f.tx, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.addr, 0)), net.UDPAddrFromAddrPort(to))
			return err
		})
	}
	if err != nil {
		return err
	}
	f.work.Go(func() {
		var b [64]byte
		for {
			n, err := f.rx.Read(b[:])
			if err != nil {
				return // closed
			}
			if n == 8 {
				f.arrived(binary.BigEndian.Uint64(b[:]))
			}
		}
	})
	f.work.Go(func() {
		f.every(wordEvery, func() bool {
			_, _ = f.tx.Write(f.word()) // unreachable or not permitted: the receiver misses it
			return true
		})
	})
	return nil
}

// word is the next word.
func (f *flow) word() []byte { return binary.BigEndian.AppendUint64(nil, f.sent.Add(1)-1) }

func (f *flow) beginTCP(a, b end, to netip.AddrPort) error {
	var lis net.Listener
	err := inside(b.ns, func() (err error) {
		lis, err = (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), "tcp", to.String())
		return err
	})
	if err != nil {
		return err
	}
	defer lis.Close()
	if f.tx, err = dial(a, to, time.Minute); err != nil {
		return err
	}
	if f.rx, err = lis.Accept(); err != nil {
		return err
	}
	f.work.Go(func() {
		var b [8]byte
		for due := uint64(0); ; due++ {
			if _, err := io.ReadFull(f.rx, b[:]); err != nil {
				if !errors.Is(err, net.ErrClosed) {
					f.breaks("receive: %v", err)
				}
				return
			}
			word := binary.BigEndian.Uint64(b[:])
			if word != due {
				f.breaks("word %d came where %d was due", word, due)
				return
			}
			f.arrived(word)
		}
	})
	f.work.Go(func() {
		f.every(wordEvery, func() bool {
			_, err := f.tx.Write(f.word())
			if err != nil && !errors.Is(err, net.ErrClosed) {
				f.breaks("send: %v", err)
			}
			return err == nil
		})
	})
	return nil
}

// beginAttempts connects again and again. A word is an attempt; it comes if the connection is made.
func (f *flow) beginAttempts(a, b end, to netip.AddrPort) error {
	var lis net.Listener
	err := inside(b.ns, func() (err error) { lis, err = net.Listen("tcp", to.String()); return err })
	if err != nil {
		return err
	}
	f.work.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return // closed
			}
			_ = c.Close()
		}
	})
	f.work.Go(func() {
		defer lis.Close()
		f.every(attemptEvery, func() bool {
			n := f.sent.Add(1) - 1
			if c, err := dial(a, to, attemptWait); err == nil {
				_ = c.(*net.TCPConn).SetLinger(0) // gone at once: thousands of them would fill the ports
				_ = c.Close()
				f.arrived(n)
			}
			return true
		})
	})
	return nil
}

// dial connects without probes of its own, which would end a connection that policy denies for some minutes.
func dial(a end, to netip.AddrPort, wait time.Duration) (c net.Conn, err error) {
	err = inside(a.ns, func() error {
		d := net.Dialer{Timeout: wait, KeepAlive: -1, LocalAddr: &net.TCPAddr{IP: a.addr.AsSlice()}}
		c, err = d.Dial("tcp", to.String())
		return err
	})
	return c, err
}

// every does something at each tick until it is false or the flow ends.
func (f *flow) every(pause time.Duration, do func() bool) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		if !do() {
			return
		}
	}
}

// close ends the flow.
func (f *flow) close() {
	close(f.stop)
	for _, c := range []net.Conn{f.tx, f.rx} {
		if c != nil {
			_ = c.Close()
		}
	}
	f.work.Wait()
}
