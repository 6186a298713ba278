// Package outagetest breaks what lies between an agent and its datastore, and
// proves that enforcement goes on, that nothing flaps, and that the truth arrives.
//
// In: the address of a server, and a [Fault]. Out: a [Proxy] that clients use in
// the server's place, and that cuts, hangs, delays or drops their connections;
// it changes no byte. The proofs are this package's tests: etcd away, silent,
// slow, restarted, compacted, put back from a backup, without a leader or full,
// and an agent that lives through thousands of changes.
package outagetest

import (
	"net"
	"strings"
	"sync"
	"time"
)

// Fault is what a proxy does to its connections. The zero value is none.
type Fault struct {
	Cut   bool          // reset all, and each new one
	Hang  bool          // accept, and pass nothing on; what is held up goes through when the fault ends
	Delay time.Duration // of each piece that the server sends
	After int           // bytes from the server after which a connection is reset; zero: never
}

// Proxy passes connections on to a server. Any goroutine may use it.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	network string
	address string // of the server
	fault   Fault
	changed chan struct{} // closed, and replaced, when fault or closed changes
	closed  bool
	dropped int
	pairs   map[*pair]struct{}
}

// pair is a client's connection and the one to the server that belongs to it.
type pair struct {
	client, server net.Conn
	once           sync.Once
}

// Listen opens a proxy before a server at unix://PATH or http://HOST:PORT.
func Listen(server string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return Serve(l, server), nil
}

// Serve is a proxy before a server for the connections of a listener, which it closes in the end. The listener may be
// of another network namespace, from which a server at unix://PATH is reached all the same.
func Serve(l net.Listener, server string) *Proxy {
	p := &Proxy{listener: l, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.To(server)
	p.running.Go(p.accept)
	return p
}

// To has another server answer, as Serve names it. Connections to the former are reset.
func (p *Proxy) To(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.address = "tcp", strings.TrimPrefix(server, "http://")
	if path, ok := strings.CutPrefix(server, "unix://"); ok {
		p.network, p.address = "unix", path
	}
	for c := range p.pairs {
		c.reset()
	}
}

// Endpoint is where clients reach the proxy.
func (p *Proxy) Endpoint() string { return "http://" + p.listener.Addr().String() }

// Set makes all connections suffer a fault, from now on.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	p.wake()
	if f.Cut {
		for c := range p.pairs {
			c.reset()
		}
	}
}

// Dropped is how many connections were reset in the middle of an answer.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.wake()
	for c := range p.pairs {
		c.reset()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	c := &pair{client: client}
	f, ok := p.wait()
	if !ok || f.Cut {
		c.reset()
		return
	}
	p.mu.Lock()
	network, address := p.network, p.address
	p.mu.Unlock()
	var err error
	if c.server, err = net.Dial(network, address); err != nil {
		c.reset()
		return
	}
	p.mu.Lock()
	p.pairs[c] = struct{}{}
	if p.closed || p.fault.Cut {
		c.reset()
	}
	p.mu.Unlock()
	var up sync.WaitGroup
	up.Go(func() { p.pass(c, c.server, c.client, false) })
	p.pass(c, c.client, c.server, true)
	up.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// wait returns the present fault once it lets bytes through; false when the proxy ends.
func (p *Proxy) wait() (Fault, bool) {
	for {
		p.mu.Lock()
		f, changed, closed := p.fault, p.changed, p.closed
		p.mu.Unlock()
		if closed || !f.Hang {
			return f, !closed
		}
		<-changed
	}
}

// pass copies until either end is gone; down is the direction of answers.
func (p *Proxy) pass(c *pair, to, from net.Conn, down bool) {
	defer c.reset()
	buf := make([]byte, 32<<10)
	for sent := 0; ; {
		n, err := from.Read(buf)
		f, ok := p.wait()
		if !ok || err != nil && n == 0 {
			return
		}
		if down && f.Delay > 0 {
			<-time.After(f.Delay)
		}
		if down && f.After > 0 && sent+n > f.After {
			_, _ = to.Write(buf[:max(f.After-sent, 0)])
			p.mu.Lock()
			p.dropped++
			p.mu.Unlock()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if sent += n; f.After == 0 {
			sent = 0 // counted from when the fault begins
		}
	}
}

// reset closes both ends, with RST and not FIN where that is possible.
func (c *pair) reset() {
	c.once.Do(func() {
		if t, ok := c.client.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.client.Close()
		if c.server != nil {
			_ = c.server.Close()
		}
	})
}
