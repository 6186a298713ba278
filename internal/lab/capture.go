package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/lab/script"
)

// capture is a record of packets while it runs.
type capture struct {
	socket *packet.Socket
	end    chan struct{}
	done   chan struct{}

	mu    sync.Mutex // guards the rest: the receiver writes, checks read
	count int
	lines []string
	empty int // how often the receiver had read all that had arrived
	err   error
}

const (
	keepPackets = 10000                 // in a record; the count goes on
	captureTick = 20 * time.Millisecond // how long the receiver waits for a packet
)

func (c *scenario) capture(a script.Capture) error {
	where, err := c.Spec.find(a.Where)
	if err != nil {
		return err
	}
	name, err := c.expand(a.Link)
	if err != nil {
		return err
	}
	p, err := open(where.ns)
	if err != nil {
		return err
	}
	defer p.close()
	link, err := p.nl.Link(name)
	if err != nil {
		return err
	}
	r := &capture{end: make(chan struct{}), done: make(chan struct{})}
	if err := p.ns.Do(func() (err error) { r.socket, err = packet.Open(); return err }); err != nil {
		return err
	}
	c.captures[a.Name] = r
	go r.receive(a, link.Index)
	return nil
}

var protocols = map[string][]uint8{"": nil, "tcp": {6}, "udp": {17}, "icmp": {1, 58}, "ipip": {4}} // IANA

func (r *capture) receive(a script.Capture, link int) {
	defer close(r.done)
	for {
		select {
		case <-r.end:
			return
		default:
		}
		p, ok, err := r.socket.Receive(time.Now())
		if err == nil && !ok {
			r.mu.Lock()
			r.empty++
			r.mu.Unlock()
			p, ok, err = r.socket.Receive(time.Now().Add(captureTick))
		}
		r.mu.Lock()
		switch {
		case err != nil:
			r.err = err
			r.mu.Unlock()
			return
		case ok && p.Link == link && wanted(p.Packet, a):
			r.count++
			if len(r.lines) < keepPackets {
				r.lines = append(r.lines, fmt.Sprintf("%s %s.%d > %s.%d proto %d icmp %d/%d",
					time.Now().Format("15:04:05.000000"), p.Src, p.SrcPort, p.Dst, p.DstPort, p.Proto, p.ICMPType, p.ICMPCode))
			}
		}
		r.mu.Unlock()
	}
}

func wanted(p packet.Packet, a script.Capture) bool {
	match := a.Proto == ""
	for _, n := range protocols[a.Proto] {
		match = match || p.Proto == n
	}
	return match && (a.Port == 0 || p.SrcPort == a.Port || p.DstPort == a.Port)
}

func (r *capture) close() {
	close(r.end)
	<-r.done
	_ = r.socket.Close()
}

func (r *capture) state() (count, empty int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count, r.empty, r.err
}

// checkCapture awaits a count that can still grow to the wanted one; another is
// compared once all that has arrived is read, which streams on any link of the
// host do not delay.
func (c *scenario) checkCapture(ctx context.Context, a script.CaptureCheck) error {
	r := c.captures[a.Name]
	_, then, _ := r.state()
	grows := a.Op == ">=" || a.Op == ">"
	var wrong error
	err := until(ctx, func(context.Context) error {
		count, empty, err := r.state()
		if err != nil {
			return err
		}
		wrong = nil
		if !a.Holds(float64(count)) {
			wrong = fmt.Errorf("%d packets were seen", count)
		}
		if grows {
			return wrong
		}
		if empty < then+2 { // the first may have been found before this check began, and be counted now
			return errors.New("more packets come than can be read")
		}
		return nil
	})
	return errors.Join(err, wrong)
}
