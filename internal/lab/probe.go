package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
)

// listeners are the services of all workloads while a measurement runs.
type listeners struct {
	all []net.Listener
	wg  sync.WaitGroup
}

// listen opens a service in each workload: it accepts and sends one byte.
func listen(s *Spec) (*listeners, error) {
	ls := &listeners{}
	for _, w := range s.Workloads {
		for _, addr := range []netip.Addr{w.V4, w.V6} {
			if err := ls.open(s.workloadNS(w), netip.AddrPortFrom(addr, w.Port)); err != nil {
				ls.Close()
				return nil, fmt.Errorf("service of %s: %w", w, err)
			}
		}
	}
	return ls, nil
}

func (ls *listeners) open(ns string, at netip.AddrPort) error {
	return inside(ns, func() error {
		l, err := listenSoon(at)
		if err != nil {
			return err
		}
		ls.all = append(ls.all, l)
		ls.wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed
				}
				_, _ = c.Write([]byte{1}) // the prober sees a byte or the end
				_ = c.Close()
			}
		})
		return nil
	})
}

// listenSoon waits for a port that was in use a moment ago: the kernel ends a socket some time after it is closed.
func listenSoon(at netip.AddrPort) (net.Listener, error) {
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.String())
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// Close ends all services.
func (ls *listeners) Close() {
	for _, l := range ls.all {
		_ = l.Close()
	}
	ls.wg.Wait()
}

// inside runs f in a network namespace of the lab.
func inside(ns string, f func() error) error {
	h, err := netns.Open(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Do(f)
}

// tryTCP connects from a network namespace and reads one byte; it reports
// whether that worked within the deadline.
func tryTCP(ns string, src netip.Addr, dst netip.AddrPort, wait time.Duration) (bool, error) {
	ok := false
	err := inside(ns, func() error {
		d := net.Dialer{Timeout: wait, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(src, 0))}
		c, err := d.Dial("tcp", dst.String())
		if err != nil {
			return nil // refused, unreachable and silence alike: it did not get through
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(wait))
		var b [1]byte
		n, _ := c.Read(b[:])
		ok = n == 1
		return nil
	})
	return ok, err
}

// probeWorkers bounds connections under way at once.
const probeWorkers = 64

// probe asks all given cells at once and sets Got and Err.
func probe(cells []*Cell, wait time.Duration) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, probeWorkers)
	for _, c := range cells {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c.Got, c.Err = tryTCP(c.From, c.SrcAddr, netip.AddrPortFrom(c.DstAddr, c.Port), wait)
		})
	}
	wg.Wait()
}

// measure asks the network until every cell is as the oracle says, or time is
// up. A cell that must be closed may never be seen open, not even at first.
func measure(ctx context.Context, s *Spec, cells []Cell) error {
	ls, err := listen(s)
	if err != nil {
		return err
	}
	defer ls.Close()
	for wait := 700 * time.Millisecond; ; wait = 2 * time.Second {
		var open []*Cell
		for i := range cells {
			if !cells[i].Right() || !cells[i].Want {
				open = append(open, &cells[i])
			}
		}
		probe(open, wait)
		done := true
		for _, c := range open {
			c.Leaked = c.Leaked || c.Got && !c.Want
			done = done && (c.Right() || c.Leaked)
		}
		if done || ctx.Err() != nil {
			return nil
		}
	}
}
