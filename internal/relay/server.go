package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/syncer"
)

// Prefixes are those of the keys that a relay hands on.
func Prefixes() []string { return []string{api.ResourcesPrefix, api.BlockPrefix} }

// Parts are prefixes within them that a relay hands on apart: of kinds that BGP, and those who write Nodes and their status, need, and nothing else.
func Parts() []string {
	var out []string
	for _, kind := range []string{
		api.KindBGPConfiguration, api.KindBGPFilter, api.KindBGPPeer, api.KindCalicoNodeStatus, api.KindClusterInformation, api.KindFelixConfiguration, api.KindIPPool,
		api.KindKubernetesEndpointSlice, api.KindKubernetesService, api.KindNode, api.KindWorkloadEndpoint,
	} {
		out = append(out, api.KeyPrefix(kind, ""))
	}
	return out
}

// NameOf is what people call a prefix: resources, blocks, or the plural of a kind.
func NameOf(prefix string) string {
	switch prefix {
	case api.ResourcesPrefix:
		return "resources"
	case api.BlockPrefix:
		return "blocks"
	}
	return path.Base(prefix)
}

// ServerConfig configures a Server.
type ServerConfig struct {
	Prefixes []string // none of which begins with another; empty means Prefixes(), and Parts()
	Parts    []string // each begins with one of these
	Keep     int      // bytes of compressed changes of each prefix, for clients that are slow or were away; zero means 64 MB
	Signs    Signs
	Limits   Limits
	Meter    Meter // nil: nobody counts
	Log      *slog.Logger
}

// Signs are for how long a client may say nothing; zero means 10s for each.
type Signs struct {
	Ping      time.Duration // until it is asked for a sign of life; at least 1s
	Pong      time.Duration // until it is cut off, then
	Handshake time.Duration // until a new connection is cut off that has not shown its certificate and said what it speaks
}

// Meter is told what a server does. Its methods are called from several goroutines.
type Meter interface {
	Streams(by int)                  // to clients: more, or fewer
	Clients(by int, moved bool)      // more, or fewer; moved: none of both, but one was sent to another relay
	Read(prefix string, n, keys int) // updates of the datastore, and how many keys there are
	Made(kind string, bytes int)     // a snapshot or a delta was encoded, once for all
	Sent(kind string, bytes int)     // a part of one, to one client
	Ended(reason string)             // of a client's stream
}

// Server follows a store once, and hands what it learns to any number of clients.
type Server struct {
	relaypb.UnimplementedRelayServer
	store  datastore.Store
	cfg    ServerConfig
	chains map[string]*chain
	parts  map[string][]*chain // by the prefix that they are in
	drain  chan struct{}       // closed when clients are to go elsewhere
	once   sync.Once
	spread time.Duration // in which they go; set before drain is closed

	connected connections
	relays    atomic.Int64
}

// NewServer returns a server that has nothing until Run.
func NewServer(store datastore.Store, cfg ServerConfig) *Server {
	if len(cfg.Prefixes) == 0 {
		cfg.Prefixes, cfg.Parts = Prefixes(), Parts()
	}
	if cfg.Keep == 0 {
		cfg.Keep = 64 << 20
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limits.Most == 0 {
		cfg.Limits.Most = mostClients
	}
	s := &Server{store: store, cfg: cfg, chains: map[string]*chain{}, parts: map[string][]*chain{}, drain: make(chan struct{})}
	s.connected = connections{most: cfg.Limits.Most, served: map[*connection]struct{}{}, changed: cfg.Meter.Clients, away: map[string]time.Time{}}
	for _, p := range cfg.Prefixes {
		s.chains[p] = newChain(p, cfg.Keep, cfg.Meter.Made)
	}
	for _, p := range cfg.Parts {
		whole := cfg.Prefixes[slices.IndexFunc(cfg.Prefixes, func(whole string) bool { return strings.HasPrefix(p, whole) })]
		c := newChain(p, cfg.Keep, cfg.Meter.Made)
		s.chains[p], s.parts[whole] = c, append(s.parts[whole], c)
	}
	return s
}

// Run follows the store until ctx ends, and returns why it ended. Call it once.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, prefix := range s.cfg.Prefixes {
		source := syncer.New(s.store, syncer.Config{Prefixes: []string{prefix}, Logger: s.cfg.Log.With("prefix", prefix)})
		wg.Go(func() { _ = source.Run(ctx) }) // it ends with ctx
		wg.Go(func() {
			for b := range source.Batches() {
				for _, c := range append([]*chain{s.chains[prefix]}, s.parts[prefix]...) {
					c.apply(b, b.Positions[prefix].String())
				}
				s.cfg.Meter.Read(prefix, len(b.Updates), s.chains[prefix].keys())
			}
		})
	}
	s.balance(ctx)
	return ctx.Err()
}

// NotReady says why the relay cannot serve yet; nothing: it can.
func (s *Server) NotReady() []string {
	var out []string
	for _, prefix := range s.cfg.Prefixes {
		c := s.chains[prefix]
		c.mu.Lock()
		if !c.ready {
			out = append(out, "not all of "+prefix+" is read from the datastore yet")
		}
		c.mu.Unlock()
	}
	slices.Sort(out)
	return out
}

// Follow implements the protocol.
func (s *Server) Follow(req *relaypb.FollowRequest, stream grpc.ServerStreamingServer[relaypb.Frame]) error {
	return statusOf(s.follow(stream.Context(), req, stream.Send))
}

// follow serves one client.
func (s *Server) follow(ctx context.Context, req *relaypb.FollowRequest, send func(*relaypb.Frame) error) error {
	c := s.chains[req.Prefix]
	if c == nil {
		return fmt.Errorf("%w: %q", errNoPrefix, req.Prefix)
	}
	conn, r, end, err := s.connected.begin(ctx, req.Who, c)
	if err != nil {
		s.cfg.Meter.Ended(reasonOf(err))
		return err
	}
	defer end()
	s.cfg.Meter.Streams(1)
	defer s.cfg.Meter.Streams(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = c.follow(ctx, s.goes(ctx, conn), req, func(f *relaypb.Frame) error {
		if kind := "delta"; len(f.Body) > 0 {
			if f.Snapshot {
				kind = "snapshot"
			}
			s.cfg.Meter.Sent(kind, len(f.Body))
		}
		err := send(f)
		if conn.sent.Add(int64(len(f.Body))); err == nil && !f.More {
			r.at.Store(f.Number)
		}
		return err
	})
	s.cfg.Meter.Ended(reasonOf(err))
	return err
}

// goes has why one client is to go, once it is: to another relay at once; at the end of this one after a draw within the spread, so that they do not
// all come to the next relay at once.
func (s *Server) goes(ctx context.Context, conn *connection) <-chan error {
	out := make(chan error, 1)
	go func() {
		select {
		case <-s.drain:
		case <-conn.leaves:
			out <- errElsewhere
			return
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(time.Duration(rand.Int64N(int64(s.spread) + 1)))
		defer timer.Stop()
		select {
		case <-timer.C:
			out <- errEnds
		case <-ctx.Done():
		}
	}()
	return out
}

// Drain has clients go elsewhere, one by one within a time. What is to end at last is the caller's.
func (s *Server) Drain(spread time.Duration) {
	s.once.Do(func() {
		s.spread = spread
		close(s.drain)
	})
}

func reasonOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, errForgotten):
		return "too far behind"
	case errors.Is(err, errNotYet), errors.Is(err, errAway):
		return "no datastore"
	case errors.Is(err, errEnds):
		return "drained"
	case errors.Is(err, errElsewhere):
		return "sent elsewhere"
	}
	return "client went"
}

func statusOf(err error) error {
	code := codes.Unavailable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errForgotten):
		code = codes.OutOfRange
	case errors.Is(err, errNoPrefix):
		code = codes.NotFound
	case errors.Is(err, errNotYet), errors.Is(err, errAway):
		code = codes.FailedPrecondition // which gRPC itself never says
	case errors.Is(err, errElsewhere):
		code = codes.Aborted // likewise
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, err.Error())
}

type noMeter struct{}

func (noMeter) Streams(int)           {}
func (noMeter) Clients(int, bool)     {}
func (noMeter) Read(string, int, int) {}
func (noMeter) Made(string, int)      {}
func (noMeter) Sent(string, int)      {}
func (noMeter) Ended(string)          {}

const (
	pingEvery  = 10 * time.Second // without a word of the other end
	pingAnswer = 10 * time.Second // then it is dead
	handshake  = 10 * time.Second
	grace      = 2 * time.Second // for clients to take the last that is sent
)

// Serve answers at l until ctx ends; then clients are sent elsewhere within the spread, and it returns. A client that does not answer
// is cut off, as [Signs] has it; one may ask for a sign of life each 5 s.
func (s *Server) Serve(ctx context.Context, l net.Listener, creds credentials.TransportCredentials, spread time.Duration) error {
	signs := s.cfg.Signs
	g := grpc.NewServer(grpc.Creds(creds), grpc.StatsHandler(&s.connected),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: cmp.Or(signs.Ping, pingEvery), Timeout: cmp.Or(signs.Pong, pingAnswer)}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(64<<10), grpc.MaxConcurrentStreams(100), grpc.ConnectionTimeout(cmp.Or(signs.Handshake, handshake)),
	)
	relaypb.RegisterRelayServer(g, s)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.Drain(spread)
	timer := time.AfterFunc(spread+grace, g.Stop) // for who does not take what was sent
	defer timer.Stop()
	g.GracefulStop()
	return ctx.Err()
}

// positionOf writes a position of a relay: where it is in its chain, and where the store is.
func positionOf(epoch string, number uint64, store string) datastore.Position {
	return datastore.PositionOf(fmt.Sprintf("%s/%d/%s", epoch, number, store))
}
