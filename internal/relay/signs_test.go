package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// pipes is a listener in memory, whose connections wait in virtual time.
type pipes struct {
	ends   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{ends: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.ends:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// dial returns one end of a new connection, of which the relay has the other.
func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	own, other := net.Pipe()
	select {
	case p.ends <- other:
		return own, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	}
}

// mute is a connection whose other end hears nothing any more, once it is frozen, and takes all that is sent.
type mute struct {
	net.Conn
	frozen chan struct{}
}

// Write implements [net.Conn].
func (m mute) Write(b []byte) (int, error) {
	select {
	case <-m.frozen:
		return len(b), nil
	default:
		return m.Conn.Write(b)
	}
}

// TestADeadClientIsGivenUp in the time that settings say, as is one that connects and says nothing.
func TestADeadClientIsGivenUp(t *testing.T) {
	for _, tt := range []struct {
		name        string
		signs       Signs
		most, least time.Duration // until a dead client's stream has ended
		handshake   time.Duration
	}{
		{"as by default", Signs{}, 30 * time.Second, 20 * time.Second, 10 * time.Second},
		{"settings", Signs{Ping: 30 * time.Second, Pong: 5 * time.Minute, Handshake: time.Minute}, 6 * time.Minute, 5*time.Minute + 30*time.Second, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var meter counts
				p := newPipes()
				s := NewServer(memstore.New(), ServerConfig{Prefixes: []string{"/x/"}, Signs: tt.signs, Meter: &meter})
				ctx, cancel := context.WithCancel(t.Context())
				var parts sync.WaitGroup
				parts.Go(func() { _ = s.Run(ctx) })
				parts.Go(func() { _ = s.Serve(ctx, p, Plaintext(), 0) })
				defer parts.Wait()
				defer cancel()
				synctest.Wait()

				frozen := make(chan struct{})
				conn := must(grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(Plaintext()), grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
					c, err := p.dial(ctx, at)
					return mute{c, frozen}, err
				})))
				defer conn.Close()
				stream, err := relaypb.NewRelayClient(conn).Follow(t.Context(), &relaypb.FollowRequest{Prefix: "/x/"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				close(frozen)
				<-time.After(tt.least - time.Second)
				synctest.Wait()
				if n := meter.of(&meter.ended, "client went"); n != 0 {
					t.Errorf("its stream ended within %s", tt.least)
				}
				<-time.After(tt.most - tt.least + time.Second)
				synctest.Wait()
				if n := meter.of(&meter.ended, "client went"); n != 1 {
					t.Errorf("%d streams ended within %s", n, tt.most)
				}

				silent, err := p.dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, _ = io.Copy(io.Discard, silent) // until it is closed
				if took := time.Since(began); took != tt.handshake {
					t.Errorf("one that says nothing was cut off after %s, want %s", took, tt.handshake)
				}
			})
		})
	}
}
