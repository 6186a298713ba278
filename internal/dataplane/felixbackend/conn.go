package felixbackend

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/kernel/child"
)

// longestInbox is how many messages of a driver wait to be read. One that writes more waits in its write.
const longestInbox = 1024

// grace is how long a driver has to end.
const grace = 2 * time.Second

// conn is a driver that runs.
type conn struct {
	*child.Process
	began     time.Time
	name      string
	batches   chan []*pb.ToDataplane // has room for one: there is one at a time
	written   chan struct{}          // has one after a batch was written
	inbox     chan *pb.FromDataplane
	ended     chan struct{} // closed once err is set, and the program has ended
	err       error
	stop      chan struct{} // closed: the program is to end
	stopOnce  sync.Once
	failure   error // why, if not by the agent's wish; set before stop is closed
	goroutine sync.WaitGroup
}

// start starts the program; woken is called when something has happened.
func start(program string, woken func()) (*conn, error) {
	p, err := child.Start(program)
	if err != nil {
		return nil, err
	}
	c := &conn{
		Process: p, began: time.Now(), name: fmt.Sprintf("%s (process %d)", program, p.PID()), batches: make(chan []*pb.ToDataplane, 1), written: make(chan struct{}, 1),
		inbox: make(chan *pb.FromDataplane, longestInbox), ended: make(chan struct{}), stop: make(chan struct{}),
	}
	c.goroutine.Go(func() { c.transmit(woken) })
	c.goroutine.Go(func() { c.receive(woken) })
	go func() {
		select {
		case <-p.Ended():
			c.fail(nil)
		case <-c.stop:
		}
		p.Stop(grace) // unblocks both goroutines
		c.goroutine.Wait()
		if c.err = c.failure; c.err == nil {
			c.err = p.Err()
		}
		close(c.ended)
		woken()
	}()
	return c, nil
}

// fail ends the program, for a reason or, with nil, by the agent's wish. The first reason counts.
func (c *conn) fail(err error) {
	c.stopOnce.Do(func() {
		c.failure = err
		close(c.stop)
	})
}

// end ends the program, and returns once it has ended.
func (c *conn) end() {
	c.fail(nil)
	<-c.ended
}

// lost ends the program after a pipe of it failed. If that is because it ended, how it did is the reason.
func (c *conn) lost(what string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) {
		select {
		case <-c.Ended():
			c.fail(nil)
			return
		case <-c.stop:
		case <-time.After(grace):
			err = errors.New("it has closed the descriptor, and runs on")
		}
	}
	c.fail(fmt.Errorf("%s: %w", what, err))
}

// transmit writes batches until the program ends. One that reads nothing holds it up, and nothing else.
func (c *conn) transmit(woken func()) {
	sequence, w := uint64(0), bufio.NewWriterSize(c.To, 1<<16)
	var frame []byte
	for {
		select {
		case <-c.stop:
			return
		case batch := <-c.batches:
			for _, m := range batch {
				m.SequenceNumber = sequence
				sequence++
				var err error
				if frame, err = appendFrame(frame[:0], m); err == nil {
					_, err = w.Write(frame)
				}
				if err != nil {
					c.lost("descriptor 3", err)
					return
				}
			}
			if err := w.Flush(); err != nil {
				c.lost("descriptor 3", err)
				return
			}
			c.written <- struct{}{}
			woken()
		}
	}
}

// receive reads messages until the program ends. When the inbox is full, the program waits.
func (c *conn) receive(woken func()) {
	r := bufio.NewReader(c.From)
	for {
		m, err := readFrame(r)
		if err != nil {
			c.lost("descriptor 4", err)
			return
		}
		select {
		case c.inbox <- m:
			woken()
		case <-c.stop:
			return
		}
	}
}
