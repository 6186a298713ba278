package relay

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/api/relaypb"
)

const (
	// A relay that sent a client elsewhere is asked last for so long: a connection to it is begun so much later, when one to another is there
	// already, if there is another. Nobody is ever without a relay that would take him.
	avoidFor  = time.Minute
	avoidWait = 2 * time.Second
	// leaveEvery is how often a client leaves a relay that has not what it needs, since another one may have it. It is not more often, for where none has
	// it, thousands of clients would make connections all the time.
	leaveEvery = 20 * time.Second
)

// dialer connects to relays, and knows which of them sent this client elsewhere.
type dialer struct {
	dial func(ctx context.Context, address string) (net.Conn, error)

	mu     sync.Mutex
	conns  map[string]dialed    // the last by its other end's address
	avoids map[string]time.Time // addresses, and until when
	left   time.Time            // when a relay was left last that had not what is needed
}

type dialed struct {
	net.Conn
	address string // that was dialled
}

func newDialer(dial func(ctx context.Context, address string) (net.Conn, error)) *dialer {
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			if path, unix := strings.CutPrefix(address, "unix://"); unix {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	return &dialer{dial: dial, conns: map[string]dialed{}, avoids: map[string]time.Time{}}
}

// connect dials, of those that sent this client elsewhere after a pause.
func (d *dialer) connect(ctx context.Context, address string) (net.Conn, error) {
	d.mu.Lock()
	avoid := time.Now().Before(d.avoids[address])
	d.mu.Unlock()
	if avoid {
		timer := time.NewTimer(avoidWait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := d.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[conn.RemoteAddr().String()] = dialed{conn, address}
	return conn, nil
}

// leave closes a connection to a relay, and avoids that relay.
func (d *dialer) leave(other net.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for address, until := range d.avoids {
		if now.After(until) {
			delete(d.avoids, address)
		}
	}
	if c, ok := d.conns[other.String()]; ok {
		delete(d.conns, other.String())
		d.avoids[c.address] = now.Add(avoidFor)
		_ = c.Close() // nothing is to be read from it any more
	}
}

// leaving is a stream whose client goes to another relay if that is how it ends.
type leaving struct {
	relaypb.Relay_FollowClient
	dialer *dialer
}

// Recv implements [frames].
func (l leaving) Recv() (*relaypb.Frame, error) {
	f, err := l.Relay_FollowClient.Recv()
	switch status.Code(err) {
	case codes.Aborted:
		if p, ok := peer.FromContext(l.Context()); ok {
			l.dialer.leave(p.Addr)
		}
	case codes.FailedPrecondition:
		l.dialer.leaveAll()
	}
	return f, err
}

// leaveAll goes to another relay, unless that was done a moment ago: this one has not what the client needs.
func (d *dialer) leaveAll() {
	d.mu.Lock()
	now := time.Now()
	if !d.left.IsZero() && now.Sub(d.left) < leaveEvery {
		d.mu.Unlock()
		return
	}
	d.left = now
	var others []net.Addr
	for _, c := range d.conns {
		others = append(others, c.RemoteAddr())
	}
	d.mu.Unlock()
	for _, other := range others {
		d.leave(other)
	}
}
