package remote

import (
	"context"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/intent"
)

// Target is a dataplane in Go, for [Server].
type Target interface {
	// Begin begins an agent's session, after the former one has ended. What is in force stays until the first commit. changed takes outcomes
	// that come by themselves, from any goroutine. ctx ends with the session.
	Begin(ctx context.Context, agent string, changed func(intent.Outcome)) (Session, error)
}

// Session is an agent's, in one goroutine.
type Session interface {
	// Commit brings a batch into force, and returns what of it is not, and why, and what else has changed; of the rest it says nothing. The first batch is
	// complete. An error means that nothing of it is in force, and ends the session.
	Commit(context.Context, intent.Batch) ([]intent.Outcome, error)
	// Failed is closed when the session can go on no more, which ends the stream; nil: that never happens.
	Failed() <-chan struct{}
	// End is called once, after the last Commit. What is in force stays.
	End()
}

// Server is the half of the protocol of a driver in Go. It serves one agent at a time: a new stream ends the one before it.
type Server struct {
	pb.UnimplementedDataplaneServer
	Name, Release string // in its greeting, and whether it programs this host's kernel
	Kernel        bool
	Target        Target

	mu     sync.Mutex
	latest *served
}

// served is a stream.
type served struct {
	end   context.CancelFunc
	ended chan struct{}
}

// Serve serves on a listener until ctx ends, at once: what streams bring after that is lost.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer()
	pb.RegisterDataplaneServer(g, s)
	defer context.AfterFunc(ctx, g.Stop)()
	if err := g.Serve(l); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// Program implements the service.
func (s *Server) Program(stream pb.Dataplane_ProgramServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello.GetVersion() != Version {
		return status.Errorf(codes.FailedPrecondition, "this driver speaks version %d of the protocol, and not %d", Version, hello.GetVersion())
	}
	ctx, own := s.begin(stream.Context())
	defer close(own.ended)
	defer own.end()
	var sending sync.Mutex
	send := func(m *pb.FromDriver) error {
		sending.Lock()
		defer sending.Unlock()
		return stream.Send(m)
	}
	if err := send(&pb.FromDriver{Item: &pb.FromDriver_Welcome{Welcome: &pb.Welcome{Version: Version, Name: s.Name, Release: s.Release, Kernel: s.Kernel}}}); err != nil {
		return err
	}
	session, err := s.Target.Begin(ctx, hello.GetNode(), func(o intent.Outcome) {
		_ = send(&pb.FromDriver{Item: &pb.FromDriver_Changed{Changed: encodeOutcome(o)}}) // it fails at the stream's end
	})
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer session.End()
	return run(ctx, stream, session, first.GetSequence(), send)
}

// begin makes a stream the only one, and returns its context once the former one has ended.
func (s *Server) begin(ctx context.Context) (context.Context, *served) {
	ctx, cancel := context.WithCancel(ctx)
	own := &served{end: cancel, ended: make(chan struct{})}
	s.mu.Lock()
	former := s.latest
	s.latest = own
	s.mu.Unlock()
	if former != nil {
		former.end()
		<-former.ended
	}
	return ctx, own
}

// run takes messages until the stream ends.
func run(ctx context.Context, stream pb.Dataplane_ProgramServer, session Session, last uint64, send func(*pb.FromDriver) error) error {
	messages, failed := make(chan *pb.ToDriver), make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	var b intent.Batch
	for {
		var m *pb.ToDriver
		select {
		case <-ctx.Done():
			return status.Error(codes.Aborted, "another agent has begun")
		case <-session.Failed():
			return status.Error(codes.Unavailable, "a part of the driver has ended")
		case err := <-failed:
			return err
		case m = <-messages:
		}
		if last++; m.GetSequence() != last {
			return status.Errorf(codes.InvalidArgument, "message %d comes in the place of message %d", m.GetSequence(), last)
		}
		if m.GetCommit() == nil {
			if err := Add(&b, m); err != nil {
				return status.Errorf(codes.InvalidArgument, "message %d: %v", last, err)
			}
			continue
		}
		slices.Reverse(b.Removed)
		b.InSync = true
		answer := &pb.Committed{Sequence: last}
		outcomes, err := session.Commit(ctx, b)
		if err != nil {
			answer.Error = err.Error()
		}
		for _, o := range outcomes {
			answer.Outcomes = append(answer.Outcomes, encodeOutcome(o))
		}
		if err := send(&pb.FromDriver{Item: &pb.FromDriver_Committed{Committed: answer}}); err != nil {
			return err
		}
		if err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
		b = intent.Batch{}
	}
}

func encodeOutcome(o intent.Outcome) *pb.Outcome {
	x := &pb.Outcome{Key: encodeKey(o.Key), Final: o.Final, Reason: o.Reason, Note: o.Note}
	if o.Err != nil {
		x.Error = o.Err.Error()
	}
	return x
}
