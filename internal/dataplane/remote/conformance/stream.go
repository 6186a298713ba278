package conformance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane/remote"
)

// stream is one stream to the driver, in one goroutine.
type stream struct {
	rpc      pb.Dataplane_ProgramClient
	conn     *grpc.ClientConn
	life     context.Context //nolint:containedctx // of the stream
	end      context.CancelFunc
	sequence uint64          // of the last message
	known    map[string]bool // texts of keys of items that were sent
}

// errSilent is for a driver that does not answer.
var errSilent = errors.New("it does not answer")

// dial opens a stream without a greeting.
func (s *suite) dial(ctx context.Context) (*stream, error) {
	conn, err := grpc.NewClient(s.cfg.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	// gRPC would give the driver's end the deadline, which may end the stream there a moment before it ends here.
	outer := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(outer))
	context.AfterFunc(outer, cancel)
	rpc, err := pb.NewDataplaneClient(conn).Program(ctx)
	if err != nil {
		cancel()
		_ = conn.Close()
		return nil, errors.New(status.Convert(err).Message())
	}
	return &stream{rpc: rpc, conn: conn, life: ctx, end: cancel, known: map[string]bool{}}, nil
}

// begin opens a stream and exchanges greetings.
func (s *suite) begin(ctx context.Context) (*stream, error) {
	t, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err = t.greet(); err != nil {
		t.cut()
		return nil, err
	}
	return t, nil
}

func (t *stream) greet() error {
	if err := t.send(hello(remote.Version)); err != nil {
		return err
	}
	m, err := t.receive()
	switch w := m.GetWelcome(); {
	case err != nil:
		return fmt.Errorf("no Welcome: %w", err)
	case w == nil:
		return fmt.Errorf("it answers Hello with %v, and not with Welcome", m)
	case w.GetVersion() != remote.Version:
		return fmt.Errorf("its Welcome has version %d, and not %d", w.GetVersion(), remote.Version)
	case w.GetName() == "":
		return errors.New("its Welcome has no name")
	}
	return nil
}

// cut ends a stream as an agent that dies.
func (t *stream) cut() {
	t.end()
	_ = t.conn.Close()
}

// finish says that no more is sent, and waits until the driver has read it all, which ends the stream. A stream that is cut before loses what was sent.
func (t *stream) finish() error {
	if err := t.rpc.CloseSend(); err != nil {
		return err
	}
	for {
		if _, err := t.receive(); err != nil {
			return nil //nolint:nilerr // it has ended
		}
	}
}

// send sends messages. Of a stream that has ended, receive says why.
func (t *stream) send(items ...*pb.ToDriver) error {
	for _, m := range items {
		t.sequence++
		m.Sequence = t.sequence
		for _, k := range keysOf(m) {
			t.known[k] = true
		}
		if err := t.rpc.Send(m); err != nil {
			if t.life.Err() != nil {
				return errors.New("it takes no messages")
			}
			return nil //nolint:nilerr // io.EOF: the stream has ended
		}
	}
	return nil
}

func (t *stream) receive() (*pb.FromDriver, error) {
	m, err := t.rpc.Recv()
	if err == nil {
		return m, nil
	}
	if t.life.Err() != nil {
		return nil, errSilent
	}
	return nil, ended{status.Convert(err).Message()}
}

// ended is the driver's own end of a stream.
type ended struct{ why string }

func (e ended) Error() string { return "it ended the stream: " + e.why }

// commit sends items and a commit, and returns the answer.
func (t *stream) commit(items ...*pb.ToDriver) (*pb.Committed, error) {
	if err := t.send(append(items, &pb.ToDriver{Item: &pb.ToDriver_Commit{Commit: &pb.Commit{}}})...); err != nil {
		return nil, err
	}
	for {
		m, err := t.receive()
		if err != nil {
			return nil, err
		}
		switch x := m.GetItem().(type) {
		case *pb.FromDriver_Committed:
			if got := x.Committed.GetSequence(); got != t.sequence {
				return nil, fmt.Errorf("the commit with sequence %d waits, and it answers sequence %d", t.sequence, got)
			}
			for _, o := range x.Committed.GetOutcomes() {
				if err := t.knows(o); err != nil {
					return nil, err
				}
			}
			return x.Committed, nil
		case *pb.FromDriver_Changed:
			if err := t.knows(x.Changed); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("it answers a commit with %v", m)
		}
	}
}

func (t *stream) knows(o *pb.Outcome) error {
	if k := keyText(o.GetKey()); !t.known[k] {
		return fmt.Errorf("it reports on %s, which it was not sent", k)
	}
	return nil
}

// accepted commits items that the driver must bring into force.
func (t *stream) accepted(items ...*pb.ToDriver) error {
	c, err := t.commit(items...)
	if err != nil {
		return err
	}
	if c.GetError() != "" {
		return fmt.Errorf("it refuses a right commit: %s", c.GetError())
	}
	for _, o := range c.GetOutcomes() {
		if o.GetError() != "" {
			return fmt.Errorf("%s is not in force: %s", keyText(o.GetKey()), o.GetError())
		}
	}
	return nil
}

// refused commits items of which the driver must say that they are not in force, by the end of the stream, an error, or an outcome.
func (t *stream) refused(what string, items ...*pb.ToDriver) error {
	c, err := t.commit(items...)
	if errors.As(err, new(ended)) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.GetError() != "" {
		return nil
	}
	for _, o := range c.GetOutcomes() {
		if o.GetError() != "" {
			return nil
		}
	}
	return fmt.Errorf("it calls in force: %s", what)
}
