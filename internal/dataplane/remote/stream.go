package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/twillnet/twill/api/dataplanepb"
)

// Version of the protocol.
const Version = 1

// largestAnswer is the most bytes of one message of a driver: some 500,000 outcomes.
const largestAnswer = 64 << 20

// stream is one stream to a driver.
type stream struct {
	name, release string
	kernel        bool // it programs this host's kernel
	commits       chan []*pb.ToDriver
	news          chan struct{} // has one if inbox has
	ended         chan struct{} // closed once err is set
	err           error

	mu    sync.Mutex
	inbox []*pb.FromDriver // in the order of arrival

	conn     *grpc.ClientConn
	rpc      pb.Dataplane_ProgramClient
	fail     context.CancelCauseFunc
	context  context.Context //nolint:containedctx // the stream's own
	sequence uint64
	commit   atomic.Uint64 // sequence of the last one
}

// Address returns an error if an address is not one of a driver.
func Address(s string) error {
	if path, is := strings.CutPrefix(s, "unix://"); !is || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q is not unix:///PATH", s)
	}
	return nil
}

// open opens a stream and exchanges greetings. The stream lives as long as life.
func open(ctx, life context.Context, cfg Config) (*stream, error) {
	if err := Address(cfg.Address); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(cfg.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestAnswer)))
	if err != nil {
		return nil, err
	}
	s := &stream{commits: make(chan []*pb.ToDriver, 1), news: make(chan struct{}, 1), ended: make(chan struct{}), conn: conn}
	s.context, s.fail = context.WithCancelCause(life)
	if err := s.greet(ctx, cfg); err != nil {
		err = s.why(err)
		s.fail(err)
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *stream) greet(ctx context.Context, cfg Config) (err error) {
	defer context.AfterFunc(ctx, func() { s.fail(errors.New("it does not answer")) })()
	if s.rpc, err = pb.NewDataplaneClient(s.conn).Program(s.context); err != nil {
		return err
	}
	if err := s.transmitOne(&pb.ToDriver{Item: &pb.ToDriver_Hello{Hello: &pb.Hello{Version: Version, Node: cfg.Node, Agent: cfg.Version}}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	first, err := s.rpc.Recv() // which has the reason of an io.EOF
	if err != nil {
		return err
	}
	w := first.GetWelcome()
	if w.GetVersion() != Version {
		return fmt.Errorf("it speaks version %d of the protocol, and not %d", w.GetVersion(), Version)
	}
	s.name, s.release, s.kernel = w.GetName(), w.GetRelease(), w.GetKernel()
	return nil
}

// why is the reason for which something failed: that which ended the stream, if something did.
func (s *stream) why(err error) error {
	if cause := context.Cause(s.context); cause != nil {
		return cause
	}
	if st, is := status.FromError(err); is {
		return fmt.Errorf("%s: %s", st.Code(), st.Message())
	}
	return err
}

func (s *stream) transmitOne(m *pb.ToDriver) error {
	s.sequence++
	m.Sequence = s.sequence
	return s.rpc.Send(m)
}

// transmit sends commits until the stream ends. A driver that takes nothing holds it up, and nothing else.
func (s *stream) transmit() {
	for {
		select {
		case <-s.context.Done():
			return
		case items := <-s.commits:
			for _, m := range items {
				if s.transmitOne(m) != nil {
					return // receive has the reason
				}
			}
			s.commit.Store(s.sequence + 1)
			if s.transmitOne(&pb.ToDriver{Item: &pb.ToDriver_Commit{Commit: &pb.Commit{}}}) != nil {
				return
			}
		}
	}
}

// receive puts what comes into the inbox until the stream ends, and calls woken after each message and after the end.
func (s *stream) receive(woken func()) {
	for s.err == nil {
		m, err := s.rpc.Recv()
		if err == nil {
			err = s.put(m)
		}
		if err != nil {
			s.err = s.why(err)
			s.fail(s.err)
			_ = s.conn.Close()
			close(s.ended)
		}
		woken()
	}
}

// put returns an error for what breaks the protocol.
func (s *stream) put(m *pb.FromDriver) error {
	if c := m.GetCommitted(); c != nil && (c.GetSequence() == 0 || c.GetSequence() != s.commit.Swap(0)) {
		return fmt.Errorf("it answers number %d, which is not of a commit that waits", c.GetSequence())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inbox) == longestInbox {
		return fmt.Errorf("it has sent %d reports before one was read", longestInbox)
	}
	s.inbox = append(s.inbox, m)
	select {
	case s.news <- struct{}{}:
	default:
	}
	return nil
}

// longestInbox is how many messages a driver may send before they are read. More is a fault of the driver.
const longestInbox = 1 << 18

// read empties the inbox.
func (s *stream) read() []*pb.FromDriver {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.inbox
	s.inbox = nil
	return out
}
