package policysync

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/twillnet/twill/api/felixpb"
)

// Bounds of what one socket's clients may take.
const (
	connsAtOnce = 8
	maxMessage  = 64 << 10 // bytes that a client may send at once
)

// service is what the socket of one workload serves.
type service struct {
	pb.UnimplementedPolicySyncServer
	*Server
	of workload
}

// newGRPC returns the server of one socket.
func (s *Server) newGRPC(of workload) *grpc.Server {
	g := grpc.NewServer(grpc.Creds(plain{}), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(sharesAtOnce), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	pb.RegisterPolicySyncServer(g, service{Server: s, of: of})
	return g
}

// Sync implements the protocol.
func (s service) Sync(_ *pb.SyncRequest, stream grpc.ServerStreamingServer[pb.ToDataplane]) error {
	share := s.hub.join(s.of)
	if share == nil {
		return status.Errorf(codes.ResourceExhausted, "%s has %d proxies already", s.of, sharesAtOnce)
	}
	defer s.hub.leave(share)
	s.cfg.Log.Info("a proxy reads its workload's policy", "workload", s.of.String())
	defer s.cfg.Log.Info("a proxy has stopped to read its workload's policy", "workload", s.of.String())
	sequence := uint64(0)
	for {
		for _, m := range s.hub.take(share) {
			m.SequenceNumber = sequence
			sequence++
			if err := s.send(stream, m); err != nil {
				return err
			}
		}
		s.hub.read(share)
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-share.woken:
		}
	}
}

// send sends a message. A client that does not read it in time is disconnected: what it enforces is no policy of now.
func (s service) send(stream grpc.ServerStreamingServer[pb.ToDataplane], m *pb.ToDataplane) error {
	timer := time.AfterFunc(s.cfg.Patience, func() {
		s.cfg.Log.Warn("a proxy that does not read is disconnected", "workload", s.of.String())
		disconnect(stream.Context())
	})
	defer timer.Stop()
	return stream.Send(m)
}

// Report implements the protocol: nobody takes what proxies count.
func (service) Report(context.Context, *pb.DataplaneStats) (*pb.ReportResult, error) {
	return &pb.ReportResult{Successful: false}, nil
}

// plain are credentials of no kind: who reaches a socket is its workload. They remember the connection, for disconnect.
type plain struct{}

type connInfo struct {
	credentials.CommonAuthInfo
	net.Conn
}

// AuthType implements [credentials.AuthInfo].
func (connInfo) AuthType() string { return "socket" }

func disconnect(ctx context.Context) {
	if p, is := peer.FromContext(ctx); is {
		if c, is := p.AuthInfo.(connInfo); is {
			_ = c.Close()
		}
	}
}

// ServerHandshake implements [credentials.TransportCredentials].
func (plain) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, connInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, c}, nil
}

// ClientHandshake implements [credentials.TransportCredentials]; no client uses them.
func (plain) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, connInfo{Conn: c}, nil
}

// Info implements [credentials.TransportCredentials].
func (plain) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "socket"}
}

// Clone implements [credentials.TransportCredentials].
func (p plain) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements [credentials.TransportCredentials].
func (plain) OverrideServerName(string) error { return nil }

// limited is a listener with at most connsAtOnce connections: it closes those beyond, so that no workload takes the agent's descriptors.
type limited struct {
	net.Listener
	room chan struct{}
}

func newLimited(l net.Listener) limited { return limited{l, make(chan struct{}, connsAtOnce)} }

// Accept implements [net.Listener].
func (l limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &counted{Conn: c, done: func() { <-l.room }}, nil
		default:
			_ = c.Close()
		}
	}
}

type counted struct {
	net.Conn
	once sync.Once
	done func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.once.Do(c.done)
	return c.Conn.Close()
}
