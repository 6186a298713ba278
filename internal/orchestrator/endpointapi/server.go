package endpointapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/serve"
)

// Config configures a Server.
type Config struct {
	Node, Version string
	Socket        string // path of the socket for plugins; empty: none
	Interfaces    *ifmon.Monitor
	Link          func(name string) (rtnl.Link, error)
	Do            func(ctx context.Context, j *Job) error // [Writer.Do]
	Log           *slog.Logger
}

// Server joins a Core with plugins, the host's interfaces and the datastore.
type Server struct {
	endpointpb.UnimplementedEndpointsServer
	cfg Config

	mu    sync.Mutex
	core  *Core
	conns map[Conn]*conn
	last  Conn
	jobs  map[*Job]context.CancelFunc
	wake  chan struct{}
}

// conn is a connection of a plugin.
type conn struct {
	out  chan *endpointpb.FromAgent
	gone chan struct{} // closed when the agent ends it
	why  error
	once sync.Once
}

// maxOut bounds what a plugin was told and has not read.
const maxOut = maxClaims + 2*2048 + 1024 // questions and events of interfaces, and two events of each group

// maxMessage bounds a message, in bytes.
const maxMessage = 256 << 10

func (c *conn) end(why error) {
	c.once.Do(func() { c.why = why; close(c.gone) })
}

// NewServer returns a server that Run runs.
func NewServer(cfg Config) *Server {
	return &Server{cfg: cfg, core: New(cfg.Node, cfg.Version), conns: map[Conn]*conn{}, jobs: map[*Job]context.CancelFunc{}, wake: make(chan struct{}, 1)}
}

// happens has the core take over something, and what follows from it done.
func (s *Server) happens(f func(c *Core, now time.Time)) {
	s.news(func(c *Core, now time.Time) bool { f(c, now); return true })
}

// news is happens of what may be none.
func (s *Server) news(f func(c *Core, now time.Time) bool) {
	s.mu.Lock()
	is := f(s.core, time.Now())
	s.mu.Unlock()
	if !is {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Configure takes over settings.
func (s *Server) Configure(to config.Settings) {
	s.news(func(c *Core, _ time.Time) bool { return c.Configure(to.InterfacePrefixes) })
}

// Update takes over updates of the datastore; it does not wait.
func (s *Server) Update(us []api.Update, inSync bool) {
	s.news(func(c *Core, now time.Time) bool { return c.Stored(now, us, inSync) })
}

// Run serves until the context ends.
func (s *Server) Run(ctx context.Context) error {
	if s.cfg.Socket == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	var jobs sync.WaitGroup
	defer jobs.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make(chan error, 2)
	go func() { parts <- s.cfg.Interfaces.Run(ctx) }()
	go func() { parts <- s.serve(ctx) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-parts:
			return err
		case changes := <-s.cfg.Interfaces.Changes():
			s.mu.Lock()
			s.core.Links(time.Now(), changes)
			s.mu.Unlock()
		case <-s.wake:
		case <-timer.C:
		}
		if next := s.step(ctx, &jobs); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// step does what is to be done, and returns when something is again.
func (s *Server) step(ctx context.Context, jobs *sync.WaitGroup) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	do, next := s.core.Step(time.Now())
	for _, a := range do {
		switch {
		case a.Send != nil:
			s.send(a.Send)
		case a.Close != nil:
			if c := s.conns[a.Close.Conn]; c != nil {
				c.end(status.Error(codes.Aborted, a.Close.Reason))
			}
		case a.Job != nil:
			s.do(ctx, jobs, a.Job)
		case a.Cancel != nil:
			s.jobs[a.Cancel]()
		}
	}
	return next
}

// do has a job done, and its end taken over.
func (s *Server) do(ctx context.Context, jobs *sync.WaitGroup, j *Job) {
	ctx, cancel := context.WithCancel(ctx)
	s.jobs[j] = cancel
	jobs.Go(func() {
		defer cancel()
		err := s.cfg.Do(ctx, j)
		if err != nil && ctx.Err() == nil {
			s.warn(j, err)
		}
		s.happens(func(c *Core, now time.Time) {
			delete(s.jobs, j)
			c.Done(now, j, err)
		})
	})
}

func (s *Server) warn(j *Job, err error) {
	if j.Group != "" {
		s.cfg.Log.Warn("a group is not as its plugin wants it", "key", j.Group, "plugin", j.Plugin, "err", err)
		return
	}
	s.cfg.Log.Warn("an interface's endpoint is not as its plugin wants it", "interface", j.Link, "plugin", j.Plugin, "err", err)
}

// send has a message sent. Who does not take it is disconnected: when it comes again, it is told all that counts.
func (s *Server) send(m *Send) {
	c := s.conns[m.To]
	if c == nil {
		return
	}
	if i := m.Say.GetAsk().GetInterface(); i != nil {
		// The kernel says nothing of another alias while a link is down [tried].
		if l, err := s.cfg.Link(i.GetName()); err == nil && uint32(l.Index) == i.GetIndex() {
			i.Mac, i.Alias = l.MAC, l.Alias
		}
	}
	select {
	case c.out <- m.Say:
	default:
		c.end(status.Error(codes.ResourceExhausted, "the plugin does not read what it is told"))
	}
}

// serve listens for plugins.
func (s *Server) serve(ctx context.Context) error {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(4), grpc.ConnectionTimeout(askWait),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: askWait}))
	endpointpb.RegisterEndpointsServer(g, s)
	l, err := serve.Listen(serve.At{Network: "unix", Address: s.cfg.Socket})
	if err != nil {
		s.cfg.Log.Error("no plugins of the Endpoint API are served", "socket", s.cfg.Socket, "err", err)
		<-ctx.Done()
		return ctx.Err()
	}
	defer context.AfterFunc(ctx, g.Stop)()
	err = g.Serve(l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Connect implements the Endpoint API.
func (s *Server) Connect(stream grpc.BidiStreamingServer[endpointpb.FromPlugin, endpointpb.FromAgent]) error {
	id, c, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave(id)
	go s.receive(id, c, stream)
	for {
		select {
		case m := <-c.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-c.gone:
			return c.why
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *Server) enter() (Conn, *conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= MaxPlugins {
		return 0, nil, status.Errorf(codes.ResourceExhausted, "%d plugins are connected, and no more may", len(s.conns))
	}
	s.last++
	c := &conn{out: make(chan *endpointpb.FromAgent, maxOut), gone: make(chan struct{})}
	s.conns[s.last] = c
	return s.last, c, nil
}

func (s *Server) leave(id Conn) {
	s.happens(func(c *Core, _ time.Time) {
		delete(s.conns, id)
		c.Leave(id)
	})
}

// receive takes what a plugin says, until it ends.
func (s *Server) receive(id Conn, c *conn, stream grpc.BidiStreamingServer[endpointpb.FromPlugin, endpointpb.FromAgent]) {
	registered := false
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			c.end(err)
			return
		}
		if r := m.GetRegister(); r != nil {
			s.happens(func(core *Core, now time.Time) { err = core.Register(now, id, r) })
			registered = true
			if err == nil {
				s.cfg.Log.Info("a plugin has registered", "plugin", r.GetName(), "orchestrator", r.GetOrchestrator())
			}
		} else if !registered {
			err = errors.New("it has not registered")
		} else {
			err = s.take(id, m)
		}
		if err != nil {
			c.end(status.Error(codes.InvalidArgument, err.Error()))
			return
		}
	}
}

// take has the core take over a message.
func (s *Server) take(id Conn, m *endpointpb.FromPlugin) (err error) {
	s.happens(func(c *Core, now time.Time) { err = c.Take(now, id, m) })
	return err
}

// SocketOf is where plugins reach the agent that has a socket; none: nowhere.
func SocketOf(agent string) string {
	if agent == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(agent), "endpoint.sock")
}
